"""Tables of signals: vectors in a column of lists or in numeric columns, with optional id and metadata columns.

Parquet files are decoded in batches; Arrow, Feather and CSV files are read completely. ``pyarrow.dataset`` would serve
all of them, but it decodes whole row groups: ``topsign build`` of one row group of 200,000 signals of 384 float32
features reached 1,881 MB of resident memory with its scanner (pyarrow 26, buffered, no read-ahead) and 197 MB so, and
201 MB instead of 315 MB with row groups of 10,000.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO, Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals, import_pyarrow
from .._rows import NamedRows, Rows
from ..errors import StorageError
from .place import Place, reading

SUFFIXES = (".parquet", ".arrow", ".feather", ".csv")

BATCH_ROWS = 1024
"""Rows per decoded batch."""

READ_BYTES = 1 << 20
"""Bytes of a Parquet column that are read at a time."""

Note = dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class TableSignals:
    """Signals of a table, with ids and metadata if their columns were named."""

    signals: Array | Rows  #: signals, one row each; a single one may be a vector
    ids: list[Any] | None  #: ids of entries
    metadata: list[Note] | None  #: A dict per entry, or None for an entry without metadata


def from_table(
    table: Any,
    *,
    vector_column: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
) -> TableSignals:
    """Read signals from a pandas or Polars frame, an Arrow ``table``, or any object with Arrow's stream interface.

    Vectors are lists of equal length in ``vector_column`` (by default the only column of lists), or the rows of all
    numeric columns that hold neither ids (``id_column``) nor metadata (``metadata_columns``).
    """
    arrow = import_pyarrow("tables are read with pyarrow")
    try:
        whole = table if isinstance(table, arrow.Table) else arrow.table(table)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"table must be a pandas or Polars frame or an Arrow table, got {type(table).__name__}: {error}"
        ) from None
    aside = [*([id_column] if id_column else []), *metadata_columns]
    check_columns(whole.schema.names, aside, "the table")
    chosen = vector_columns(whole.schema, vector_column, aside, "the table")
    if is_list(whole.schema.field(chosen[0]).type):
        values: Array | Rows = as_signals(whole.column(chosen[0]))
    else:
        values = NamedRows(as_signals(stack_columns(whole, chosen, "the table")), chosen)
    ids = plain_values(whole.column(id_column)) if id_column else None
    return TableSignals(values, ids, notes_of({name: whole.column(name) for name in metadata_columns}))


def check_columns(names: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise ValueError if a column is missing."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ValueError(f"{where} has no column {', '.join(map(repr, missing))}; it has {', '.join(names)}")


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list type."""
    import pyarrow

    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def vector_columns(schema: Any, wanted: str | None, aside: Sequence[str], where: str) -> list[str]:
    """Return the column of lists that holds the vectors, or the numeric columns that hold their features."""
    import pyarrow

    kinds = {field.name: field.type for field in schema if field.name not in aside}
    lists = [name for name, kind in kinds.items() if is_list(kind)]
    if wanted is not None:
        check_columns(schema.names, [wanted], where)
        if not is_list(schema.field(wanted).type):
            raise ValueError(
                f"{where}: column {wanted!r} holds {schema.field(wanted).type}, not lists of numbers; it has "
                f"{', '.join(f'{name} ({kind})' for name, kind in kinds.items())}"
            )
        return [wanted]
    if len(lists) > 1:
        raise ValueError(
            f"{where} has {len(lists)} columns of lists ({', '.join(lists)}); choose one with vector_column"
        )
    if lists:
        return lists
    types = pyarrow.types
    numeric = [name for name, kind in kinds.items() if types.is_integer(kind) or types.is_floating(kind)]
    if len(numeric) < 2:
        have = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise ValueError(
            f"{where} has no column of lists and {len(numeric)} numeric columns to take as features; it has {have}: "
            "store the vectors as lists of numbers, or as one numeric column per feature"
        )
    return numeric


def stack_columns(table: Any, names: Sequence[str], where: str) -> Array:
    """Stack numeric columns of a table or batch into a matrix."""
    columns = []
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise ValueError(f"{where}: column {name!r} has {column.null_count} empty cells; drop or fill them first")
        columns.append(column.to_numpy(zero_copy_only=False) if not hasattr(column, "chunks") else column.to_numpy())
    dtype = np.result_type(*(column.dtype for column in columns), np.float32)
    return np.column_stack([column.astype(dtype, copy=False) for column in columns])


def notes_of(columns: dict[str, Any]) -> list[Note] | None:
    """Return one dict of non-null values per row, or None without columns."""
    if not columns:
        return None
    rows = zip(*map(plain_values, columns.values()), strict=True)
    return [{name: one for name, one in zip(columns, row, strict=True) if one is not None} or None for row in rows]


def plain_values(column: Any) -> list[Any]:
    """Return values that JSON can represent; dates become strings, and NaN and infinities become None."""
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class TableRows(Rows):
    """Signals of a table file, decoded from the row group that holds the first requested row."""

    def __init__(self, place: Place, array: str | None, aside: Sequence[str]) -> None:
        self._place = place
        file = place.open()
        weakref.finalize(self, file.close)
        self._table = _open_table(place, file)
        check_columns(_schema(self._table).names, aside, place.url)
        self._columns = vector_columns(_schema(self._table), array, aside, place.url)
        self._starts = _group_starts(self._table)
        first = next(self._decoded(0), np.empty((0, 0), np.float32))
        super().__init__((self._starts[-1], first.shape[1]), first.dtype)
        has_lists = is_list(_schema(self._table).field(self._columns[0]).type)
        self.column = self._columns[0] if has_lists else None
        self.names = None if has_lists else tuple(self._columns)
        self._batches: Iterator[Array] | None = None
        self._held: list[Array] = []  # decoded batches, consecutive
        self._at = self._end = 0  # file rows of the first decoded row and after the last one

    def read(self, start: int, stop: int) -> Array:
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        if self._batches is None or start < self._at or self._starts[group] > self._end:
            self._at = self._end = self._starts[group]
            self._held, self._batches = [], self._decoded(group)
        while self._end < stop:
            self._discard_before(start)
            batch = next(self._batches)
            if batch.shape[1] != self.shape[1]:
                what = f"row {self._end} has {batch.shape[1]} features, row 0 has {self.shape[1]}"
                raise StorageError(self._place.url, f"column {self._columns[0]}", f"signals differ in length: {what}")
            self._held.append(batch)
            self._end += len(batch)
        self._discard_before(start)
        held = np.concatenate([np.empty((0, self.shape[1]), self.dtype), *self._held])
        return held[start - self._at : stop - self._at]

    def _discard_before(self, start: int) -> None:
        """Release the batches that end before row ``start``."""
        while self._held and self._at + len(self._held[0]) <= start:
            self._at += len(self._held.pop(0))

    def _decoded(self, group: int) -> Iterator[Array]:
        """Yield batches of signals from the beginning of a row group to the end of the file."""
        section, row = f"column {', '.join(self._columns[:3])}", self._starts[group]
        with reading(self._place, section):
            if hasattr(self._table, "to_batches"):
                batches = iter(self._table.slice(row).select(self._columns).to_batches(BATCH_ROWS))
            else:
                groups = range(group, self._table.num_row_groups)
                batches = self._table.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=self._columns)
        while True:
            with reading(self._place, section):
                batch = next(batches, None)
                if batch is None:
                    return
                values = batch.column(0)
                if is_list(values.type):
                    _check_lists(self._place, section, values, row)
                    signals = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1)
                else:
                    signals = stack_columns(batch, self._columns, self._place.name)
                signals = as_signals(signals)
            row += len(batch)
            yield signals


def read_columns(place: Place, names: Sequence[str], rows: slice | None = None) -> dict[str, Any]:
    """Return the named columns as Arrow arrays, or some rows of them, reading only the row groups involved."""
    with place.open() as file:
        table, first = _open_table(place, file), 0
        check_columns(_schema(table).names, names, place.url)
        if hasattr(table, "num_row_groups"):
            starts, wanted = _group_starts(table), rows or slice(0, table.metadata.num_rows)
            spans = enumerate(pairwise(starts))
            groups = [group for group, (start, end) in spans if start < wanted.stop and end > wanted.start]
            first = starts[groups[0]] if groups else 0
            with reading(place):
                table = table.read_row_groups(groups, columns=list(names))
    if rows is not None:
        table = table.slice(rows.start - first, rows.stop - rows.start)
    return {name: table.column(name) for name in names}


def _open_table(place: Place, file: IO[bytes]) -> Any:
    """Return an open Parquet file, or the complete table of another file."""
    import_pyarrow(f"reading {place.name}")
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    with reading(place):
        if place.suffix == ".parquet":
            # Without a buffer, the column of a row group is read into memory before its first batch is decoded.
            return pyarrow.parquet.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False)
        return pyarrow.csv.read_csv(file) if place.suffix == ".csv" else pyarrow.feather.read_table(file)


def _schema(table: Any) -> Any:
    return table.schema_arrow if hasattr(table, "schema_arrow") else table.schema


def _group_starts(table: Any) -> list[int]:
    """Return the first row of each row group of a Parquet file, or of each batch of a table, and the number of rows."""
    if not hasattr(table, "num_row_groups"):
        return [*range(0, len(table), BATCH_ROWS), len(table)]
    sizes = (table.metadata.row_group(group).num_rows for group in range(table.num_row_groups))
    return list(accumulate(sizes, initial=0))


def _check_lists(place: Place, section: str, values: Any, row: int) -> None:
    """Raise StorageError for empty cells and for lists of different lengths; ``row`` is that of the first list."""
    import pyarrow.compute

    if values.null_count or values.flatten().null_count:
        where = f"between rows {row} and {row + len(values) - 1}"
        raise StorageError(place.url, section, f"has empty cells {where}; drop or fill them first")
    lengths = np.asarray(pyarrow.compute.list_value_length(values))
    other = np.flatnonzero(lengths != lengths[0])
    if other.size:
        what = f"row {row + other[0]} has {lengths[other[0]]}, row {row} has {lengths[0]}"
        raise StorageError(place.url, section, f"signals differ in length: {what}")
