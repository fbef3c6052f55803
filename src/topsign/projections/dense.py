"""Projections with independent rows: Gaussian, Rademacher and sparse matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32
from .._checks import check_positive
from .._random import RandomState, bits_from_words, normals_from_words, word_rows
from .base import Projection

if TYPE_CHECKING:  # slow to import, and heads do not need it
    import scipy.sparse

Words = npt.NDArray[np.uint64]
Made = TypeVar("Made")


class IndependentRows(Projection):
    """Random matrix whose row i is generated only from stream i of the seed.

    At most ``workspace_bytes`` of the matrix are in memory. A matrix that fits is generated at its first use and kept;
    a larger one is generated in blocks of rows at every call.
    """

    workspace_bytes: ClassVar[int] = 2**28
    _kept: Any = None

    @property
    def fits(self) -> bool:
        """Whether the complete matrix fits the workspace and is kept."""
        return self.n_pool <= self._rows_in_workspace

    @property
    def block_signals(self) -> int:
        """Number of signals per block; large if the matrix has to be generated again for each block."""
        block_bytes = self.block_bytes if self.fits else self.workspace_bytes
        return max(1, block_bytes // (4 * max(self.shape)))

    @property
    def _words_per_row(self) -> int:
        return self.n_features

    @property
    def _row_bytes(self) -> float:
        return 4 * self.n_features

    @abstractmethod
    def _from_words(self, raw: Words) -> Any:
        """Convert rows of random words to rows of the matrix."""

    def _make_rows(self, rows: Array) -> Any:
        """Generate the chosen rows."""
        matrix = np.empty((len(rows), self.n_features), np.float32)

        def fill(part: slice) -> None:
            matrix[part] = self._from_words(self._words(rows[part]))

        self._in_parts(fill, len(rows))
        return matrix

    def _multiply(self, values: Float32, matrix: Any, out: Float32) -> None:
        """Write ``values @ matrix.T`` into ``out``."""
        np.matmul(values, matrix.T, out=out)

    def _words(self, rows: Array) -> Words:
        return word_rows(self.seed, self.kind, rows, self._words_per_row)

    def _in_parts(self, make: Callable[[slice], Made], n_rows: int) -> list[Made]:
        """Call ``make`` in threads for slices of a few megabytes of words each; NumPy and SciPy release the GIL."""
        size = max(1, 2**19 // self._words_per_row)
        parts = [slice(start, start + size) for start in range(0, max(1, n_rows), size)]
        if len(parts) == 1:
            return [make(parts[0])]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(kernels.n_threads()) as pool:
            return list(pool.map(make, parts))

    @property
    def _rows_in_workspace(self) -> int:
        return max(1, int(self.workspace_bytes // self._row_bytes))

    def project_block(self, values: Float32, rows: Array | None, out: Float32) -> None:
        if self.fits:
            if self._kept is None:
                self._kept = self._make_rows(np.arange(self.n_pool))
            self._multiply(values, self._kept if rows is None else self._kept[rows], out)
            return
        wanted = np.arange(self.n_pool) if rows is None else rows
        for start in range(0, len(wanted), self._rows_in_workspace):
            part = slice(start, start + self._rows_in_workspace)
            self._multiply(values, self._make_rows(wanted[part]), out[:, part])

    def _rows(self, rows: Array) -> Float32:
        matrix: Float32 = self._make_rows(rows)
        return matrix

    def _material(self) -> Iterator[Array]:
        yield self._words(np.array([0, self.n_pool - 1]))


class Gaussian(IndependentRows):
    """Projection with independent standard normal entries, as in the paper."""

    kind = "gaussian"

    def _from_words(self, raw: Words) -> Float32:
        return normals_from_words(raw).astype(np.float32)


class Rademacher(IndependentRows):
    """Projection with independent random signs."""

    kind = "rademacher"

    @property
    def _words_per_row(self) -> int:
        return -(-self.n_features // 64)

    def _from_words(self, raw: Words) -> Float32:
        bits = bits_from_words(raw, self.n_features)
        signs = np.unpackbits(bits, axis=1, count=self.n_features, bitorder="little").astype(np.float32)
        return signs * 2 - 1


class Sparse(IndependentRows):
    """Sparse projection: a fraction ``density`` of the entries is +-1/sqrt(density), the others are zero.

    Parameters
    ----------
    density : float or "auto"
        1/3 follows Achlioptas. "auto" is 1/sqrt(n_features) (Li, Hastie and Church), the lowest density that is still
        accurate for signals whose energy is spread over many features.
    """

    kind = "sparse"

    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        random_state: RandomState = None,
        density: float | str = "auto",
    ) -> None:
        super().__init__(n_features=n_features, n_pool=n_pool, random_state=random_state)
        self.density = self.n_features**-0.5 if density == "auto" else check_positive(density, "density", maximum=1)

    @property
    def options(self) -> dict[str, Any]:
        return {"density": self.density}

    @property
    def _row_bytes(self) -> float:
        return 8 * self.density * self.n_features + 4

    def _from_words(self, raw: Words) -> scipy.sparse.csr_array:
        """Take from each word its high half to decide whether the entry is zero, and its lowest bit as the sign."""
        import scipy.sparse

        rows, columns = np.nonzero((raw >> np.uint64(32)) < round(self.density * 2**32))
        positive = raw[rows, columns] & np.uint64(1) == 1
        size = np.float32(self.density**-0.5)
        ends = np.append(0, np.bincount(rows, minlength=len(raw)).cumsum())
        values = np.where(positive, size, -size)
        return scipy.sparse.csr_array((values, columns.astype(np.int32), ends.astype(np.int32)), shape=raw.shape)

    def _make_rows(self, rows: Array) -> scipy.sparse.csr_array:
        import scipy.sparse

        parts = self._in_parts(lambda part: self._from_words(self._words(rows[part])), len(rows))
        return parts[0] if len(parts) == 1 else scipy.sparse.vstack(parts, format="csr")

    def _multiply(self, values: Float32, matrix: Any, out: Float32) -> None:
        out[:] = (matrix @ values.T).T

    def _rows(self, rows: Array) -> Float32:
        return self._make_rows(rows).toarray()  # type: ignore[no-any-return]
