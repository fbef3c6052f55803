"""Storage: segments of entries, snapshots of them, and the stores that keep them in memory or in a file."""

from __future__ import annotations

from .memory import Change, MemoryStore, Store
from .metadata import Metadata
from .names import Names
from .segments import COLUMNS, Arrays, Segment, make_segments, merge_segments
from .snapshot import Snapshot

# The store in a file, FileStore, is in lmdb_store: LMDB is imported by the first durable index.

__all__ = [
    "COLUMNS",
    "Arrays",
    "Change",
    "MemoryStore",
    "Metadata",
    "Names",
    "Segment",
    "Snapshot",
    "Store",
    "make_segments",
    "merge_segments",
]
