"""Comparison of queries with codes, and of codes with each other: what families implement and engines execute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from .._arrays import Array, Bytes, Float32, Float64, Int32, Int64
from ..kernels import RegionArrays, RegionCodes, VisitedCodes


class CodeColumns(Protocol):
    """Immutable columns of a segment, in ascending order of id."""

    @property
    def ids(self) -> Int64: ...
    @property
    def codes(self) -> Bytes: ...
    @property
    def derived(self) -> dict[str, Any]:
        """Values computed from the columns, kept as long as they are."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Float32:
        """Return a column that the recipe stores with the codes."""


@dataclass(frozen=True, eq=False)
class Range:
    """Entries of one segment that are searched together with those of other ranges."""

    columns: CodeColumns
    first_row: int = 0  # row of the segment's first entry in the snapshot
    alive: Bytes | None = None  # packed bitmap of the entries that take part; None: all

    def derived(self, name: str, make: Callable[[CodeColumns], Any]) -> Any:
        """Return a value computed from the columns, computed once for all searches."""
        found = self.columns.derived.get(name)
        if found is None:
            found = self.columns.derived[name] = make(self.columns)
        return found

    def blocks(self, n_rows: int) -> list[Int64]:
        """Return positions of the entries that take part, in blocks of ``n_rows``."""
        count = len(self.columns)
        if self.alive is None:
            living = np.arange(count)
        else:
            living = np.flatnonzero(np.unpackbits(self.alive, count=count, bitorder="little"))
        return [living[start : start + n_rows] for start in range(0, len(living), n_rows)]


@dataclass(frozen=True, eq=False)
class RegionRange(Range):
    """Entries of one segment in the order of their regions."""

    positions: Int32 = field(default_factory=lambda: np.empty(0, np.int32))
    starts: Int32 = field(default_factory=lambda: np.zeros(1, np.int32))  # region r: positions[starts[r]:starts[r + 1]]

    def within(self, regions: Int32) -> Range:
        """Return the entries of these regions."""
        parts = [self.positions[self.starts[one] : self.starts[one + 1]] for one in regions]
        kept = np.zeros(len(self.columns), bool)
        kept[np.concatenate([np.empty(0, np.int32), *parts])] = True
        if self.alive is not None:
            kept &= np.unpackbits(self.alive, count=len(kept), bitorder="little").view(bool)
        return Range(self.columns, self.first_row, np.packbits(kept, bitorder="little"))


@dataclass(frozen=True, eq=False)
class RegionRanges:
    """Segments of a snapshot in the order of regions, with their form for kernels."""

    ranges: list[RegionRange]
    known: dict[str, RegionArrays] = field(default_factory=dict)

    def arrays(self, name: str = "", weights: Callable[[Range], Float32 | None] = lambda _: None) -> RegionArrays:
        """Return the segments in the form that kernels take, with a column of weights of this name."""
        if name not in self.known:
            parts = []
            for one in self.ranges:
                columns, at = one.columns, (one.positions, one.starts, one.first_row, one.alive)
                parts.append(RegionCodes(columns.codes, *at, weights(one), columns.ids))
            self.known[name] = RegionArrays(parts)
        return self.known[name]


@dataclass(frozen=True, eq=False)
class Visits:
    """Segments, and the regions that each query visits."""

    segments: RegionRanges
    starts: Int64  # (n_queries + 1,)
    regions: Int32  # those of query q are regions[starts[q] : starts[q + 1]]

    def of_query(self, query: int) -> list[Range]:
        """Return the entries that a query visits."""
        regions = self.regions[self.starts[query] : self.starts[query + 1]]
        return [one.within(regions) for one in self.segments.ranges]

    def codes(self, name: str = "", weights: Callable[[Range], Float32 | None] = lambda _: None) -> VisitedCodes:
        """Return the visits in the form that kernels take, with a column of weights of this name."""
        return VisitedCodes(self.segments.arrays(name, weights), self.starts, self.regions)


class Null(Protocol):
    """Distribution of a statistic of impostors; larger values are closer matches."""

    def log10_p_values(self, statistics: Float64) -> Float64:
        """Return decimal logarithms of the probability that an impostor reaches each value."""

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        """Return the smallest value of a match in a search of ``n_entries`` entries, or slightly less."""

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> Array:
        """Return which values are matches, such that a search for an impostor has one with at most this probability."""


class Gather(Protocol):
    """Columns of the entries of some hits, by name."""

    def __call__(self, name: str, part: slice = ...) -> Array:
        """Return a column, or "codes" or "ids", of all hits or of a part of them."""


class Comparison(ABC):
    """Prepared queries, ready to be compared with codes of one recipe.

    ``rank`` and ``within`` order entries by *values*, which every engine computes with the same bits; the other methods
    turn the values of hits into scores, correlations, distances and the statistics of a null distribution. In these,
    ``queries`` holds the position of the query of each hit.
    """

    descending: ClassVar[bool] = True  # whether larger values are closer
    scoring: ClassVar[str] = "asymmetric"
    metric: str
    norms: Float64  # (n_queries,) norms of the queries

    def __len__(self) -> int:
        return len(self.norms)

    @abstractmethod
    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        """Return rows and values, (n_queries, k), of the k best entries; ties by ascending id, row -1 for -inf."""

    def visit(self, visits: Visits, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        """Return rows and values like :meth:`rank`, among the entries that each query visits."""
        found = [self.rank(visits.of_query(query), k, n_threads=n_threads) for query in range(len(self))]
        rows = [rows[query] for query, (rows, _) in enumerate(found)]
        values = [values[query] for query, (_, values) in enumerate(found)]
        return np.array(rows, np.int64).reshape(-1, k), np.array(values).reshape(-1, k)

    def scan_cost(self, n_queries: float) -> float:
        """Return the nanoseconds that a core takes to compare an entry with a batch of queries."""
        return 20 * n_queries

    def visit_cost(self, n_queries: float) -> float:
        """Return the nanoseconds to compare an entry of a region with the queries that visit it."""
        return 20 * n_queries

    @abstractmethod
    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        """Return starts, rows and values of every entry that reaches the bound of its query."""

    @abstractmethod
    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        """Return scores and estimated correlations of hits; both are zero for a zero query.

        For each query, scores must be a strictly monotone function of the values, so that entries with equal scores
        have equal values, among which engines order by ascending id. Quotients of float32 values in float64 are.
        """

    @abstractmethod
    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        """Return the distances of hits, in [0, 1]."""

    @abstractmethod
    def bounds(self, limit: float) -> Array:
        """Return the bounds at which a search finds every score (or distance) within ``limit``, and a few more."""

    @abstractmethod
    def null_bounds(self, threshold: float) -> Array:
        """Return the bounds at which a search finds every statistic of at least ``threshold``, and a few more."""

    @property
    def null(self) -> Null | None:
        """Null distribution that the family knows, None if there is none."""
        return None

    @property
    def fixed_null(self) -> bool:
        """Whether calibration does not apply, because statistics are standardised per query."""
        return False

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        """Return the statistics that the null distribution describes, by default estimated correlations."""
        return correlations

    def reaches(self, scores: Float64, distances: Callable[[], Float64], limit: float) -> Array:
        """Return whether each hit is within ``limit``."""
        return scores >= limit

    def light(self) -> Comparison:
        """Return a comparison that still knows distances, in less memory if possible."""
        return self

    def correlated(self) -> Comparison:
        """Return the comparison by correlation, in which significance is decided."""
        return self


class Pairing(ABC):
    """Comparison of the entries of an index with each other. Picklable: a cluster sends it to its workers once."""

    has_null: ClassVar[bool] = False
    row_bytes: int  # memory that one code takes while it is compared with others
    column_names: tuple[str, ...] = ()  # columns beside the codes that pairs depend on

    @abstractmethod
    def prepare(self, codes: Bytes, columns: Mapping[str, Float32], *, n_threads: int) -> PairComparison:
        """Return the comparison of these codes with any others."""

    @abstractmethod
    def scores(self, values: Array) -> Float64:
        """Return the scores that values stand for."""

    @abstractmethod
    def bound(self, score: float) -> float:
        """Return the least value whose score is at least ``score``."""

    def log10_p_values(self, values: Array) -> Float64:
        """Return log10 of the probability that codes of independent signals are this similar; nan if unknown."""
        return np.full(len(values), np.nan)

    def null_bound(self, level: float) -> float:
        """Return the least value whose p-value is at most ``level``."""
        raise ValueError(
            "false_alarm needs the null distribution of pairs of codes, which this family does not have; give "
            "threshold, the least score of a pair, or k"
        )


class PairComparison(Protocol):
    """Codes of some entries, ready to be compared with those of others: the searching half of a Comparison."""

    def __len__(self) -> int: ...
    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]: ...
    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]: ...
