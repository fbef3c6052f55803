"""Signals in CSV, Arrow IPC and Feather files, which are read completely into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._arrays import Array
from .._checks import import_pyarrow
from .._rows import Rows
from .contents import Described, described, reading
from .place import Place
from .tables import check_columns, table_rows, vector_columns


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return the number of signals, their length and their dtype."""
    values = rows(place, array, aside)
    return described(place, values.shape, values.dtype, array, getattr(values, "names", None))


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """Return the signals."""
    table = _load(place)
    check_columns(table.schema.names, aside, place.url)
    chosen = vector_columns(table.schema, array, aside, place.url)
    with reading(place, ", ".join(chosen[:3])):
        return table_rows(table, chosen, place.name)


def columns(place: Place, names: Sequence[str], rows: slice | None = None) -> dict[str, Any]:
    """Return the named columns, optionally only some rows of them."""
    table = _load(place)
    check_columns(table.schema.names, names, place.url)
    table = table if rows is None else table.slice(rows.start, rows.stop - rows.start)
    return {name: table.column(name) for name in names}


def _load(place: Place) -> Any:
    import_pyarrow(f"reading {place.name}")
    import pyarrow.csv
    import pyarrow.feather

    with place.open() as file, reading(place):
        return pyarrow.csv.read_csv(file) if place.suffix == ".csv" else pyarrow.feather.read_table(file)
