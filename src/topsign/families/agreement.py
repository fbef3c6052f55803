"""Comparison of two codes by the agreement of their signs, for sign, grouped and adaptive codes.

Two codes are compared at their common locations. The *agreement* of a pair is the number of common locations with equal
signs minus the number with different signs. For independent signals the signs are equal with probability one half, and
the number of common locations has a known distribution: all of them for sign codes, hypergeometric for adaptive codes,
binomial with probability 1/8 for grouped codes. This gives the p-values (exact for independent normal projections). The
score of a pair is the correlation for which its agreement is the expected value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy  # submodules are imported at their first use

from .._arrays import Array, Bytes, Float64, Int64
from .._lazy import lazy
from ..significance.p_values import probabilities, selection_agreement_log10_pvalue
from ..theory import grouped_expected_agreement
from ..theory.order_statistics import Selection
from .comparison import CodeSearch, Pairing, count_signs

if TYPE_CHECKING:
    from .signs import ProjectionSignsRecipe


@dataclass(frozen=True, eq=False)
class AgreementPairing(Pairing):
    """Pairing by agreement."""

    recipe: ProjectionSignsRecipe
    has_null: ClassVar[bool] = True

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_pool

    def prepare(self, codes: Bytes) -> CodeSearch:
        return CodeSearch(self.recipe.scoring_of(None), count_signs(self.recipe.levels(codes)))

    def bound(self, score: float) -> float:
        return self._least(lambda value: self.scores(value) >= score)

    def null_bound(self, level: float) -> float:
        return self._least(lambda value: probabilities(self.log10_p_values(value)) <= level)

    def _least(self, test: Callable[[Int64], Array]) -> int:
        """Return the smallest agreement that passes a monotone test, or one more than the largest if none does."""
        n_kept = self.recipe.n_kept
        agreements = range(-n_kept, n_kept + 1)
        return bisect_left(agreements, True, key=lambda one: bool(test(np.array([one]))[0])) - n_kept

    @lazy
    def _kept(self) -> Selection:
        return Selection(*self.recipe.selection(self.recipe.n_kept))

    def log10_p_values(self, values: Array) -> Float64:
        """Return log10 of the probability that codes of independent signals have at least this agreement."""
        return selection_agreement_log10_pvalue(values, self._kept)

    def scores(self, values: Array) -> Float64:
        """Return the correlations at which these agreements are expected."""
        expected, correlations = self._expected
        return np.asarray(np.sign(values) * np.interp(np.abs(values), expected, correlations))

    @lazy
    def _expected(self) -> tuple[Float64, Float64]:
        """Expected agreement of normal signals at correlations from 0 to 1, ascending."""
        rho = np.sin(np.linspace(0, np.pi / 2, 400))
        kept = self._kept
        if kept.n_groups > 1:
            return np.maximum.accumulate(kept.n_groups * grouped_expected_agreement(rho)), rho
        limit = scipy.stats.norm.isf(kept.n_largest / (2 * kept.group_size))  # magnitudes above it are kept
        nodes, weights = np.polynomial.legendre.leggauss(300)
        x = limit + 4.5 * (nodes + 1)
        weights = 4.5 * weights * scipy.stats.norm.pdf(x)
        rest = np.sqrt(1 - rho[:-1] ** 2)[:, np.newaxis]
        along = rho[:-1, np.newaxis] * x
        both = scipy.special.ndtr((along - limit) / rest) - scipy.special.ndtr((-along - limit) / rest)
        expected = np.append(2 * kept.group_size * both @ weights, kept.n_largest)
        return np.maximum.accumulate(expected), rho
