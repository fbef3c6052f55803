"""Random projections: independent dense or sparse rows, and structured rows with fast transforms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32
from .._checks import check_choice, check_count, check_positive
from .._lazy import lazy
from .._random import (
    RandomState,
    bits_from_words,
    normals,
    normals_from_words,
    random_bits,
    subset,
    uniforms,
    word_rows,
)
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

    @lazy
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
        return np.asarray(self._make_rows(rows))

    def _material(self) -> Iterator[Array]:
        yield self._words(np.array([0, self.n_pool - 1]))


def _signs_of(bits: Bytes, n_features: int) -> Float32:
    """Return +1 for each bit that is set, and -1 for the others."""
    return np.unpackbits(bits, axis=1, count=n_features, bitorder="little").astype(np.float32) * 2 - 1


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
        return _signs_of(bits_from_words(raw, self.n_features), self.n_features)


class Sparse(IndependentRows):
    """Sparse projection: a fraction ``density`` of the entries is +-1/sqrt(density), the others are zero.

    Parameters
    ----------
    density : float or "auto"
        1/3 follows Achlioptas. "auto" is 1/sqrt(n_features) (Li, Hastie and Church), the lowest density that is still
        accurate for signals whose energy is spread over many features.
    """

    kind = "sparse"
    option_names = ("density",)

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


class StackedBlocks(Projection):
    """Independent square operators of size n_features, stacked until the pool is full.

    If the pool ends inside the last operator, a random subset of its rows is used.
    """

    @lazy
    def n_blocks(self) -> int:
        return -(-self.n_pool // self.n_features)

    @abstractmethod
    def _rotate(self, block: int, values: Float32, out: Float32) -> None:
        """Apply one square operator."""

    @abstractmethod
    def _rotate_back(self, block: int, values: Float32) -> Float32:
        """Apply the transpose of one square operator."""

    @lazy
    def last_coordinates(self) -> Array:
        """Rows of the last block that belong to the pool."""
        size = self.n_pool - (self.n_blocks - 1) * self.n_features
        if size == self.n_features:
            return np.arange(size)
        return subset(self.seed, f"{self.kind} rows", self.n_blocks - 1, size=size, of=self.n_features)

    def _place(self, rows: Array) -> tuple[Array, Array]:
        """Return the block of each pool row and its coordinate in that block."""
        blocks, coordinates = np.divmod(rows, self.n_features)
        last = blocks == self.n_blocks - 1
        coordinates[last] = self.last_coordinates[coordinates[last]]
        return blocks, coordinates

    def project_block(self, values: Float32, rows: Array | None, out: Float32) -> None:
        if rows is None and self.n_pool == self.n_features:
            self._rotate(0, values, out)
            return
        rotated = np.empty_like(values)
        if rows is None:
            for block in range(self.n_blocks):
                self._rotate(block, values, rotated)
                here = out[:, block * self.n_features : (block + 1) * self.n_features]
                if here.shape == rotated.shape:
                    here[:] = rotated
                else:  # coordinates are never outside, and wrapping them is faster than checking them
                    np.take(rotated, self.last_coordinates, axis=1, out=here, mode="wrap")
            return
        blocks, coordinates = self._place(rows)
        for block in np.unique(blocks):
            self._rotate(int(block), values, rotated)
            here = blocks == block
            out[:, here] = rotated[:, coordinates[here]]

    def transposed(self, values: Float32) -> Float32:
        if self.n_pool == self.n_features:
            return self._rotate_back(0, values)
        blocks, coordinates = self._place(np.arange(self.n_pool))
        total = np.zeros((len(values), self.n_features), np.float32)
        for block in range(self.n_blocks):
            here, placed = blocks == block, np.zeros_like(total)
            placed[:, coordinates[here]] = values[:, here]
            total += self._rotate_back(block, placed)
        return total

    def _rows(self, rows: Array) -> Float32:
        blocks, coordinates = self._place(rows)
        out = np.zeros((len(rows), self.n_features), np.float32)
        out[np.arange(len(rows)), coordinates] = 1
        for block in np.unique(blocks):
            here = blocks == block
            out[here] = self._rotate_back(int(block), out[here])
        return out


class Hadamard(StackedBlocks):
    """Randomised Hadamard projection: several rounds of random signs and a Walsh-Hadamard transform.

    This is the default. Each block is orthonormal up to the factor sqrt(n_features) and works for any n_features
    without padding. The same seed gives the same bits on every machine.

    Parameters
    ----------
    rounds : int, optional
        By default 3 if n_features is a power of two and 6 otherwise, which is accurate for sparse signals too.
    """

    kind = "hadamard"
    option_names = ("rounds",)

    def __init__(
        self, *, n_features: int, n_pool: int | None = None, random_state: RandomState = None, rounds: int | None = None
    ) -> None:
        super().__init__(n_features=n_features, n_pool=n_pool, random_state=random_state)
        power_of_two = self.n_features & (self.n_features - 1) == 0
        self.rounds = (3 if power_of_two else 6) if rounds is None else check_count(rounds, "rounds", maximum=64)

    @lazy
    def signs(self) -> Bytes:
        """Random signs, (n_blocks, rounds, ceil(n_features / 8))."""
        streams = range(self.n_blocks * self.rounds)
        bits = [random_bits(self.seed, self.kind, stream, self.n_features) for stream in streams]
        return np.stack(bits).reshape(self.n_blocks, self.rounds, -1)

    def _rotate(self, block: int, values: Float32, out: Float32) -> None:
        kernels.active().rotate(values, self.signs[block], out=out)

    def _rotate_back(self, block: int, values: Float32) -> Float32:
        return kernels.active().rotate(values, self.signs[block], transpose=True)

    def _material(self) -> Iterator[Array]:
        yield self.signs
        yield self.last_coordinates


class Circulant(StackedBlocks):
    """Random signs followed by a circular convolution with a random sequence, computed by FFT.

    Parameters
    ----------
    spectrum : "unimodular" or "gaussian"
        "unimodular" (random phases of modulus one) is orthonormal and detects better; "gaussian" convolves with
        independent normal values.
    """

    kind = "circulant"
    option_names = ("spectrum",)

    def __init__(
        self,
        *,
        n_features: int,
        n_pool: int | None = None,
        random_state: RandomState = None,
        spectrum: str = "unimodular",
    ) -> None:
        super().__init__(n_features=n_features, n_pool=n_pool, random_state=random_state)
        self.spectrum = check_choice(spectrum, "spectrum", ("unimodular", "gaussian"))

    def _flip_bits(self, block: int) -> Bytes:
        return random_bits(self.seed, "circulant signs", block, self.n_features)

    @lazy
    def _flips(self) -> Float32:
        """Random signs, (n_blocks, n_features); without them all projections of a constant signal would be equal."""
        return _signs_of(np.stack([self._flip_bits(block) for block in range(self.n_blocks)]), self.n_features)

    @lazy
    def _spectra(self) -> Array:
        """Fourier transform of each block's sequence, (n_blocks, n_features // 2 + 1) complex64."""
        import scipy.fft

        spectra = []
        for block in range(self.n_blocks):
            if self.spectrum == "gaussian":
                sequence = normals(self.seed, "circulant gaussian", block, self.n_features)
                spectra.append(scipy.fft.rfft(sequence))
                continue
            turns = uniforms(self.seed, "circulant unimodular", block, self.n_features // 2 + 1)
            phases = np.exp(2j * np.pi * turns)
            phases[0] = 1 if turns[0] < 0.5 else -1  # the transform of a real sequence is real at frequency zero
            if self.n_features % 2 == 0:
                phases[-1] = 1 if turns[-1] < 0.5 else -1  # and at the highest frequency of an even length
            spectra.append(phases * np.sqrt(self.n_features))
        return np.stack(spectra).astype(np.complex64)

    def _rotate(self, block: int, values: Float32, out: Float32) -> None:
        import scipy.fft

        transformed = scipy.fft.rfft(values * self._flips[block], axis=1, workers=kernels.n_threads())
        transformed *= self._spectra[block]
        out[:] = scipy.fft.irfft(transformed, n=self.n_features, axis=1, workers=kernels.n_threads())

    def _rotate_back(self, block: int, values: Float32) -> Float32:
        import scipy.fft

        transformed = scipy.fft.rfft(values, axis=1) * self._spectra[block].conj()
        back: Float32 = scipy.fft.irfft(transformed, n=self.n_features, axis=1) * self._flips[block]
        return back

    def _material(self) -> Iterator[Array]:
        for block in (0, self.n_blocks - 1):
            yield self._flip_bits(block)
            yield uniforms(self.seed, f"circulant {self.spectrum}", block, self.n_features)
        yield self.last_coordinates
