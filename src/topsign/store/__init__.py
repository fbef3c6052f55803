"""Storage: segments of entries, snapshots, and stores in memory or in a folder."""

from __future__ import annotations

from .folder_store import Path, Store, check_place, exists, open_store, resolve, save_store, store_for_recipe
from .memory import Change, MemoryStore, StoreVersion, Table
from .segments import (
    ORIGINAL_TYPES,
    Arrays,
    Columns,
    Metadata,
    Note,
    Segment,
    Snapshot,
    TextIds,
    make_segments,
    merge_segments,
    pack_originals,
    take_positions,
    unpack_originals,
)

__all__ = [
    "ORIGINAL_TYPES",
    "Arrays",
    "Change",
    "Columns",
    "MemoryStore",
    "Metadata",
    "Note",
    "Path",
    "Segment",
    "Snapshot",
    "Store",
    "StoreVersion",
    "Table",
    "TextIds",
    "check_place",
    "exists",
    "make_segments",
    "merge_segments",
    "open_store",
    "pack_originals",
    "resolve",
    "save_store",
    "store_for_recipe",
    "take_positions",
    "unpack_originals",
]
