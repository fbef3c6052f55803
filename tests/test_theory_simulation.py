"""Theory compared with simulations, with fixed seeds and tolerances of four standard errors."""

import numpy as np
import pytest
from scipy.stats import chisquare

import topsign as ts
from topsign import theory

pytestmark = pytest.mark.slow


def draw_kept(rng, n_trials, n_bits, n_pool):
    """Return standardised kept projections of random references with a Gaussian pool."""
    y = rng.standard_normal((n_trials, n_pool))
    kept = np.argpartition(-np.abs(y), n_bits - 1, axis=1)[:, :n_bits]
    return np.take_along_axis(y, kept, axis=1)


def draw_at(rng, y, correlation):
    """Return projections of signals with this correlation to references whose projections are y."""
    return correlation * y + np.sqrt(1 - correlation**2) * rng.standard_normal(y.shape)


def within_four_errors(values, expected):
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return abs(np.mean(values) - expected) < 4 * error


@pytest.mark.parametrize("rho", [-0.3, 0.1, 0.6])
def test_the_conditional_law(rng, rho):
    y = draw_kept(rng, 4000, 32, 256)
    mismatches = ((draw_at(rng, y, rho) >= 0) != (y >= 0)).sum(axis=1)
    flips = theory.flip_probability(y, rho)
    surprise = mismatches - flips.sum(axis=1)
    assert within_four_errors(surprise, 0)
    assert within_four_errors(surprise**2 - (flips * (1 - flips)).sum(axis=1), 0)


@pytest.mark.parametrize(("rho", "n_bits", "n_pool"), [(0.0, 16, 64), (0.3, 32, 256), (0.7, 20, 64), (-0.2, 5, 40)])
def test_the_mixture(rng, rho, n_bits, n_pool):
    y = draw_kept(rng, 20_000, n_bits, n_pool)
    mismatches = ((draw_at(rng, y, rho) >= 0) != (y >= 0)).sum(axis=1)
    hamming = mismatches / n_bits
    mean = theory.expected_hamming(rho, n_bits=n_bits, n_pool=n_pool)
    assert within_four_errors(hamming, mean)
    assert within_four_errors((hamming - mean) ** 2, theory.hamming_variance(rho, n_bits=n_bits, n_pool=n_pool))
    expected = theory.hamming_pmf(rho, n_bits=n_bits, n_pool=n_pool) * len(mismatches)
    observed = np.bincount(mismatches, minlength=n_bits + 1)
    usual = expected > 10
    pooled = np.append(observed[usual], observed[~usual].sum()), np.append(expected[usual], expected[~usual].sum())
    if pooled[1][-1] < 5:
        pooled = observed[usual], expected[usual] * observed[usual].sum() / expected[usual].sum()
    assert chisquare(*pooled).pvalue > 1e-4


@pytest.mark.parametrize("dither", [True, False])
@pytest.mark.parametrize("rho", [0.9, 0.4, 0.0])
def test_universal_embeddings(rng, dither, rho):
    """Distances of embedded unit-norm signals over many seeds agree with theory."""
    basis = np.linalg.qr(rng.standard_normal((50, 2)))[0].T
    signals = np.array([basis[0], rho * basis[0] + np.sqrt(1 - rho**2) * basis[1]])
    distances = []
    for seed in range(150):
        embedding = ts.UniversalEmbedding(n_bits=200, step=2.0, dither=dither, random_state=seed)
        codes = embedding.fit_transform(signals)
        distances.append(ts.hamming(codes[0], codes[1], n_bits=200))
    if dither:
        expected = theory.universal_expected_hamming(np.sqrt(2 - 2 * rho), step=2.0)
    else:
        expected = theory.universal_undithered_hamming(rho, step=2.0)
    assert within_four_errors(distances, expected)


def test_the_undithered_embedding_depends_on_norms(rng):
    pairs = rng.standard_normal((100_000, 2))
    x, y = 0.7 * pairs[:, 0], 1.9 * (0.6 * pairs[:, 0] + 0.8 * pairs[:, 1])
    differ = (np.floor(x / 1.3) % 2) != (np.floor(y / 1.3) % 2)
    assert within_four_errors(differ, theory.universal_undithered_hamming(0.6, step=1.3, norms=(0.7, 1.9)))
