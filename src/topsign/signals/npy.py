"""Signals in .npy files: one matrix, memory-mapped if the file is local."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from .._arrays import Array
from .._rows import Rows
from ..errors import StorageError
from .contents import Described, RawRows, described, reading
from .place import Place


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return shape and dtype of the matrix."""
    if array is not None:
        raise ValueError(f"array= applies to .npz, .parquet and .safetensors; {place.url} has only one array")
    with place.open() as file:
        shape, _, dtype = read_header(place, file)
    return described(place, shape, dtype)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """Return the signals."""
    with ExitStack() as opened:
        file = opened.enter_context(place.open())
        shape, in_columns, dtype = read_header(place, file)
        if place.is_local:
            return mapped(place, file.tell(), shape, in_columns, dtype)
        return raw_rows(place, file, file.tell(), shape, in_columns, dtype, opened)


def read_header(place: Place, file: IO[bytes] | Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a .npy header up to the first value; return shape, whether the order is Fortran, and dtype."""
    with reading(place):
        magic = file.read(6)
        if magic != np.lib.format.MAGIC_PREFIX:
            what = "empty: it has no bytes" if not magic else "not an array in .npy form"
            raise StorageError(place.url, "signals", f"{what}; write it with numpy.save")
        version = tuple(file.read(2))
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise StorageError(
                place.url, "signals", f"version {version} of the .npy format; versions 1.0 to 3.0 are supported"
            )
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, dtype = read(file)
        return shape, in_columns, dtype


def mapped(place: Place, offset: int, shape: tuple[int, ...], in_columns: bool, dtype: np.dtype[Any]) -> Array:
    """Return a read-only memory map of the array at this offset of a local file."""
    found = described(place, shape, dtype)
    if not found.n_signals * found.n_features:
        return np.empty((found.n_signals, found.n_features), dtype)
    with reading(place):
        return np.memmap(place.url, dtype, "r", offset, found[:2], "F" if in_columns else "C")


def raw_rows(
    place: Place,
    file: Any,
    offset: int,
    shape: tuple[int, ...],
    in_columns: bool,
    dtype: np.dtype[Any],
    opened: ExitStack,
) -> RawRows:
    """Return the rows of an array that can be read but not mapped; they take ownership of the open file."""
    found = described(place, shape, dtype)
    if in_columns:
        raise StorageError(place.url, "signals", "the matrix is in Fortran order; save it in C order")
    return RawRows(place, file, offset, (found.n_signals, found.n_features), dtype, opened)
