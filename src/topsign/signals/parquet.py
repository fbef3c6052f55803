"""Signals in Parquet files: a column of lists or numeric columns, decoded in batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals, import_pyarrow
from .._rows import Rows
from ..errors import StorageError
from .contents import Described, described, reading
from .place import Place
from .tables import check_columns, is_list, stack_columns, vector_columns

BATCH_ROWS = 1024
"""Rows per decoded batch."""


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return the number of signals, their length and their dtype."""
    with place.open() as file:
        table = _opened(place, file)
        chosen = _chosen(place, table, array, aside)
        n_rows = table.metadata.num_rows
        first = next(_batches(place, table, 0, chosen)) if n_rows else np.empty((0, 0), np.float32)
        names = _names_of(table, chosen)
    array = chosen[0] if len(chosen) == 1 else None
    return described(place, (n_rows, first.shape[1]), first.dtype, array, names)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Rows:
    """Return the signals."""
    return ParquetRows(place, describe(place, array, aside), array, aside)


def columns(place: Place, names: Sequence[str], rows: slice | None = None) -> dict[str, Any]:
    """Return the named columns, or some rows of them, reading only the row groups involved."""
    with place.open() as file:
        table = _opened(place, file)
        check_columns(table.schema_arrow.names, names, place.url)
        with reading(place):
            groups, first = _groups_of(table, rows)
            found = table.read_row_groups(groups, columns=list(names))
    if rows is not None:
        found = found.slice(rows.start - first, rows.stop - rows.start)
    return {name: found.column(name) for name in names}


def _groups_of(table: Any, rows: slice | None) -> tuple[list[int], int]:
    """Return the row groups that hold these rows, and the first row of the first group."""
    groups, start, first = list[int](), 0, 0
    for group in range(table.num_row_groups):
        end = start + table.metadata.row_group(group).num_rows
        if rows is None or (start < rows.stop and end > rows.start):
            first = start if not groups else first
            groups.append(group)
        start = end
    return groups, first


def _chosen(place: Place, table: Any, array: str | None, aside: Sequence[str]) -> list[str]:
    check_columns(table.schema_arrow.names, aside, place.url)
    return vector_columns(table.schema_arrow, array, aside, place.url)


def _names_of(table: Any, chosen: Sequence[str]) -> tuple[str, ...] | None:
    """Return the feature names if each feature is a column."""
    return None if is_list(table.schema_arrow.field(chosen[0]).type) else tuple(chosen)


class ParquetRows(Rows):
    """Signals of a Parquet file, decoded from the row group that holds the first requested row."""

    def __init__(self, place: Place, found: Described, array: str | None, aside: Sequence[str]) -> None:
        super().__init__((found.n_signals, found.n_features), found.dtype)
        self._place = place
        file = place.open()
        weakref.finalize(self, file.close)
        self._table = _opened(place, file)
        self._columns = _chosen(place, self._table, array, aside)
        self.names = _names_of(self._table, self._columns)
        sizes = [self._table.metadata.row_group(group).num_rows for group in range(self._table.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])  # of the row groups
        self._batches: Iterator[Array] | None = None
        self._held: list[Array] = []  # decoded batches, consecutive
        self._at = self._end = 0  # file rows of the first decoded row and after the last one

    def read(self, start: int, stop: int) -> Array:
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        if self._batches is None or start < self._at or self._starts[group] > self._end:
            self._seek(group)
        assert self._batches is not None
        while self._end < stop:
            self._discard_before(start)
            batch = next(self._batches)
            if batch.shape[1] != self.shape[1]:
                what = f"row {self._end} has {batch.shape[1]} features, row 0 has {self.shape[1]}"
                raise StorageError(self._place.url, f"column {self._columns[0]}", f"signals differ in length: {what}")
            self._held.append(batch)
            self._end += len(batch)
        self._discard_before(start)
        return self._copied(start, stop)

    def _discard_before(self, start: int) -> None:
        """Release the batches that end before row ``start``."""
        while self._held and self._at + len(self._held[0]) <= start:
            self._at += len(self._held.pop(0))

    def _copied(self, start: int, stop: int) -> Array:
        """Return rows of the batches held in a new array."""
        values, at = np.empty((stop - start, self.shape[1]), self.dtype), self._at
        for batch in self._held:
            first, last = max(start, at), min(stop, at + len(batch))
            if first < last:
                values[first - start : last - start] = batch[first - at : last - at]
            at += len(batch)
        return values

    def _seek(self, group: int) -> None:
        """Continue at the beginning of a row group."""
        self._at = self._end = int(self._starts[group])
        self._held = []
        self._batches = _batches(self._place, self._table, group, self._columns)


def _opened(place: Place, file: Any) -> Any:
    import_pyarrow(f"reading {place.name}")
    import pyarrow.parquet

    with reading(place):
        return pyarrow.parquet.ParquetFile(file)


def _batches(place: Place, table: Any, first_group: int, chosen: Sequence[str]) -> Iterator[Array]:
    """Yield batches of rows from the beginning of a row group to the end of the file."""
    import pyarrow.compute

    section = f"column {', '.join(chosen[:3])}"
    row = sum(table.metadata.row_group(group).num_rows for group in range(first_group))
    groups = list(range(first_group, table.num_row_groups))
    for batch in table.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=list(chosen)):
        if not is_list(batch.schema.field(chosen[0]).type):
            with reading(place, section):
                yield as_signals(stack_columns(batch, chosen, place.name))
            row += len(batch)
            continue
        values = batch.column(0)
        flat = values.flatten()
        if values.null_count or flat.null_count:
            where = f"between rows {row} and {row + len(values) - 1}"
            raise StorageError(place.url, section, f"has empty cells {where}; drop or fill them first")
        lengths = np.asarray(pyarrow.compute.list_value_length(values))
        other = np.flatnonzero(lengths != lengths[0])
        if other.size:
            what = f"row {row + other[0]} has {lengths[other[0]]}, row {row} has {lengths[0]}"
            raise StorageError(place.url, section, f"signals differ in length: {what}")
        with reading(place, section):
            yield as_signals(flat.to_numpy(zero_copy_only=False).reshape(len(values), -1))
        row += len(values)
