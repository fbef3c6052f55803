"""Scans of a snapshot by a block of queries: what is found, and what it means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from .. import kernels
from .._arrays import Bytes, Float32, Float64, Int32, Int64
from ..kernels import Layout
from ..theory.pools import effective_features
from .segments import Hits, Segment, Snapshot
from .significance import Significance

PAIRS = 2**15  # codes gathered at a time when single pairs of query and entry are compared

# Kernels compare float32 scores with a threshold; a little below it none is missed, and what was found decides.
SLACK = 1e-5


@dataclass(frozen=True, eq=False)
class Queries:
    """A block of queries, as scans read them."""

    projected: Float32  # (n_queries, n_pool); zero outside the masks
    norms: Float64  # (n_queries,)
    masks: Bytes | None = None  # (n_queries, ceil(n_pool / 8)), the rows of the pool that a query keeps; None: all

    def __len__(self) -> int:
        return len(self.projected)


@dataclass(frozen=True, eq=False)
class Meaning:
    """What was found, in the terms a user reads."""

    distances: Float64
    scores: Float32
    p_values: Float64


@dataclass(frozen=True, eq=False)
class Scan(ABC):
    """One way to compare a block of queries with entries."""

    descending: ClassVar[bool]  # whether larger values are closer

    layout: Layout
    queries: Queries
    significance: Significance
    metric: str
    n_threads: int

    @abstractmethod
    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        """The k best entries of each query, or all where there are fewer."""

    @abstractmethod
    def near(self, snapshot: Snapshot, limit: float) -> Hits:
        """Entries within a limit, a distance or a score, and perhaps some that just miss it."""

    @abstractmethod
    def reaches(self, meaning: Meaning, limit: float) -> npt.NDArray[np.bool_]:
        """Whether each is within the limit."""

    @abstractmethod
    def significant(self, snapshot: Snapshot, level: float) -> Hits:
        """Entries whose p-value is at most ``level``, and perhaps some that just miss it."""

    @abstractmethod
    def meaning(self, snapshot: Snapshot, hits: Hits) -> Meaning:
        """Distances, scores and p-values of what was found."""

    @cached_property
    def bits(self) -> Bytes:
        return kernels.active().pack_bits(self.queries.projected, n_threads=self.n_threads)

    def mismatches(self, snapshot: Snapshot, hits: Hits) -> Int32:
        """Signs in which each hit differs from its query."""
        out = np.empty(len(hits.rows), np.int32)
        masks = self.queries.masks
        for row, part, codes in self._pairs(snapshot, hits):
            bits = self.bits[row : row + 1]
            if masks is not None:
                codes, bits = codes & masks[row], bits & masks[row]
            out[part] = kernels.active().mismatches(self.layout, codes, bits, n_threads=1)[0]
        return out

    def _pairs(self, snapshot: Snapshot, hits: Hits) -> Iterator[tuple[int, slice, Bytes]]:
        """Hits query by query with their codes, a bounded number of codes at a time."""
        for start in range(0, len(hits.rows), PAIRS):
            rows, places = hits.rows[start : start + PAIRS], hits.places[start : start + PAIRS]
            codes = snapshot.gather("codes", places)
            for row in np.unique(rows):
                low, high = np.searchsorted(rows, [row, row + 1])
                yield int(row), slice(start + low, start + high), codes[low:high]

    def _norm_products(self, snapshot: Snapshot, hits: Hits) -> Float64:
        """|query| times |entry|."""
        norms: Float64 = self.queries.norms[hits.rows] * snapshot.gather("norms", hits.places)
        return norms


class HammingScan(Scan):
    """By the number of signs that differ."""

    descending = False

    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        def scan(segment: Segment, k: int) -> tuple[Int64, Int32]:
            return kernels.active().search_mismatches(
                self.layout,
                segment.codes,
                self.bits,
                k,
                masks=self.queries.masks,
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return snapshot.nearest(scan, len(self.queries), k, descending=self.descending)

    def near(self, snapshot: Snapshot, limit: float) -> Hits:
        n_bits = self.significance.n_bits
        radius = int(np.searchsorted(np.arange(n_bits + 1) / n_bits, limit, side="right")) - 1
        return self._within(snapshot, np.full(len(self.queries), radius, np.int32))

    def reaches(self, meaning: Meaning, limit: float) -> npt.NDArray[np.bool_]:
        return meaning.distances <= limit

    def _within(self, snapshot: Snapshot, radii: Int32) -> Hits:

        def scan(segment: Segment) -> tuple[Int64, Int64, Int32]:
            return kernels.active().within_mismatches(
                self.layout,
                segment.codes,
                self.bits,
                radii,
                masks=self.queries.masks,
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return snapshot.within(scan, len(self.queries), descending=self.descending)

    def significant(self, snapshot: Snapshot, level: float) -> Hits:
        radius = self.significance.mismatch_radius(level)
        return self._within(snapshot, np.where(self.queries.norms > 0, radius, -1).astype(np.int32))

    def meaning(self, snapshot: Snapshot, hits: Hits) -> Meaning:
        counts = hits.values.astype(np.int32)
        known = self.queries.norms[hits.rows] > 0
        scores = np.where(known, self.significance.correlations(counts), 0.0)
        if self.metric == "inner_product":
            scores = scores * self._norm_products(snapshot, hits)
        p_values = np.where(known, self.significance.mismatch_pvalues(counts), 1.0)
        return Meaning(counts / self.significance.n_bits, scores.astype(np.float32), p_values)


class AsymmetricScan(Scan):
    """By the sum of the query's real projections, each with the entry's sign."""

    descending = True

    def nearest(self, snapshot: Snapshot, k: int) -> Hits:
        def scan(segment: Segment, k: int) -> tuple[Int64, Float32]:
            return kernels.active().search_scores(
                self.layout,
                segment.codes,
                self.queries.projected,
                k,
                weights=self._weights(segment, self.metric),
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return snapshot.nearest(scan, len(self.queries), k, descending=self.descending)

    def near(self, snapshot: Snapshot, limit: float) -> Hits:
        return self._within(snapshot, np.full(len(self.queries), limit), self.metric)

    def reaches(self, meaning: Meaning, limit: float) -> npt.NDArray[np.bool_]:
        return meaning.scores.astype(np.float64) >= limit

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        divisors = self._divisors(metric).astype(np.float64)
        lowered = thresholds - SLACK * np.abs(thresholds) - 1e-12
        never = np.where(thresholds > 0, np.inf, -np.inf)  # a zero query scores zero with every entry
        with np.errstate(over="ignore"):
            needed = np.where(divisors > 0, lowered * divisors, never).astype(np.float32)

        def scan(segment: Segment) -> tuple[Int64, Int64, Float32]:
            return kernels.active().within_scores(
                self.layout,
                segment.codes,
                self.queries.projected,
                needed,
                weights=self._weights(segment, metric),
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return snapshot.within(scan, len(self.queries), descending=self.descending)

    def significant(self, snapshot: Snapshot, level: float) -> Hits:
        hits = self._within(snapshot, self._thresholds(level), "correlation")
        return hits if self.metric == "correlation" else self._by_inner_product(snapshot, hits)

    def meaning(self, snapshot: Snapshot, hits: Hits) -> Meaning:
        divisors = self._divisors(self.metric)[hits.rows]
        scores: Float32 = np.divide(hits.values, divisors, out=np.zeros(len(divisors), np.float32), where=divisors > 0)
        correlations = scores.astype(np.float64)
        known = self.queries.norms[hits.rows] > 0
        if self.metric == "inner_product":
            norms = self._norm_products(snapshot, hits)
            correlations = np.divide(correlations, norms, out=np.zeros(len(norms)), where=known)
        p_values = np.where(known, self._p_values(hits.rows, correlations), 1.0)
        return Meaning(self.mismatches(snapshot, hits) / self.significance.n_bits, scores, p_values)

    def _by_inner_product(self, snapshot: Snapshot, hits: Hits) -> Hits:
        """The same hits with the values that a scan by inner product gives them, and in its order."""
        values = np.empty(len(hits.rows), np.float32)
        for row, part, codes in self._pairs(snapshot, hits):
            query = self.queries.projected[row : row + 1]
            values[part] = kernels.active().score_sums(self.layout, codes, query, n_threads=1)[0]
        values *= snapshot.gather(self._inner_weights, hits.places)
        order = np.lexsort((snapshot.gather("ids", hits.places), -values, hits.rows))
        return Hits(hits.rows[order], hits.places[order], values[order])

    # What the kernels multiply sums with; what they are divided by afterwards, query by query; and the null law.

    _inner_weights = "scales"

    def _weights(self, segment: Segment, metric: str) -> Float32 | None:
        return segment.scales if metric == "inner_product" else segment.weights

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

    def meaning(self, snapshot: Snapshot, hits: Hits) -> Meaning:
        return super().meaning(snapshot, Hits(hits.rows, hits.places, hits.values * self._scale))

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        return super()._within(snapshot, thresholds / self._scale, metric)

    @property
    def _scale(self) -> np.float32:
        return self.significance.expected_scale


class ChosenRowsScan(AsymmetricScan):
    """The query keeps its largest projections z, the entry gives signs there.

    Approximation for small correlations: an entry's sign leans towards its query by ``sqrt(2 / pi) rho z / |v|``, so
    ``sqrt(pi / 2) |v| sum(sign z) / sum(z**2)`` estimates rho: with a sixteenth of the pool it is 0.5% low at 0.1, 4%
    at 0.3, 12% at 0.5. For an impostor the sum is taken as normal with variance ``sum(z**2)``; where the pool's rows
    are independent, the sample correlation of the two signals adds to it as it does to every estimate.
    """

    _inner_weights = "norms"

    def _weights(self, segment: Segment, metric: str) -> Float32 | None:
        return segment.norms if metric == "inner_product" else None

    def _divisors(self, metric: str) -> Float32:
        over = self.queries.norms ** (2 if metric == "inner_product" else 1) * np.sqrt(np.pi / 2)
        quotients: Float32 = np.divide(self._energies, over, out=np.zeros(len(over)), where=over > 0).astype(np.float32)
        return quotients

    def _p_values(self, rows: Int64, correlations: Float64) -> Float64:
        return np.asarray(ndtr(-correlations / self._spreads[rows]))

    def _thresholds(self, level: float) -> Float64:
        return np.asarray(-ndtri(level) * self._spreads)

    @cached_property
    def _energies(self) -> Float64:
        return kernels.active().square_norms(self.queries.projected)

    @cached_property
    def _spreads(self) -> Float64:
        """Standard deviation of an impostor's estimated correlation; one for a zero query."""
        law = self.significance
        shared = 1 / effective_features(law.projection, law.n_features, law.n_pool)
        energies = np.where(self._energies > 0, self._energies, 1.0)
        variances = shared + np.pi / 2 * self.queries.norms**2 / energies
        return np.sqrt(np.where(self._energies > 0, variances, 1.0))
