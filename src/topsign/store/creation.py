"""Creation of a store: its first version, with a recipe and the entries of a snapshot."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Mapping
from importlib.metadata import version as version_of
from typing import Any

import numpy as np

from .._files import Record
from .._system import why
from ..errors import StorageError
from ..families import Recipe
from . import segments
from .backend import FOLDERS, Backend, UnsettledError
from .bucket import Bucket, is_url
from .local import make_folder
from .manifest import FileRecord, Manifest, new_name
from .memory import Table
from .segments import merge_segments
from .snapshot import Snapshot
from .stored_columns import write_segment
from .stored_file import FileWriter
from .versions import SupersededError, Versions

SEGMENT_BYTES = 2**25
"""Maximum bytes of codes per new segment, which bounds the memory for copies."""

ORIGINALS_BYTES = 2**27
"""Maximum bytes of originals per new segment."""


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


def segment_limit(recipe: Recipe, originals: str | None = None) -> int:
    """Return the maximum number of entries per segment."""
    limits = [segments.MERGED_ENTRIES, SEGMENT_BYTES // recipe.code_bytes]
    if originals is not None:
        limits.append(ORIGINALS_BYTES // (np.dtype(originals).itemsize * recipe.n_features))
    return max(1, min(limits))
