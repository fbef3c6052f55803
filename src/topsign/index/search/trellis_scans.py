"""Scans of trellis codes: cosines of queries and reconstructions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # whose modules are loaded when they are first used

from ..._arrays import Booleans, Float32, Float64
from ..._lazy import lazy
from ...kernels import RoundedQueries
from ...kernels.tables import unpack_norms
from ...recipe import LEARNED, Recipe
from ..storage import Snapshot
from .hits import Hits
from .reach import Reach
from .scans import Scan
from .significance import sample_pvalues
from .trellis_engine import TrellisEngine


@dataclass(frozen=True, eq=False)
class TrellisScan(Scan):
    """Compares by the cosine of the query with the entry's reconstruction, or by that times both norms.

    With a random basis and no mean a cosine with an independent impostor has exactly the law of a sample correlation
    in n_features dimensions, because a reconstruction does not depend on the query. A learned basis knows where
    signals lie, and so does the mean: impostors then correlate, by how much depends on them, and there are no p-values
    before the index is calibrated.
    """

    engine: TrellisEngine
    recipe: Recipe

    descending = True

    @lazy
    def rounded(self) -> list[RoundedQueries]:
        """The queries as kernels take them, for each cell."""
        return [cell.round(self.queries.projected) for cell in self.recipe.cells]

    @property
    def has_law(self) -> bool:
        """Whether p-values are known."""
        random = self.recipe.mean is None and self.recipe.projection.kind not in LEARNED
        return self.significance.learned or random

    def correlations(self, snapshot: Snapshot, hits: Hits) -> Float64:
        cosines = hits.values.astype(np.float64)
        if self.metric == "inner_product":
            kept = self._norms(snapshot, hits).astype(np.float64)
            cosines = np.divide(cosines, kept, out=np.zeros(len(kept)), where=kept > 0)
        return np.where(self.queries.norms[hits.rows] > 0, cosines, 0.0)

    def rank(self, snapshot: Snapshot, k: int) -> Hits:
        return self.engine.rank_trellis(
            snapshot, self.recipe, self.rounded, k, norms=self.metric == "inner_product", n_threads=self.n_threads
        )

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
            # A reconstruction has lost a part of its signal: cosines over what is kept estimate correlations.
            distances=np.arccos(np.clip(cosines / self.recipe.kept_cosine, -1, 1)) / np.pi,
            scores=scores.astype(np.float32),
            p_values=p_values,
        )

    def within(self, snapshot: Snapshot, reach: Reach) -> Hits:
        if not reach.is_level or self.metric == "correlation":
            return super().within(snapshot, reach)
        # Significance is a matter of cosines; the order is that of inner products.
        hits = self._significant(snapshot, reach.limit)
        values = hits.values * self._norms(snapshot, hits)
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
            deviate = float(scipy.stats.t.isf(level, degrees))
            cosine = deviate / np.sqrt(deviate**2 + degrees)
        thresholds = np.where(self.queries.norms > 0, cosine - 1e-6, np.inf)
        return self._within(snapshot, thresholds, "correlation")

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        with np.errstate(over="ignore"):
            needed = np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))
        return self.engine.within_trellis(
            snapshot, self.recipe, self.rounded, needed, norms=metric == "inner_product", n_threads=self.n_threads
        )

    def _p_values(self, cosines: Float64) -> Float64:
        if self.significance.learned:
            return self.significance.score_pvalues(cosines)
        return sample_pvalues(cosines, self.recipe.n_features)

    @staticmethod
    def _norms(snapshot: Snapshot, hits: Hits) -> Float32:
        if not hits.places.size:
            return np.empty(0, np.float32)
        return unpack_norms(snapshot.gather("codes", hits.places)[:, -2:])
