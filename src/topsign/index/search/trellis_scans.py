"""Scans of trellis codes: cosines of queries and reconstructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from ... import kernels
from ..._arrays import Booleans, Float32, Float64, Int64
from ..._lazy import lazy
from ...kernels import RoundedQueries, TrellisEntries
from ...kernels.tables import unpack_norms
from ...recipe import LEARNED, Recipe
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
        def kernel(segment: Segment, k: int) -> tuple[Int64, Float32]:
            return best_of_cells(
                [
                    kernels.active().trellis_search(entries, queries, k, n_threads=self.n_threads)
                    for entries, queries in self._cells(segment, self.metric)
                ],
                k,
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
            deviate = float(student.isf(level, degrees))
            cosine = deviate / np.sqrt(deviate**2 + degrees)
        thresholds = np.where(self.queries.norms > 0, cosine - 1e-6, np.inf)
        return self._within(snapshot, thresholds, "correlation")

    def _within(self, snapshot: Snapshot, thresholds: Float64, metric: str) -> Hits:
        with np.errstate(over="ignore"):
            needed = np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))

        def kernel(segment: Segment) -> tuple[Int64, Int64, Float32]:
            return all_of_cells(
                [
                    kernels.active().trellis_within(entries, queries, needed, n_threads=self.n_threads)
                    for entries, queries in self._cells(segment, metric)
                ]
            )

        return Hits.within(snapshot, kernel, len(self.queries), descending=self.descending)

    def _p_values(self, cosines: Float64) -> Float64:
        if self.significance.learned:
            return self.significance.score_pvalues(cosines)
        return sample_pvalues(cosines, self.recipe.n_features)

    @staticmethod
    def _norms(snapshot: Snapshot, hits: Hits) -> Float32:
        if not hits.places.size:
            return np.empty(0, np.float32)
        return unpack_norms(snapshot.gather("codes", hits.places)[:, -2:])

    def _cells(self, segment: Segment, metric: str) -> Iterator[tuple[TrellisEntries, RoundedQueries]]:
        """The entries of each cell, and the queries as its kernels take them."""
        codes, norms = segment.codes, metric == "inner_product"
        if len(self.recipe.cells) == 1:
            yield TrellisEntries(self.recipe.cells[0].tables, codes, norms, segment.alive), self.rounded[0]
            return
        for cell, places in self.recipe.cells.of_codes(codes):
            yield TrellisEntries(cell.tables, codes, norms, segment.alive, places), self.rounded[cell.number]


def best_of_cells(parts: list[tuple[Int64, Float32]], k: int) -> tuple[Int64, Float32]:
    """The k best of all cells: positions and scores, by falling score, then by position; -1 and nan after."""
    if len(parts) == 1:
        return parts[0]
    positions, scores = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    order = np.lexsort((positions, np.where(positions < 0, np.inf, -scores)))[:, :k]
    return np.take_along_axis(positions, order, axis=1), np.take_along_axis(scores, order, axis=1)


def all_of_cells(parts: list[tuple[Int64, Int64, Float32]]) -> tuple[Int64, Int64, Float32]:
    """What all cells found: starts, positions ascending, scores."""
    if len(parts) == 1:
        return parts[0]
    n_queries = len(parts[0][0]) - 1
    rows = np.concatenate([np.repeat(np.arange(n_queries), np.diff(starts)) for starts, _, _ in parts])
    positions, scores = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    order = np.lexsort((positions, rows))
    starts = np.append(0, np.cumsum(np.bincount(rows, minlength=n_queries))).astype(np.int64)
    return starts, positions[order], scores[order]
