"""Formulas as printed in the paper, if they differ from the corrected ones in :mod:`topsign.theory`.

Standing of all functions: **as printed**. The reproduction uses them to show the difference, and the tests of this
module show where each formula fails and by how much.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from .. import theory
from .._arrays import Float64
from ..theory.distances import kappa_of

TABLE_KEPT = (32, 64, 128, 256)
"""Column heads of Table I: bits kept out of a pool of 1024, which are also the bits at equal computation."""

TABLE_STORAGE_BITS = (233, 405, 680, 1065)
"""Column heads of Table I for equal storage. The exact values are 233.63, 405.10, 679.88 and 1081.63."""

TABLE_UNCOMPRESSED = 92.64
"""Accuracy of the uncompressed head in Table I, in percent."""

TABLE_ACCURACY = {
    "adaptive": (92.30, 92.33, 92.40, 92.49),
    "sign, equal computation": (75.49, 87.03, 91.09, 92.27),
    "sign, equal storage": (91.90, 92.32, 92.38, 92.51),
    "universal, equal computation": (77.13, 87.81, 92.10, 92.30),
    "universal, equal storage": (92.20, 92.32, 92.39, 92.49),
}
"""Accuracies of Table I in percent, one per column, with the method names of :mod:`topsign.paper.table`."""

TABLE_STEP, ROC_STEP = 180.0, 2.0
"""Steps of the universal embedding: in Table I (chosen by cross-validation) and in Figure 3."""

DEMO_STORAGE_BITS = 2969
"""Number of sign projections at equal storage with 512 of 8192 in the authors' demonstration; 3269.3 is correct."""


def flip_probability(standardized: npt.ArrayLike, correlation: npt.ArrayLike) -> Float64:
    """Theorem 1's p_i, which has ``y_i`` instead of ``|y_i|`` and is wrong for negative projections."""
    kappa = kappa_of(np.asarray(correlation, dtype=np.float64))
    return np.asarray(ndtr(-np.asarray(standardized, dtype=np.float64) * kappa))


def deviation_bound(expected_hamming: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Theorem 1's ``exp(-mu e**2 / 2) + exp(-mu e**2 / 4)``; with mu the mean *fraction* it exceeds one for e <= 1."""
    exponent = np.asarray(expected_hamming) * np.asarray(relative_error) ** 2
    return np.asarray(np.exp(-exponent / 2) + np.exp(-exponent / 4))


def upper_deviation_bound(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Upper-tail term of that bound with the mean *count*, ``exp(-B e**2 / 4)``, printed for e <= 2 exp(1) - 1.

    It is a bound only up to e = 4.1157, at which it equals the sharp bound.
    """
    return np.asarray(np.exp(-np.asarray(expected_mismatches) * np.asarray(relative_error) ** 2 / 4))


def expected_hamming_bound(correlation: npt.ArrayLike, *, n_bits: int, n_pool: int) -> Float64:
    """Theorem 2's bound ``Q(kappa e)``, where e is the mean of order statistic 2(M - m + 1) of 2M normal values.

    It is not a bound: Jensen's inequality is applied in the wrong direction, and the index should be about 2M - m + 1.
    """
    mean = theory.order_statistic_mean(2 * (n_pool - n_bits + 1), n=2 * n_pool, half=False)
    return np.asarray(ndtr(-kappa_of(np.asarray(correlation, dtype=np.float64)) * mean))


def order_statistic(n_bits: int, n_pool: int) -> float:
    """Remark to Theorem 2: ``F^-1((2(M - m + 1) - 0.375) / (2M - 0.75 + 1))``, where F is the normal distribution.

    This is Harter's approximation at the theorem's incorrect rank; the correct rank is 2M - m + 1.
    """
    return float(ndtri((2 * (n_pool - n_bits + 1) - 0.375) / (2 * n_pool - 0.75 + 1)))


def pair_flip_probability(
    standardized: npt.ArrayLike, *, uv: npt.ArrayLike, uw: npt.ArrayLike, vw: npt.ArrayLike
) -> Float64:
    """Theorem 3's p_i, in which each joint probability is multiplied by a marginal probability of the second signal.

    ``[F(0, inf) - F(0, 0)] [1 - F(inf, 0)] + [F(inf, 0) - F(0, 0)] F(inf, 0)``, where F is the distribution function of
    the projections (z, a) of v and w given the reference's: ``P(z < 0, a > 0) P(a > 0) + P(z > 0, a < 0) P(a < 0)``. It
    is half the correct value if the reference is orthogonal to both.
    """
    s = np.asarray(standardized, dtype=np.float64)
    uv, uw = np.asarray(uv, dtype=np.float64), np.asarray(uw, dtype=np.float64)
    either = theory.pair_flip_probability(s, uv=uv, uw=uw, vw=vw)
    z_negative, a_negative = ndtr(-s * kappa_of(uv)), ndtr(-s * kappa_of(uw))
    # P(z<0, a>0) - P(z>0, a<0) = P(z<0) - P(a<0), and their sum is `either`.
    first = (either + z_negative - a_negative) / 2
    return np.asarray(first * (1 - a_negative) + (either - first) * a_negative)
