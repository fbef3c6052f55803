"""Errata of the paper: each error with its correction, a number that shows it and the test that proves it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import theory
from . import printed
from .measuring import Advance, unwatched


@dataclass(frozen=True)
class Erratum:
    """One error, or one statement that can be read in two ways."""

    where: str
    printed: str
    correct: str
    example: str  # what the two numbers are
    printed_value: float
    correct_value: float
    test: str  # file::name in tests/


def errata(*, advance: Advance = unwatched) -> list[Erratum]:
    """All known errors, with both numbers computed."""
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
            "p = Q(κ |y|): a kept sign survives as well when its projection is negative",
            "probability that a sign flips at y = −2, correlation 0.3",
            float(printed.flip_probability(-2.0, 0.3)),
            float(theory.flip_probability(-2.0, 0.3)),
            "test_paper_printed.py::test_theorem_1_without_the_absolute_value_is_wrong_for_negative_projections",
        ),
        Erratum(
            "Theorem 1, concentration",
            "exp(−μ ε²/2) + exp(−μ ε²/4) with μ the mean fraction of differing bits",
            "the mean count m μ belongs there; with the fraction the bound exceeds one for every ε ≤ 1",
            "bound on a relative deviation of 10% at m = 512, μ = 0.434",
            float(printed.deviation_bound(0.434, 0.1)),
            float(theory.chernoff_upper(count, 0.1) + theory.chernoff_lower(count, 0.1)),
            "test_paper_printed.py::test_theorem_1_with_a_fraction_for_a_count_bounds_nothing",
        ),
        Erratum(
            "Theorem 1, upper tail",
            "exp(−B ε²/4) for ε up to 2e − 1, B the mean count",
            "it fails beyond ε = 4.1157; exp(−B [(1+ε) ln(1+ε) − ε]) holds for every ε > 0",
            "bound at ε = 2e − 1 and B = 1",
            float(printed.upper_deviation_bound(1.0, last)),
            float(theory.chernoff_upper(1.0, last)),
            "test_paper_printed.py::test_the_printed_upper_tail_fails_beyond_4_1157",
        ),
        Erratum(
            "Theorem 2, the bound",
            "E[d] ≤ Q(κ E[y₍ₘ₎]), by Jensen's inequality",
            "Jensen's inequality goes the other way: the expected distance exceeds it. "
            "E[d] ≤ π(t*), t* = Q⁻¹((m+1)/(2(M+1))), is a bound for correlations in [0, 0.7071]",
            "claimed bound, and the exact expectation, at m = 1, M = 8, correlation 0.5",
            float(printed.expected_hamming_bound(0.5, **small)),
            float(theory.expected_hamming(0.5, **small)),
            "test_paper_printed.py::test_theorem_2_is_no_bound",
        ),
        Erratum(
            "Theorem 2, the order statistic",
            "index 2(M − m + 1) of 2M normal values",
            "index 2M − m + 1 approximates the m-th largest magnitude of M",
            "its mean at m = 32, M = 1024; on the right that of the magnitude itself",
            float(theory.order_statistic_mean(2 * (1024 - 32 + 1), n=2048, half=False)),
            float(theory.order_statistic_mean(32, n=1024)),
            "test_paper_printed.py::test_theorem_2_uses_the_wrong_index",
        ),
        Erratum(
            "Theorem 2, the law",
            "differing bits follow a Poisson-binomial law when the projections are not known",
            "the bits share the threshold that all kept magnitudes exceed: a binomial mixture, of larger variance",
            "largest variance of such a law of this mean, and the exact one; m = 32, M = 40, correlation 0.95",
            mean * (1 - mean) / shared["n_bits"],
            variance,
            "test_paper_printed.py::test_unknown_projections_give_no_poisson_binomial_law",
        ),
        Erratum(
            "Theorem 3, flip probability",
            "each joint probability is multiplied by a marginal of the second signal once more",
            "p = Φ(h) + Φ(k) − 2 Φ₂(h, k; r), only the joint probabilities",
            "two signals at correlation 0.5, both orthogonal to the reference",
            float(printed.pair_flip_probability(1.5, **orthogonal)),
            float(theory.pair_flip_probability(1.5, **orthogonal)),
            "test_paper_printed.py::test_theorem_3_is_half_the_truth_for_an_orthogonal_reference",
        ),
        Erratum(
            "Table I, storage",
            "1065 bits for 256 of 1024",
            "m + log₂ C(M, m) is 1081.6; the other columns follow it, 233 and 405 rounded down, 680 rounded up",
            "bits per class",
            float(printed.TABLE_STORAGE_BITS[3]),
            theory.storage_bits(n_bits=256, n_pool=1024),
            "test_paper_printed.py::test_storage_in_the_table_and_the_demo",
        ),
        Erratum(
            "Figure 3, equal storage in the authors' demonstration",
            "2969 sign projections for 512 of 8192",
            "m + log₂ C(M, m) is 3269.3; the demonstration gives the baseline 300 bits too few",
            "bits per entry",
            float(printed.DEMO_STORAGE_BITS),
            theory.storage_bits(n_bits=512, n_pool=8192),
            "test_paper_printed.py::test_storage_in_the_table_and_the_demo",
        ),
        Erratum(
            "Figure 3, who adapts",
            "the text adapts to each entry, the caption to the query, as if both cost the same storage",
            "detection is the same, but if queries choose the locations, an entry must keep all signs of the pool",
            "bits per entry where entries adapt, and where queries adapt",
            theory.storage_bits(n_bits=512, n_pool=8192),
            8192.0,
            "test_reproduce.py::test_either_side_may_adapt_but_only_entries_save_storage",
        ),
    ]
    advance(1.0)
    return found
