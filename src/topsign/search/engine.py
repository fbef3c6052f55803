"""Hits, the entries that a search finds, and engines, which find them on the CPU or another device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from .._arrays import Array, Float64, Int64
from ..families import Comparison, PairComparison
from ..kernels import CodeRange, CodeRanges, RegionCodes, Visits
from ..store.segments import Snapshot


@dataclass(frozen=True, eq=False)
class Hits:
    """Entries found for a block of queries: queries in order, closest first within a query, ties by ascending id.

    Engines rank by ``values``; a :class:`topsign.search.QueryBlock` adds scores and p-values to the hits that are kept,
    and distances if they are asked for.
    """

    queries: Int64  # position of the query in its block
    rows: Int64  # of the snapshot
    ids: Int64
    values: Array  # float32 values as the engine computed them, larger is closer: these decide the order
    scores: Float64 = field(default_factory=partial(np.empty, 0))  # empty until measured
    log10_p_values: Float64 = field(default_factory=partial(np.empty, 0))
    distances: Float64 = field(default_factory=partial(np.empty, 0))

    @classmethod
    def none(cls) -> Hits:
        """Return no hits."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, np.empty(0, np.float32))

    @classmethod
    def ranked(cls, snapshot: Snapshot, rows: Int64, values: Array) -> Hits:
        """Return the best entries of each query, (n_queries, k), in order."""
        if (rows < 0).any():
            _complete(snapshot, rows, values)
        return cls.listed(snapshot, rows, values)

    @classmethod
    def listed(cls, snapshot: Snapshot, rows: Int64, values: Array) -> Hits:
        """Return the entries of each query, (n_queries, k), in order; a row of -1 is no entry."""
        queries, rows, values = np.repeat(np.arange(len(rows)), rows.shape[1]), rows.ravel(), values.ravel()
        if (rows < 0).any():
            queries, values, rows = queries[rows >= 0], values[rows >= 0], rows[rows >= 0]
        return cls(queries, rows, snapshot.gather("ids", rows), values)

    @classmethod
    def merge(cls, parts: Iterable[Hits], *, k: int | None = None) -> Hits:
        """Return the hits of one search over the entries of all parts: every hit, or the k best of each query."""
        whole = cls.joined(parts).ordered()
        return whole if k is None else whole.first(k)

    @classmethod
    def joined(cls, parts: Iterable[Hits]) -> Hits:
        """Return the hits of all parts, one part after the other."""
        parts = list(parts) or [cls.none()]
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def first(self, k: int | Int64) -> Hits:
        """Return the first k hits of each query, or as many as ``k`` has for it."""
        limits = k if isinstance(k, int) else k[self.queries]
        return self[np.arange(len(self.queries)) - np.searchsorted(self.queries, self.queries) < limits]

    def ordered(self) -> Hits:
        """Return the same hits, closest first within each query."""
        return self[np.lexsort((self.ids, -self.values, self.queries))]

    def ordered_by_score(self) -> Hits:
        """Return the same hits by falling score within each query, for exact scores that values do not have."""
        return self[np.lexsort((self.ids, -self.scores, self.queries))]

    def __getitem__(self, kept: Array) -> Hits:
        columns = [getattr(self, one.name) for one in fields(self)]
        return Hits(*(column[kept] if len(column) == len(self.queries) else column for column in columns))

    def __len__(self) -> int:
        return len(self.queries)


def _complete(snapshot: Snapshot, rows: Int64, values: Array) -> None:
    """Kernels return row -1 for scores of -inf (overflow); replace these with the next entries by id, in place."""
    for query in np.flatnonzero((rows < 0).any(axis=1)):
        empty = rows[query] < 0
        others = np.setdiff1d(snapshot.living_rows, rows[query])
        by_id = np.argsort(snapshot.gather("ids", others))
        rows[query, empty], values[query, empty] = others[by_id[: empty.sum()]], -np.inf


class Engine:
    """Search engine over snapshots: the kernels of this machine, which search all segments in one call.

    Engines of other devices override its methods and return the same entries and values to the last bit.
    """

    def rank(self, comparison: PairComparison, snapshot: Snapshot, k: int) -> Hits:
        """Return the k best entries of each query, or all if fewer are alive."""
        ranges = living_ranges(snapshot)
        if not ranges:
            return Hits.none()
        return Hits.ranked(snapshot, *comparison.rank(ranges, min(k, len(snapshot))))

    def within(self, comparison: PairComparison, snapshot: Snapshot, bounds: Array) -> Hits:
        """Return every entry that reaches the bound of its query."""
        ranges = living_ranges(snapshot)
        if not ranges:
            return Hits.none()
        starts, rows, values = comparison.within(ranges, bounds)
        queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return Hits(queries, rows, snapshot.gather("ids", rows), values).ordered()

    def visit(self, comparison: Comparison, snapshot: Snapshot, codes: RegionCodes, visits: Visits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, or all if there are fewer."""
        return Hits.listed(snapshot, *comparison.visit(codes, visits, k))


ENGINE = Engine()


def living_ranges(snapshot: Snapshot) -> CodeRanges:
    """Return the segments that have entries alive, and only those entries."""
    known: CodeRanges | None = snapshot.derived.get("ranges")
    if known is None:
        starts, segments = snapshot.starts, snapshot.segments
        known = CodeRanges(
            CodeRange(segment.codes, int(first_row), segment.alive, segment.ids, segment.is_ascending)
            for first_row, segment in zip(starts, segments, strict=False)
            if segment.n_alive
        )
        snapshot.derived["ranges"] = known  # complete, because other threads may search at the same time
    return known
