"""Tables of signals: vectors in a column of lists or in numeric columns, with optional id and metadata columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals, import_pyarrow
from .._rows import NamedRows, Rows

Note = dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class TableSignals:
    """Signals of a table, with ids and metadata if their columns were named."""

    signals: Array | Rows
    ids: list[Any] | None
    metadata: list[Note] | None


def from_table(
    table: Any,
    *,
    vector_column: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
) -> TableSignals:
    """Read signals from a pandas or Polars frame, an Arrow table, or any object with Arrow's stream interface.

    Vectors are lists of equal length in ``vector_column`` (by default the only column of lists), or the rows of all
    numeric columns that hold neither ids nor metadata.
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
    values = table_rows(whole, chosen, "the table")
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
            f"{where} has {len(lists)} columns of lists ({', '.join(lists)}); choose one with array= (--array)"
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


def table_rows(table: Any, chosen: Sequence[str], where: str) -> Array | Rows:
    """Return the signals of a column of lists, or of numeric columns together with their names."""
    if len(chosen) == 1 and is_list(table.schema.field(chosen[0]).type):
        return as_signals(table.column(chosen[0]))
    return NamedRows(as_signals(stack_columns(table, chosen, where)), chosen)


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
    values = [plain_values(column) for column in columns.values()]
    rows = (
        {name: one for name, one in zip(columns, row, strict=True) if one is not None}
        for row in zip(*values, strict=True)
    )
    return [row or None for row in rows]


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
