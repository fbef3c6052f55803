"""Hostile input: arrays, files and processes that try to make the library crash, hang, or answer wrongly."""

import mmap

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import topsign as ts

N_FEATURES = 64


def make_index(**options):
    return ts.AdaptiveIndex(**{"n_features": N_FEATURES, "n_bits": 16, "random_state": 1} | options)


# Memory of the caller


@pytest.mark.parametrize("kind", ["copy on write", "anonymous", "shared"])
def test_the_memory_of_the_caller_is_left_alone(tmp_path, rng, kind):
    signals = rng.standard_normal((20_000, N_FEATURES)).astype(np.float32)
    signals.tofile(tmp_path / "signals.bin")
    with open(tmp_path / "signals.bin", "r+b") as file:
        if kind == "copy on write":
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        elif kind == "anonymous":
            pages = mmap.mmap(-1, signals.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            pages = mmap.mmap(-1, signals.nbytes)
    mapped = np.ndarray(signals.shape, np.float32, buffer=pages)
    mapped[:] = expected = -signals
    index, plain = make_index(), make_index()
    index.add(mapped)
    index.search(mapped[:4000], k=1)
    assert_array_equal(mapped, expected)
    plain.add(expected)
    assert index.get(index.ids).codes == plain.get(plain.ids).codes


# Scores that are not finite


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize(("factor", "word"), [(1e20, "large"), (1e-30, "small"), (1e-43, "small"), (1e-60, "small")])
def test_norms_that_scores_cannot_hold_are_refused(rng, metric, factor, word):
    signals = rng.standard_normal((30, N_FEATURES))
    index = make_index(metric=metric)
    index.add(signals)
    signals[7] *= factor
    for call in (index.add, index.search):
        with pytest.raises(ValueError, match=rf"row 7 is too {word} for float32 scores, its norm is"):
            call(signals)
    assert len(index) == 30


@pytest.mark.parametrize("path", ts.kernels.available())
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
@pytest.mark.parametrize("factor", [1e17, 1e-16])
def test_extreme_norms_find_every_entry(rng, path, metric, factor):
    signals = rng.standard_normal((90, N_FEATURES)) * factor / 10
    signals[::2] *= 5
    with ts.kernels.use(path):
        index = make_index(metric=metric)
        index.add(signals[:50])
        index.add(signals[50:])
        found = index.search(signals[:5], k=90)
        assert_array_equal(np.sort(found.ids, axis=1), np.tile(np.arange(90), (5, 1)))
        assert np.isfinite(found.scores).all()
        plain = make_index(metric=metric)
        plain.add(signals / factor)
        assert_array_equal(found.ids, plain.search(signals[:5] / factor, k=90).ids)
        assert len(index.within(signals[:1], threshold=-3e38).ids) == 90


@pytest.mark.parametrize("kind", [ts.AdaptiveIndex, ts.SignIndex])
@pytest.mark.parametrize("projection", ["sparse", "rademacher"])
def test_signals_without_projections_are_refused(kind, projection):
    options = {"n_bits": 2} if kind is ts.AdaptiveIndex else {}
    index = kind(n_features=400, n_pool=4, projection=projection, random_state=1, **options)
    rows = index.projection.rows(range(4))
    signal = np.ones(400)
    signal -= np.linalg.pinv(rows) @ (rows @ signal)  # orthogonal to the whole pool, but for rounding
    if projection == "sparse":
        signal = (rows == 0).all(axis=0).astype(float)  # exactly zero on all of it
    good = rows.sum(axis=0)
    with pytest.raises(ValueError, match=r"signals row 1: all its kept projections are zero on this \w+ pool of 4"):
        index.add(np.stack([good, signal]))
    assert len(index) == 0
    index.add(good)
    found = index.search(np.stack([good, signal]), k=1)
    assert_array_equal(found.ids, 0)
    assert np.isfinite(found.scores).all()
