"""Exact theory: golden values, identities and limits."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, multivariate_normal

from topsign import theory
from topsign.paper import printed
from topsign.theory.distances import binomial_cdf, binomial_sf, mixture_tail
from topsign.theory.order_statistics import Selection

pytestmark = pytest.mark.core

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())
SIZES = [(1, 1), (1, 2), (1, 8), (7, 8), (20, 64), (32, 1024), (100, 100), (512, 8192), (800, 5000), (1, 2**24)]
SIZES += [(2**23, 2**24), (2**24 - 1, 2**24)]


def pool(p):
    return {"n_bits": p["m"], "n_pool": p["m_pool"]}


def kept_at_threshold(p):
    """Return E[Q(kappa s)] for the m-th largest magnitude s, the threshold if m - 1 are kept."""
    grid = theory.order_statistics.pool_grid(p["m"] - 1, p["m_pool"])
    kappa = p["rho"] / np.sqrt(1 - p["rho"] ** 2)
    return ndtr(-kappa * grid.thresholds) @ grid.threshold_weights


def given_tail(p, side):
    flips = theory.flip_probability(p["y"], p["rho"])
    limit = (1 + (p["eps"] if side == "upper" else -p["eps"])) * flips.sum()
    count = np.floor(limit) + 1 if side == "upper" else np.ceil(limit) - 1
    return theory.poisson_binomial_tail(count, flips, side=side)


def variance_given(p):
    flips = theory.flip_probability(p["y"], p["uv"])
    return (flips * (1 - flips)).sum() / len(flips) ** 2


COMPUTE = {
    "p_i_given_y": lambda p: theory.flip_probability(
        p["y"] / (p["sigma"] * p["norm_u"]), p["uv"] / (p["norm_u"] * p["norm_v"])
    ),
    "mean_given_y": lambda p: theory.flip_probability(p["y"], p["uv"]).mean(),
    "var_given_y": variance_given,
    "exact_upper_tail_given_y": lambda p: given_tail(p, "upper"),
    "exact_lower_tail_given_y": lambda p: given_tail(p, "lower"),
    "chernoff_lower": lambda p: theory.chernoff_lower(p["m"] * p["mu"], p["eps"]),
    "chernoff_upper_over4": lambda p: printed.upper_deviation_bound(p["m"] * p["mu"], p["eps"]),
    "chernoff_upper_2pluseps": lambda p: theory.chernoff_upper(p["m"] * p["mu"], p["eps"], sharp=False),
    "chernoff_upper_sharp": lambda p: theory.chernoff_upper(p["m"] * p["mu"], p["eps"]),
    "mean_exact": lambda p: theory.expected_hamming(p["rho"], **pool(p)),
    "var_exact": lambda p: theory.hamming_variance(p["rho"], **pool(p)),
    "p_m_exact": kept_at_threshold,
    "thm2_printed_bound": lambda p: printed.expected_hamming_bound(p["rho"], **pool(p)),
    "order_stat_mean_normal": lambda p: theory.order_statistic_mean(p["k"], n=p["N"], half=False),
    "order_stat_mean_halfnormal": lambda p: theory.order_statistic_mean(p["i_th_largest"], n=p["M"]),
    "harter_printed_index": lambda p: theory.harter_approximation(2 * (p["m_pool"] - p["m"] + 1), n=2 * p["m_pool"]),
    "harter_corrected_index": lambda p: theory.harter_approximation(2 * p["m_pool"] - p["m"] + 1, n=2 * p["m_pool"]),
    "upper_bound_closed_form": lambda p: theory.expected_hamming_bound(p["rho"], **pool(p)),
    "p_i_3party": lambda p: theory.pair_flip_probability(p["y"], uv=p["uv"], uw=p["uw"], vw=p["vw"]),
    "mean_exact_rho_1_over_sqrt2": lambda p: theory.expected_hamming(np.sqrt(0.5), **pool(p)),
    "storage_bits": lambda p: theory.storage_bits(**pool(p)),
    "srp_mean": lambda p: theory.sign_expected_hamming(p["rho"]),
    "inverse_rho": lambda p: theory.correlation_from_hamming(p["d_H"], **pool(p)),
    "universal_dither_mean": lambda p: theory.universal_expected_hamming(np.sqrt(2 - 2 * p["rho"]), step=p["Delta"]),
}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["what"])
def test_golden_values(golden):
    assert_allclose(COMPUTE[golden["what"]](golden["params"]), golden["value"], rtol=1e-12)


@pytest.mark.parametrize(("n_bits", "n_pool"), SIZES)
def test_extreme_correlations(n_bits, n_pool):
    rho = np.array([-1, -1 + 1e-12, -0.5, 0, 0.5, 1 - 1e-12, 1])
    mean = theory.expected_hamming(rho, n_bits=n_bits, n_pool=n_pool)
    variance = theory.hamming_variance(rho, n_bits=n_bits, n_pool=n_pool)
    assert mean[0] == 1
    assert mean[3] == 0.5
    assert mean[-1] == 0
    assert_allclose(mean[::-1], 1 - mean, atol=1e-15)
    assert (np.diff(mean) <= 0).all()
    assert np.isfinite(variance).all()
    assert_array_equal(variance[[0, -1]], 0)
    assert (variance >= 0).all()


def test_everything_kept_is_plain_sign_projections():
    rho = np.linspace(-1, 1, 41)
    assert_allclose(theory.expected_hamming(rho, n_bits=64, n_pool=64), np.arccos(rho) / np.pi, atol=1e-15)
    assert_allclose(
        theory.hamming_pmf(0.3, n_bits=20, n_pool=20), binom.pmf(np.arange(21), 20, np.arccos(0.3) / np.pi), rtol=1e-10
    )
    assert_allclose(
        theory.expected_pair_hamming(uv=0.2, uw=0.3, vw=0.4, n_bits=9, n_pool=9), np.arccos(0.4) / np.pi, rtol=1e-12
    )


@pytest.mark.parametrize(("n_bits", "n_pool"), [(1, 8), (20, 64), (32, 1024), (512, 8192)])
@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.2, 0.8])
def test_the_law_is_consistent(rho, n_bits, n_pool):
    """Mean, variance and tails of the mass function equal those computed directly."""
    pmf = theory.hamming_pmf(rho, n_bits=n_bits, n_pool=n_pool)
    k = np.arange(n_bits + 1)
    mean = pmf @ k
    assert_allclose(pmf.sum(), 1, rtol=1e-12)
    assert_allclose(mean / n_bits, theory.expected_hamming(rho, n_bits=n_bits, n_pool=n_pool), rtol=1e-9)
    variance = pmf @ (k - mean) ** 2 / n_bits**2
    assert_allclose(variance, theory.hamming_variance(rho, n_bits=n_bits, n_pool=n_pool), rtol=1e-9)
    kept = Selection(n_bits, n_pool)
    assert_allclose(mixture_tail(k, rho, kept, binomial_cdf), pmf.cumsum(), rtol=1e-9, atol=1e-300)
    assert_allclose(mixture_tail(k - 1, rho, kept, binomial_sf), pmf[::-1].cumsum()[::-1], rtol=1e-9, atol=1e-300)
    assert mixture_tail(-1, rho, kept, binomial_cdf) == 0
    assert mixture_tail(n_bits, rho, kept, binomial_sf) == 0


@pytest.mark.parametrize(("n_bits", "n_pool"), SIZES)
def test_the_closed_form_is_a_bound(n_bits, n_pool):
    rho = np.linspace(0, 1, 201)
    exact = theory.expected_hamming(rho, n_bits=n_bits, n_pool=n_pool)
    bound = theory.expected_hamming_bound(rho, n_bits=n_bits, n_pool=n_pool)
    assert (bound >= exact * (1 - 3e-11)).all()
    if n_bits >= 32 and n_pool >= 1024:
        below = rho <= np.sqrt(0.5)
        assert (bound - exact)[below].max() < 4e-4


@pytest.mark.parametrize("vw", [-0.2, 0.1, 0.75])
def test_pair_flips_equal_the_bivariate_normal(vw):
    """Compare with SciPy's bivariate normal distribution function, which is accurate to about 1e-8."""
    uv, uw = 0.5, 0.3
    for s in (0.0, 0.4, -1.3, 2.5):
        cov = np.array([[1 - uv**2, vw - uv * uw], [vw - uv * uw, 1 - uw**2]])
        law = multivariate_normal([s * uv, s * uw], cov)
        z, a = ndtr(-s * uv / np.sqrt(1 - uv**2)), ndtr(-s * uw / np.sqrt(1 - uw**2))
        expected = z + a - 2 * law.cdf([0.0, 0.0])
        assert_allclose(theory.pair_flip_probability(s, uv=uv, uw=uw, vw=vw), expected, atol=1e-7)


def test_pair_flips_at_their_limits():
    s = np.array([-2.0, -0.3, 0.3, 2.0])
    flip = theory.flip_probability
    pair = theory.pair_flip_probability
    assert_allclose(pair(s, uv=1.0, uw=0.3, vw=0.3), flip(s, 0.3))  # v is the reference
    assert_allclose(pair(s, uv=-1.0, uw=0.3, vw=-0.3), 1 - flip(s, 0.3))
    assert_allclose(pair(s, uv=0.3, uw=1.0, vw=0.3), flip(s, 0.3))
    assert_allclose(pair(s, uv=0.5, uw=0.5, vw=1.0), 0, atol=1e-15)  # the same signal
    assert_allclose(pair(s, uv=0.5, uw=-0.5, vw=-1.0), 1, atol=1e-15)
    assert_allclose(pair(s, uv=1.0, uw=1.0, vw=1.0), 0)
    assert_allclose(pair(s, uv=1.0, uw=-1.0, vw=-1.0), 1)
    assert_allclose(pair(s, uv=0.0, uw=0.0, vw=0.4), np.arccos(0.4) / np.pi)  # the reference carries no information
    assert_allclose(pair(0.0, uv=0.5, uw=0.3, vw=0.6), np.arccos((0.6 - 0.15) / np.sqrt(0.75 * 0.91)) / np.pi)
    assert_allclose(pair(0.0, uv=0.5, uw=0.0, vw=0.0), 0.5)
    just_below = pair(s, uv=1 - 1e-14, uw=0.3, vw=0.3)
    assert_allclose(just_below, pair(s, uv=1.0, uw=0.3, vw=0.3), atol=1e-6)


def test_the_universal_embedding_is_a_mean_of_a_triangle_wave():
    """Compare both series, for small and large distances, with the integral."""
    for distance in (1e-6, 0.1, 0.7, 0.79, 0.81, 1.0, 3.0, 10.0):

        def integrand(x, distance=distance):
            place = abs(x * distance / 2.0) % 2
            return min(place, 2 - place) * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)

        corners = np.arange(1, 40) * 2.0 / distance
        expected = 2 * quad(integrand, 0, 9, points=corners[corners < 9], limit=500)[0]
        assert_allclose(theory.universal_expected_hamming(distance, step=2.0), expected, rtol=1e-8)
    assert theory.universal_expected_hamming(0.0, step=2.0) == 0
    assert theory.universal_expected_hamming(1e9, step=2.0) == 0.5


def test_the_undithered_universal_embedding_at_its_limits():
    rho = np.array([-0.7, 0.0, 0.3, 0.999])
    wide = theory.universal_undithered_hamming(rho, step=12.0)  # cells so wide that only the sign matters
    assert_allclose(wide, np.arccos(rho) / np.pi, atol=1e-4)
    assert_allclose(theory.universal_undithered_hamming([-1.0, 0.0, 1.0], step=2.0), [1.0, 0.5, 0.0])


def test_concentration_bounds_hold_exactly():
    flips = theory.flip_probability(np.linspace(1.8, 3.5, 60), 0.2)
    expected = flips.sum()
    for e in (0.05, 0.2, 0.5, 1.0, 3.0):
        upper = theory.poisson_binomial_tail(np.floor((1 + e) * expected) + 1, flips)
        sharp, simple = (theory.chernoff_upper(expected, e, sharp=sharp) for sharp in (True, False))
        assert upper <= sharp <= simple
        if e <= 1:
            lower = theory.poisson_binomial_tail(np.ceil((1 - e) * expected) - 1, flips, side="lower")
            assert lower <= theory.chernoff_lower(expected, e)
        beyond = theory.poisson_binomial_tail(np.floor(expected + e * 60) + 1, flips)
        assert beyond <= theory.hoeffding(e, n_bits=60)


def test_order_statistics():
    assert_allclose(
        theory.order_statistic_mean([1, 2, 3], n=3, half=False), [-0.8462843753, 0, 0.8462843753], atol=1e-9
    )
    several = theory.order_statistic_mean(np.arange(1, 65), n=64)
    assert (np.diff(several) < 0).all()
    assert_allclose(several.mean(), np.sqrt(2 / np.pi), rtol=1e-12)  # all 64 together are half-normal
    assert_allclose(several[:8].mean(), theory.mean_kept_magnitude(n_bits=8, n_pool=64), rtol=1e-12)
    normal = theory.order_statistic_mean(np.arange(1, 21), n=20, half=False)
    assert np.abs(theory.harter_approximation(np.arange(1, 21), n=20) - normal).max() < 0.01


def test_inverting_the_mean():
    rho = np.array([-0.9, -0.3, -1e-6, 0.0, 1e-6, 0.01, 0.5, 0.95])
    for n_bits, n_pool in ((1, 1), (1, 8), (32, 1024), (512, 8192)):
        distances = theory.expected_hamming(rho, n_bits=n_bits, n_pool=n_pool)
        back = theory.correlation_from_hamming(distances, n_bits=n_bits, n_pool=n_pool)
        assert_allclose(back, rho, rtol=1e-9, atol=1e-13)
        assert_array_equal(theory.correlation_from_hamming([0, 1], n_bits=n_bits, n_pool=n_pool), [1, -1])
