"""Comparison of queries with trellis codes: cosines with reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ... import kernels
from ..._arrays import Array, Float32, Float64, Int64
from ...kernels import QueriedCells, RoundedCells, TrellisRange
from ..comparison import Comparison, Gather, Null, Range, Visits
from ..laws import SampleNull
from .codes import unpacked_norms
from .recipe import TrellisRecipe

NULL_SLACK = 1e-6  # of thresholds of cosines


@dataclass(frozen=True, eq=False)
class TrellisComparison(Comparison):
    """Comparison by the cosine of the query and the entry's reconstruction, or by the cosine times both norms.

    With a random basis and no mean, the cosine with an independent impostor has exactly the distribution of a sample
    correlation in n_features dimensions, because the reconstruction does not depend on the query. A learned basis or
    mean depends on the signals, so impostors are correlated and p-values need a calibrated index.
    """

    recipe: TrellisRecipe
    rounded: RoundedCells  # the queries as kernels take them
    norms: Float64
    metric: str

    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return kernels.active().rank_trellis(self._cells, self.ranges(ranges), k, n_threads=n_threads)

    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        return kernels.active().within_trellis(self._cells, self.ranges(ranges), bounds, n_threads=n_threads)

    def visit(self, visits: Visits, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return kernels.active().visit_trellis(self._cells, visits.codes(), k, n_threads=n_threads)

    @property
    def _cells(self) -> QueriedCells:
        cells = self.recipe.cells
        return QueriedCells(cells.tables, self.rounded, self.metric == "inner_product", cells.last_byte)

    # Of 24 bytes: decoding an entry takes as long as its comparison with 13 queries of a batch, and half as long again
    # if it is read at random.
    def scan_cost(self, n_queries: float) -> float:
        return 18 + 1.4 * n_queries

    def visit_cost(self, n_queries: float) -> float:
        return 27 + 2 * n_queries

    def ranges(self, ranges: Sequence[Range]) -> list[TrellisRange]:
        """Return the codes of each segment as kernels take them."""
        cells, found = self.recipe.cells, []
        for one in ranges:
            ids, codes = one.columns.ids, one.columns.codes
            several = len(cells) > 1
            positions = one.derived("cells", lambda columns: cells.positions(columns.codes)) if several else None
            found.append(TrellisRange(codes, one.first_row, one.alive, positions, ids))
        return found

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        cosines, scores = values.astype(np.float64), values.astype(np.float64)
        if self.metric == "inner_product":
            norms = unpacked_norms(gather("codes")).astype(np.float64)
            cosines = np.divide(cosines, norms, out=np.zeros(len(norms)), where=norms > 0)
            scores = scores * self.norms[queries]
        return scores, np.where(self.norms[queries] > 0, cosines, 0.0)

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        # A reconstruction captures only a part of its signal: cosines divided by that part estimate correlations.
        _, cosines = self.estimates(queries, values, gather)
        return np.asarray(np.arccos(np.clip(cosines / self.recipe.reconstruction_cosine, -1, 1)) / np.pi)

    def bounds(self, limit: float) -> Array:
        if self.metric == "correlation":
            return _lowered(np.full(len(self), limit))
        none = np.full(len(self), np.inf if limit > 0 else -np.inf)
        needed = np.divide(limit, self.norms, out=none, where=self.norms > 0)
        return _lowered(needed)

    def null_bounds(self, threshold: float) -> Array:
        return _lowered(np.where(self.norms > 0, threshold - NULL_SLACK, np.inf))

    @property
    def null(self) -> Null | None:
        return None if self.recipe.is_learned else SampleNull(self.recipe.n_features)

    def correlated(self) -> Comparison:
        return self if self.metric == "correlation" else replace(self, metric="correlation")


def _lowered(thresholds: Float64) -> Float32:
    with np.errstate(over="ignore"):
        return np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))
