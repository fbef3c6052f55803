"""Codes, queries and matrices as the kernels take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Booleans, Bytes, Float32, Float64, Int32, Int64
from .._lazy import lazy

Int8 = npt.NDArray[np.int8]
Int16 = npt.NDArray[np.int16]

BLOCK = 32  # codes of a block
PANEL = 32  # columns that stand together in memory
FACTOR_BYTES = 2
MAX_VALUE = 127 * 255  # of values that are looked up: they have two digits of at most 127
KINDS = ("signs", "groups", "ring", "kept")
FACTORS = (None, "cosine", "log")


@dataclass(frozen=True, eq=False)
class CodeBlocks:
    """Codes in blocks of 32, in byte planes: byte p of code i is ``planes[i // 32, p, i % 32]``."""

    planes: Bytes  # (n_blocks, code_bytes, 32); unused lanes of the last block are zero
    count: int

    @classmethod
    def of(cls, rows: Bytes) -> CodeBlocks:
        """Return the blocks of codes given as rows, (n_codes, code_bytes)."""
        n_codes, code_bytes = rows.shape
        n_whole, n_left = divmod(n_codes, BLOCK)
        planes = np.empty((n_whole + (n_left > 0), code_bytes, BLOCK), np.uint8)
        planes[:n_whole] = rows[: n_whole * BLOCK].reshape(n_whole, BLOCK, code_bytes).transpose(0, 2, 1)
        if n_left:
            planes[-1] = 0
            planes[-1, :, :n_left] = rows[n_whole * BLOCK :].T
        return cls(planes, n_codes)

    def __len__(self) -> int:
        return self.count

    @property
    def code_bytes(self) -> int:
        """Bytes of one code."""
        return int(self.planes.shape[1])

    def rows(self, positions: slice | Int64 | None = None) -> Bytes:
        """Return codes as rows, (n_codes, code_bytes): those at some positions, or all."""
        if positions is None or isinstance(positions, slice):
            start, stop, step = (positions or slice(None)).indices(self.count)
            if step != 1:
                return self.rows(np.arange(start, stop, step))
            first, last = start // BLOCK, -(-stop // BLOCK)
            rows = self.planes[first:last].transpose(0, 2, 1).reshape(-1, self.code_bytes)
            return np.ascontiguousarray(rows[start - first * BLOCK : max(start, stop) - first * BLOCK])
        positions = np.asarray(positions)
        return np.ascontiguousarray(self.planes[positions // BLOCK, :, positions % BLOCK])


@dataclass(frozen=True)
class Layout:
    """Sizes of the parts of an adaptive code of ``n_bits`` out of ``n_pool``.

    The sign bits; the ``low_bits`` low bits of every location; the high parts in unary, where location i of high part h
    sets bit h + i (Elias-Fano). With ``low_bits`` 0 the last part is a bitmap of the pool instead. The cheapest
    ``low_bits`` is taken, of equally cheap ones the largest. Each part starts on a byte.
    """

    n_bits: int
    n_pool: int

    @property
    def sign_bytes(self) -> int:
        return -(-self.n_bits // 8)

    @lazy
    def low_bits(self) -> int:
        """Low bits of a location that are stored as they are."""
        return min(reversed(range(self.n_pool.bit_length())), key=self._bytes)

    @lazy
    def code_bytes(self) -> int:
        """Bytes of one code."""
        return self._bytes(self.low_bits)

    def _bytes(self, low_bits: int) -> int:
        high_size = self.n_pool if low_bits == 0 else self.n_bits + ((self.n_pool - 1) >> low_bits)
        return self.sign_bytes - (-self.n_bits * low_bits // 8) - (-high_size // 8)


@dataclass(frozen=True, eq=False)
class Ring:
    """Books of trellis codes, a ring of nibbles.

    Step s reads the window of nibbles s - 1 and s, and reconstructs the coordinates ``first[s] : first[s + 1]`` by a
    row of its book, 256 rows of levels. The encoder minimises the sum of
    ``weights * level**2 - 2 * weights * level * (coordinate * scales)``. The square norm of mean and reconstruction is
    ``constant`` plus the sum of ``squares[s, window]``, in the order of steps.
    """

    first: Int32  # (n_steps + 1,)
    book_of_step: Int32  # (n_steps,)
    book_starts: Int64  # (n_books + 1,) where books begin in levels
    levels: Int8
    weights: Float32  # (n_coded,)
    scales: Float32  # (n_coded,)
    squares: Float64  # (n_steps, 256)
    constant: float

    @property
    def n_steps(self) -> int:
        return len(self.book_of_step)

    @property
    def n_coded(self) -> int:
        return len(self.weights)

    @lazy
    def starts(self) -> Int64:
        """Start of each step's book in the levels."""
        return np.ascontiguousarray(self.book_starts[self.book_of_step])

    @lazy
    def columns(self) -> Int8:
        """Books with rows and columns exchanged."""
        books = [self.levels[start:end].reshape(256, -1).T.ravel() for start, end in pairwise(self.book_starts)]
        return np.concatenate([np.empty(0, np.int8), *books])


@dataclass(frozen=True, eq=False)
class Scoring:
    """Scores of codes of a recipe, as kernels compute them.

    ``kind`` is "signs" of 8 projections per byte, "groups" of 8 projections of which a nibble keeps the largest, a
    "ring" of nibbles, or "kept" locations of a pool. ``factor`` says what the last two bytes of a code are: nothing
    (None), 2**14 times the norm of the reconstruction ("cosine"), or 2**15 plus 512 times a binary logarithm ("log").
    """

    kind: str
    code_bytes: int  # with the factor
    width: int  # values of a query
    factor: str | None = None
    ring: Ring | None = None
    layout: Layout | None = None

    @lazy
    def limit(self) -> int:
        """Largest magnitude of rounded values of queries, such that sums fit 32 bits."""
        most = MAX_VALUE // 4 if self.kind == "signs" else MAX_VALUE  # tables of signs have sums of four values
        return min(most, (2**31 - 1) // max(1, self.width * (127 if self.kind == "ring" else 1)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Scoring, tuple(getattr(self, one.name) for one in fields(self))  # without the addresses of this process


@dataclass(frozen=True, eq=False)
class RoundedQueries:
    """Queries as integers: the score of a code is ``(sum of value * level) * scale + constant``, times its factor."""

    values: Int16  # (n_queries, width)
    scales: Float32  # (n_queries,)
    constants: Float32  # (n_queries,)

    def __getitem__(self, rows: slice | Int64) -> RoundedQueries:
        """Return some of the queries."""
        return RoundedQueries(self.values[rows], self.scales[rows], self.constants[rows])

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class CodeRange:
    """Codes of one segment that are searched together with those of other ranges."""

    codes: CodeBlocks
    first_row: int = 0  # row of the first code in the snapshot
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    ids: Int64 | None = None  # None: rows
    is_ascending: bool = True  # whether ids ascend


class CodeRanges(tuple[CodeRange, ...]):
    """Ranges that are searched together; the structure that kernels take is kept with them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CodeRanges, (tuple(self),)  # without the addresses of this process


@dataclass(frozen=True, eq=False)
class RegionCodes:
    """Codes in the order of their regions, as ranges of segments."""

    segments: list[CodeRange]
    starts: Int32  # (n_regions + 1,) those of region r are ranges[starts[r] : starts[r + 1]]
    ranges: Int32  # (n_ranges, 3) segment, and its codes begin and end

    def within(self, regions: Int32) -> list[CodeRange]:
        """Return the codes of these regions."""
        kept = [np.zeros(len(one.codes), bool) for one in self.segments]
        for region in regions:
            for segment, begin, end in self.ranges[self.starts[region] : self.starts[region + 1]]:
                kept[segment][begin:end] = True
        for living, one in zip(kept, self.segments, strict=True):
            if one.alive is not None:
                living &= np.unpackbits(one.alive, count=len(living), bitorder="little").view(bool)
        packed = [np.packbits(living, bitorder="little") for living in kept]
        return [replace(one, alive=alive) for one, alive in zip(self.segments, packed, strict=True)]


@dataclass(frozen=True, eq=False)
class Visits:
    """Regions that each query visits, each once."""

    starts: Int64  # (n_queries + 1,)
    regions: Int32  # those of query q are regions[starts[q] : starts[q + 1]]


GROUP = 16  # means that stand together in memory


@dataclass(frozen=True, eq=False)
class Means:
    """Means as bytes in groups of 16; rows of bytes 64 with an infinite norm fill a group."""

    values: Bytes  # (n_groups, width / 4, 16, 4) values plus 64, at most 127; the width is a multiple of 64
    scales: Float32  # (16 * n_groups,) by which values are multiplied
    half_norms: Float32  # half of the square norms

    @classmethod
    def of(cls, rows: Bytes, scales: Float32, half_norms: Float32, numbers: Int32) -> Means:
        """Return the means with these numbers, of which those of -1 are fillers."""
        known = numbers >= 0
        values = np.full((len(numbers), rows.shape[1]), 64, np.uint8)
        values[known] = rows[numbers[known]]
        grouped = np.ascontiguousarray(values.reshape(-1, GROUP, rows.shape[1] // 4, 4).transpose(0, 2, 1, 3))
        found = [np.where(known, of[numbers], filler) for of, filler in ((scales, 0), (half_norms, np.inf))]
        return cls(grouped, *(one.astype(np.float32) for one in found))


@dataclass(frozen=True, eq=False)
class RegionModel:
    """Regions in two levels: coarse means, and the means of regions among the members of each."""

    coarse: Means
    fine: Means
    n_coarse: int
    first: Int32  # (n_coarse + 1,) groups of the fine means of each coarse mean
    numbers: Int32  # regions of fine means, -1 for fillers


@dataclass(frozen=True, eq=False)
class RegionRule:
    """Numbers of regions, entries, coarse means and candidates of each stratum, then of queries unlike all others.

    The stratum of a query is the number of edges that its contrast reaches: the difference between its best and its
    16th best score among the regions of the ``base_coarse`` nearest coarse means. Queries whose best score is below
    ``least`` are unlike all others. All entries are visited if a number of regions is 0.
    """

    edges: Float64  # (n_strata - 1,) ascending
    n_regions: Int64  # (n_strata + 1,)
    n_entries: Int64
    n_coarse: Int64
    n_candidates: Int64
    base_coarse: int
    least: float


@dataclass(frozen=True, eq=False)
class RegionChoice:
    """Regions that queries choose, the nearest first, with strata, best scores and contrasts."""

    strata: Int32
    best: Float32
    contrasts: Float32
    visits: Visits


@dataclass(frozen=True, eq=False)
class LazyBlocks:
    """Blocks of values that are read and verified when a search wants them."""

    n_bytes: int  # of a block
    verified: Booleans
    wanted: Bytes  # not 0 for blocks that a search needed and that were not verified
    read: Callable[[Int64], None]


@dataclass(frozen=True, eq=False)
class OriginalRows:
    """Original signals of segments: values (n, n_features) of type float32, float16 or int8, times a scale for each."""

    segments: list[tuple[Array, Float32]]
    is_inner: bool  # whether entries are ordered by inner products instead of correlations
    minus: Float32 | None = None  # (n_features,), subtracted from signals and queries
    blocks: Sequence[LazyBlocks | None] = ()  # of each segment; None if all its values are in memory

    def read(self) -> None:
        """Read the blocks that a search wants."""
        for one in self.blocks:
            if one is not None and one.wanted.any():
                wanted = np.flatnonzero(one.wanted)
                one.wanted[wanted] = 0  # first, because another thread may want others in the meantime
                one.read(wanted)


@dataclass(frozen=True, eq=False)
class RegionHits:
    """Neighbours of each query, (n_queries, k), row -1 if there are fewer, and what was visited.

    They share an allocation, and are made when they are asked for, because single queries need few of them.
    """

    words: Int64  # rows, ids, inner products, correlations, entries visited, and in half of the bytes values and strata
    n_queries: int
    k: int

    @classmethod
    def empty(cls, n_queries: int, k: int) -> RegionHits:
        """Return places for neighbours, to be filled in."""
        n = n_queries * k
        return cls(np.empty(4 * n + n_queries + (n + n_queries + 1) // 2, np.int64), n_queries, k)

    def _columns(self, first: int) -> Int64:
        n = self.n_queries * self.k
        return self.words[first * n : (first + 1) * n].reshape(self.n_queries, self.k)

    @property
    def rows(self) -> Int64:
        return self._columns(0)

    @property
    def ids(self) -> Int64:
        return self._columns(1)

    @property
    def inner(self) -> Float64:
        """Exact inner products, if there are originals."""
        return self._columns(2).view(np.float64)

    @property
    def correlations(self) -> Float64:
        """Exact correlations, if there are originals."""
        return self._columns(3).view(np.float64)

    @property
    def visited(self) -> Int64:
        """Number of entries that each query was compared with, (n_queries,)."""
        start = 4 * self.n_queries * self.k
        return self.words[start : start + self.n_queries]

    @property
    def _halves(self) -> Float32:
        return self.words[(4 * self.k + 1) * self.n_queries :].view(np.float32)

    @property
    def values(self) -> Float32:
        """Scores by code."""
        return self._halves[: self.n_queries * self.k].reshape(self.n_queries, self.k)

    @property
    def strata(self) -> Int32:
        """Stratum of each query, (n_queries,)."""
        n = self.n_queries
        return self._halves[n * self.k : n * self.k + n].view(np.int32)


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A matrix that signals are multiplied with, in panels of columns."""

    values: Float32  # (n_panels, n_features, 32); columns after the last are zeros
    n_columns: int

    @classmethod
    def of(cls, columns: Float32) -> PackedMatrix:
        """Return the matrix with these columns, (n_columns, n_features)."""
        n_columns, n_features = columns.shape
        padded = np.zeros((-(-n_columns // PANEL) * PANEL, n_features), np.float32)
        padded[:n_columns] = columns
        return cls(np.ascontiguousarray(padded.reshape(-1, PANEL, n_features).transpose(0, 2, 1)), n_columns)


@dataclass(frozen=True, eq=False)
class Product:
    """A product of signals with a matrix, computed together with others."""

    panels: PackedMatrix
    minus: Float32 | None = None  # (n_features,), subtracted from the signals
    rows: Int64 | None = None  # signals that are multiplied; None: all
    out: Float32 | None = None  # where the product is written, in C order; None: a new array


@dataclass(frozen=True, eq=False)
class Preparation:
    """Operands that prepare queries for trellis codes: rows to project on, and weights of coded projections."""

    panels: PackedMatrix
    coded: Int32
    weights: Float32  # of the coded projections
    limit: int  # largest magnitude of rounded values
    mean: Float64 | None  # projections of the mean

    def __reduce__(self) -> tuple[Any, ...]:
        return Preparation, tuple(getattr(self, one.name) for one in fields(self))  # as for Scoring


@dataclass(frozen=True, eq=False)
class RegionPlan:
    """All that a search of regions needs besides signals."""

    preparation: Preparation
    scoring: Scoring
    codes: RegionCodes
    model: RegionModel
    counts: Int64
    rule: RegionRule
    originals: OriginalRows | None


@cache
def fractions() -> Float32:
    """Return the powers of two with exponents from 0 to 511/512, in steps of 1/512, that factors are made of."""
    return np.exp2(np.arange(2**9) / 2**9).astype(np.float32)


def pack_log_factors(values: Array) -> Bytes:
    """Pack factors in two bytes each, little-endian: 2**15 plus 512 times the binary logarithm, rounded; 0 for zero.

    The relative rounding error is below 0.07%.
    """
    mantissas, exponents = np.frexp(values.astype(np.float64))  # in [1/2, 1)
    borders = np.exp2((np.arange(2**9) + 0.5) / 2**9 - 1)
    numbers = 2**9 * (exponents.astype(np.int64) - 1) + np.searchsorted(borders, mantissas) + 2**15
    return np.where(values > 0, np.clip(numbers, 1, 2**16 - 1), 0).astype("<u2")[:, np.newaxis].view(np.uint8)


def unpack_factors(codes: Bytes, factor: str) -> Float32:
    """Return the factors in the last two bytes of codes."""
    numbers = np.ascontiguousarray(codes[:, -FACTOR_BYTES:]).view("<u2")[:, 0].astype(np.int32)
    if factor == "cosine":
        return np.divide(np.float32(2**14), numbers, out=np.zeros(len(numbers), np.float32), where=numbers > 0)
    values = np.ldexp(fractions()[numbers & 0x1FF], (numbers >> 9) - 2**6)
    return np.where(numbers > 0, values, np.float32(0)).astype(np.float32)
