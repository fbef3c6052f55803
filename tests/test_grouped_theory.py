"""Theory of grouped codes: derived values, simulations in plain NumPy with fixed seeds, and bad input."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from simulate import draw_pairs, grouped_signs, observe

from topsign import significance, theory
from topsign.theory import grouped
from topsign.theory.distances import binomial_cdf, binomial_sf, mixture_tail
from topsign.theory.order_statistics import grouped_selection

pytestmark = pytest.mark.core

LEVEL = 1e-3  # level of each Kolmogorov-Smirnov and chi-squared test
PAPER = {"correlation": 1 / np.sqrt(1 + 0.15**2 * 8192), "n_features": 8192}


def draw_groups(rng, n_trials, n_groups, correlation):
    """Return kept magnitudes, and the other signal's projections there times the kept signs, (n_trials, n_groups)."""
    y, noise = rng.standard_normal((2, n_trials, n_groups, 8))
    z = correlation * y + np.sqrt(1 - correlation**2) * noise
    kept = np.abs(y).argmax(axis=2, keepdims=True)
    at, other = np.take_along_axis(y, kept, axis=2)[..., 0], np.take_along_axis(z, kept, axis=2)[..., 0]
    return np.abs(at), other * np.where(at >= 0, 1, -1)


def within_four_errors(values, expected):
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return abs(np.mean(values) - expected) < 4 * error


def test_derived_values():
    """Values of the derivation, by quadrature with 30 digits."""
    assert_allclose(theory.mean_kept_magnitude(1, 8), 1.78336707788136, rtol=1e-13)
    assert_allclose(grouped.grouped_selection(1).sum_variance, 2 * (3.45743380177987 - 1.78336707788136**2), rtol=1e-11)
    expected = {
        0.05: 0.464442675093328,
        0.0735: 0.447757603452071,
        0.1: 0.428980055163212,
        0.3: 0.290114704363704,
        0.5: 0.162228682326831,
        0.8: 0.0229370478151544,
    }
    rho = np.array(list(expected))
    assert_allclose(theory.expected_hamming(rho, n_bytes=1), list(expected.values()), rtol=1e-12)
    assert_allclose(theory.expected_hamming(-rho, n_bytes=1), 1 - np.array(list(expected.values())), rtol=1e-12)
    assert_allclose(theory.expected_hamming([0, 1, -1], n_bytes=1), [0.5, 0, 1])
    triples = {"uv": [0.3, 0.6, 0.0], "uw": [0.2, 0.1, 0.0], "vw": [0.5, 0.3, 0.0]}
    assert_allclose(theory.expected_pair_hamming(n_bytes=1, **triples), [0.30825216, 0.39971447, 0.5], atol=1e-8)
    assert_allclose(theory.grouped_energy(0.5), 0.397549766808889, rtol=1e-12)
    for n_bytes, real_valued, hamming in ((448, 3.921, 3.126), (512, 4.192, 3.342)):
        n_groups, rho = 2 * n_bytes, PAPER["correlation"]
        assert_allclose(theory.grouped_d_prime(**PAPER_RHO, n_bytes=n_bytes), real_valued, atol=6e-4)
        p = theory.expected_hamming(rho, n_bytes=1)
        assert_allclose((0.5 - p) * np.sqrt(4 * n_groups), hamming, atol=6e-4)
        # The area under the curve is that of normal scores with these d', except for their unequal variances.
        for scoring, d_prime in (("asymmetric", real_valued), ("hamming", hamming)):
            curve = theory.roc(**PAPER, scoring=scoring, n_bytes=n_bytes)
            assert_allclose(curve.d_prime, d_prime, atol=0.01)


PAPER_RHO = {"correlation": PAPER["correlation"], "n_features": 8192}


# Distances


@pytest.mark.parametrize("rho", [0.01, 0.4, 0.95])
def test_the_probability_of_a_mismatch_is_its_integral(rho):
    kappa = rho / np.sqrt(1 - rho**2)
    density = [lambda t: 8 * stats.halfnorm.cdf(t) ** 7 * stats.halfnorm.pdf(t)]
    found = quad(lambda t: stats.norm.sf(kappa * t) * density[0](t), 0, 12, epsabs=1e-13)[0]
    assert_allclose(theory.expected_hamming(rho, n_bytes=1), found, rtol=1e-9)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.1, 0.6])
def test_mismatches_are_binomial(rng, rho):
    n_bytes = 20
    _, agreeing = draw_groups(rng, 8000, 2 * n_bytes, rho)
    mismatches = (agreeing < 0).sum(axis=1)
    mean = theory.expected_hamming(rho, n_bytes=1)
    assert within_four_errors(mismatches / (2 * n_bytes), mean)
    variance = theory.hamming_variance(rho, n_bytes=n_bytes)
    assert within_four_errors((mismatches / (2 * n_bytes) - mean) ** 2, variance)
    expected = theory.hamming_pmf(rho, n_bytes=n_bytes) * len(mismatches)
    observed = np.bincount(mismatches, minlength=2 * n_bytes + 1)
    usual = expected > 10
    share = observed[usual].sum() / expected[usual].sum()
    assert stats.chisquare(observed[usual], share * expected[usual]).pvalue > LEVEL
    counts = np.arange(2 * n_bytes + 1)
    below, above = (mixture_tail(counts, rho, grouped_selection(n_bytes), one) for one in (binomial_cdf, binomial_sf))
    assert_allclose(below, np.cumsum(expected) / len(mismatches), rtol=1e-9)
    assert_allclose(above, 1 - below, atol=1e-12)


def test_theorem_2_has_a_closed_form_bound_on_both_sides():
    """Jensen's inequality bounds the mean from below, not from above as the paper states; both bounds are close."""
    rho = np.linspace(0.01, 0.99, 99)
    kappa = rho / np.sqrt(1 - rho**2)
    exact = theory.expected_hamming(rho, n_bytes=1)
    assert (stats.norm.sf(kappa * theory.mean_kept_magnitude(1, 8)) < exact).all()
    assert (exact <= theory.expected_hamming_bound(rho, n_bits=1, n_pool=8) + 1e-12).all()
    assert_allclose(theory.expected_hamming(np.sqrt(0.5), n_bytes=1), 1 / 18, rtol=1e-12)
    # For weak correlations the distance falls E[T] sqrt(pi / 2) = 2.24 times as fast as that of sign codes.
    slopes = [
        (0.5 - float(one)) / 1e-4
        for one in (theory.expected_hamming(1e-4, n_bytes=1), theory.sign_expected_hamming(1e-4))
    ]
    assert_allclose(slopes[0] / slopes[1], theory.mean_kept_magnitude(1, 8) * np.sqrt(np.pi / 2), rtol=1e-6)


@pytest.mark.parametrize(("uv", "uw", "vw"), [(0.3, 0.2, 0.5), (0.7, -0.4, -0.1), (0.0, 0.0, 0.4)])
def test_theorem_3_for_two_other_signals(rng, uv, uw, vw):
    chol = np.linalg.cholesky(np.array([[1, uv, uw], [uv, 1, vw], [uw, vw, 1]]))
    y, z, a = np.einsum("ij,j...->i...", chol, rng.standard_normal((3, 60_000, 8)))
    kept = np.abs(y).argmax(axis=1, keepdims=True)
    differ = (np.take_along_axis(z, kept, axis=1) >= 0) != (np.take_along_axis(a, kept, axis=1) >= 0)
    assert within_four_errors(differ[:, 0], theory.expected_pair_hamming(n_bytes=1, uv=uv, uw=uw, vw=vw))


def test_correlations_are_the_inverse_of_expected_distances():
    rho = np.array([-0.9, -0.2, 0.0, 0.01, 0.3, 0.99])
    found = theory.correlation_from_hamming(theory.expected_hamming(rho, n_bytes=1), n_bytes=1)
    assert_allclose(found, rho, rtol=1e-9, atol=1e-12)


# Scores


@pytest.mark.parametrize(("n_pool", "tolerance"), [(256, 0.002), (1024, 0.002), (1536, 0.004), (2048, 0.004)])
def test_captured_energy_of_white_signals(rng, n_pool, tolerance):
    """Squared cosines of signals and their codes; the theory is the limit of long signals, here of 1,024 features."""
    n, n_signals = 1024, 200
    signals = rng.standard_normal((n_signals, n))
    codes = np.zeros((n_signals, n))
    for start in range(0, n_pool, n):
        rows = np.linalg.qr(rng.standard_normal((n, n)))[0][: min(n, n_pool - start)]
        codes += grouped_signs(signals @ rows.T) @ rows
    cosines = (codes * signals).sum(axis=1) / np.linalg.norm(codes, axis=1) / np.linalg.norm(signals, axis=1)
    expected = float(theory.grouped_energy(n_pool / 2 / n))
    error = np.std(cosines**2, ddof=1) / np.sqrt(n_signals)
    assert abs(np.mean(cosines**2) - expected) < 4 * error + tolerance


def test_groups_capture_more_than_the_global_choice():
    """At half a bit per dimension more than the paper's code by its entropy, and from 0.24 to 0.64 by stored bytes."""
    assert_allclose(theory.grouped_energy([0.25, 0.4, 0.5]), [0.1988, 0.3180, 0.3975], atol=5e-5)
    assert_allclose(theory.captured_energy([0.25, 0.4, 0.5]), [0.2106, 0.3172, 0.3827], atol=5e-5)
    assert (theory.grouped_energy([0.4, 0.5]) > theory.captured_energy([0.4, 0.5])).all()
    for n_bits in (64, 200, 224, 256, 512, 832, 864, 1024):
        stored = 8 * theory.rates.compact_bytes(n_bits, 8192) / 8192
        more = theory.grouped_energy(stored) > theory.captured_energy(n_bits=n_bits, n_pool=8192)
        assert more == (0.24 < stored < 0.64)


def test_the_approximation_for_stacked_blocks_has_the_documented_error(rng):
    """Exact given the norm of the code: blocks add vectors that are independent orthogonally to the signal."""
    n, n_bytes, n_draws = 256, 32, 40_000
    squares, sums = np.zeros(n_draws), np.zeros(n_draws)
    for _ in range(2):
        y = rng.standard_normal((n_draws, n))
        kept = np.sqrt(n) * (np.abs(y).reshape(n_draws, 32, 8).max(axis=2).sum(axis=1) / np.linalg.norm(y, axis=1))
        rest = 32 - kept**2 / n
        normal, others = rng.standard_normal(n_draws), rng.chisquare(n - 2, n_draws)
        squares += rest + 2 * np.sqrt(squares * rest) * normal / np.sqrt(normal**2 + others)
        sums += kept
    scale = np.sqrt(sums**2 + n * squares) / (64 * theory.mean_kept_magnitude(1, 8))
    assert_allclose(
        theory.grouped_score_moments(0.0, n_bytes=n_bytes, n_features=n)[1], np.sqrt((scale**2).mean() / n), rtol=1e-3
    )
    for deviations, error in ((1, 0.003), (3, 0.008), (4, 0.03), (5, 0.09)):
        score = deviations * np.sqrt((scale**2).mean() / n)
        ratio = score / scale
        exact = stats.t.sf(ratio * np.sqrt((n - 1) / (1 - ratio**2)), n - 1).mean()
        found = significance.match_pvalue(score, n_bytes=n_bytes, n_features=n, scoring="asymmetric")
        assert -0.004 < found / exact - 1 < error


@pytest.mark.parametrize("rho", [0.0, 0.2, -0.5, 0.9])
@pytest.mark.parametrize(
    ("pool", "n_features", "n_pool"),
    [("hadamard", 256, 128), ("hadamard", 256, 256), ("hadamard", 256, 512), ("gaussian", 128, 256)],
)
def test_scores_have_the_exact_mean_and_deviation(rng, pool, n_features, n_pool, rho):
    n_pairs = 1600 if pool == "gaussian" else 4000
    _, scores = observe(*draw_pairs(rng, n_pairs, n_features, rho), pool=pool, n_pool=n_pool)
    mean, deviation = theory.grouped_score_moments(rho, n_bytes=n_pool // 16, n_features=n_features, projection=pool)
    error = deviation / np.sqrt(n_pairs) + 2.5e-4 * abs(rho)  # the simulated scale has a standard error of 0.04%
    assert abs(scores.mean() - mean) < 4 * error
    assert abs(((scores - mean) ** 2).mean() / deviation**2 - 1) < 4 * np.sqrt(2.2 / n_pairs) + 1e-3


def test_the_moments_of_identical_signals():
    """The score is the cosine of the signal and its code over its mean, which varies because magnitudes do."""
    mean, deviation = theory.grouped_score_moments([1.0, -1.0], n_bytes=16, n_features=256)
    assert_allclose(mean, [1 + 1 / 1024, -1 - 1 / 1024], rtol=1e-5)
    assert (deviation > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "population"), [("gaussian", False), ("hadamard", True)])
@pytest.mark.parametrize("rho", [0.05, 0.5, -0.3])
def test_intervals_cover(rng, pool, population, rho):
    n_pairs, n = 1500, 256
    references, signals = draw_pairs(rng, n_pairs, n, rho)
    if not population:
        units = references / np.linalg.norm(references, axis=1, keepdims=True)
        noise = signals - (signals * units).sum(axis=1, keepdims=True) * units
        signals = rho * units + np.sqrt(1 - rho**2) * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    mismatches, scores = observe(references, signals, pool=pool, n_pool=n)
    error = np.sqrt(0.1 * 0.9 / n_pairs)
    for scoring, observed in (("hamming", mismatches), ("asymmetric", scores)):
        low, high = theory.correlation_interval(observed, n_bytes=16, confidence=0.9, scoring=scoring).T
        coverage = np.mean((low <= rho) & (rho <= high))
        assert coverage > 0.9 - 4 * error, scoring
        if scoring == "asymmetric" and not population:  # over orthonormal pools the true variance is smaller
            assert coverage < 0.9 + 4 * error


# Two grouped codes


@pytest.mark.parametrize("rho", [-0.4, 0.1, 0.5, 0.95])
def test_expected_agreement(rng, rho):
    y, noise = rng.standard_normal((2, 200_000, 8))
    products = grouped_signs(y) * grouped_signs(rho * y + np.sqrt(1 - rho**2) * noise)
    agreement = products.sum(axis=1)
    assert within_four_errors(agreement, theory.grouped_expected_agreement(rho))
    equal, different = grouped.agreement_probabilities(rho)
    assert within_four_errors(agreement == 1, equal)
    assert within_four_errors(agreement == -1, different)


def test_expected_agreement_at_its_limits():
    assert_allclose(grouped.agreement_probabilities(0.0), [1 / 16, 1 / 16], rtol=1e-7)
    assert_allclose(theory.grouped_expected_agreement([1.0, -1.0, 0.0]), [1, -1, 0], atol=1e-12)
    assert_allclose(theory.grouped_expected_agreement(1e-3) / 1e-3, theory.grouped_energy(0.5), rtol=1e-4)
    for rho in (0.03, 0.61, 0.999):
        equal, different = grouped.agreement_probabilities(rho)
        assert_allclose(theory.grouped_expected_agreement(rho), equal - different, atol=1e-9)


def test_the_agreement_of_impostors(rng):
    """Every group is +1 or -1 with probability 1/16 each: an exact convolution, and codes of independent signals."""
    n_bytes = 8
    pmf = np.ones(1)
    for _ in range(2 * n_bytes):
        pmf = np.convolve(pmf, [1 / 16, 14 / 16, 1 / 16])
    tails = pmf[::-1].cumsum()[::-1]
    found = significance.agreement_log10_pvalue(np.arange(-16, 17), n_bytes=n_bytes)
    assert_allclose(10**found, tails, rtol=1e-9)
    logs = significance.agreement_log10_pvalue([0, 500, 1023, 1024, 1025], n_bytes=512)
    assert_allclose(logs[3], -1024 * np.log10(16), rtol=1e-12)
    assert_allclose(logs[2], -1024 * np.log10(16) + np.log10(1 + 1024 * 14), rtol=1e-12)  # one group has no agreement
    assert logs[4] == -np.inf
    assert (np.diff(logs) < 0).all()
    y, z = rng.standard_normal((2, 50_000, 128))
    agreement = (grouped_signs(y) * grouped_signs(z)).sum(axis=1).astype(int)
    common = np.abs(grouped_signs(y) * grouped_signs(z)).sum(axis=1)
    assert within_four_errors(common, 16 / 8)
    observed = np.bincount(agreement + 16, minlength=33)
    usual = pmf * len(y) > 10
    assert stats.chisquare(observed[usual], pmf[usual] / pmf[usual].sum() * observed[usual].sum()).pvalue > LEVEL


# Planning


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.correlation_from_hamming(7, n_bytes=1), "hamming must be fractions in [0, 1]"),
        (lambda: theory.expected_hamming(0.1, n_bytes=8, n_bits=3), "give n_bits and n_pool of an adaptive code, or"),
        (lambda: significance.match_pvalue(1, n_features=64, n_bits=8), "n_bits=8, n_pool=None and n_bytes=None"),
        (lambda: theory.correlation_interval(41, n_bytes=20), "mismatches must be integers in [0, 40], got 41"),
        (
            lambda: significance.match_pvalue(1, n_bytes=8, n_features=64, scoring="cosine"),
            "scoring must be one of 'hamming', 'asymmetric', got 'cosine'",
        ),
        (
            lambda: theory.roc(correlation=0.1, n_features=64, n_bytes=8, n_bits=8),
            "n_bits=8, n_pool=None and n_bytes=8",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
