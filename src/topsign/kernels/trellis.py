"""Tables of trellis codes, and queries as the kernels compare them with such codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Int32, Int64

Int8 = npt.NDArray[np.int8]
Int16 = npt.NDArray[np.int16]
UInt16 = npt.NDArray[np.uint16]

N_SEQUENCES = 256  # pairs of a multiplier and an addend, which coordinates take in turn
N_LEVELS, MAX_LEVEL = 128, 127
NORM_BITS = 16  # of the norm at the end of a code
DEPTH = 6  # windows on either side of the ring's beginning after which paths have merged


def address(array: Array | None) -> int | None:
    """Return where an array begins in memory."""
    return None if array is None else array.__array_interface__["data"][0]  # in half the time of ctypes.data


@dataclass(frozen=True, eq=False)
class TrellisTables:
    """Tables for reading the levels of a trellis code from its bits, for its encoder, and for its norm.

    Coordinate i reads ``window`` bits of the ring of ``n_bits`` bits from ``offsets[i]`` on, the highest bit of a byte
    first, as the high bits of a 16-bit word; times multiplier i plus addend i (there are 256 of each, taken in turn),
    modulo 2**16, its seven high bits are the number of a level. Coordinates of equal offsets are one event.

    The encoder minimises the sum of ``(squares * level**2 >> square_shifts) - (target * level << shifts)``, a target
    being a value times its scale, rounded and at most ``limit``; ``shifts`` are equal where offsets are. The square
    norm of a reconstruction is ``constant`` plus ``unit`` times the sum of ``level * (level * quadratic + linear)``.
    """

    n_bits: int
    window: int
    code_bytes: int
    offsets: Int32  # (n_coded,) ascending
    scales: Float32
    squares: Int32
    square_shifts: Int32
    shifts: Int32
    limit: int
    linear: Int32
    quadratic: Int16
    unit: float
    constant: float
    fine_bits: int = 0  # of the second digit of queries; 0 if they have one digit

    @property
    def n_coded(self) -> int:
        """Number of coordinates that have a level."""
        return len(self.offsets)

    @property
    def sequences(self) -> tuple[UInt16, UInt16]:
        """Multipliers and addends."""
        return trellis_sequences(self.window)


@dataclass(frozen=True, eq=False)
class TrellisSignals:
    """Signals of one cell, encoded together with those of other cells."""

    tables: TrellisTables
    values: Float32  # coordinates, (n_signals, n_coded)
    rows: Int64 | None = None  # rows of their codes in the result; None: the first ones
    mark: int = 0  # number of the cell, in the bits of byte n_bits // 8 that the ring leaves


@dataclass(frozen=True, eq=False)
class RoundedQueries:
    """Queries in bytes: the score of a code is ``(sum of value * level) * scale + constant``, times its weight.

    With ``fine`` digits, values are ``value * 2**fine_bits + fine``. Sums fit 32 bits.
    """

    values: Int8  # (n_queries, n_coded), in [-127, 127]
    scales: Float32  # (n_queries,)
    constants: Float32  # (n_queries,)
    fine: Int8 | None = None  # (n_queries, n_coded)
    fine_bits: int = 0

    def __getitem__(self, rows: slice | Int64) -> RoundedQueries:
        """Return some of the queries."""
        fine = None if self.fine is None else self.fine[rows]
        return RoundedQueries(self.values[rows], self.scales[rows], self.constants[rows], fine, self.fine_bits)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class CellColumns:
    """Columns of projected queries that each cell reads, those of one cell after those of another."""

    numbers: Int64
    weights: npt.NDArray[np.float64]  # factor of each
    sizes: Int64  # (n_cells,) number of columns of each cell
    fine_bits: Int64  # (n_cells,) those of the second digit of each cell; 0: one digit


@dataclass(frozen=True, eq=False)
class RoundedCells:
    """Queries rounded for each cell, in the same order for all cells; see :class:`RoundedQueries`."""

    values: Int8  # (n_queries, n_coded) of each cell, those of one cell after those of another
    scales: Float32  # (n_cells, n_queries)
    constants: Float32  # (n_cells, n_queries)
    fine: Int8 | None  # as values, used by the cells with fine_bits; None: there are none
    sizes: Int64  # (n_cells,) the n_coded of each cell
    fine_bits: Int64  # (n_cells,)

    @classmethod
    def of(cls, cells: Sequence[RoundedQueries]) -> RoundedCells:
        """Join the queries of cells."""
        fine = [np.zeros_like(one.values) if one.fine is None else one.fine for one in cells]
        return cls(
            np.concatenate([one.values.ravel() for one in cells]),
            np.stack([one.scales for one in cells]),
            np.stack([one.constants for one in cells]),
            np.concatenate([digits.ravel() for digits in fine]),
            np.array([one.values.shape[1] for one in cells]),
            np.array([0 if one.fine is None else one.fine_bits for one in cells]),
        )

    @property
    def n_queries(self) -> int:
        return int(self.scales.shape[1])

    @property
    def starts(self) -> Int64:
        """Position of the first value of each cell."""
        return (np.cumsum(self.sizes) - self.sizes) * self.n_queries

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, cell: int) -> RoundedQueries:
        shape, start = (self.n_queries, int(self.sizes[cell])), int(self.starts[cell])
        part, bits = slice(start, start + shape[0] * shape[1]), int(self.fine_bits[cell])
        fine = self.fine[part].reshape(shape) if self.fine is not None and bits else None
        return RoundedQueries(self.values[part].reshape(shape), self.scales[cell], self.constants[cell], fine, bits)

    def __iter__(self) -> Iterator[RoundedQueries]:
        return (self[cell] for cell in range(len(self)))


@cache
def trellis_sequences(window: int) -> tuple[UInt16, UInt16]:
    """Return the multipliers and addends that scramble windows: low-discrepancy sequences, in integers only."""
    i = np.arange(1, N_SEQUENCES + 1, dtype=np.uint64)
    # The two-dimensional golden-ratio sequence, in units of 2**-32.
    spread, shift = i * np.uint64(3242174889) % 2**32, i * np.uint64(2447445413) % 2**32
    factor = 1511682459 + (spread * np.uint64(257698038) >> np.uint64(32))  # from 0.352 to 0.412
    multipliers = ((factor << np.uint64(window)) + np.uint64(2**31) >> np.uint64(32)) | np.uint64(1)
    addends = (shift << np.uint64(window) >> np.uint64(32)) << np.uint64(16 - window)
    return multipliers.astype(np.uint16), addends.astype(np.uint16)


@cache
def norm_fractions() -> Float32:
    """Return the powers of two with exponents from 0 to 511/512, in steps of 1/512, of which norms are made."""
    return np.exp2(np.arange(2**9) / 2**9).astype(np.float32)


def pack_norms(norms: npt.NDArray[np.floating[Any]]) -> Bytes:
    """Pack norms in two bytes each, little-endian: 32768 plus 512 times the logarithm to base 2, rounded; 0 for zero.

    The relative rounding error is below 0.07%. Norms of signals lie between 1e-18 and 1e18, well inside the range.
    """
    mantissas, exponents = np.frexp(norms.astype(np.float64))  # in [1/2, 1)
    borders = np.exp2((np.arange(2**9) + 0.5) / 2**9 - 1)
    steps = 2**9 * (exponents.astype(np.int64) - 1) + np.searchsorted(borders, mantissas) + 2**15
    return np.where(norms > 0, np.clip(steps, 1, 2**16 - 1), 0).astype("<u2")[:, np.newaxis].view(np.uint8)


def unpack_norms(packed: Bytes) -> Float32:
    """Return the norms that ``pack_norms`` packed."""
    steps = np.ascontiguousarray(packed).view("<u2")[:, 0].astype(np.int32)
    values = np.ldexp(norm_fractions()[steps & 0x1FF], (steps >> 9) - 2**6)
    return np.where(steps > 0, values, np.float32(0)).astype(np.float32)


def quantiles(count: int) -> npt.NDArray[np.float64]:
    """Return ``count`` quantiles of the normal distribution, at the middles of equal parts."""
    from scipy.special import ndtri  # slow to import

    return np.asarray(ndtri((np.arange(count) + 0.5) / count))


@cache
def trellis_levels() -> Int8:
    """Return 128 quantiles of the normal distribution as odd numbers, antisymmetric, the largest being 127.

    They are odd so that twice a byte of seven bits less 127 is a level, and flipping those bits changes its sign.
    """
    upper = quantiles(N_LEVELS)[N_LEVELS // 2 :]
    half = (2 * np.floor(upper / upper[-1] * 64).clip(max=63) + 1).astype(np.int8)
    return np.concatenate([-half[::-1], half])


@cache
def level_rms() -> float:
    """Return the root mean square of the levels."""
    return float(np.sqrt((trellis_levels().astype(np.int64) ** 2).mean()))


class Events(NamedTuple):
    """Events: groups of coordinates that read the same window."""

    starts: Int64  # first coordinate of each
    ends: Int64
    offsets: Int64  # of the windows
    advances: Int64  # bits after the event before, at most the whole window

    @classmethod
    def of(cls, tables: TrellisTables) -> Events:
        """Return the events of a trellis, around its ring."""
        starts = np.flatnonzero(np.diff(tables.offsets, prepend=-1)).astype(np.int64)
        offsets = tables.offsets[starts].astype(np.int64)
        gaps = offsets - np.roll(offsets, 1)
        advances = np.minimum(np.where(gaps <= 0, gaps + tables.n_bits, gaps), tables.window)
        return cls(starts, np.append(starts[1:], tables.n_coded), offsets, advances)
