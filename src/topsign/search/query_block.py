"""QueryBlock: prepared queries, compared with entries and measured against a null distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .._arrays import Array, Float64
from .._checks import check_choice, check_false_alarm, check_real
from ..families import SCORINGS, Comparison, Gather, Null, Recipe
from ..store.segments import Snapshot
from .engine import ENGINE, Engine, Hits, living_ranges
from .regions import RegionVisits


@dataclass(frozen=True)
class RangeLimit:
    """Limit of a range search: a score, a distance, or a significance level."""

    value: float
    is_level: bool = False  # whether the value is the probability of a false alarm in a search
    n_entries: int = 0  # entries of the whole search, which may be divided among workers, if it is a level

    @classmethod
    def checked(
        cls, *, radius: float | None, threshold: float | None, false_alarm: float | None, scoring: str
    ) -> RangeLimit:
        """Return the limit that the arguments of a range search ask for."""
        given = {"radius": radius, "threshold": threshold, "false_alarm": false_alarm}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError(
                "give exactly one of radius, threshold and false_alarm, got " + (" and ".join(named) or "none")
            )
        check_choice(scoring, "scoring", SCORINGS)
        goes_with = {"radius": "hamming", "threshold": "asymmetric"}.get(named[0], scoring)
        if scoring != goes_with:
            raise ValueError(f'{named[0]} goes with scoring="{goes_with}", got scoring="{scoring}"')
        if false_alarm is not None:
            return cls(check_false_alarm(false_alarm), is_level=True)
        if radius is not None:
            return cls(check_real(radius, "radius", minimum=0, maximum=1))
        return cls(check_real(threshold, "threshold"))


QUERY_BYTES = 2**26  # bytes of prepared queries in memory at a time
SMALL_QUERY_BYTES = 2**23
"""The same for searches on workers or in regions; a whole block either visits regions or scans all entries."""
BLOCK_PAIRS = 2**22  # values computed at a time


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """A block of prepared queries with the null distribution of their scores and the engine that compares them."""

    comparison: Comparison
    null: Null | None
    engine: Engine = ENGINE

    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        """Return the k best entries of each query, or all if there are fewer, measured."""
        return self.measure(snapshot, self.engine.rank(self.comparison, snapshot, k))

    def visit(self, snapshot: Snapshot, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured; fewer if there are fewer."""
        found = visits.order.codes(snapshot)
        if found is None:
            raise ValueError("some entries have no region; call learn_regions() again")
        if not found[0].segments:
            return self.measure(snapshot, Hits.none())
        return self.measure(snapshot, self.engine.visit(self.comparison, snapshot, found[0], visits.visits, k))

    def within(self, snapshot: Snapshot, limit: RangeLimit) -> Hits:
        """Return every entry that is close enough."""
        if limit.is_level:
            return self._significant(snapshot, limit.value, limit.n_entries)
        bounds = self.comparison.bounds(limit.value)
        hits = self.engine.within(self.comparison, snapshot, bounds)
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
        hits = self.engine.within(found, snapshot, bounds)
        if found is not self.comparison:
            hits = replace(hits, values=self.values_of(snapshot, hits)).ordered()
        hits = self.measure(snapshot, hits)
        reached = self.null.significant(self.statistics(snapshot, hits), false_alarm, n_entries)
        return hits[reached]

    def values_of(self, snapshot: Snapshot, hits: Hits) -> Array:
        """Return this comparison's values of hits that another one found, equal to those of the engine."""
        values, rows = np.empty(len(hits), np.float32), np.unique(hits.rows)
        n_rows = max(1, BLOCK_PAIRS // max(1, len(self.comparison)))
        n_all, everything = int(rows.max(initial=0)) + 1, np.full(len(self.comparison), -np.inf, np.float32)
        for start in range(0, len(rows), n_rows):
            some = rows[start : start + n_rows]
            ranges = living_ranges(snapshot.where(snapshot.mask(some), gather=False))
            starts, found, computed = self.comparison.within(ranges, everything)
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

    def correlated(self) -> QueryBlock:
        """Return the queries compared by correlation, in which significance is decided."""
        return replace(self, comparison=self.comparison.correlated())

    def light(self) -> QueryBlock:
        """Return a smaller block that can only compute distances."""
        return QueryBlock(self.comparison.light(), self.null, self.engine)

    def distances(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """Return the distances of hits; reads their codes again."""
        if not len(hits):
            return np.empty(0)
        return self.comparison.distances(hits.queries, hits.values, self._gather(snapshot, hits))

    @staticmethod
    def _gather(snapshot: Snapshot, hits: Hits) -> Gather:
        def gather(name: str, part: slice = slice(None)) -> Array:
            return snapshot.gather(name, hits.rows[part])

        return gather


def query_blocks(
    recipe: Recipe,
    queries: Array,
    *,
    scoring: str,
    adaptive_bits: int | None = None,
    n_bytes: int = QUERY_BYTES,
    nulls: Mapping[str, Null] | None = None,
    engine: Engine = ENGINE,
) -> Iterator[tuple[slice, QueryBlock]]:
    """Yield the rows of each block of queries, and the queries prepared for entries of this recipe.

    ``nulls``, by scoring, replace those of the family if queries keep all their projections.
    """
    n_rows = max(1, n_bytes // recipe.query_nbytes)
    prepare = partial(recipe.prepare, queries, scoring=scoring, adaptive_bits=adaptive_bits)
    if not len(queries):
        prepare(part=slice(0, 0))  # check the options although there are no queries
    for start in range(0, len(queries), n_rows):
        rows = slice(start, min(start + n_rows, len(queries)))
        comparison = prepare(part=rows)
        _check_directions(recipe, comparison, rows.start)
        null = comparison.null
        if nulls is not None and not comparison.fixed_null:
            null = nulls[comparison.scoring]
        yield rows, QueryBlock(comparison, null, engine)


def _check_directions(recipe: Recipe, comparison: Comparison, first: int) -> None:
    """Raise ValueError if a query has no direction to compare."""
    zeros = np.flatnonzero(comparison.norms == 0)
    if zeros.size:
        why = "is all zeros" if recipe.center is None else "equals the mean that the index removes"
        raise ValueError(f"queries[{first + int(zeros[0])}] {why} and matches nothing; drop that row")
