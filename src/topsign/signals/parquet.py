"""Signals in Parquet files: a column of lists of one length, decoded a batch at a time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals, import_pyarrow
from .._rows import Rows
from ..errors import StorageError
from .contents import Described, choose, described, reading
from .place import Place

BATCH_ROWS = 1024
"""Rows decoded at a time."""


def describe(place: Place, array: str | None) -> Described:
    """Number and length of the signals in the column chosen."""
    with place.open() as file:
        table = _opened(place, file)
        column = choose(place, _list_columns(table), array, "column of lists")
        n_rows = table.metadata.num_rows
        first = next(_batches(place, table, 0, column)) if n_rows else np.empty((0, 0), np.float32)
    return described(place, (n_rows, first.shape[1]), first.dtype, column)


def rows(place: Place, array: str | None) -> Rows:
    """The signals."""
    found = describe(place, array)
    return ParquetRows(place, found)


class ParquetRows(Rows):
    """Rows of a column of lists, decoded from the row group where reading begins."""

    def __init__(self, place: Place, found: Described) -> None:
        super().__init__((found.n_signals, found.n_features), found.dtype)
        self._place, self._column = place, str(found.array)
        file = place.open()
        weakref.finalize(self, file.close)
        self._table = _opened(place, file)
        self._batches: Iterator[Array] | None = None
        self._held = np.empty((0, self.shape[1]), self.dtype)
        self._at = 0  # row of the file at which what is held begins

    def read(self, start: int, stop: int) -> Array:
        if self._batches is None or start < self._at:
            self._seek(start)
        assert self._batches is not None
        while self._at + len(self._held) < stop:
            batch = next(self._batches)
            if batch.shape[1] != self.shape[1]:
                row = self._at + len(self._held)
                what = f"row {row} has {batch.shape[1]} features, row 0 has {self.shape[1]}"
                raise StorageError(self._place.url, f"column {self._column}", f"signals differ in length: {what}")
            skipped = max(0, min(len(self._held), start - self._at))
            self._held = np.concatenate([self._held[skipped:], batch])
            self._at += skipped
        return self._held[start - self._at : stop - self._at]

    def _seek(self, row: int) -> None:
        self._at, group = 0, 0
        while self._at + (size := self._table.metadata.row_group(group).num_rows) <= row:
            self._at, group = self._at + size, group + 1
        self._held = self._held[:0]
        self._batches = _batches(self._place, self._table, group, self._column)


def _opened(place: Place, file: Any) -> Any:
    import_pyarrow(f"reading {place.name}")
    import pyarrow.parquet

    with reading(place):
        return pyarrow.parquet.ParquetFile(file)


def _list_columns(table: Any) -> list[str]:
    import pyarrow

    kinds = (pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list)
    return [field.name for field in table.schema_arrow if any(is_kind(field.type) for is_kind in kinds)]


def _batches(place: Place, table: Any, first_group: int, column: str) -> Iterator[Array]:
    """Batches of rows from the beginning of a row group to the end."""
    import pyarrow.compute

    section = f"column {column}"
    row = sum(table.metadata.row_group(group).num_rows for group in range(first_group))
    groups = list(range(first_group, table.num_row_groups))
    for batch in table.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=[column]):
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
