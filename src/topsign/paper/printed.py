"""Formulas as printed in the paper, wrong or imprecise ones included, and their corrections."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from .. import theory
from .._arrays import Float64
from ..theory.distances import kappa_of
from .measuring import Advance, unwatched

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
"""Accuracies of Table I in percent, one per column, with the method names of :mod:`topsign.paper.heads`."""

TABLE_STEP, ROC_STEP = 180.0, 2.0
"""Steps of the universal embedding: in Table I (chosen by cross-validation) and in Figure 3."""

DEMO_STORAGE_BITS = 2969
"""Number of sign projections at equal storage with 512 of 8192 in the authors' demonstration; 3269.3 is correct."""


def flip_probability(standardized: npt.ArrayLike, correlation: npt.ArrayLike) -> Float64:
    """Theorem 1's p_i at a ``correlation``, with ``standardized`` instead of its magnitude: wrong below zero."""
    kappa = kappa_of(np.asarray(correlation, dtype=np.float64))
    return np.asarray(ndtr(-np.asarray(standardized, dtype=np.float64) * kappa))


def deviation_bound(expected_hamming: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Theorem 1's ``exp(-mu e**2 / 2) + exp(-mu e**2 / 4)``.

    mu is the mean *fraction*, ``expected_hamming``, and e the ``relative_error``; the bound exceeds one for e <= 1.
    """
    exponent = np.asarray(expected_hamming) * np.asarray(relative_error) ** 2
    return np.asarray(np.exp(-exponent / 2) + np.exp(-exponent / 4))


def upper_deviation_bound(expected_mismatches: npt.ArrayLike, relative_error: npt.ArrayLike) -> Float64:
    """Upper-tail term of that bound with the mean *count*, ``exp(-B e**2 / 4)``, printed for e <= 2 exp(1) - 1.

    B is ``expected_mismatches``, e is ``relative_error``.

    It is a bound only up to e = 4.1157, at which it equals the sharp bound.
    """
    return np.asarray(np.exp(-np.asarray(expected_mismatches) * np.asarray(relative_error) ** 2 / 4))


def expected_hamming_bound(correlation: npt.ArrayLike, *, n_bits: int, n_pool: int) -> Float64:
    """Theorem 2's bound ``Q(kappa e)``, where e is the mean of order statistic 2(M - m + 1) of 2M normal values.

    kappa is that of the ``correlation``, m is ``n_bits``, M is ``n_pool``. It is not a bound: Jensen's inequality is
    applied in the wrong direction, and the index should be about 2M - m + 1.
    """
    mean = theory.order_statistic_mean(2 * (n_pool - n_bits + 1), n=2 * n_pool, half=False)
    return np.asarray(ndtr(-kappa_of(np.asarray(correlation, dtype=np.float64)) * mean))


def order_statistic(n_bits: int, n_pool: int) -> float:
    """Remark to Theorem 2: ``F^-1((2(M - m + 1) - 0.375) / (2M - 0.75 + 1))``, where F is the normal distribution.

    m is ``n_bits``, M is ``n_pool``. This is Harter's approximation at the theorem's incorrect rank; the correct rank
    is 2M - m + 1.
    """
    return float(ndtri((2 * (n_pool - n_bits + 1) - 0.375) / (2 * n_pool - 0.75 + 1)))


def pair_flip_probability(
    standardized: npt.ArrayLike, *, uv: npt.ArrayLike, uw: npt.ArrayLike, vw: npt.ArrayLike
) -> Float64:
    """Theorem 3's p_i, in which each joint probability is multiplied by a marginal probability of the second signal.

    ``[F(0, inf) - F(0, 0)] [1 - F(inf, 0)] + [F(inf, 0) - F(0, 0)] F(inf, 0)``, where F is the distribution function of
    the projections (z, a) of v and w given the ``standardized`` one of the reference u, with correlations ``uv``,
    ``uw`` and ``vw``: ``P(z < 0, a > 0) P(a > 0) + P(z > 0, a < 0) P(a < 0)``. It is half the correct value if the
    reference is orthogonal to both.
    """
    s = np.asarray(standardized, dtype=np.float64)
    uv, uw = np.asarray(uv, dtype=np.float64), np.asarray(uw, dtype=np.float64)
    either = theory.pair_flip_probability(s, uv=uv, uw=uw, vw=vw)
    z_negative, a_negative = ndtr(-s * kappa_of(uv)), ndtr(-s * kappa_of(uw))
    # P(z<0, a>0) - P(z>0, a<0) = P(z<0) - P(a<0), and their sum is `either`.
    first = (either + z_negative - a_negative) / 2
    return np.asarray(first * (1 - a_negative) + (either - first) * a_negative)


DEMONSTRATION = "Figure 3, equal storage in the authors' demonstration"


@dataclass(frozen=True)
class Erratum:
    """One error, or one ambiguous statement."""

    where: str  #: theorem, figure or table
    printed: str  #: statement of the paper
    correct: str  #: correction
    example: str  #: description of the two values
    printed_value: float  #: by the printed statement
    correct_value: float  #: by the corrected one
    test: str  #: file::name in tests/


def errata(*, advance: Advance = unwatched) -> list[Erratum]:
    """Return all known errors, with both values computed; ``advance`` is called after each."""
    count = 512 * 0.434
    last = 2 * math.e - 1
    small = {"n_bits": 1, "n_pool": 8}
    shared = {"n_bits": 32, "n_pool": 40}
    mean, variance = (float(law(0.95, **shared)) for law in (theory.expected_hamming, theory.hamming_variance))
    orthogonal = {"uv": 0.0, "uw": 0.0, "vw": 0.5}
    found = [
        Erratum(
            "Theorem 1, flip probability",
            "p = Q(κ y), with the projection y itself",
            "p = Q(κ |y|): negative projections flip as rarely as positive ones of the same magnitude",
            "probability that a sign flips at y = −2, correlation 0.3",
            float(flip_probability(-2.0, 0.3)),
            float(theory.flip_probability(-2.0, 0.3)),
            "test_paper_printed.py::test_theorem_1_without_the_absolute_value_is_wrong_for_negative_projections",
        ),
        Erratum(
            "Theorem 1, concentration",
            "exp(−μ ε²/2) + exp(−μ ε²/4) with μ the mean fraction of differing bits",
            "μ must be the mean count of differing bits; with the mean fraction the bound exceeds one for every ε ≤ 1",
            "bound on a relative deviation of 10% at m = 512, μ = 0.434",
            float(deviation_bound(0.434, 0.1)),
            float(theory.chernoff_upper(count, 0.1) + theory.chernoff_lower(count, 0.1)),
            "test_paper_printed.py::test_theorem_1_with_a_fraction_for_a_count_is_no_bound",
        ),
        Erratum(
            "Theorem 1, upper tail",
            "exp(−B ε²/4) for ε up to 2e − 1, where B is the mean count",
            "this is no bound for ε > 4.1157; exp(−B [(1+ε) ln(1+ε) − ε]) holds for every ε > 0",
            "bound at ε = 2e − 1 and B = 1",
            float(upper_deviation_bound(1.0, last)),
            float(theory.chernoff_upper(1.0, last)),
            "test_paper_printed.py::test_the_printed_upper_tail_fails_beyond_4_1157",
        ),
        Erratum(
            "Theorem 2, the bound",
            "E[d] ≤ Q(κ E[y₍ₘ₎]), by Jensen's inequality",
            "Jensen's inequality has the opposite direction, and the expected distance exceeds this value. "
            "E[d] ≤ π(t*) with t* = Q⁻¹((m+1)/(2(M+1))) holds for correlations in [0, 0.7071]",
            "claimed bound, and exact expectation, at m = 1, M = 8, correlation 0.5",
            float(expected_hamming_bound(0.5, **small)),
            float(theory.expected_hamming(0.5, **small)),
            "test_paper_printed.py::test_theorem_2_is_no_bound",
        ),
        Erratum(
            "Theorem 2, the order statistic",
            "index 2(M − m + 1) of 2M normal values",
            "index 2M − m + 1 approximates the m-th largest magnitude of M",
            "mean of the printed order statistic, and mean of the magnitude, at m = 32, M = 1024",
            float(theory.order_statistic_mean(2 * (1024 - 32 + 1), n=2048, half=False)),
            float(theory.order_statistic_mean(32, n=1024)),
            "test_paper_printed.py::test_theorem_2_uses_the_wrong_index",
        ),
        Erratum(
            "Theorem 2, the distribution",
            "the number of differing bits is Poisson-binomial if the projections are unknown",
            "all bits depend on the same threshold, so the distribution is a mixture of binomials with larger variance",
            "largest Poisson-binomial variance with this mean, and exact variance; m = 32, M = 40, correlation 0.95",
            mean * (1 - mean) / shared["n_bits"],
            variance,
            "test_paper_printed.py::test_unknown_projections_give_no_poisson_binomial_distribution",
        ),
        Erratum(
            "Theorem 3, flip probability",
            "each joint probability is multiplied by a marginal probability of the second signal",
            "p = Φ(h) + Φ(k) − 2 Φ₂(h, k; r), without the marginal factors",
            "two signals with correlation 0.5, both orthogonal to the reference",
            float(pair_flip_probability(1.5, **orthogonal)),
            float(theory.pair_flip_probability(1.5, **orthogonal)),
            "test_paper_printed.py::test_theorem_3_is_half_the_exact_value_for_an_orthogonal_reference",
        ),
        Erratum(
            "Table I, storage",
            "1065 bits for 256 of 1024",
            "m + log₂ C(M, m) is 1081.6; the other columns follow this formula (233 and 405 are rounded down, 680 up)",
            "bits per class",
            float(TABLE_STORAGE_BITS[3]),
            theory.storage_bits(n_bits=256, n_pool=1024),
            "test_paper_printed.py::test_storage_in_the_table_and_the_demo",
        ),
        Erratum(
            DEMONSTRATION,
            "2969 sign projections for 512 of 8192",
            "m + log₂ C(M, m) is 3269.3, so the baseline in the demonstration has 300 bits too few",
            "bits per entry",
            float(DEMO_STORAGE_BITS),
            theory.storage_bits(n_bits=512, n_pool=8192),
            "test_paper_printed.py::test_storage_in_the_table_and_the_demo",
        ),
        Erratum(
            "Figure 3, the adapted side",
            "the text adapts to each entry and the caption to the query, at the same storage",
            "detection is the same, but if the query determines the locations, each entry must store the signs of the "
            "whole pool",
            "bits per entry if entries adapt, and if queries adapt",
            theory.storage_bits(n_bits=512, n_pool=8192),
            8192.0,
            "test_reproduce.py::test_either_side_may_adapt_but_only_entries_save_storage",
        ),
    ]
    advance(1.0)
    return found
