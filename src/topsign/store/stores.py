"""Creation and opening of stores in memory, in a local folder or in a bucket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from .._checks import check_count, check_real
from ..errors import StorageError
from ..families import Recipe
from .backend import Backend
from .bucket import Bucket, is_url
from .memory import MemoryStore, Store, Table
from .snapshot import Snapshot

Path = str | os.PathLike[str]


def resolve(path: Path) -> str:
    """Return the canonical path without symbolic links, or the URL; raise if it cannot name a folder."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path, got {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"path must be a text that is not empty and has no null character, got {text!r}")
    return text.rstrip("/") if is_url(text) else os.path.realpath(text.removeprefix("file://"))


def exists(path: Path) -> bool:
    """Return whether this path or URL exists."""
    target = resolve(path)
    if not is_url(target):
        return os.path.lexists(target)
    try:
        return bool(Bucket(target).list("versions"))
    except FileNotFoundError:
        return False


def store_for_recipe(
    recipe: Recipe, *, path: Path | None, timeout: float | None, originals: str | None = None
) -> Store:
    """Create a store for codes of this recipe, or open one that another process has just created."""
    check_place(path, timeout)
    if path is None:
        return MemoryStore(originals)
    from .creation import create_store

    with suppress(FileExistsError):
        create_store(resolve(path), recipe, Snapshot(), next_id=0, sources={}, originals=originals)
    return open_store(path, readonly=False, timeout=timeout)


def check_place(path: Path | None, timeout: float | None) -> None:
    """Raise if no store can be created: a timeout without a path, or a path without a parent folder."""
    if path is None:
        if timeout is not None:
            raise ValueError(f"timeout is for a folder that others may write, got timeout={timeout!r} without a path")
        return
    target = resolve(path)
    folder = os.path.dirname(target)
    if not is_url(target) and not os.path.isdir(folder):
        raise StorageError(target, "folder", f"cannot be created: the folder {folder} does not exist; create it first")
    _check_timeout(timeout)


def _check_timeout(timeout: float | None) -> float | None:
    return None if timeout is None else check_real(timeout, "timeout", minimum=0)


def open_store(
    path: Path,
    *,
    readonly: bool,
    timeout: float | None,
    version: int | None = None,
    keep_versions: int = 1,
    optimistic: bool = False,
) -> Store:
    """Open the store in an existing folder."""
    from .folder_store import FolderStore

    return FolderStore(
        _backend_at(resolve(path)),
        readonly=readonly,
        timeout=_check_timeout(timeout),
        version=None if version is None else check_count(version, "version"),
        keep_versions=check_count(keep_versions, "keep_versions"),
        optimistic=optimistic,
    )


def _backend_at(target: str) -> Backend:
    from .local import LocalFolder

    if is_url(target):
        return Bucket(target)
    try:
        backend = LocalFolder(target)
    except OSError:
        raise StorageError(target, "folder", "does not exist") from None
    if not os.path.isdir(target):
        raise StorageError(target, "folder", "is not a topsign index, which is a folder")
    return backend


def check_absent(path: Path) -> None:
    """Raise FileExistsError if the path exists."""
    if exists(path):
        raise FileExistsError(f"{path} exists; choose another name, or remove it first")


def save_store(path: Path, recipe: Recipe, store: Store, *, tables: Mapping[str, Table]) -> None:
    """Write the entries of a store to a new folder; raise FileExistsError if another process has created it."""
    from .creation import create_store

    check_absent(path)
    check_place(path, None)
    snapshot = store.snapshot
    next_id = max(store.next_id, int(snapshot.ids.max(initial=-1)) + 1)
    parts = {"sources": store.sources, "originals": store.originals, "tables": tables}
    create_store(resolve(path), recipe, snapshot, next_id=next_id, **parts)
