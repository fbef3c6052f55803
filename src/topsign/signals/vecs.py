"""Signals in .fvecs and .bvecs files: each row is an int32 length followed by that many float32 values or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._arrays import Array
from .._rows import Rows
from ..errors import StorageError
from .contents import Described, described
from .place import Place


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return the number and length of the signals, from the file size and the first row."""
    if array is not None or aside:
        raise ValueError(f"{place.url} has no named arrays or columns; omit array= (--array)")
    n_bytes, _ = place.state()
    dtype: np.dtype[Any] = np.dtype(np.float32 if place.suffix == ".fvecs" else np.uint8)
    with place.open() as file:
        head = file.read(4)
    width = int.from_bytes(head, "little", signed=True) if len(head) == 4 else 0
    if width < 1 or n_bytes % (4 + width * dtype.itemsize):
        raise StorageError(place.url, "signals", f"not rows of {width} values each in {n_bytes} bytes")
    return described(place, (n_bytes // (4 + width * dtype.itemsize), width), dtype)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Rows:
    """Return the signals."""
    return VecsRows(place, describe(place, array, aside))


class VecsRows(Rows):
    """Rows of a .fvecs or .bvecs file."""

    def __init__(self, place: Place, found: Described) -> None:
        super().__init__((found.n_signals, found.n_features), found.dtype)
        self._place = place

    def read(self, start: int, stop: int) -> Array:
        row_bytes = 4 + self.shape[1] * self.dtype.itemsize
        with self._place.open() as file:
            file.seek(start * row_bytes)
            content = np.frombuffer(file.read((stop - start) * row_bytes), np.uint8).reshape(stop - start, row_bytes)
        widths = content[:, :4].copy().view("<i4").ravel()
        if (widths != self.shape[1]).any():
            row = start + int(np.argmax(widths != self.shape[1]))
            problem = f"signals differ in length: row {row} has {widths[row - start]}, row 0 has {self.shape[1]}"
            raise StorageError(self._place.url, "signals", problem)
        return content[:, 4:].copy().view(self.dtype)
