"""Changes of the entries of an index, each within one transaction of its store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .._checks import check_metadata
from ..search import pruned
from ..store import Change, Note
from .ids import rows_of


def update_metadata(change: Change, ids: npt.ArrayLike, notes: Sequence[Note]) -> None:
    """Replace the metadata of entries; None takes it away."""
    rows = rows_of(change.snapshot, ids)
    texts = check_metadata(notes, len(rows)) or [b""] * len(rows)
    if len(np.unique(rows)) != len(rows):
        raise ValueError("ids must differ: each entry has one metadata")
    if rows.size:
        change.update_metadata(rows, texts)


def erase(change: Change, ids: npt.ArrayLike) -> None:
    """Remove entries, their signals in the calibration sample, and every file that holds them."""
    change.erase(rows_of(change.snapshot, ids))
    change.tables = pruned(change.tables, change.snapshot)


def compact(change: Change) -> None:
    """Drop removed entries, and merge small segments."""
    change.compact()
    change.tables = pruned(change.tables, change.snapshot)
