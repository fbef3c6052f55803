"""Signals in .npy files: one matrix, mapped where the file is local."""

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
    """Shape and type."""
    if array is not None:
        raise ValueError(f"array= goes with .npz, .parquet and .safetensors; {place.url} has one array only")
    with place.open() as file:
        shape, _, dtype = read_header(place, file)
    return described(place, shape, dtype)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """The signals."""
    with ExitStack() as opened:
        file = opened.enter_context(place.open())
        shape, in_columns, dtype = read_header(place, file)
        if place.is_local:
            return mapped(place, file.tell(), shape, in_columns, dtype)
        return raw_rows(place, file, file.tell(), shape, in_columns, dtype, opened)


def read_header(place: Place, file: IO[bytes] | Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of an array in .npy form; the file stands at its values then."""
    with reading(place):
        magic = file.read(6)
        if magic != np.lib.format.MAGIC_PREFIX:
            what = "empty: it has no bytes" if not magic else "not an array in .npy form"
            raise StorageError(place.url, "signals", f"{what}; write it with numpy.save")
        version = tuple(file.read(2))
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise StorageError(place.url, "signals", f"version {version} of the .npy form; 1.0 to 3.0 can be read")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, dtype = read(file)
        return shape, in_columns, dtype


def mapped(place: Place, offset: int, shape: tuple[int, ...], in_columns: bool, dtype: np.dtype[Any]) -> Array:
    """A read-only memory map of an array that begins at this offset of a local file."""
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
    """Rows of an array that can only be read, not mapped; they take over what was opened."""
    found = described(place, shape, dtype)
    if in_columns:
        raise StorageError(place.url, "signals", "must hold the matrix row after row; save it in C order")
    return RawRows(place, file, offset, (found.n_signals, found.n_features), dtype, opened)
