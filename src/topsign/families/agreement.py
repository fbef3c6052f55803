"""Comparison of two sign codes by their agreement, for adaptive and sign codes.

Two codes are compared at their common locations. The *agreement* of a pair is the number of common locations with equal
signs minus the number with different signs. For independent signals the number of common locations is hypergeometric
and signs are equal with probability one half, which gives the p-values (exact for independent normal projections). The
score of a pair is the correlation for which its agreement is the expected value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy  # submodules are imported at their first use
from scipy.special import logsumexp, ndtr

from .._arrays import Array, Bytes, Float32, Float64, Int64
from .._lazy import lazy
from ..kernels import Layout
from ..theory.log_tails import log10_tail, log_binomial_cdf, probabilities
from .comparison import Pairing
from .sign_comparison import AgreementComparison

if TYPE_CHECKING:
    from .adaptive import SignsRecipe


@dataclass(frozen=True, eq=False)
class AgreementPairing(Pairing):
    """Pairing by agreement."""

    recipe: SignsRecipe
    has_null: ClassVar[bool] = True

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_pool

    def prepare(self, codes: Bytes, columns: Mapping[str, Float32], *, n_threads: int) -> AgreementComparison:
        layout: Layout = self.recipe.layout
        return AgreementComparison(layout, self.recipe.sign_rows(codes, n_threads=n_threads))

    def scores(self, values: Array) -> Float64:
        return self._law.scores(values)

    def bound(self, score: float) -> float:
        return self._law.least(lambda value: self._law.scores(value) >= score)

    def log10_p_values(self, values: Array) -> Float64:
        return self._law.log10_p_values(values)

    def null_bound(self, level: float) -> float:
        return self._law.least(lambda value: probabilities(self._law.log10_p_values(value)) <= level)

    @lazy
    def _law(self) -> Agreement:
        return Agreement(self.recipe.n_bits, self.recipe.n_pool)


@dataclass(frozen=True)
class Agreement:
    """Distribution of the agreement of two codes."""

    n_bits: int
    n_pool: int

    def log10_p_values(self, agreements: Array) -> Float64:
        """Return log10 of the probability that codes of independent signals have at least this agreement."""
        values, inverse = np.unique(np.asarray(agreements, np.int64), return_inverse=True)
        common = np.arange(self.n_bits + 1)
        weights = scipy.stats.hypergeom.pmf(common, self.n_pool, self.n_bits, self.n_bits)

        def tail(agreed: Float64) -> Float64:
            some, shares = common[weights > 0], weights[weights > 0]
            needed = (some + agreed[:, np.newaxis].astype(np.int64) + 1) // 2 - 1
            return np.asarray(scipy.stats.binom.sf(needed, some, 0.5) @ shares)

        def log_tail(agreed: Float64) -> Float64:
            found = []
            for value in agreed.astype(np.int64):
                some = common[abs(value) :]  # fewer common locations cannot reach this agreement
                logs = scipy.stats.hypergeom.logpmf(some, self.n_pool, self.n_bits, self.n_bits)
                differing = (some - value) // 2  # largest number of differing signs
                logs += [
                    log_binomial_cdf(np.array([k]), int(n), np.array([0.5]))[0, 0]
                    for k, n in zip(differing, some, strict=True)
                ]
                found.append(logsumexp(logs))
            return np.array(found)

        return np.minimum(log10_tail(values.astype(np.float64), tail, log_tail), 0.0)[inverse]

    def scores(self, agreements: Array) -> Float64:
        """Return the correlations at which these agreements are expected."""
        expected, correlations = self._expected
        return np.asarray(np.sign(agreements) * np.interp(np.abs(agreements), expected, correlations))

    def least(self, test: Callable[[Int64], Array]) -> int:
        """Return the smallest agreement that passes a monotone test, or n_bits + 1 if none does."""
        low, high = -self.n_bits, self.n_bits + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if test(np.array([middle]))[0] else (middle + 1, high)
        return low

    @lazy
    def _expected(self) -> tuple[Float64, Float64]:
        """Expected agreement of normal signals at correlations from 0 to 1, ascending."""
        limit = scipy.stats.norm.isf(self.n_bits / (2 * self.n_pool))  # magnitudes above it are kept
        nodes, weights = np.polynomial.legendre.leggauss(300)
        x = limit + 4.5 * (nodes + 1)
        weights = 4.5 * weights * scipy.stats.norm.pdf(x)
        rho = np.sin(np.linspace(0, np.pi / 2, 400))[:-1]
        rest = np.sqrt(1 - rho**2)[:, None]
        both = ndtr((rho[:, None] * x - limit) / rest) - ndtr((-rho[:, None] * x - limit) / rest)
        expected = np.append(2 * self.n_pool * both @ weights, self.n_bits)
        return np.maximum.accumulate(expected), np.append(rho, 1.0)
