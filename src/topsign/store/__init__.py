"""Storage: segments of entries, snapshots, and stores in memory or in a folder."""

from __future__ import annotations

from .extras import ORIGINAL_TYPES, pack_originals, unpack_originals
from .memory import Change, MemoryStore, Store, Table
from .segments import Arrays, Columns, Segment, make_segments, merge_segments, take_positions
from .snapshot import Snapshot
from .stores import Path, check_place, exists, open_store, resolve, save_store, store_for_recipe
from .texts import Metadata, Note, TextIds

# The store in a folder, FolderStore, is in folder_store: it is imported by the first durable index.

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
