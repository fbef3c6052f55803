"""Projections with independent rows: Gaussian, Rademacher and sparse matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse

from .. import kernels
from .._checks import Array, check_positive
from .._random import RandomState, normals, random_bits, words
from ..kernels.interface import Float32
from .base import Projection

Made = TypeVar("Made")


class IndependentRows(Projection):
    """A matrix whose row i is made from stream i of the seed, alone.

    At most ``workspace_bytes`` of the matrix are held. One that fits is made at the first use and kept;
    of a larger one, blocks of rows are made again at every call and multiplied.
    """

    workspace_bytes: ClassVar[int] = 2**28
    _kept: Any = None

    @property
    def fits(self) -> bool:
        """Whether the whole matrix is kept."""
        return self.n_pool <= self._rows_in_workspace

    @property
    def block_signals(self) -> int:
        """Signals projected in one go; many where the matrix must be made again for each block."""
        block_bytes = self.block_bytes if self.fits else self.workspace_bytes
        return max(1, block_bytes // (4 * max(self.shape)))

    @property
    @abstractmethod
    def _row_bytes(self) -> float: ...

    @abstractmethod
    def _make_rows(self, rows: Array) -> Any:
        """The chosen rows, as a matrix."""

    @abstractmethod
    def _multiply(self, values: Float32, matrix: Any, out: Float32) -> None:
        """Writes ``values @ matrix.T`` into ``out``."""

    @property
    def _rows_in_workspace(self) -> int:
        return max(1, int(self.workspace_bytes // self._row_bytes))

    def _project(self, values: Float32, rows: Array | None, out: Float32, n_threads: int) -> None:
        if self.fits:
            if self._kept is None:
                self._kept = self._make_rows(np.arange(self.n_pool))
            self._multiply(values, self._kept if rows is None else self._kept[rows], out)
            return
        wanted = np.arange(self.n_pool) if rows is None else rows
        for start in range(0, len(wanted), self._rows_in_workspace):
            part = slice(start, start + self._rows_in_workspace)
            self._multiply(values, self._make_rows(wanted[part]), out[:, part])


class _Dense(IndependentRows):
    @property
    def _row_bytes(self) -> float:
        return 4 * self.n_features

    @abstractmethod
    def _fill(self, row: int, out: Float32) -> None: ...

    def _make_rows(self, rows: Array) -> Float32:
        matrix = np.empty((len(rows), self.n_features), np.float32)
        _in_threads(lambda i: self._fill(int(rows[i]), matrix[i]), len(rows))
        return matrix

    def _multiply(self, values: Float32, matrix: Any, out: Float32) -> None:
        np.matmul(values, matrix.T, out=out)

    def _rows(self, rows: Array) -> Float32:
        return self._make_rows(rows)


class Gaussian(_Dense):
    """Independent standard normal entries: the paper's projection."""

    kind = "gaussian"

    def _fill(self, row: int, out: Float32) -> None:
        out[:] = normals(self.seed, self.kind, row, self.n_features)

    def _material(self) -> Iterator[Array]:
        yield from (words(self.seed, self.kind, row, self.n_features) for row in (0, self.n_pool - 1))


class Rademacher(_Dense):
    """Independent fair signs."""

    kind = "rademacher"

    def _fill(self, row: int, out: Float32) -> None:
        bits = random_bits(self.seed, self.kind, row, self.n_features)
        out[:] = np.unpackbits(bits, count=self.n_features, bitorder="little")
        out *= 2
        out -= 1

    def _material(self) -> Iterator[Array]:
        yield from (random_bits(self.seed, self.kind, row, self.n_features) for row in (0, self.n_pool - 1))


class Sparse(IndependentRows):
    """Independent entries: zero but for a fraction ``density``, there +-1/sqrt(density).

    Parameters
    ----------
    density : float or "auto"
        1/3 is Achlioptas's choice; "auto" is 1/sqrt(n_features) (Li, Hastie and Church), the fastest that
        is still right for signals that spread over many features.
    """

    kind = "sparse"

    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        seed: RandomState = None,
        density: float | str = "auto",
    ) -> None:
        super().__init__(n_features=n_features, n_pool=n_pool, seed=seed)
        self.density = self.n_features**-0.5 if density == "auto" else check_positive(density, "density", maximum=1)

    @property
    def options(self) -> dict[str, Any]:
        return {"density": self.density}

    @property
    def _row_bytes(self) -> float:
        return 8 * self.density * self.n_features + 4

    def _entries(self, row: int) -> tuple[Array, Array]:
        """Columns that are not zero, and their signs: the high half of a word decides, its lowest bit signs."""
        raw = words(self.seed, self.kind, row, self.n_features)
        columns = np.flatnonzero((raw >> np.uint64(32)) < round(self.density * 2**32))
        return columns, raw[columns] & np.uint64(1)

    def _make_rows(self, rows: Array) -> scipy.sparse.csr_array:
        entries = _in_threads(lambda i: self._entries(int(rows[i])), len(rows))
        columns = np.concatenate([columns for columns, _ in entries]).astype(np.int32)
        positive = np.concatenate([signs for _, signs in entries]).astype(bool)
        ends = np.cumsum([0] + [len(columns) for columns, _ in entries])
        size = np.float32(self.density**-0.5)
        values = np.where(positive, size, -size)
        return scipy.sparse.csr_array((values, columns, ends), shape=(len(rows), self.n_features))

    def _multiply(self, values: Float32, matrix: Any, out: Float32) -> None:
        out[:] = (matrix @ values.T).T

    def _rows(self, rows: Array) -> Float32:
        return self._make_rows(rows).toarray()  # type: ignore[no-any-return]

    def _material(self) -> Iterator[Array]:
        for row in (0, self.n_pool - 1):
            yield from self._entries(row)


def _in_threads(make: Callable[[int], Made], count: int) -> list[Made]:
    """``make`` of 0 .. count-1; NumPy's and SciPy's loops inside it release the interpreter lock."""
    if count < 64:
        return [make(i) for i in range(count)]
    with ThreadPoolExecutor(kernels.n_threads(None)) as pool:
        return list(pool.map(make, range(count)))
