"""Uniformity of p-values under the null, coverage of intervals, and corrections, by simulation with fixed seeds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.stats import false_discovery_control, kstest
from simulate import draw_pairs, observe

from topsign import significance, theory
from topsign.theory.distances import binomial_cdf

pytestmark = [pytest.mark.core, pytest.mark.slow]

# With many bits and few features an impostor's sample correlation matters: the variance ratio is 1.9 for Gaussian rows.
CROWDED = {"n_bits": 128, "n_pool": 512}
LEVEL = 1e-3  # level of each Kolmogorov-Smirnov test


def randomised(cdf, k, rng):
    """Return a p-value between P(< k) and P(<= k), exactly uniform if the distribution of the count is right."""
    below, upto = cdf(k - 1), cdf(k)
    return below + rng.random(len(k)) * (upto - below)


@pytest.mark.parametrize(
    ("pool", "n_features", "n_pool"), [("gaussian", 128, 512), ("hadamard", 512, 512), ("hadamard", 600, 300)]
)
def test_mismatch_pvalues_are_uniform_for_impostors(rng, pool, n_features, n_pool):
    shape = {"n_bits": 128, "n_pool": n_pool}
    mismatches, _ = observe(*draw_pairs(rng, 2400, n_features, 0.0), pool=pool, **shape)

    def exact(k):
        return significance.match_pvalue(k, n_features=n_features, projection=pool, **shape)

    assert kstest(randomised(exact, mismatches, rng), "uniform").pvalue > LEVEL
    binomial = randomised(lambda k: binomial_cdf(k, 128, np.float64(0.5)), mismatches, rng)
    if pool == "gaussian":
        assert kstest(binomial, "uniform").pvalue < 1e-9  # the plain binomial fails the same test


@pytest.mark.parametrize(("pool", "n_features"), [("gaussian", 128), ("hadamard", 512)])
def test_score_pvalues_are_uniform_for_impostors(rng, pool, n_features):
    _, scores = observe(*draw_pairs(rng, 2400, n_features, 0.0), pool=pool, **CROWDED)
    p_values = significance.match_pvalue(
        scores, n_features=n_features, projection=pool, scoring="asymmetric", **CROWDED
    )
    assert kstest(p_values, "uniform").pvalue > LEVEL


@pytest.mark.parametrize(("n_bits", "n_pool", "n_features"), [(8, 64, 64), (128, 512, 600), (512, 8192, 8192)])
def test_scores_over_one_orthonormal_block_are_scaled_sample_correlations(n_bits, n_pool, n_features):
    """The code is a vector of norm sqrt(m), so the score is sqrt(n m) / (m c) times its cosine with the query."""
    cosines = np.array([-0.3, 0.0, 0.01, 0.1, 0.5, 0.99])
    scale = np.sqrt(n_features / n_bits) / theory.mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool)
    shape = {"n_bits": n_bits, "n_pool": n_pool, "n_features": n_features}
    found = significance.match_log10_pvalue(scale * cosines, scoring="asymmetric", **shape)
    deviates = cosines * np.sqrt((n_features - 1) / (1 - cosines**2))
    usual = deviates < 30  # beyond, the tail of SciPy's distribution underflows
    assert_allclose(found[usual], np.log10(stats.t.sf(deviates[usual], n_features - 1)), rtol=1e-9, atol=1e-12)
    assert np.isneginf(significance.match_log10_pvalue(1.001 * scale, scoring="asymmetric", **shape))


def test_pvalues_of_stacked_blocks_are_close(rng):
    """The error of this approximation by the variance is below the resolution of 1000 pairs at the same level."""
    shape = {"n_bits": 128, "n_pool": 768}
    mismatches, scores = observe(*draw_pairs(rng, 1000, 256, 0.0), pool="hadamard", **shape)

    def approximate(k):
        return significance.match_pvalue(k, n_features=256, **shape)

    assert kstest(randomised(approximate, mismatches, rng), "uniform").pvalue > LEVEL
    p_values = significance.match_pvalue(scores, n_features=256, scoring="asymmetric", **shape)
    assert kstest(p_values, "uniform").pvalue > LEVEL


def score_variance(rho, *, n_bits, n_pool):
    """Variance of an estimated correlation with a Gaussian pool: (1 - rho**2 + rho**2 V / m) / (m c**2)."""
    spread = theory.order_statistics.kept_sum_variance(n_bits, n_pool) / n_bits
    samples = n_bits * theory.mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool) ** 2
    return (1 - rho**2 + rho**2 * spread) / samples


def test_corrections():
    p = np.array([0.001, 0.2, 0.03, 0.5])
    assert_allclose(significance.correct_pvalues(p), [0.004, 0.8, 0.12, 1])
    assert_allclose(significance.correct_pvalues(p, n_entries=100), [0.1, 1, 1, 1])
    assert_allclose(significance.correct_pvalues(p, method="benjamini-hochberg"), false_discovery_control(p))
    best = significance.correct_pvalues([1e-6, 1e-5], n_entries=1000, method="benjamini-hochberg")
    assert_allclose(best, [1e-3, 5e-3])


@pytest.mark.parametrize("tail", ["none", "normal"])
@pytest.mark.parametrize("closer", ["larger", "smaller"])
def test_an_empirical_null_is_calibrated(rng, tail, closer):
    """p-values of new scores are uniform for a null distribution with unknown mean and variance."""
    p_values = []
    for _ in range(300):
        scores = 0.02 + 0.07 * rng.standard_normal(61)
        null = significance.ScoreCalibration.fit(scores[:60], n_entries=1, tail=tail, closer=closer)
        p_values.append(null.p_value(scores[60]))
    if tail == "none":  # one of 61 equally likely values, so randomise it
        p_values = np.array(p_values) - rng.random(300) / 61
    assert kstest(p_values, "uniform").pvalue > LEVEL


def test_asymmetric_intervals_end_where_the_estimate_is_so_many_deviations_away():
    """By the definition: ``(estimate - rho)**2 = z**2 (1 - rho**2 + rho**2 V / m) / (m c**2)`` at both ends."""
    for estimate in (-0.9, -0.1, 0.0, 0.4, 0.95):
        ends = theory.correlation_interval(estimate, n_bits=64, n_pool=1024, confidence=0.9, scoring="asymmetric")
        assert ends[0] < estimate < ends[1]
        variance = score_variance(ends, n_bits=64, n_pool=1024)
        assert_allclose((estimate - ends) ** 2, stats.norm.isf(0.05) ** 2 * variance, rtol=1e-9)


def test_intervals_of_no_or_only_mismatches_end_at_plus_or_minus_one():
    ends = theory.correlation_interval([0, 8], n_bits=8, n_pool=64)
    assert ends[0, 1] == -ends[1, 0] == 1
    assert_allclose(ends[0], -ends[1, ::-1], rtol=1e-9)
