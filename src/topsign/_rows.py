"""Matrices of signals that are read from files or converted to dense rows when they are sliced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._arrays import Array, Int64


class Rows(ABC):
    """Matrix of signals that is never loaded completely; slices are read, most efficiently in ascending order.

    It is accepted wherever signals are. A single row can be indexed if it lies in the slice read last, which error
    messages rely on.
    """

    names: tuple[str, ...] | None = None  # column names, if each feature is a table column

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self._last: tuple[int, int, Array] = (0, 1, np.empty((0, shape[1]), dtype))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | int) -> Array:
        if not isinstance(rows, slice):
            start, step, values = self._last
            return np.asarray(values[(rows - start) // step])
        start, stop, step = rows.indices(len(self))
        values = self.read(start, stop) if step == 1 else self.read_every(start, stop, step)
        self._last = start, step, values
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all rows into an array."""
        return np.asarray(self[:], dtype)

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Read the rows from ``start`` up to ``stop``."""

    def read_every(self, start: int, stop: int, step: int) -> Array:
        """Read every ``step``-th of these rows, skipping the others if the source permits it."""
        return self.read(start, stop)[::step]


class NamedRows(Rows):
    """Rows of a matrix with named columns."""

    def __init__(self, values: Array, names: Sequence[str]) -> None:
        super().__init__((len(values), values.shape[1]), values.dtype)
        self.values, self.names = values, tuple(names)

    def read(self, start: int, stop: int) -> Array:
        return self.values[start:stop]


class SparseRows(Rows):
    """Rows of a SciPy sparse matrix, converted to dense when sliced."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsr() if len(matrix.shape) == 2 else matrix.reshape(1, -1).tocsr()
        super().__init__(self._matrix.shape, matrix.dtype)

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self._matrix[start:stop].toarray())

    def read_every(self, start: int, stop: int, step: int) -> Array:
        return np.asarray(self._matrix[start:stop:step].toarray())


def take_rows(signals: Array | Rows, rows: Int64) -> Array:
    """Return the chosen rows of an array or of ``Rows`` as an array."""
    if isinstance(signals, Rows):
        none = np.empty((0, signals.shape[1]), signals.dtype)
        return np.concatenate([none, *(signals[int(row) : int(row) + 1] for row in rows)])
    return np.asarray(signals[rows])
