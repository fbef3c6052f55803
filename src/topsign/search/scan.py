"""Scans: a block of prepared queries, compared with entries and measured against a null distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .. import kernels
from .._arrays import Array, Float64
from ..families import Comparison, Gather, Null, Recipe
from ..store import Snapshot
from .engine import ENGINE, Engine, row_ranges
from .hits import Hits
from .limits import RangeLimit
from .region_order import RegionVisits

QUERY_BYTES = 2**26  # bytes of prepared queries in memory at a time
SMALL_QUERY_BYTES = 2**23
"""The same for searches on workers or in regions; a whole block either visits regions or scans all entries."""
BLOCK_PAIRS = 2**22  # values computed at a time


@dataclass(frozen=True, eq=False)
class Scan:
    """A block of prepared queries with the null distribution of their scores and the engine that compares them."""

    comparison: Comparison
    null: Null | None
    n_threads: int
    engine: Engine = ENGINE

    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        """Return the k best entries of each query, or all if there are fewer."""
        return self.measure(snapshot, self.rank(snapshot, k))

    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        """Return the k best entries of each query, not yet measured."""
        return self.engine.rank(self.comparison, snapshot, k, n_threads=self.n_threads)

    def visit(self, snapshot: Snapshot, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured; fewer if there are fewer."""
        ranges = visits.order.ranges(snapshot)
        if ranges is None:
            raise ValueError("some entries have no region; call learn_regions() again")
        if not ranges.arrays:
            return self.measure(snapshot, Hits.none())
        asked = kernels.VisitedCodes(ranges, visits.starts, visits.regions)
        return self.measure(snapshot, self.engine.visit(self.comparison, snapshot, asked, k, n_threads=self.n_threads))

    def within(self, snapshot: Snapshot, limit: RangeLimit) -> Hits:
        """Return every entry that is close enough."""
        if limit.is_level:
            return self._significant(snapshot, limit.value, limit.n_entries)
        bounds = self.comparison.bounds(limit.value)
        hits = self.engine.within(self.comparison, snapshot, bounds, n_threads=self.n_threads)
        hits = self.measure(snapshot, hits)
        distances = partial(self.distances, snapshot, hits)
        return hits[self.comparison.reaches(hits.scores, distances, limit.value)]

    def _significant(self, snapshot: Snapshot, false_alarm: float, n_entries: int) -> Hits:
        """Return entries by the p-values of their correlations, in the order of this comparison."""
        if self.null is None:
            raise ValueError(
                "false_alarm needs p-values, which these codes have only after calibration; give threshold, calibrate "
                'the index, or make it with a random basis and no mean (basis="hadamard", center=False)'
            )
        found = self.comparison.correlated()
        bounds = found.null_bounds(self.null.search_threshold(false_alarm, n_entries))
        hits = self.engine.within(found, snapshot, bounds, n_threads=self.n_threads)
        if found is not self.comparison:
            hits = replace(hits, values=self.values_of(snapshot, hits)).ordered()
        hits = self.measure(snapshot, hits)
        reached = self.null.significant(self.statistics(snapshot, hits), false_alarm, n_entries)
        return hits[reached]

    def values_of(self, snapshot: Snapshot, hits: Hits) -> Array:
        """Return this comparison's values of hits that another one found, equal to those of :meth:`rank`."""
        values, rows = np.empty(len(hits), np.float32), np.unique(hits.rows)
        n_rows = max(1, BLOCK_PAIRS // max(1, len(self.comparison)))
        n_all, everything = int(rows.max(initial=0)) + 1, np.full(len(self.comparison), -np.inf, np.float32)
        for start in range(0, len(rows), n_rows):
            some = rows[start : start + n_rows]
            ranges = row_ranges(snapshot, some)
            starts, found, computed = self.comparison.within(ranges, everything, n_threads=self.n_threads)
            keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * n_all + found
            here = np.flatnonzero((hits.rows >= some[0]) & (hits.rows <= some[-1]))
            values[here] = computed[np.searchsorted(keys, hits.queries[here] * n_all + hits.rows[here])]
        return values

    def measure(self, snapshot: Snapshot, hits: Hits) -> Hits:
        """Return the same hits with their scores and p-values."""
        scores, correlations = self._estimates(snapshot, hits)
        logs = np.full(len(hits), np.nan)
        if self.null is not None:
            known = self.comparison.norms[hits.queries] > 0
            statistics = self.comparison.statistics(hits.queries, hits.values, correlations)
            logs = np.where(known, self.null.log10_p_values(statistics), 0.0)
        return Hits(hits.queries, hits.rows, hits.ids, hits.values, scores, logs, hits.distances)

    def statistics(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """Return the statistics of hits, which nulls are learned from."""
        _, correlations = self._estimates(snapshot, hits)
        return self.comparison.statistics(hits.queries, hits.values, correlations)

    def _estimates(self, snapshot: Snapshot, hits: Hits) -> tuple[Float64, Float64]:
        """Return scores and estimated correlations; a snapshot without entries has no codes to gather."""
        if not len(hits):
            return np.empty(0), np.empty(0)
        return self.comparison.estimates(hits.queries, hits.values, self._gather(snapshot, hits))

    def correlated(self) -> Scan:
        """Return the scan by correlation, in which significance is decided."""
        return replace(self, comparison=self.comparison.correlated())

    def light(self) -> Scan:
        """Return a smaller scan that can only compute distances."""
        return Scan(self.comparison.light(), self.null, self.n_threads, self.engine)

    def distances(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """Return the distances of hits; reads their codes again."""
        if not len(hits):
            return np.empty(0)
        return self.comparison.distances(hits.queries, hits.values, self._gather(snapshot, hits))

    def with_distances(self, snapshot: Snapshot, hits: Hits) -> Hits:
        """Return the same hits with their distances."""
        return replace(hits, distances=self.distances(snapshot, hits))

    @staticmethod
    def _gather(snapshot: Snapshot, hits: Hits) -> Gather:
        def gather(name: str, part: slice = slice(None)) -> Array:
            return snapshot.gather(name, hits.rows[part])

        return gather


def make_scans(
    recipe: Recipe,
    queries: Array,
    *,
    scoring: str,
    adaptive_bits: int | None = None,
    n_threads: int | None = None,
    n_bytes: int = QUERY_BYTES,
    nulls: dict[str, Null] | None = None,
    engine: Engine = ENGINE,
) -> Iterator[tuple[slice, Scan]]:
    """Yield blocks of queries, each with the scan that compares it with entries of this recipe.

    ``nulls``, by scoring, replace those of the family if queries keep all their projections.
    """
    threads = kernels.n_threads(n_threads)
    n_rows = max(1, n_bytes // recipe.query_nbytes)
    prepare = partial(recipe.prepare, queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=threads)
    if not len(queries):
        prepare(part=slice(0, 0))  # check the options although there are no queries
    for start in range(0, len(queries), n_rows):
        rows = slice(start, min(start + n_rows, len(queries)))
        comparison = prepare(part=rows)
        _check_directions(recipe, comparison, rows.start)
        null = comparison.null
        if nulls is not None and not comparison.fixed_null:
            null = nulls[comparison.scoring]
        yield rows, Scan(comparison, null, threads, engine)


def _check_directions(recipe: Recipe, comparison: Comparison, first: int) -> None:
    """Raise ValueError if a query has no direction to compare."""
    zeros = np.flatnonzero(comparison.norms == 0)
    if zeros.size:
        why = "is all zeros" if recipe.center is None else "equals the mean that the index removes"
        raise ValueError(f"queries[{first + int(zeros[0])}] {why} and matches nothing; drop that row")
