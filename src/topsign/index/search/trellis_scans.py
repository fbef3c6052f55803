"""Scans of trellis codes: cosines of queries and reconstructions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from ... import kernels
from ..._arrays import Booleans, Float32, Float64, Int64
from ..._lazy import lazy
from ...codes import round_queries
from ...kernels import RoundedQueries
from ...recipe import Recipe
from ..storage import Segment, Snapshot
from .hits import Hits
from .reach import Reach
from .scans import Scan
from .significance import sample_pvalues


@dataclass(frozen=True, eq=False)
class TrellisScan(Scan):
    """Compares by the cosine of the query with the entry's reconstruction, or by that times both norms.

    With a random basis and no mean a cosine with an independent impostor has exactly the law of a sample correlation
    in n_features dimensions, because a reconstruction does not depend on the query. A learned basis knows where
    signals lie, and so does the mean: impostors then correlate, by how much depends on them, and there are no p-values
    before the index is calibrated.
    """

    recipe: Recipe

    descending = True

    @lazy
    def rounded(self) -> RoundedQueries:
        """The queries as kernels take them."""
        return round_queries(self.recipe, self.queries.projected)

    @property
    def has_law(self) -> bool:
        """Whether p-values are known."""
        random = self.recipe.mean is None and self.recipe.projection.kind != "principal"
        return self.significance.learned or random

    def correlations(self, snapshot: Snapshot, hits: Hits) -> Float64:
        cosines = hits.values.astype(np.float64)
        if self.metric == "inner_product":
            kept = snapshot.gather("norms", hits.places).astype(np.float64)
            cosines = np.divide(cosines, kept, out=np.zeros(len(kept)), where=kept > 0)
        return np.where(self.queries.norms[hits.rows] > 0, cosines, 0.0)

    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        def kernel(segment: Segment, k: int) -> tuple[Int64, Float32]:
            return kernels.active().trellis_search(
                self.recipe.tables,
                segment.codes,
                self.rounded,
                k,
                weights=self._weights(segment, self.metric),
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return Hits.nearest(snapshot, kernel, len(self.queries), k, descending=self.descending)

    def measure(self, snapshot: Snapshot, hits: Hits) -> Hits:
        norms = self.queries.norms[hits.rows]
        cosines, scores = self.correlations(snapshot, hits), hits.values.astype(np.float64)
        if self.metric == "inner_product":
            scores = scores * norms
        p_values = np.full(len(norms), np.nan)
        if self.has_law:
            p_values = np.where(norms > 0, self._p_values(cosines), 1.0)
        return replace(
            hits,
            distances=np.arccos(np.clip(cosines, -1, 1)) / np.pi,
            scores=scores.astype(np.float32),
            p_values=p_values,
        )

    def within(self, snapshot: Snapshot, reach: Reach) -> Hits:
        if not reach.is_level or self.metric == "correlation":
            return super().within(snapshot, reach)
        # Significance is a matter of cosines; the order is that of inner products.
        hits = self._significant(snapshot, reach.limit)
        values = hits.values * snapshot.gather("norms", hits.places)
        hits = self.measure(snapshot, replace(hits, values=values).ordered(descending=self.descending))
        return hits[hits.p_values <= reach.limit]

    def _near(self, snapshot: Snapshot, limit: float) -> Hits:
        if self.metric == "correlation":
            return self._within(snapshot, np.full(len(self.queries), limit), self.metric)
        norms = self.queries.norms
        needed = np.divide(limit, norms, out=np.full(len(norms), np.inf if limit > 0 else -np.inf), where=norms > 0)
        return self._within(snapshot, needed - 1e-5 * np.abs(needed), self.metric)

    def _reaches(self, hits: Hits, limit: float) -> Booleans:
        return hits.scores.astype(np.float64) >= limit

    def _significant(self, snapshot: Snapshot, level: float) -> Hits:
        if not self.has_law:
            raise ValueError(
                "false_alarm needs p-values, which are known for a random basis without a mean alone; "
                'give threshold, calibrate the index, or make it with basis="hadamard" and center=False'
            )
        if self.significance.learned:
            cosine = self.significance.score_threshold(level)
        else:
            degrees = self.recipe.n_features - 1
            deviate = float(student.isf(level, degrees))
            cosine = deviate / np.sqrt(deviate**2 + degrees)
        thresholds = np.where(self.queries.norms > 0, cosine - 1e-6, np.inf)
        return self._within(snapshot, thresholds, "correlation")

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        with np.errstate(over="ignore"):
            needed = np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))

        def kernel(segment: Segment) -> tuple[Int64, Int64, Float32]:
            return kernels.active().trellis_within(
                self.recipe.tables,
                segment.codes,
                self.rounded,
                needed,
                weights=self._weights(segment, metric),
                alive=segment.alive,
                n_threads=self.n_threads,
            )

        return Hits.within(snapshot, kernel, len(self.queries), descending=self.descending)

    def _p_values(self, cosines: Float64) -> Float64:
        if self.significance.learned:
            return self.significance.score_pvalues(cosines)
        return sample_pvalues(cosines, self.recipe.n_features)

    def _weights(self, segment: Segment, metric: str) -> Float32 | None:
        """What kernels multiply with; None makes them compute one over the norms of the reconstructions."""
        return segment.scales if metric == "inner_product" else segment.weights
