"""Scans: ways to compare a block of prepared queries with the entries of a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
from scipy.special import ndtr, ndtri

from ... import kernels
from ..._arrays import Array, Booleans, Bytes, Float32, Float64, Int32, Int64
from ..._checks import check_choice
from ..._lazy import lazy
from ...kernels import Layout
from ...recipe import Recipe
from ...theory.inference import SCORINGS
from ...theory.pools import effective_features
from ..storage import Snapshot
from .engine import Engine, KernelEngine
from .hits import Hits
from .queries import Queries, check_kept, prepare_queries
from .reach import Reach
from .significance import Significance, shared_significance
from .trellis_engine import TrellisEngine, TrellisKernelEngine

PAIRS = 2**15  # codes gathered at a time when single pairs of query and entry are compared

# Kernels compare float32 scores with a threshold; a little below it none is missed, and the measured score decides.
SLACK = 1e-5


def make_scans(
    recipe: Recipe,
    queries: Array,
    *,
    scoring: str,
    adaptive_bits: int | None = None,
    n_threads: int | None = None,
    n_bytes: int | None = None,
    significance: Significance | None = None,
    engine: Engine | TrellisEngine | None = None,
) -> Iterator[tuple[slice, Scan]]:
    """Blocks of queries, each with the scan that compares it with entries of this recipe.

    ``significance`` replaces the law for isotropic signals where queries keep all their projections.
    """
    check_choice(scoring, "scoring", SCORINGS)
    n_kept, threads = check_kept(recipe, adaptive_bits), kernels.n_threads(n_threads)
    kind: type[SignScan] = HammingScan
    if scoring == "asymmetric":
        kind = ChosenRowsScan if n_kept is not None else AsymmetricScan if recipe.norms else ExpectedScaleScan
    law = isotropic_law(recipe, recipe.layout.n_bits if n_kept is None else n_kept)
    if significance is not None and n_kept is None:
        law = significance
    if recipe.family == "trellis":
        trellis_engine = cast(TrellisEngine, engine or TrellisKernelEngine())
        yield from _trellis_scans(recipe, queries, law, scoring, threads, n_bytes, trellis_engine)
        return
    sign_engine = cast(Engine, engine or KernelEngine())
    for rows, prepared in prepare_queries(recipe, queries, n_kept=n_kept, n_threads=threads, n_bytes=n_bytes):
        yield rows, kind(recipe.layout, prepared, law, recipe.metric, threads, sign_engine)


def _trellis_scans(
    recipe: Recipe,
    queries: Array,
    law: Significance,
    scoring: str,
    n_threads: int,
    n_bytes: int | None,
    engine: TrellisEngine,
) -> Iterator[tuple[slice, Scan]]:
    from .trellis_scans import TrellisScan  # which is a Scan

    if scoring != "asymmetric":
        raise ValueError(f'trellis codes have no signs to compare: scoring must be "asymmetric", got {scoring!r}')
    for rows, prepared in prepare_queries(recipe, queries, n_kept=None, n_threads=n_threads, n_bytes=n_bytes):
        yield rows, TrellisScan(recipe.layout, prepared, law, recipe.metric, n_threads, engine, recipe)


def isotropic_law(recipe: Recipe, n_bits: int) -> Significance:
    """The significance of codes that compare ``n_bits`` signs, for isotropic signals."""
    flat = recipe.projection.options.get("spectrum", "unimodular") == "unimodular"
    pool = recipe.projection.kind if flat else "gaussian"
    return shared_significance(n_bits, recipe.n_pool, recipe.n_features, pool, recipe.norms)


@dataclass(frozen=True, eq=False)
class Scan(ABC):
    """One way to compare a block of queries with entries."""

    descending: ClassVar[bool]  # whether larger values are closer

    layout: Layout
    queries: Queries
    significance: Significance
    metric: str
    n_threads: int

    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        """The k best entries of each query, or all where there are fewer."""
        return self.measure(snapshot, self.rank(snapshot, k))

    def within(self, snapshot: Snapshot, reach: Reach) -> Hits:
        """Every entry that is close enough."""
        hits = (self._significant if reach.is_level else self._near)(snapshot, reach.limit)
        hits = self.measure(snapshot, hits)
        return hits[hits.p_values <= reach.limit if reach.is_level else self._reaches(hits, reach.limit)]

    @abstractmethod
    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        """The k best entries of each query by the kernels' values, not yet measured."""

    @abstractmethod
    def measure(self, snapshot: Snapshot, hits: Hits) -> Hits:
        """The same hits with their distances, scores and p-values."""

    @abstractmethod
    def correlations(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """Estimated correlations of hits, which p-values are about; zero for a zero query."""

    @abstractmethod
    def _near(self, snapshot: Snapshot, limit: float) -> Hits:
        """Entries within a limit, a distance or a score, and perhaps some that just miss it."""

    @abstractmethod
    def _reaches(self, hits: Hits, limit: float) -> Booleans:
        """Whether each measured hit is within the limit."""

    @abstractmethod
    def _significant(self, snapshot: Snapshot, level: float) -> Hits:
        """Entries whose p-value is at most ``level``, and perhaps some that just miss it."""

    def _norm_products(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """Norm of the query times norm of the entry, for each hit."""
        norms: Float64 = self.queries.norms[hits.rows] * snapshot.gather("norms", hits.places)
        return norms


@dataclass(frozen=True, eq=False)
class SignScan(Scan):
    """Compares signs of projections."""

    engine: Engine


class HammingScan(SignScan):
    """Compares by the number of signs that differ."""

    descending = False

    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        return self.engine.rank_mismatches(snapshot, self.layout, self.queries, k, n_threads=self.n_threads)

    def correlations(self, snapshot: Snapshot, hits: Hits) -> Float64:
        estimates = self.significance.correlations(hits.values.astype(np.int32))
        return np.where(self.queries.norms[hits.rows] > 0, estimates, 0.0)

    def measure(self, snapshot: Snapshot, hits: Hits) -> Hits:
        counts = hits.values.astype(np.int32)
        known = self.queries.norms[hits.rows] > 0
        scores = np.where(known, self.significance.correlations(counts), 0.0)
        if self.metric == "inner_product":
            scores = scores * self._norm_products(snapshot, hits)
        p_values = np.where(known, self.significance.mismatch_pvalues(counts), 1.0)
        return replace(
            hits,
            distances=counts / self.significance.n_bits,
            scores=scores.astype(np.float32),
            p_values=p_values,
        )

    def _near(self, snapshot: Snapshot, limit: float) -> Hits:
        n_bits = self.significance.n_bits
        radius = int(np.searchsorted(np.arange(n_bits + 1) / n_bits, limit, side="right")) - 1
        return self._within(snapshot, np.full(len(self.queries), radius, np.int32))

    def _reaches(self, hits: Hits, limit: float) -> Booleans:
        return hits.distances <= limit

    def _significant(self, snapshot: Snapshot, level: float) -> Hits:
        radius = self.significance.mismatch_radius(level)
        return self._within(snapshot, np.where(self.queries.norms > 0, radius, -1).astype(np.int32))

    def _within(self, snapshot: Snapshot, radii: Int32) -> Hits:
        return self.engine.within_mismatches(snapshot, self.layout, self.queries, radii, n_threads=self.n_threads)


class AsymmetricScan(SignScan):
    """Compares by the sum of the query's real projections, each with the entry's sign.

    Subclasses choose what kernels multiply these sums with, what each query divides them by, and the null law.
    """

    descending = True
    inner_weights: ClassVar[str] = "scales"  # column that sums are weighted with for inner products

    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        column = self._column(self.metric)
        return self.engine.rank_scores(snapshot, self.layout, self.queries, k, column=column, n_threads=self.n_threads)

    def measure(self, snapshot: Snapshot, hits: Hits) -> Hits:
        scores, p_values = self._scores(snapshot, hits)
        mismatches, _ = self._compare_pairs(snapshot, hits)
        return replace(hits, distances=mismatches / self.significance.n_bits, scores=scores, p_values=p_values)

    def within(self, snapshot: Snapshot, reach: Reach) -> Hits:
        if not reach.is_level or self.metric == "correlation":
            return super().within(snapshot, reach)
        # Significance is a matter of correlations. Hits found by them get the values, and the order, that a scan by
        # inner products gives; distances come from the same pass over their codes.
        hits = self._significant(snapshot, reach.limit)
        mismatches, sums = self._compare_pairs(snapshot, hits, with_sums=True)
        values = sums * snapshot.gather(self.inner_weights, hits.places)
        hits = replace(hits, values=values, distances=mismatches / self.significance.n_bits)
        hits = hits.ordered(descending=self.descending)
        scores, p_values = self._scores(snapshot, hits)
        return replace(hits, scores=scores, p_values=p_values)[p_values <= reach.limit]

    def _near(self, snapshot: Snapshot, limit: float) -> Hits:
        return self._within(snapshot, np.full(len(self.queries), limit), self.metric)

    def _reaches(self, hits: Hits, limit: float) -> Booleans:
        return hits.scores.astype(np.float64) >= limit

    def _significant(self, snapshot: Snapshot, level: float) -> Hits:
        return self._within(snapshot, self._thresholds(level), "correlation")

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        divisors = self._divisors(metric).astype(np.float64)
        lowered = thresholds - SLACK * np.abs(thresholds) - 1e-12
        never = np.where(thresholds > 0, np.inf, -np.inf)  # a zero query scores zero with every entry
        with np.errstate(over="ignore"):
            needed = np.where(divisors > 0, lowered * divisors, never).astype(np.float32)

        column = self._column(metric)
        return self.engine.within_scores(
            snapshot, self.layout, self.queries, needed, column=column, n_threads=self.n_threads
        )

    def correlations(self, snapshot: Snapshot, hits: Hits) -> Float64:
        return self._estimates(snapshot, hits)[1]

    def _scores(self, snapshot: Snapshot, hits: Hits) -> tuple[Float32, Float64]:
        """Scores and p-values of hits."""
        scores, correlations = self._estimates(snapshot, hits)
        known = self.queries.norms[hits.rows] > 0
        return scores, np.where(known, self._p_values(hits.rows, correlations), 1.0)

    def _estimates(self, snapshot: Snapshot, hits: Hits) -> tuple[Float32, Float64]:
        """Scores of hits, and the correlations that they stand for."""
        divisors = self._divisors(self.metric)[hits.rows]
        values = self._scaled(hits.values)
        scores: Float32 = np.divide(values, divisors, out=np.zeros(len(divisors), np.float32), where=divisors > 0)
        correlations = scores.astype(np.float64)
        if self.metric == "inner_product":
            norms = self._norm_products(snapshot, hits)
            correlations = np.divide(correlations, norms, out=np.zeros(len(norms)), where=norms > 0)
        return scores, correlations

    def _compare_pairs(self, snapshot: Snapshot, hits: Hits, *, with_sums: bool = False) -> tuple[Int32, Float32]:
        """Mismatches of each hit and its query, and score sums where asked; codes are gathered once."""
        counts, sums = np.empty(len(hits.rows), np.int32), np.empty(len(hits.rows) if with_sums else 0, np.float32)
        masks, bits, chosen = self.queries.masks, self.queries.bits, kernels.active()
        for row, part, codes in _pairs(snapshot, hits):
            query = bits[row : row + 1]
            if with_sums:
                projected = self.queries.projected[row : row + 1]
                sums[part] = chosen.score_sums(self.layout, codes, projected, n_threads=1)[0]
            if masks is not None:
                codes, query = codes & masks[row], query & masks[row]
            counts[part] = chosen.mismatches(self.layout, codes, query, n_threads=1)[0]
        return counts, sums

    def _column(self, metric: str) -> str | None:
        return "scales" if metric == "inner_product" else "weights"

    def _scaled(self, values: Array) -> Array:
        return values

    def _divisors(self, metric: str) -> Float32:
        if metric == "inner_product":
            return np.ones(len(self.queries), np.float32)
        return self.queries.norms.astype(np.float32)

    def _p_values(self, rows: Int64, correlations: Float64) -> Float64:
        return self.significance.score_pvalues(correlations)

    def _thresholds(self, level: float) -> Float64:
        return np.full(len(self.queries), self.significance.score_threshold(level))


class ExpectedScaleScan(AsymmetricScan):
    """The same where entries keep no scale: every sum is scaled as a normal signal's would be."""

    def _scaled(self, values: Array) -> Array:
        return values * self.significance.expected_scale

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        return super()._within(snapshot, thresholds / self.significance.expected_scale, metric)


class ChosenRowsScan(AsymmetricScan):
    """The query keeps its largest projections z, the entry gives signs there.

    Approximation for small correlations: an entry's sign leans towards its query by ``sqrt(2 / pi) rho z / |v|``, so
    ``sqrt(pi / 2) |v| sum(sign z) / sum(z**2)`` estimates rho: with a sixteenth of the pool it is 0.5% low at 0.1, 4%
    at 0.3, 12% at 0.5. For an impostor the sum is taken as normal with variance ``sum(z**2)``; where the pool's rows
    are independent, the sample correlation of the two signals adds to it as it does to every estimate.
    """

    inner_weights = "norms"

    def _column(self, metric: str) -> str | None:
        return "norms" if metric == "inner_product" else None

    def _divisors(self, metric: str) -> Float32:
        over = self.queries.norms ** (2 if metric == "inner_product" else 1) * np.sqrt(np.pi / 2)
        quotients: Float32 = np.divide(self._energies, over, out=np.zeros(len(over)), where=over > 0).astype(np.float32)
        return quotients

    def _p_values(self, rows: Int64, correlations: Float64) -> Float64:
        return np.asarray(ndtr(-correlations / self._spreads[rows]))

    def _thresholds(self, level: float) -> Float64:
        return np.asarray(-ndtri(level) * self._spreads)

    @lazy
    def _energies(self) -> Float64:
        return kernels.active().square_norms(self.queries.projected)

    @lazy
    def _spreads(self) -> Float64:
        """Standard deviation of an impostor's estimated correlation; one for a zero query."""
        law = self.significance
        shared = 1 / effective_features(law.projection, law.n_features, law.n_pool)
        energies = np.where(self._energies > 0, self._energies, 1.0)
        variances = shared + np.pi / 2 * self.queries.norms**2 / energies
        return np.sqrt(np.where(self._energies > 0, variances, 1.0))


def _pairs(snapshot: Snapshot, hits: Hits) -> Iterator[tuple[int, slice, Bytes]]:
    """Hits query by query with their codes, a bounded number of codes at a time."""
    for start in range(0, len(hits.rows), PAIRS):
        rows, places = hits.rows[start : start + PAIRS], hits.places[start : start + PAIRS]
        codes = snapshot.gather("codes", places)
        for row in np.unique(rows):
            low, high = np.searchsorted(rows, [row, row + 1])
            yield int(row), slice(start + low, start + high), codes[low:high]
