"""Default comparison: inner products with decoded codes. Slow, correct for every family, the definition in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..kernels import CodeRange, VisitedCodes
from ..projections.blocks import float_blocks
from .base import Recipe, unit
from .comparison import Comparison, Gather, PairComparison, Pairing, Scored, code_blocks, rank_blocks, within_blocks

BLOCK_BYTES = 2**22  # reference vectors computed at a time
DECODING, COMPARING = 1000.0, 100.0  # approximate nanoseconds to decode an entry and to compare it with a query
SLACK = 1e-6  # by which bounds are lowered: the score of a hit, in float32, decides


@dataclass(frozen=True, eq=False)
class DecodedComparison(Comparison):
    """Inner products of unit queries with the recipe's reference vectors."""

    recipe: Recipe
    units: Float32  # (n_queries, n_features)
    norms: Float64

    @property
    def metric(self) -> str:  # type: ignore[override]
        return self.recipe.metric

    def rank(self, ranges: Sequence[CodeRange], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return rank_blocks(self._scores(ranges), len(self), k)

    def within(self, ranges: Sequence[CodeRange], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        return within_blocks(self._scores(ranges), bounds)

    def visit(self, visits: VisitedCodes, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        rows, values = np.full((len(self), k), -1, np.int64), np.full((len(self), k), np.nan, np.float32)
        for query in range(len(self)):
            part = slice(query, query + 1)
            alone = replace(self, units=self.units[part], norms=self.norms[part])
            rows[part], values[part] = alone.rank(visits.of_query(query), k, n_threads=n_threads)
        return rows, values

    def scan_cost(self, n_queries: float) -> float:
        return DECODING + COMPARING * n_queries

    def visit_cost(self, n_queries: float) -> float:
        return n_queries * (DECODING + COMPARING)  # regions are decoded again for each query

    def _scores(self, ranges: Sequence[CodeRange]) -> Scored:
        n_rows = max(1, BLOCK_BYTES // (4 * self.recipe.n_features))
        for ids, rows, codes in code_blocks(ranges, n_rows):
            yield ids, rows, products(self.units, self._vectors(codes))

    def _vectors(self, codes: Bytes) -> Float32:
        return self.recipe.reference(codes)

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        correlations = np.where(self.norms[queries] > 0, values.astype(np.float64), 0.0)
        return correlations, correlations

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        return np.asarray(np.arccos(np.clip(values.astype(np.float64), -1, 1)) / np.pi)

    def bounds(self, limit: float) -> Array:
        return np.full(len(self), limit - SLACK, np.float32)

    def null_bounds(self, threshold: float) -> Array:
        return np.where(self.norms > 0, np.float32(threshold - SLACK), np.float32(np.inf))


def unit_queries(
    recipe: Recipe, queries: Array, *, part: slice | None = None, n_threads: int = 1
) -> tuple[Float32, Float64]:
    """Return queries minus the mean, scaled to norm one, and their norms."""
    n_rows, center = recipe.block_signals, recipe.center
    blocks = list(float_blocks(queries, n_rows, part=part, minus=center, n_threads=n_threads, name="queries"))
    if not blocks:
        return np.empty((0, recipe.n_features), np.float32), np.empty(0)
    values = [block.values for block in blocks]
    norms = np.sqrt(np.concatenate([block.square_norms for block in blocks]))
    units = np.concatenate(values) / np.where(norms > 0, norms, 1)[:, np.newaxis]
    return units.astype(np.float32), norms


class DecodedCosines(DecodedComparison):
    """Cosines of reference vectors with each other, independent of their norms."""

    def _vectors(self, codes: Bytes) -> Float32:
        return unit(super()._vectors(codes))


@dataclass(frozen=True, eq=False)
class DecodedPairing(Pairing):
    """Cosines of two reference vectors, by default of two reconstructions."""

    recipe: Recipe

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_features

    def prepare(self, codes: Bytes, *, n_threads: int) -> PairComparison:
        units = unit(self.recipe.reference(codes))
        return DecodedCosines(self.recipe, units, np.ones(len(units)))

    def scores(self, values: Array) -> Float64:
        return np.asarray(values, np.float64)

    def bound(self, score: float) -> float:
        return score


def products(units: Float32, vectors: Float32) -> Float32:
    """Return inner products that do not depend on the number of rows multiplied together."""
    return np.asarray(np.einsum("qi,ei->qe", units, vectors, dtype=np.float64), np.float32)
