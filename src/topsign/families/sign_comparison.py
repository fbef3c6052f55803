"""Comparisons of queries with the signs of projections, for adaptive and sign codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int32, Int64
from .._lazy import lazy
from ..kernels import CodeRange, Layout
from ..theory.pools import effective_features
from .comparison import CodeColumns, Comparison, Gather, Null, Range, Visits
from .laws import MismatchNull, NormalNull, ScoreNull, SignLaw

PAIRS = 2**15  # codes gathered at a time when single pairs of query and entry are compared

SLACK = 1e-5
"""Relative amount by which significance thresholds are lowered for kernels; the p-value of a hit decides."""


class Costs(NamedTuple):
    """Nanoseconds of a comparison."""

    entry: float  # of an entry that is compared with a batch
    bit: float  # of each of its bits
    batch_bit: float  # of each of its bits and query of the batch
    pair: float  # of an entry and a query that visits it
    pair_bit: float  # of each bit of the pair


# Tables of a batch hold all of its queries, so an entry that few of them visit is compared query by query. Measured on
# AVX2 at 72 of 384 bits, 512 of 8,192 bits and 384 signs, in batches of 1, 16 and 256 queries that visit 1% to 30% of
# the entries. Near the share at which both take equally long, batches take at least this time, and visits at most.
COSTS = {
    ("hamming", "compact"): Costs(60, 0.4, 0.004, 40, 0.3),
    ("hamming", "fast"): Costs(20, 0.25, 0.003, 15, 0.1),
    ("hamming", "signs"): Costs(0, 0.03, 0.017, 0, 0.025),
    ("asymmetric", "compact"): Costs(60, 0.8, 0.05, 0, 1.1),
    ("asymmetric", "fast"): Costs(20, 0.45, 0.045, 0, 0.8),
    ("asymmetric", "signs"): Costs(0, 0.44, 0.0085, 0, 0.4),
}
GATHERING, COPYING = 80.0, 0.35  # nanoseconds of an entry, and of each byte of its code


@dataclass(frozen=True, eq=False)
class SignQueries:
    """Projected queries."""

    projected: Float32  # (n_queries, n_pool); zero outside the masks
    norms: Float64  # (n_queries,)
    masks: Bytes | None = None  # (n_queries, ceil(n_pool / 8)), the locations that a query keeps; None: all

    def __len__(self) -> int:
        return len(self.projected)

    @lazy
    def bits(self) -> Bytes:
        """Packed signs of the projections."""
        return kernels.active().pack_bits(self.projected, n_threads=kernels.n_threads(None))

    def keep_largest(self, n_kept: int, n_threads: int) -> SignQueries:
        """Return the same queries, each with only its ``n_kept`` largest projections."""
        locations, _, _ = kernels.active().select(self.projected, n_kept, n_threads=n_threads)
        kept = np.zeros(self.projected.shape, bool)
        np.put_along_axis(kept, locations, True, axis=1)
        projected = np.where(kept, self.projected, np.float32(0))
        return SignQueries(projected, self.norms, np.packbits(kept, axis=1, bitorder="little"))


@dataclass(frozen=True, eq=False)
class SignComparison(Comparison):
    """Queries compared with signs."""

    layout: Layout
    queries: SignQueries
    law: SignLaw
    metric: str

    @property
    def norms(self) -> Float64:  # type: ignore[override]
        return self.queries.norms

    def light(self) -> Comparison:
        bits = SignQueries(np.empty((0, 0), np.float32), self.queries.norms, self.queries.masks)
        bits.__dict__["bits"] = self.queries.bits  # all that distances need
        return type(self)(self.layout, bits, self.law, self.metric)

    def scan_cost(self, n_queries: float) -> float:
        cost, n_bits = COSTS[self.scoring, self.layout.name], self.layout.n_bits
        return cost.entry + n_bits * (cost.bit + cost.batch_bit * n_queries)

    def visit_cost(self, n_queries: float) -> float:
        cost, layout = COSTS[self.scoring, self.layout.name], self.layout
        return GATHERING + COPYING * layout.code_bytes + n_queries * (cost.pair + cost.pair_bit * layout.n_bits)

    def _mismatches(self, queries: Int64, gather: Gather) -> Int32:
        """Return the mismatches of each hit and its query."""
        counts = np.empty(len(queries), np.int32)
        masks, bits, chosen = self.queries.masks, self.queries.bits, kernels.active()
        for query, part, codes in _pairs(queries, gather):
            signs = bits[query : query + 1]
            if masks is not None:
                codes, signs = codes & masks[query], signs & masks[query]
            counts[part] = chosen.mismatches(self.layout, codes, signs, n_threads=1)[0]
        return counts


class HammingComparison(SignComparison):
    """Comparison by the number of signs that differ."""

    descending = False
    scoring = "hamming"

    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return kernels.active().rank_mismatches(
            self.layout, code_ranges(ranges), self.queries.bits, k, masks=self.queries.masks, n_threads=n_threads
        )

    def visit(self, visits: Visits, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        bits, masks = self.queries.bits, self.queries.masks
        return kernels.active().visit_mismatches(self.layout, visits.codes(), bits, k, masks=masks, n_threads=n_threads)

    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        return kernels.active().within_mismatches(
            self.layout, code_ranges(ranges), self.queries.bits, bounds, masks=self.queries.masks, n_threads=n_threads
        )

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        estimated = self.law.correlations(values.astype(np.int32))
        correlations = np.where(self.norms[queries] > 0, estimated, 0.0)
        if self.metric == "correlation":
            return correlations, correlations
        return correlations * (self.norms[queries] * gather("norms")), correlations

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        return np.asarray(values.astype(np.int32) / self.law.n_bits)

    def reaches(self, scores: Float64, distances: Callable[[], Float64], limit: float) -> Array:
        return distances() <= limit

    def bounds(self, limit: float) -> Array:
        n_bits = self.law.n_bits
        radius = int(np.searchsorted(np.arange(n_bits + 1) / n_bits, limit, side="right")) - 1
        return np.full(len(self), radius, np.int32)

    def null_bounds(self, threshold: float) -> Array:
        most = np.clip(-threshold, -1, self.law.n_bits)  # infinite if nothing is significant
        return np.where(self.norms > 0, most, -1).astype(np.int32)

    @property
    def null(self) -> Null:
        return MismatchNull(self.law.mismatch_log10_pvalues)

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        return -values.astype(np.float64)


class AsymmetricComparison(SignComparison):
    """Comparison by the sum of the query's real projections, each with the entry's sign.

    Subclasses choose the factors of the sums, the divisors of the queries, and the null distribution.
    """

    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        weighted = code_ranges(ranges, self.weights())
        return kernels.active().rank_scores(self.layout, weighted, self.queries.projected, k, n_threads=n_threads)

    def visit(self, visits: Visits, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        name = self.weights()
        codes = visits.codes(name or "", lambda one: weights_of(one, name))
        return kernels.active().visit_scores(self.layout, codes, self.queries.projected, k, n_threads=n_threads)

    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        weighted = code_ranges(ranges, self.weights())
        projected = self.queries.projected
        return kernels.active().within_scores(self.layout, weighted, projected, bounds, n_threads=n_threads)

    def weights(self) -> str | None:
        """Return the name of the column that sums are multiplied with, None for none."""
        return "scales" if self.metric == "inner_product" else "weights"

    def estimates(self, queries: Int64, values: Array, gather: Gather) -> tuple[Float64, Float64]:
        divisors = self._divisors()[queries]
        scores = np.divide(values * self._factor, divisors, out=np.zeros(len(divisors)), where=divisors > 0)
        if self.metric == "correlation":
            return scores, scores
        norms = self.norms[queries] * gather("norms")
        return scores, np.divide(scores, norms, out=np.zeros(len(norms)), where=norms > 0)

    def distances(self, queries: Int64, values: Array, gather: Gather) -> Float64:
        return np.asarray(self._mismatches(queries, gather) / self.law.n_bits)

    def bounds(self, limit: float) -> Array:
        return self._sums(np.full(len(self), limit))

    def null_bounds(self, threshold: float) -> Array:
        return self._lowered(np.full(len(self), threshold))

    @property
    def null(self) -> Null:
        return ScoreNull(self.law)

    def correlated(self) -> Comparison:
        return self if self.metric == "correlation" else replace(self, metric="correlation")

    def _lowered(self, thresholds: Float64) -> Array:
        """Return bounds of the kernels' sums a little below thresholds of the scores."""
        return self._sums(thresholds - SLACK * np.abs(thresholds) - 1e-12)

    def _sums(self, scores: Float64) -> Array:
        """Return the kernels' sums for which :meth:`estimates` returns these scores."""
        divisors = self._divisors()
        never = np.where(scores > 0, np.inf, -np.inf)  # a zero query scores zero with every entry
        with np.errstate(over="ignore"):
            return np.where(divisors > 0, scores / self._factor * divisors, never).astype(np.float32)

    @property
    def _factor(self) -> np.float64:
        """Factor of all sums."""
        return np.float64(1)

    def _divisors(self) -> Float64:
        """Return the divisor of each query's sums."""
        return np.ones(len(self)) if self.metric == "inner_product" else self.norms


class ExpectedScaleComparison(AsymmetricComparison):
    """Asymmetric comparison for entries without scales; sums are scaled as those of normal signals."""

    def weights(self) -> str | None:
        return None

    @property
    def _factor(self) -> np.float64:
        return np.float64(self.law.expected_scale)


class ChosenRowsComparison(AsymmetricComparison):
    """Asymmetric comparison of each query's largest projections z with the entry's signs there.

    Approximation for small correlations: the expected sign of an entry is ``sqrt(2 / pi) rho z / |v|``, so
    ``sqrt(pi / 2) |v| sum(sign z) / sum(z**2)`` estimates rho. With a sixteenth of the pool it is 0.5% low at 0.1, 4%
    at 0.3 and 12% at 0.5. For an impostor the sum is modelled as normal with variance ``sum(z**2)``; if the pool's rows
    are independent, the sample correlation of the two signals adds its variance, as in every estimate.
    """

    def weights(self) -> str | None:
        return "norms" if self.metric == "inner_product" else None

    @property
    def null(self) -> Null:
        return NormalNull()

    @property
    def fixed_null(self) -> bool:
        return True

    def statistics(self, queries: Int64, values: Array, correlations: Float64) -> Float64:
        return correlations / self._spreads[queries]

    def null_bounds(self, threshold: float) -> Array:
        return self._lowered(np.asarray(threshold * self._spreads))

    def _divisors(self) -> Float64:
        over = self.norms ** (2 if self.metric == "inner_product" else 1) * np.sqrt(np.pi / 2)
        return np.asarray(np.divide(self._energies, over, out=np.zeros(len(over)), where=over > 0))

    @lazy
    def _energies(self) -> Float64:
        return kernels.active().square_norms(self.queries.projected)

    @lazy
    def _spreads(self) -> Float64:
        """Standard deviation of an impostor's estimated correlation; one for a zero query."""
        law = self.law
        shared = 1 / effective_features(law.projection, law.n_features, law.n_pool)
        energies = np.where(self._energies > 0, self._energies, 1.0)
        variances = shared + np.pi / 2 * self.norms**2 / energies
        return np.sqrt(np.where(self._energies > 0, variances, 1.0))


@dataclass(frozen=True, eq=False)
class AgreementComparison:
    """Codes as rows of +-1 and 0, compared with others by their agreement."""

    layout: Layout
    signs: Float32  # (n_codes, n_pool)

    def __len__(self) -> int:
        return len(self.signs)

    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return kernels.active().rank_scores(self.layout, code_ranges(ranges), self.signs, k, n_threads=n_threads)

    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        needed = bounds.astype(np.float32)
        return kernels.active().within_scores(self.layout, code_ranges(ranges), self.signs, needed, n_threads=n_threads)


def code_ranges(ranges: Sequence[Range], weights: str | None = None) -> list[CodeRange]:
    """Return ranges in the form that kernels take, with a column of weights."""
    return [
        CodeRange(one.columns.codes, one.first_row, one.alive, weights_of(one, weights), one.columns.ids)
        for one in ranges
    ]


def weights_of(one: Range, name: str | None) -> Float32 | None:
    """Return a column of weights; "weights", those of correlations, are scales over norms."""
    if name == "weights":
        weights: Float32 = one.derived(name, _correlation_weights)
        return weights
    return None if name is None else one.columns.column(name)


def _correlation_weights(columns: CodeColumns) -> Float32:
    return columns.column("scales") / columns.column("norms")


def _pairs(queries: Int64, gather: Gather) -> Iterator[tuple[int, slice, Bytes]]:
    """Yield hits query by query with their codes, a bounded number of codes at a time."""
    for start in range(0, len(queries), PAIRS):
        some = queries[start : start + PAIRS]
        codes = gather("codes", slice(start, start + PAIRS))
        for query in np.unique(some):
            low, high = np.searchsorted(some, [query, query + 1])
            yield int(query), slice(start + low, start + high), codes[low:high]
