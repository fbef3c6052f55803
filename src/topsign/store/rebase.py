"""Rebasing: whether a change made on an older version still holds on the newest one.

Clients of a shared store do not exclude each other. A change is made on the newest version. It holds if the entries
that it removes or replaces are those that its client last saw; entries that others added or changed do not matter.
"""

from __future__ import annotations

import numpy as np

from .._arrays import Booleans, Int64
from .snapshot import Snapshot
from .stored_columns import StoredColumns


def unchanged_entries(now: Snapshot, rows: Int64, then: Snapshot, column_names: tuple[str, ...]) -> Booleans:
    """Return whether the entries at these rows had the same content in an older snapshot."""
    ids = now.gather("ids", rows).astype(np.int64)
    before = then.locate(ids)
    same = before >= 0
    known: dict[object, int] = {}
    files, positions = _positions(now, rows, known)
    files_then, positions_then = _positions(then, before, known)
    moved = same & ((files != files_then) | (positions != positions_then))
    if moved.any():
        here, there = rows[moved], before[moved]
        equal = np.array(now.texts(here), object) == np.array(then.texts(there), object)
        for name in ("codes", *column_names):
            values = now.gather(name, here) == then.gather(name, there)
            equal &= values.reshape(len(here), -1).all(axis=1)
        same[moved] = equal
    return same


def _positions(snapshot: Snapshot, rows: Int64, known: dict[object, int]) -> tuple[Int64, Int64]:
    """Return the file that holds each entry, as an index into ``known``, and the entry's position there."""
    owners = np.searchsorted(snapshot.starts, rows, side="right") - 1
    files = [known.setdefault(_key(segment.columns), len(known)) for segment in snapshot.segments]
    return np.array([*files, -1], np.int64)[owners], rows - snapshot.starts[owners]


def _key(columns: object) -> object:
    if not isinstance(columns, StoredColumns):
        return id(columns)
    record = columns.record
    return record.file.name, record.metadata and record.metadata.name
