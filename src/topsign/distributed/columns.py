"""The columns of a shard, filled part after part on a worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array, Int64
from .._checks import as_signals, check_ids, check_metadata, listed
from .._rows import Rows
from ..encoding import encode
from ..index.ids import are_texts, check_names
from ..index.results import Note
from ..index.storage import Arrays, make_segments, merge_segments
from ..recipe import Recipe
from .plan import PlannedShard

ENCODED_ROWS = 8192
"""Signals encoded at a time, whose codes are held besides those of the shard."""


class BlockRows(Rows):
    """Rows of a block, numbered as in the whole array."""

    def __init__(self, values: Array, start: int) -> None:
        self._values, self._start = as_signals(values), start
        super().__init__((start + len(values), values.shape[1]), values.dtype)

    def read(self, start: int, stop: int) -> Array:
        return self._values[start - self._start : stop - self._start]


class ShardColumns:
    """The columns of a planned shard."""

    def __init__(self, recipe: Recipe, plan: PlannedShard) -> None:
        self._recipe, self._filled = recipe, 0
        n_entries = plan.n_entries
        norms, scales = (np.empty(n_entries, np.float32) if recipe.beside else None for _ in range(2))
        codes = np.empty((n_entries, recipe.layout.code_bytes), np.uint8)
        self._arrays = Arrays(np.arange(plan.first_id, plan.first_id + n_entries), codes, norms, scales, None)
        self._ids: list[Any] = []
        self._texts: list[bytes] = []

    def take(self, signals: Any, part: slice) -> None:
        """Encodes a part of signals that are read as they are sliced."""
        for start in range(part.start, part.stop, ENCODED_ROWS):
            rows = slice(start, min(start + ENCODED_ROWS, part.stop))
            # One thread: a worker's other threads have shards of their own.
            made = encode(self._recipe, signals, part=rows, n_threads=1)
            filled = slice(self._filled, self._filled + rows.stop - rows.start)
            columns: tuple[Any, ...] = (self._arrays.codes, self._arrays.norms, self._arrays.scales)
            for column, values in zip(columns, (made.codes, made.norms, made.scales), strict=True):
                if column is not None:
                    column[filled] = values
            self._filled = filled.stop

    def note(self, n_entries: int, *, ids: list[Any] | None, metadata: list[Note] | None) -> None:
        """Takes the ids and metadata of so many further entries."""
        self._ids += ids or []
        self._texts += check_metadata(metadata, n_entries) or [b""] * n_entries

    def finished(self) -> Arrays:
        """All columns, in ascending order of id."""
        whole, ids = self._arrays, self._ids
        names = check_names(ids, len(whole)) if are_texts(ids) else None
        numbers = _check_numbers(ids) if ids and names is None else whole.ids
        texts = self._texts if any(self._texts) else None
        made = make_segments(numbers, whole.codes, whole.norms, whole.scales, texts, names)
        found: Any = (made[0] if len(made) == 1 else merge_segments(made)).columns
        columns: Arrays = found
        return columns


def _check_numbers(ids: list[Any]) -> Int64:
    """Ids of a column of integers."""
    empty = next((row for row, one in enumerate(ids) if one is None), None)
    if empty is not None:
        raise ValueError(f"ids must be integers or texts, but entry {empty} of this shard has none")
    numbers = check_ids(ids)
    unique, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"ids must differ, but {listed(unique[counts > 1])} given more than once")
    return numbers
