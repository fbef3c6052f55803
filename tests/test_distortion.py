"""Bits that keep all pairwise distances near their expectations: the bound, and simulations of it."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import betainc
from scipy.stats import binom

import topsign as ts
from topsign import theory
from topsign.theory import distances as concentration

SMALL = [(0.3, 2, 0.1), (0.2, 10, 0.05), (0.15, 50, 0.01), (0.45, 3, 0.2)]


def worst_failure(n_bits, distortion):
    """Return the maximum over all means of P(|count / n_bits - mean| > distortion), including its discontinuities."""
    ks = np.arange(n_bits + 1)
    jumps = np.concatenate([ks / n_bits - distortion, ks / n_bits + distortion])
    means = np.concatenate([jumps - 1e-9, jumps + 1e-9, np.linspace(0, 1, 501)])
    means = means[(means >= 0) & (means <= 1)][:, np.newaxis]
    outside = np.abs(ks / n_bits - means) > distortion + 1e-15
    return (binom.pmf(ks, n_bits, means) * outside).sum(axis=1).max()


@pytest.mark.parametrize(("distortion", "n_signals", "failure"), SMALL)
def test_the_bound_holds_for_every_mean_and_is_not_wasteful(distortion, n_signals, failure):
    options = {"distortion": distortion, "n_signals": n_signals, "failure": failure}
    n_bits = theory.bits_for_distortion(**options)
    n_pairs = n_signals * (n_signals - 1) / 2
    assert n_pairs * worst_failure(n_bits, distortion) <= failure
    assert n_bits <= np.ceil(np.log(2 * n_pairs / failure) / (2 * distortion**2))
    if n_bits > np.ceil(1 / distortion):  # with a tenth fewer bits, some mean fails
        assert n_pairs * worst_failure(int(0.9 * n_bits) - 1, distortion) > failure


def test_adaptive_codes_stay_within_the_distortion(rng):
    """In 60 draws of 12 signals, the number of failures is at most the nominal one plus four standard errors."""
    options = {"distortion": 0.15, "n_signals": 12, "failure": 0.2}
    n_bits = theory.bits_for_distortion(**options)
    n_failures, n_draws = 0, 60
    first, second = np.triu_indices(12, 1)
    for draw in range(n_draws):
        signals = rng.standard_normal((13, 24))
        signals /= np.linalg.norm(signals, axis=1, keepdims=True)
        pool = ts.projections.make_projection("gaussian", n_features=24, n_pool=4 * n_bits, random_state=draw)
        embedding = ts.AdaptiveEmbedding(n_bits, n_pool=4 * n_bits, projection=pool).fit(signals[0])
        codes = embedding.transform(signals[1:])
        measured = ts.hamming(codes[first], codes[second], n_bits=n_bits)
        projected = np.sort(np.abs(pool.apply(signals[:1])[0]))[-n_bits:]
        inner = np.clip(signals @ signals.T, -1, 1)
        flips = theory.pair_flip_probability(
            projected,
            uv=inner[0, 1 + first][:, np.newaxis],
            uw=inner[0, 1 + second][:, np.newaxis],
            vw=inner[1 + first, 1 + second][:, np.newaxis],
        )
        n_failures += np.abs(measured - flips.mean(axis=1)).max() > options["distortion"]
    expected = options["failure"] * n_draws
    assert n_failures <= expected + 4 * np.sqrt(expected * (1 - options["failure"]))


@pytest.mark.parametrize(("n_bits", "deviation"), [(25, 0.3), (100, 0.1), (796, 0.1), (40, 0.02)])
def test_the_largest_tail_is_that_of_a_fine_grid(n_bits, deviation):
    means = np.linspace(0, 1 - deviation, 200_001)[1:-1]
    count = n_bits * (means + deviation)
    largest = betainc(count, n_bits - count + 1, means).max()
    assert_allclose(concentration._largest_tail(n_bits, deviation), largest, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"distortion": 0.0}, "distortion is a fraction of the bits and must lie in (0, 1), got 0.0"),
        ({"failure": 1.0}, "failure must lie in (0, 1), got 1.0"),
        ({"n_signals": 1}, "n_signals must be at least 2, got 1"),
    ],
)
def test_bad_targets(options, words):
    target = {"distortion": 0.1, "n_signals": 100, "failure": 0.01}
    with pytest.raises(ValueError, match=re.escape(words)):
        theory.bits_for_distortion(**(target | options))
