"""Streams are raw Philox bits, fixed by the seed, a name and an index."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from scipy import stats

from topsign import _random

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("seed", "index"), [(0, 0), (7, 3), (2**64 - 1, 2**40)])
def test_words_are_philox(seed, index):
    assert_array_equal(_random.words(seed, "gaussian", index, 11), reference.philox_words(seed, "gaussian", index, 11))


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 200])
def test_random_bits_equal_the_reference(count):
    signs = reference.random_signs(7, "hadamard", 2, count)
    assert_array_equal(_random.random_bits(7, "hadamard", 2, count), reference.pack(np.array(signs) > 0))


def test_subset_equals_the_reference():
    chosen = _random.subset(7, "rows", 1, size=20, of=100)
    assert_array_equal(chosen, reference.random_subset(7, "rows", 1, 20, 100))


def test_streams_differ_by_seed_name_and_index():
    streams = [_random.words(s, n, i, 4).tolist() for s in (1, 2) for n in ("a", "b") for i in (0, 1)]
    assert len({tuple(stream) for stream in streams}) == 8


def test_uniforms_and_normals_follow_their_laws():
    """Kolmogorov-Smirnov at a level of 1e-4, with a fixed seed."""
    assert stats.kstest(_random.uniforms(7, "u", 0, 20_000), "uniform").pvalue > 1e-4
    assert stats.kstest(_random.normals(7, "n", 0, 20_000), "norm").pvalue > 1e-4


def test_uniforms_are_never_zero_or_one():
    extremes = np.array([0, 2**64 - 1], dtype=np.uint64)
    low, high = _random.uniforms_from_words(extremes)
    assert 0 < low < 1e-15
    assert 1 - 1e-15 < high < 1
    assert np.isfinite(_random.normals_from_words(extremes)).all()


def test_random_state_becomes_one_recorded_seed():
    assert _random.make_seed(7) == 7
    assert _random.make_seed(np.int64(7)) == 7
    assert _random.make_seed(None) != _random.make_seed(None)
    generator = np.random.default_rng(3)
    first, second = _random.make_seed(generator), _random.make_seed(generator)
    assert first != second
    assert first == _random.make_seed(np.random.default_rng(3))
