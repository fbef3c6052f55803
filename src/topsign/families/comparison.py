"""Comparison of queries with codes, and of codes with each other: families implement, engines execute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..kernels import CodeBlocks, CodeRange, RegionCodes, RoundedQueries, Scoring, Visits
from ..projections.blocks import float_blocks

if TYPE_CHECKING:
    from .base import Recipe

Int8 = npt.NDArray[np.int8]

Scored = Iterable[tuple[Int64, Int64, Array]]
"""Ids, rows and scores (n_queries, n_entries) of blocks of entries."""

COMPARED_BYTES = 2**24  # levels of hits that are decoded at a time
BLOCK_BYTES = 2**22  # reference vectors computed at a time
DECODED_SLACK = 1e-6  # by which bounds are lowered: the score of a hit, in float32, decides


class Null(Protocol):
    """Distribution of a statistic of impostors; larger values are closer matches."""

    def log10_p_values(self, statistics: Float64) -> Float64:
        """Return decimal logarithms of the probability that an impostor reaches each value."""

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        """Return the smallest value of a match in a search of ``n_entries`` entries, or slightly less."""

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> Array:
        """Return which values are matches, such that a search for an impostor has one with at most this probability."""


Gather = Callable[..., Array]
"""Function of "codes" or "ids", and optionally a slice of the hits, that returns these of the entries of the hits."""


class Comparison(ABC):
    """Prepared queries, ready to be compared with codes of one recipe.

    ``rank`` and ``within`` order entries by *values*, which every engine computes with the same bits; larger values are
    closer. The other methods turn the values of hits into scores, correlations, distances and the statistics of a null
    distribution. In these, ``queries`` holds the position of the query of each hit.
    """

    scoring: ClassVar[str] = "asymmetric"
    metric: str
    norms: Float64  # (n_queries,) norms of the queries

    def __len__(self) -> int:
        return len(self.norms)

    @abstractmethod
    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]:
        """Return rows and values, (n_queries, ``k``), of the k best entries of ``ranges``; ties by ascending id, row -1
        for -inf.
        """

    def visit(self, codes: RegionCodes, visits: Visits, k: int) -> tuple[Int64, Array]:
        """Return the ``k`` best rows and values like :meth:`rank`, among the entries of ``codes`` in the regions that
        each query ``visits``.
        """
        rows, values = np.full((len(self), k), -1, np.int64), np.full((len(self), k), np.nan, np.float32)
        for query, (begin, end) in enumerate(pairwise(visits.starts.tolist())):
            found = self.rank(codes.within(visits.regions[begin:end]), k)
            rows[query], values[query] = (one[query] for one in found)
        return rows, values

    @abstractmethod
    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]:
        """Return starts, rows and values of every entry of ``ranges`` that reaches the one of ``bounds`` of its
        query.
        """

    @abstractmethod
    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        """Return scores and estimated correlations of hits; both are zero for a zero query.

        Hits are numbers of ``queries`` and ``values``; ``gather`` returns a column of the entries by its name.

        For each query, scores must be a strictly monotone function of the ``values``, so that entries with equal scores
        have equal values, among which engines order by ascending id. Quotients of float32 values in float64 are.
        """

    @abstractmethod
    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        """Return the distances of hits, in [0, 1]; ``queries``, ``values`` and ``gather`` as for :meth:`estimates`."""

    @abstractmethod
    def bounds(self, limit: float) -> Array:
        """Return the bounds at which a search finds every score (or distance) within ``limit``, and a few more."""

    @abstractmethod
    def null_bounds(self, threshold: float) -> Array:
        """Return the bounds at which a search finds every statistic of at least ``threshold``, and a few more."""

    @property
    def null(self) -> Null | None:
        """Null distribution that the family knows, None if there is none."""
        return None

    @property
    def fixed_null(self) -> bool:
        """Whether calibration does not apply, because queries keep only their largest projections."""
        return False

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        """Return the statistics of hits (``queries``, ``values``) that the null distribution describes, by default
        estimated ``correlations``.
        """
        return correlations

    def reaches(self, scores: Float64, distances: Callable[[], Float64], limit: float) -> Array:
        """Return whether each hit, with its ``scores`` and ``distances``, is within ``limit``."""
        return scores >= limit

    def light(self) -> Comparison:
        """Return a comparison that still knows distances, in less memory if possible."""
        return self

    def correlated(self) -> Comparison:
        """Return the comparison by correlation, in which significance is decided."""
        return self


class Pairing(ABC):
    """Comparison of the entries of an index with each other. Picklable: a cluster sends it to its workers once."""

    has_null: ClassVar[bool] = False
    row_bytes: int  # memory that one code takes while it is compared with others

    @abstractmethod
    def prepare(self, codes: Bytes) -> PairComparison:
        """Return the comparison of these codes with any others."""

    def scores(self, values: Array) -> Float64:
        """Return the scores that values stand for, by default the same numbers."""
        return np.asarray(values, np.float64)

    def bound(self, score: float) -> float:
        """Return the least value whose score is at least ``score``."""
        return score

    def log10_p_values(self, values: Array) -> Float64:
        """Return log10 of the probability that codes of independent signals are this similar; nan if unknown."""
        return np.full(len(values), np.nan)

    def null_bound(self, level: float) -> float:
        """Return the least value whose p-value is at most ``level``."""
        raise ValueError(
            "false_alarm needs the null distribution of pairs of codes, which this family does not have; give "
            "threshold, the least score of a pair, or k"
        )


class PairComparison(Protocol):
    """Codes of some entries, ready to be compared with those of others: the searching half of a Comparison."""

    def __len__(self) -> int: ...
    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]: ...
    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]: ...


@dataclass(frozen=True, eq=False)
class CodeSearch:
    """Rounded queries, which kernels compare with codes."""

    scorer: Scoring
    rounded: RoundedQueries

    def __len__(self) -> int:
        return len(self.rounded)

    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]:
        return kernels.active().rank(self.scorer, ranges, self.rounded, k)

    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]:
        needed = bounds.astype(np.float32)
        return kernels.active().within(self.scorer, ranges, self.rounded, needed)

    def visit(self, codes: RegionCodes, visits: Visits, k: int) -> tuple[Int64, Array]:
        """Return rows and values of the k best entries in the regions that each query visits."""
        return kernels.active().visit(self.scorer, codes, visits, self.rounded, k)


@dataclass(frozen=True, eq=False)
class CodeComparison(CodeSearch, Comparison):
    """Comparison of real-valued queries with the codes of a built-in family.

    Values are estimated correlations, or their products with the norms of the signals; queries count as unit vectors.
    """

    recipe: Any  # ProjectedRecipe
    norms: Float64
    metric: str
    signs: Int8 | None = None  # (n_queries, n_pool) signs of the projections, 0 for those not kept; None: cosines
    n_compared: int = 0  # signs that a query and a code have in common
    spreads: Float64 | None = None  # standard deviations of an impostor's correlation if they depend on the query
    units: Float32 | None = None  # queries as unit vectors, if they are known

    def __len__(self) -> int:
        return len(self.norms)

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        scores = np.where(self.norms[queries] > 0, values.astype(np.float64), 0.0)
        if self.metric == "correlation":
            return scores, scores
        norms = self.recipe.norms(gather("codes"))
        assert norms is not None
        return scores * self.norms[queries], np.divide(scores, norms, out=np.zeros(len(norms)), where=norms > 0)

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        if self.signs is None:
            return np.asarray(self.recipe.angles(self.estimates(queries, values, gather)[1]))
        differing, n_rows = np.empty(len(queries)), max(1, COMPARED_BYTES // self.scorer.width)
        for start in range(0, len(queries), n_rows):
            part = slice(start, start + n_rows)
            levels = self.recipe.levels(gather("codes", part))
            levels *= self.signs[queries[part]]
            differing[part] = np.count_nonzero(levels < 0, axis=1)
        return differing / self.n_compared

    def bounds(self, limit: float) -> Array:
        needed = np.full(len(self), limit)
        if self.metric == "inner_product":
            none = np.full(len(self), np.inf if limit > 0 else -np.inf)
            needed = np.divide(limit, self.norms, out=none, where=self.norms > 0)
        return _round_down(needed)

    def null_bounds(self, threshold: float) -> Array:
        least = threshold * (1.0 if self.spreads is None else self.spreads)
        return _round_down(np.where(self.norms > 0, least, np.inf))

    @property
    def null(self) -> Null | None:
        if self.spreads is not None:
            from ..significance.null_distributions import NormalNull  # SciPy takes long to import

            return NormalNull()
        known: Null | None = self.recipe.null
        return known

    @property
    def fixed_null(self) -> bool:
        return self.spreads is not None

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        return correlations if self.spreads is None else correlations / self.spreads[queries]

    def light(self) -> Comparison:
        if self.signs is None:
            return replace(self, units=None)
        none = RoundedQueries(np.empty((0, 0), np.int16), np.empty(0, np.float32), np.empty(0, np.float32))
        return replace(self, rounded=none)

    def correlated(self) -> Comparison:
        if self.metric == "correlation":
            return self
        if self.recipe.family == "trellis":
            return CosineComparison(**vars(replace(self, metric="correlation")))
        return replace(self, metric="correlation", scorer=self.recipe.scoring_of(None))


class HammingComparison(CodeComparison):
    """Comparison of the signs of queries with those of codes; values are equal minus different signs."""

    scoring = "hamming"

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        null = self.recipe.isotropic_null(self.n_compared)
        correlations = np.where(self.norms[queries] > 0, null.correlations(self._mismatches(values)), 0.0)
        if self.metric == "correlation":
            return correlations, correlations
        norms = self.recipe.norms(gather("codes"))
        assert norms is not None
        return correlations * (self.norms[queries] * norms), correlations

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        return np.asarray(self._mismatches(values) / self.n_compared)

    def reaches(self, scores: Float64, distances: Callable[[], Float64], limit: float) -> Array:
        return distances() <= limit

    def bounds(self, limit: float) -> Array:
        n_compared = self.n_compared
        radius = int(np.searchsorted(np.arange(n_compared + 1) / n_compared, limit, side="right")) - 1
        return np.full(len(self), n_compared - 2 * radius, np.float32)

    def null_bounds(self, threshold: float) -> Array:
        most = np.clip(-threshold, -1, self.n_compared)  # infinite if nothing is significant
        return np.where(self.norms > 0, self.n_compared - 2 * most, np.inf).astype(np.float32)

    @property
    def null(self) -> Null:
        from ..significance.null_distributions import MismatchNull

        return MismatchNull(self.recipe.isotropic_null(self.n_compared).mismatch_log10_pvalues)

    @property
    def fixed_null(self) -> bool:
        return self.n_compared < int(self.recipe.n_kept)

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        return -self._mismatches(values).astype(np.float64)

    def correlated(self) -> Comparison:
        return self

    def _mismatches(self, values: Array) -> Int64:
        return np.asarray((self.n_compared - values.astype(np.int64)) // 2)


class CosineComparison(CodeComparison):
    """Comparison by cosine with trellis codes that store the norm of the signal over that of the reconstruction.

    Values are those of inner products, divided by the norms of the signals.
    """

    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]:
        return rank_blocks(self._cosines(ranges), len(self), k)

    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]:
        return within_blocks(self._cosines(ranges), bounds)

    def visit(self, codes: RegionCodes, visits: Visits, k: int) -> tuple[Int64, Array]:
        return Comparison.visit(self, codes, visits, k)

    def _cosines(self, ranges: Sequence[CodeRange]) -> Scored:
        n_rows = max(1, COMPARED_BYTES // (4 * max(1, len(self))))
        for ids, rows, codes in code_blocks(ranges, n_rows):
            values = kernels.active().scores(self.scorer, CodeBlocks.of(codes), self.rounded)
            norms = self.recipe.norms(codes)
            yield ids, rows, np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)


@dataclass(frozen=True, eq=False)
class DecodedComparison(Comparison):
    """Inner products of unit queries with the recipe's reference vectors.

    Slow, but correct for every family, so it is the definition in tests.
    """

    recipe: Recipe
    units: Float32  # (n_queries, n_features)
    norms: Float64
    normalized: bool = False  # whether values are cosines, independent of the norms of reference vectors

    @property
    def metric(self) -> str:  # type: ignore[override]
        return self.recipe.metric

    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]:
        return rank_blocks(self._scores(ranges), len(self), k)

    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]:
        return within_blocks(self._scores(ranges), bounds)

    def _scores(self, ranges: Sequence[CodeRange]) -> Scored:
        n_rows = max(1, BLOCK_BYTES // (4 * self.recipe.n_features))
        for ids, rows, codes in code_blocks(ranges, n_rows):
            vectors = self.recipe.reference(codes)
            yield ids, rows, products(self.units, unit(vectors) if self.normalized else vectors)

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        correlations = np.where(self.norms[queries] > 0, values.astype(np.float64), 0.0)
        return correlations, correlations

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        return np.asarray(np.arccos(np.clip(values.astype(np.float64), -1, 1)) / np.pi)

    def bounds(self, limit: float) -> Array:
        return np.full(len(self), limit - DECODED_SLACK, np.float32)

    def null_bounds(self, threshold: float) -> Array:
        return np.where(self.norms > 0, np.float32(threshold - DECODED_SLACK), np.float32(np.inf))


def unit_queries(recipe: Recipe, queries: Array, *, part: slice | None = None) -> tuple[Float32, Float64]:
    """Return queries minus the mean, scaled to norm one, and their norms."""
    n_rows, center = recipe.block_signals, recipe.center
    blocks = list(float_blocks(queries, n_rows, part=part, minus=center, name="queries"))
    if not blocks:
        return np.empty((0, recipe.n_features), np.float32), np.empty(0)
    values = [block.values for block in blocks]
    norms = np.sqrt(np.concatenate([block.square_norms for block in blocks]))
    units = np.concatenate(values) / np.where(norms > 0, norms, 1)[:, np.newaxis]
    return units.astype(np.float32), norms


@dataclass(frozen=True, eq=False)
class DecodedPairing(Pairing):
    """Cosines of two reference vectors, by default of two reconstructions."""

    recipe: Recipe

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_features

    def prepare(self, codes: Bytes) -> PairComparison:
        units = unit(self.recipe.reference(codes))
        return DecodedComparison(self.recipe, units, np.ones(len(units)), normalized=True)


def products(units: Float32, vectors: Float32) -> Float32:
    """Return inner products that do not depend on the number of rows multiplied together."""
    return np.asarray(np.einsum("qi,ei->qe", units, vectors, dtype=np.float64), np.float32)


def unit(rows: Float32) -> Float32:
    """Return rows scaled to norm one; zero rows stay zero."""
    norms = np.sqrt(kernels.active().square_norms(np.ascontiguousarray(rows, np.float32)))
    norms[norms == 0] = 1
    # In float64, block by block, without a matrix of that type.
    return np.divide(
        rows, norms[:, np.newaxis], out=np.empty(rows.shape, np.float32), dtype=np.float64, casting="same_kind"
    )


def signs_of(projected: Float32) -> Int8:
    """Return the signs of projections, +1 or -1; that of zero is +1."""
    return (projected >= 0).view(np.int8) * np.int8(2) - np.int8(1)


def count_signs(signs: Int8) -> RoundedQueries:
    """Return queries whose values are equal minus different signs."""
    n_queries = len(signs)
    return RoundedQueries(signs.astype(np.int16), np.ones(n_queries, np.float32), np.zeros(n_queries, np.float32))


def rank_blocks(blocks: Scored, n_queries: int, k: int) -> tuple[Int64, Array]:
    """Return rows and scores of the k largest scores of each query; ties by ascending id, row -1 and nan after."""
    ids, rows = np.empty((2, n_queries, 0), np.int64)
    best: Array = np.empty((n_queries, 0))
    for some_ids, some_rows, scores in blocks:
        ids = np.hstack([ids, np.broadcast_to(some_ids, scores.shape)])
        rows = np.hstack([rows, np.broadcast_to(some_rows, scores.shape)])
        best = np.hstack([best.astype(scores.dtype), scores])
        order = np.lexsort((ids, -best), axis=1)[:, :k]
        ids, rows = np.take_along_axis(ids, order, axis=1), np.take_along_axis(rows, order, axis=1)
        best = np.take_along_axis(best, order, axis=1)
    missing = k - rows.shape[1]
    if missing:
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
        best = np.pad(best, ((0, 0), (0, missing)), constant_values=np.nan)
    return rows, best


def within_blocks(blocks: Scored, bounds: Array) -> tuple[Int64, Int64, Array]:
    """Return starts, rows (ascending for each query) and scores of all that reach the bound of their query."""

    def reaching() -> Iterator[tuple[Int64, Int64, Array]]:
        for _, rows, scores in blocks:
            query, column = np.nonzero(scores >= bounds[:, np.newaxis])
            yield query, rows[column], scores[query, column]

    return group_by_query(reaching(), len(bounds))


def group_by_query(hits: Iterable[tuple[Int64, Int64, Array]], n_queries: int) -> tuple[Int64, Int64, Array]:
    """Return starts, rows (ascending for each query) and values of ``hits``: queries, rows and values in any order."""
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    queries, rows, values = (np.concatenate(column) for column in zip(none, *hits, strict=True))
    order = np.lexsort((rows, queries))
    starts = np.append(0, np.cumsum(np.bincount(queries, minlength=n_queries))).astype(np.int64)
    return starts, rows[order], values[order]


def code_blocks(ranges: Sequence[CodeRange], n_rows: int) -> Iterator[tuple[Int64, Int64, Bytes]]:
    """Yield ids, rows and codes of the entries that take part, in blocks of ``n_rows``."""
    for one in ranges:
        living = np.arange(len(one.codes))
        if one.alive is not None:
            living = np.flatnonzero(np.unpackbits(one.alive, count=len(living), bitorder="little"))
        for start in range(0, len(living), n_rows):
            positions = living[start : start + n_rows]
            rows = one.first_row + positions
            yield rows if one.ids is None else one.ids[positions], rows, one.codes.rows(positions)


def _round_down(thresholds: Float64) -> Float32:
    """Return bounds for kernels that rounding does not put above a threshold; the value of a hit decides."""
    with np.errstate(over="ignore"):
        return np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf))
