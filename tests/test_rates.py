"""Captured energy of codes, compared with Shannon's limit, the best scalar quantiser, and detection."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from topsign import theory
from topsign.kernels import Layout
from topsign.theory.rates import compact_bytes

RATES = np.array([0.1, 0.25, 0.4, 0.5, 1.0])


def best_quantiser(price, n_thresholds=601, reach=5.0):
    """Return rate, energy and cells of the quantiser that maximises energy minus price times entropy.

    Energy and entropy are sums over cells, so dynamic programming over a grid of thresholds finds the optimum over all
    interval quantisers on the grid, with any number of cells.
    """
    ends = np.concatenate([[-np.inf], np.linspace(-reach, reach, n_thresholds), [np.inf]])
    below = ndtr(ends)
    density = np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
    share = below[np.newaxis] - below[:, np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        energy = np.where(share > 0, (density[:, np.newaxis] - density) ** 2 / share, 0)
        entropy = np.where(share > 0, -share * np.log2(share), 0)
    values, before = np.zeros(len(ends)), np.zeros(len(ends), int)
    for end in range(1, len(ends)):
        gains = values[:end] + (energy - price * entropy)[:end, end]
        before[end] = gains.argmax()
        values[end] = gains.max()
    cells, end = [], len(ends) - 1
    while end:
        cells.append((before[end], end))
        end = before[end]
    return sum(entropy[cell] for cell in cells), sum(energy[cell] for cell in cells), len(cells)


def test_captured_energy_has_the_published_values():
    assert_allclose(theory.captured_energy(RATES), [0.0915, 0.2106, 0.3172, 0.3827, 0.6517], atol=5e-5)
    assert_allclose(theory.rate_distortion_limit(RATES), [0.1294, 0.2929, 0.4257, 0.5, 0.75], atol=5e-5)
    assert (theory.captured_energy(RATES) > 2 / np.pi * RATES).all()


@pytest.mark.parametrize("price", [0.55, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_no_scalar_quantiser_captures_more_at_low_rates(price):
    """Compare with the global optimum on a grid of thresholds 1/60 apart, whose discretisation loss is below 1e-5."""
    rate, energy, n_cells = best_quantiser(price)
    assert 0 < rate < 0.8
    assert n_cells in (3, 5)  # a second level may appear, of less than a millionth of the rows
    alone = float(theory.captured_energy(rate))
    assert alone - 1e-5 < energy < alone + 1e-6


def test_a_second_level_captures_no_more_at_one_bit():
    rate, energy, n_cells = best_quantiser(0.44)
    assert 1 < rate < 1.02
    assert n_cells == 5
    assert 0 < energy - float(theory.captured_energy(rate)) < 5e-5
    one, two, three = (theory.captured_energy(RATES, levels=levels) for levels in (1, 2, 3))
    assert (two >= one).all()
    assert_allclose(two[:4], one[:4], atol=1e-9)
    assert 2e-5 < two[4] - one[4] < 5e-5
    assert_allclose(three, two, atol=1e-9)


def test_captured_energy_is_what_a_code_keeps(rng):
    signals = rng.standard_normal((400, 512))
    magnitudes = np.sort(np.abs(signals), axis=1)[:, -64:]
    scale = theory.mean_kept_magnitude(n_bits=64, n_pool=512)
    shares = (2 * scale * magnitudes.sum(axis=1) - 64 * scale**2) / 512
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert abs(shares.mean() - float(theory.captured_energy(n_bits=64, n_pool=512))) < 4 * error


def test_detection_is_the_root_of_the_share():
    """Compare d' of a real-valued query over an orthonormal pool with uncompressed d'; they differ by order 1/n."""
    shape = {"n_bits": 512, "n_pool": 8192}
    common = {"correlation": 0.0735, "n_features": 8192}
    code = theory.roc(scoring="asymmetric", **shape, **common).d_prime
    whole = theory.roc(scoring="uncompressed", **common).d_prime
    assert_allclose(code / whole, np.sqrt(float(theory.captured_energy(**shape))), rtol=3e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either a rate, or n_bits and n_pool"),
        ({"rate": 0.5, "n_bits": 8, "n_pool": 16}, "give either a rate"),
        ({"n_bits": 8}, "give either a rate"),
        ({"rate": -1.0}, "rate must be finite and not negative"),
        ({"rate": 1.6}, "rate must be at most 1.536"),
        ({"rate": 0.5, "levels": 4}, "levels must be in [1, 3], got 4"),
        ({"n_bits": 8, "n_pool": 16, "levels": 2}, "have one level, got levels=2"),
    ],
)
def test_bad_rates(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        theory.captured_energy(**options)


def test_rate_zero_captures_nothing():
    assert_array_equal(theory.captured_energy([0.0, 0.0]), [0, 0])


@pytest.mark.parametrize("n_pool", [1, 2, 8, 100, 1024, 8191, 8192])
def test_planned_bytes_are_those_of_the_layout(n_pool):
    for n_bits in sorted({1, max(1, n_pool // 16), max(1, n_pool // 3), n_pool}):
        assert compact_bytes(n_bits, n_pool) == Layout(n_bits, n_pool).code_bytes
