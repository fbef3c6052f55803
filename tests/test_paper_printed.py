"""The paper's formulas as printed: where each fails, and by how much."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from topsign import theory
from topsign.paper import printed


def test_theorem_1_without_the_absolute_value_is_wrong_for_negative_projections():
    s = np.array([2.0, -2.0])
    right, wrong = theory.flip_probability(s, 0.3), printed.flip_probability(s, 0.3)
    assert_allclose(wrong, [right[0], 1 - right[1]])
    assert wrong[1] - right[1] > 0.47  # 0.735 instead of 0.265


def test_theorem_1_with_a_fraction_for_a_count_is_no_bound():
    """For every e <= 1 and every mean the printed bound exceeds one; with the count it is 0.67 at e = 0.1."""
    means, errors = np.meshgrid(np.linspace(0.01, 1, 30), np.linspace(0.01, 1, 30))
    assert (printed.deviation_bound(means, errors) > 1).all()
    right = theory.chernoff_upper(512 * 0.434, 0.1) + theory.chernoff_lower(512 * 0.434, 0.1)
    assert_allclose(right, 0.67026, atol=1e-5)


def test_the_printed_upper_tail_fails_beyond_4_1157():
    """Even with the count, exp(-B e**2 / 4) falls below a true probability inside its printed range e <= 4.44."""
    inside, beyond = 4.1156, 4.1158
    assert printed.upper_deviation_bound(1.0, inside) > theory.chernoff_upper(1.0, inside)
    assert printed.upper_deviation_bound(1.0, beyond) < theory.chernoff_upper(1.0, beyond)
    e = 2 * np.e - 1  # the end of the printed range: the sharp bound, tight up to a power of B, is already larger
    n, expected = 10**6, 40.0
    flips_tail = theory.distances.binomial_sf(np.floor((1 + e) * expected), n, expected / n)
    assert flips_tail > printed.upper_deviation_bound(expected, e)


def test_theorem_2_is_no_bound():
    exact = theory.expected_hamming(0.5, n_bits=1, n_pool=8)
    claimed = printed.expected_hamming_bound(0.5, n_bits=1, n_pool=8)
    assert_allclose([exact, claimed], [0.162229, 0.153960], atol=5e-7)
    for n_bits in (1, 2, 3, 4):  # m <= M/2, towards correlation one
        near = {"correlation": 1 - 1e-6, "n_bits": n_bits, "n_pool": 8}
        assert theory.expected_hamming(**near) > 2 * printed.expected_hamming_bound(**near)
    assert theory.expected_hamming(-0.3, n_bits=32, n_pool=1024) > printed.expected_hamming_bound(
        -0.3, n_bits=32, n_pool=1024
    )


def test_theorem_2_uses_the_wrong_index():
    """The printed index is 2(M-m+1) of 2M normal values; 2M-m+1 approximates the m-th largest magnitude."""
    wrong, right = (theory.order_statistic_mean(k, n=2048, half=False) for k in (2 * (1024 - 32 + 1), 2048 - 32 + 1))
    magnitude = theory.order_statistic_mean(32, n=1024)
    assert abs(right - magnitude) < 0.001
    assert magnitude - wrong > 0.28


def test_unknown_projections_give_no_poisson_binomial_distribution():
    """The exact variance exceeds that of the binomial, the largest of all Poisson-binomials with this mean."""
    shape = {"n_bits": 32, "n_pool": 40}
    mean, variance = theory.expected_hamming(0.95, **shape), theory.hamming_variance(0.95, **shape)
    largest = mean * (1 - mean) / 32
    distances = np.arange(33) / 32
    for flips in (np.full(32, mean), np.linspace(0, 2 * mean, 32)):
        law = theory.poisson_binomial_pmf(flips)
        assert_allclose(law @ distances, mean)
        assert law @ (distances - mean) ** 2 <= largest * (1 + 1e-12)
    assert variance > 1.15 * largest


def test_theorem_3_is_half_the_exact_value_for_an_orthogonal_reference():
    for vw in (-0.5, 0.0, 0.7):
        right = theory.pair_flip_probability(1.5, uv=0.0, uw=0.0, vw=vw)
        assert_allclose(printed.pair_flip_probability(1.5, uv=0.0, uw=0.0, vw=vw), right / 2)


def bivariate(s, uv, uw, vw):
    """Return the distribution of two projections given the reference's, from the covariance of all three."""
    covariance = np.array([[1, vw], [vw, 1]]) - np.outer([uv, uw], [uv, uw])
    return multivariate_normal(mean=[uv * s, uw * s], cov=covariance)


@pytest.mark.parametrize(("uv", "uw", "vw"), [(0.5, 0.3, 0.6), (0.8, -0.4, -0.1), (-0.2, 0.7, 0.25)])
def test_theorem_3_is_as_printed(uv, uw, vw):
    """Compute F(z, a) of the printed formula with SciPy's bivariate normal distribution (its error is below 1e-5)."""
    for s in (-2.0, 0.4, 1.7):
        law = bivariate(s, uv, uw, vw)
        far = 50.0
        f00, f0i, fi0 = (law.cdf(at) for at in ([0, 0], [0, far], [far, 0]))
        formula = (f0i - f00) * (1 - fi0) + (fi0 - f00) * fi0
        assert_allclose(printed.pair_flip_probability(s, uv=uv, uw=uw, vw=vw), formula, atol=2e-5)
        assert_allclose(theory.pair_flip_probability(s, uv=uv, uw=uw, vw=vw), f0i + fi0 - 2 * f00, atol=2e-5)
        of_the_first = (f0i - f00) * f0i + (fi0 - f00) * (1 - f0i)  # the other marginal gives another formula
        if abs(s) > 1:
            assert abs(of_the_first - formula) > 0.02


@pytest.mark.parametrize(("uv", "uw", "vw"), [(0.5, 0.3, 0.6), (0.8, -0.4, -0.1)])
def test_theorem_3_is_too_small_everywhere(uv, uw, vw):
    s = np.linspace(-3, 3, 13)
    right = theory.pair_flip_probability(s, uv=uv, uw=uw, vw=vw)
    assert (printed.pair_flip_probability(s, uv=uv, uw=uw, vw=vw) < right).all()


def test_storage_in_the_table_and_the_demo():
    exact = [theory.storage_bits(n_bits=m, n_pool=1024) for m in printed.TABLE_KEPT]
    assert_allclose(exact, [233.63, 405.10, 679.88, 1081.63], atol=0.005)
    assert (int(exact[0]), int(exact[1]), round(exact[2]), 1065) == printed.TABLE_STORAGE_BITS
    assert exact[3] - printed.TABLE_STORAGE_BITS[3] > 16
    assert theory.storage_bits(n_bits=512, n_pool=8192) - printed.DEMO_STORAGE_BITS > 300


def test_the_table_of_theorems_names_functions():
    """Each name in the documentation's table from theorem to function exists."""
    page = (Path(__file__).parents[1] / "docs" / "explanation" / "theory.md").read_text()
    rows = re.findall(r"^\| .*\|$", page.split("## Functions of the theorems")[1].split("\n## ")[0], re.M)[1:]
    assert len(rows) >= 8
    for row in rows:
        _, _, corrected, as_printed, _ = row.split("|")
        for module, cell in ((theory, corrected), (printed, as_printed)):
            assert [name for name in re.findall(r"`(\w+)`", cell) if not hasattr(module, name)] == []
