"""Choice of a store: in memory, in a new folder, or in a folder that exists."""

from __future__ import annotations

import os

from .._checks import check_count, check_real
from ..errors import StorageError
from ..families import Recipe
from .memory import MemoryStore, Store

Path = str | os.PathLike[str]


def store_for_recipe(
    recipe: Recipe, *, path: Path | None, timeout: float | None, originals: str | None = None
) -> Store:
    """Return a new store for codes of this recipe; one that another process creates at the same moment is opened."""
    check_place(path, timeout)
    if path is None:
        return MemoryStore(originals)
    from .folder_store import FolderStore

    FolderStore.create(os.path.realpath(path), recipe, originals)
    return open_store(path, readonly=False, timeout=timeout)


def check_place(path: Path | None, timeout: float | None) -> None:
    """Raise if no store can be made here: a timeout without a path, or a path without a parent folder."""
    if path is None:
        if timeout is not None:
            raise ValueError(f"timeout is for a folder that others may write, got timeout={timeout!r} without a path")
        return
    target = check_path(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise StorageError(target, "folder", f"cannot be made: the folder {folder} does not exist; make it first")
    _check_timeout(timeout)


def check_path(path: Path) -> str:
    """Return the one name of a path for all who open it; raise unless it can name a folder."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path, got {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"path must be a text that is not empty and has no null character, got {text!r}")
    return os.path.realpath(text)


def _check_timeout(timeout: float | None) -> float | None:
    return None if timeout is None else check_real(timeout, "timeout", minimum=0)


def open_store(
    path: Path, *, readonly: bool, timeout: float | None, version: int | None = None, keep_versions: int = 1
) -> Store:
    """Return the store in a folder that exists."""
    from .folder_store import FolderStore
    from .local import LocalFolder

    target = check_path(path)
    try:
        backend = LocalFolder(target)
    except OSError:
        raise StorageError(target, "folder", "does not exist") from None
    if not os.path.isdir(target):
        raise StorageError(target, "folder", "is a file; a topsign index is a folder")
    return FolderStore(
        backend,
        readonly=readonly,
        timeout=_check_timeout(timeout),
        version=None if version is None else check_count(version, "version"),
        keep_versions=check_count(keep_versions, "keep_versions"),
    )


def check_absent(path: Path) -> None:
    """Raise FileExistsError if something is at the path."""
    check_path(path)
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists; choose another name, or remove it first")


def save_store(path: Path, recipe: Recipe, store: Store) -> None:
    """Write the entries of a store into a new folder; FileExistsError if another process made one meanwhile."""
    from .folder_store import FolderStore

    check_absent(path)
    check_place(path, None)
    snapshot = store.snapshot
    next_id = max(store.next_id, int(snapshot.ids.max(initial=-1)) + 1)
    parts = {"sources": store.sources, "originals": store.originals, "tables": store.tables}
    FolderStore.write(os.path.realpath(path), recipe, snapshot, next_id=next_id, **parts)
