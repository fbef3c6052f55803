"""Errata of the paper: each error with its correction, a numerical example and the test that shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import theory
from . import printed
from .measuring import Advance, unwatched


@dataclass(frozen=True)
class Erratum:
    """One error, or one ambiguous statement."""

    where: str
    printed: str
    correct: str
    example: str  # description of the two values
    printed_value: float
    correct_value: float
    test: str  # file::name in tests/


def errata(*, advance: Advance = unwatched) -> list[Erratum]:
    """Return all known errors, with both values computed."""
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
            float(printed.flip_probability(-2.0, 0.3)),
            float(theory.flip_probability(-2.0, 0.3)),
            "test_paper_printed.py::test_theorem_1_without_the_absolute_value_is_wrong_for_negative_projections",
        ),
        Erratum(
            "Theorem 1, concentration",
            "exp(−μ ε²/2) + exp(−μ ε²/4) with μ the mean fraction of differing bits",
            "μ must be the mean count of differing bits; with the mean fraction the bound exceeds one for every ε ≤ 1",
            "bound on a relative deviation of 10% at m = 512, μ = 0.434",
            float(printed.deviation_bound(0.434, 0.1)),
            float(theory.chernoff_upper(count, 0.1) + theory.chernoff_lower(count, 0.1)),
            "test_paper_printed.py::test_theorem_1_with_a_fraction_for_a_count_is_no_bound",
        ),
        Erratum(
            "Theorem 1, upper tail",
            "exp(−B ε²/4) for ε up to 2e − 1, where B is the mean count",
            "this is no bound for ε > 4.1157; exp(−B [(1+ε) ln(1+ε) − ε]) holds for every ε > 0",
            "bound at ε = 2e − 1 and B = 1",
            float(printed.upper_deviation_bound(1.0, last)),
            float(theory.chernoff_upper(1.0, last)),
            "test_paper_printed.py::test_the_printed_upper_tail_fails_beyond_4_1157",
        ),
        Erratum(
            "Theorem 2, the bound",
            "E[d] ≤ Q(κ E[y₍ₘ₎]), by Jensen's inequality",
            "Jensen's inequality has the opposite direction, and the expected distance exceeds this value. "
            "E[d] ≤ π(t*) with t* = Q⁻¹((m+1)/(2(M+1))) holds for correlations in [0, 0.7071]",
            "claimed bound, and exact expectation, at m = 1, M = 8, correlation 0.5",
            float(printed.expected_hamming_bound(0.5, **small)),
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
            float(printed.pair_flip_probability(1.5, **orthogonal)),
            float(theory.pair_flip_probability(1.5, **orthogonal)),
            "test_paper_printed.py::test_theorem_3_is_half_the_exact_value_for_an_orthogonal_reference",
        ),
        Erratum(
            "Table I, storage",
            "1065 bits for 256 of 1024",
            "m + log₂ C(M, m) is 1081.6; the other columns follow this formula (233 and 405 are rounded down, 680 up)",
            "bits per class",
            float(printed.TABLE_STORAGE_BITS[3]),
            theory.storage_bits(n_bits=256, n_pool=1024),
            "test_paper_printed.py::test_storage_in_the_table_and_the_demo",
        ),
        Erratum(
            "Figure 3, equal storage in the authors' demonstration",
            "2969 sign projections for 512 of 8192",
            "m + log₂ C(M, m) is 3269.3, so the baseline in the demonstration has 300 bits too few",
            "bits per entry",
            float(printed.DEMO_STORAGE_BITS),
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
