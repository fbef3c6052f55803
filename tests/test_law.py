"""Measured distances agree with exact theory for every kind of projection."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, halfnorm, norm

import topsign as ts

pytestmark = [pytest.mark.core, pytest.mark.slow]

CORRELATION = 0.3


def expected_hamming(correlation, n_bits, n_pool):
    """Return the mean flip probability: (1/m) int Q(kappa s) M f(s) P(Binomial(M-1, 1-F(s)) < m) ds."""
    kappa = correlation / np.sqrt(1 - correlation**2)

    def integrand(s):
        kept = binom.cdf(n_bits - 1, n_pool - 1, halfnorm.sf(s))
        return norm.sf(kappa * s) * n_pool / n_bits * halfnorm.pdf(s) * kept

    return quad(integrand, 0, 12, points=[halfnorm.isf(n_bits / n_pool)], limit=200)[0]


def signals_at(correlation, references, rng):
    """Return random signals with exactly this correlation to each reference."""
    noise = rng.standard_normal(references.shape)
    units = references / np.linalg.norm(references, axis=1, keepdims=True)
    noise -= (noise * units).sum(axis=1, keepdims=True) * units
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return correlation * units + np.sqrt(1 - correlation**2) * noise


def measured_hamming(projection, references, n_seeds, rng, **options):
    """Return the mean distance between references and signals over independent seeds, and its standard error."""
    n = references.shape[1]
    means = []
    for seed in range(n_seeds):
        made = ts.make_projection(projection, n_features=n, n_pool=n, random_state=seed, **options)
        encoder = ts.Encoder(references.shape[1], family="adaptive", n_bits=n // 16, basis=made).fit(references)
        projected = encoder.project(signals_at(CORRELATION, references, rng))
        mismatches = np.diagonal(encoder.encode(references).mismatches(projected))
        means.append(mismatches.mean() / (n // 16))
    return np.mean(means), np.std(means, ddof=1) / np.sqrt(n_seeds)


@pytest.mark.parametrize(
    ("projection", "options", "n", "orthonormal"),
    [
        ("hadamard", {}, 1024, True),
        ("hadamard", {}, 1000, True),
        ("circulant", {}, 1000, True),
        ("circulant", {"spectrum": "gaussian"}, 1000, False),
        ("gaussian", {}, 512, False),
        ("rademacher", {}, 512, False),
        ("sparse", {"density": 1 / 3}, 512, False),
        ("sparse", {}, 1024, False),
    ],
)
def test_dense_signals_follow_the_law(rng, projection, options, n, orthonormal):
    references = rng.standard_normal((40, n))
    measured, standard_error = measured_hamming(projection, references, 40, rng, **options)
    # Distances with an orthonormal pool are smaller by about 0.4/n: 0.004 at n = 100, 0.001 at n = 384.
    expected = expected_hamming(CORRELATION, n // 16, n) - 0.4 / n * orthonormal
    assert abs(measured - expected) < 4 * standard_error
    assert standard_error < 0.002  # for comparison, plain sign projections give 0.403 and adaptive ones 0.24


@pytest.mark.parametrize("n", [1024, 1000])
@pytest.mark.parametrize("nonzeros", [1, 10])
def test_the_default_stays_right_for_spiky_references(rng, n, nonzeros):
    spiky = np.zeros((8, n))
    spiky[:, :nonzeros] = 1 if nonzeros == 1 else rng.standard_normal((8, nonzeros))
    measured, standard_error = measured_hamming("hadamard", spiky, 300, rng)
    expected = expected_hamming(CORRELATION, n // 16, n) - 0.4 / n
    assert abs(measured - expected) < 4 * standard_error
    assert standard_error < 0.002


def test_one_round_is_not_enough_for_a_spike(rng):
    """The default has three rounds, because after one round all projections of a spike tie in magnitude."""
    spike = np.eye(1, 1024).repeat(8, axis=0)
    measured, standard_error = measured_hamming("hadamard", spike, 50, rng, rounds=1)
    assert measured - expected_hamming(CORRELATION, 64, 1024) > 20 * standard_error
