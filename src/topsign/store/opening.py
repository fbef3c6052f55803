"""Creation and opening of stores in memory, in a local folder or in a bucket."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .._checks import check_count, check_real
from .._files import Record
from .._system import why
from ..errors import StorageError
from ..families import Recipe
from .backends import FOLDERS, Backend, Bucket, LocalFolder, UnsettledError, is_url, make_folder
from .folder_store import FolderStore, segment_limit
from .memory import MemoryStore, Store, Table
from .segments import Snapshot, merge_segments
from .stored_columns import FileWriter, write_segment
from .versions import FileRecord, Manifest, SupersededError, Versions, new_name

Path = str | os.PathLike[str]


def create_store(path: str, recipe: Recipe, snapshot: Snapshot, **parts: Any) -> None:
    """Create a store with the entries of a snapshot atomically; raise FileExistsError if the name exists.

    ``parts`` are those of :func:`write_first`.
    """
    try:
        if is_url(path):
            bucket = Bucket(path)
            bucket.check_exclusive()
            write_first(bucket, recipe, snapshot, **parts)
        else:
            make_folder(path, lambda folder: write_first(folder, recipe, snapshot, **parts))
    except (FileExistsError, StorageError):
        raise
    except UnsettledError as error:
        raise StorageError(path, "folder", f"exists, but may not survive a power loss: {why(error)}") from None
    except OSError as error:
        raise StorageError(path, "folder", f"cannot be created: {why(error)}") from None


def write_first(
    backend: Backend,
    recipe: Recipe,
    snapshot: Snapshot,
    *,
    next_id: int,
    sources: dict[str, Record],
    originals: str | None = None,
    tables: Mapping[str, Table] | None = None,
) -> None:
    """Write the first version of a new store; raise FileExistsError if another client has written one."""
    from importlib.metadata import version as version_of  # slow to import

    writer = FileWriter(backend)
    text = json.dumps(recipe.to_json(), separators=(",", ":"), allow_nan=False).encode()
    file = FileRecord("recipes", new_name(), len(text), zlib.crc32(text), 0)
    backend.create(file.path, [text])
    parts = []
    for group in snapshot.groups(limit=segment_limit(recipe, originals)):
        merged = merge_segments(snapshot.segments[group])
        parts.append(write_segment(writer, merged.columns))
    manifest = Manifest(
        file,
        library=version_of("topsign"),
        next_id=next_id,
        segments=tuple(parts),
        sources=sources,
        originals=originals,
        tables={name: writer.write("segments", table, 0) for name, table in (tables or {}).items()},
    )
    backend.sync(FOLDERS)
    try:
        Versions(backend).commit(manifest)
    except SupersededError:
        for one in manifest.files:
            backend.delete(one.path)
        raise FileExistsError(errno.EEXIST, "exists already", backend.path) from None


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
    return FolderStore(
        _backend_at(resolve(path)),
        readonly=readonly,
        timeout=_check_timeout(timeout),
        version=None if version is None else check_count(version, "version"),
        keep_versions=check_count(keep_versions, "keep_versions"),
        optimistic=optimistic,
    )


def _backend_at(target: str) -> Backend:
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
    check_absent(path)
    check_place(path, None)
    snapshot = store.snapshot
    next_id = max(store.next_id, int(snapshot.ids.max(initial=-1)) + 1)
    parts = {"sources": store.sources, "originals": store.originals, "tables": tables}
    create_store(resolve(path), recipe, snapshot, next_id=next_id, **parts)
