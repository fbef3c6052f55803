"""Pairs of one index, compared with a plain comparison of all codes."""

import subprocess
import sys
from math import comb

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import hypergeom

import topsign as ts
from topsign.families import AdaptiveRecipe
from topsign.search import pairs as module
from topsign.store import segments

pytestmark = pytest.mark.slow

N_FEATURES = 96


def adaptive_pairing(n_bits, n_pool):
    return AdaptiveRecipe.make(n_features=n_pool, n_bits=n_bits, n_pool=n_pool, random_state=7).pairing()


@pytest.fixture
def signals(rng):
    """Signals of which every tenth has two noisy copies."""
    signals = rng.standard_normal((120, N_FEATURES)).astype(np.float32)
    for row in range(0, 120, 10):
        signals[row + 1] = signals[row] + 0.3 * rng.standard_normal(N_FEATURES)
        signals[row + 2] = signals[row] + 0.3 * rng.standard_normal(N_FEATURES)
    return signals


def plain_agreements(index, ids):
    """Return the agreements of all pairs, from codes as rows of +-1 and 0."""
    codes = index.get(ids).codes
    rows = codes.signs.astype(int) if index.family == "sign" else codes.to_sparse().toarray().astype(int)
    return rows @ rows.T


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "texts"])
def test_pairs_are_those_of_the_plain_comparison(signals, kind, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 32)
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * N_FEATURES * 7)
    options = {"n_features": N_FEATURES, "random_state": 7}
    if kind in ("grouped", "sign"):
        index = ts.Index(family=kind, **options, n_bytes=N_FEATURES // 8)
    else:
        index = ts.Index(family="adaptive", **options, n_bits=16)
    names = [f"d{i:03d}" for i in range(120)] if kind == "texts" else None
    for part in np.array_split(np.arange(120), 4):
        index.add(signals[part], ids=names and [names[i] for i in part])
    gone = np.array([5, 50, 119])
    index.remove([names[i] for i in gone] if names else gone)
    ids = np.setdiff1d(np.arange(120), gone)
    agreements = plain_agreements(index, [names[i] for i in ids] if names else ids)
    law = index.recipe.pairing()
    first, second = np.triu_indices(len(ids), 1)
    values = agreements[first, second]
    level = 1 - (1 - 0.01) ** (1 / len(first))
    calls = []
    for limit, kept in (
        ({"threshold": 0.5}, law.scores(values) >= 0.5),
        ({"threshold": -1}, values >= -index.recipe.n_kept),
        ({"false_alarm": 0.01}, law.log10_p_values(values) <= np.log10(level)),
    ):
        found = index.pairs(**limit, progress=lambda *done: calls.append(done))
        order = np.lexsort((second[kept], first[kept], -values[kept]))
        expected = ids[first[kept][order]], ids[second[kept][order]]
        for have, want in zip((found.first, found.second), expected, strict=True):
            assert have.tolist() == ([names[i] for i in want] if names else want.tolist())
        assert_array_equal(found.scores, law.scores(values[kept][order]))
        assert (np.diff(found.scores) <= 0).all()
    assert calls[-1] == (117, 117)
    for k in (1, 3):
        found = index.pairs(k=k)
        off = agreements.astype(float) - 1e-6 * np.arange(len(ids))  # ties by ascending id
        np.fill_diagonal(off, -np.inf)
        nearest = np.argsort(-off, axis=1, kind="stable")[:, :k]
        wanted = {tuple(sorted((int(ids[i]), int(ids[j])))) for i in range(len(ids)) for j in nearest[i]}
        have = [
            (int(str(a).strip("d")), int(str(b).strip("d"))) for a, b in zip(found.first, found.second, strict=True)
        ]
        assert len(have) == len(set(have))
        assert set(have) == wanted


def test_groups_are_connected(signals):
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
    index.add(signals)
    groups = index.groups(false_alarm=1e-3)
    assert groups == [[row, row + 1, row + 2] for row in range(0, 120, 10)]
    assert index.groups(threshold=1) == []
    assert list(index.pairs(threshold=0.8).to_pandas().columns) == [
        "first",
        "second",
        "score",
        "p_value",
        "log10_p_value",
    ]
    assert repr(index.pairs(threshold=0.8)).startswith("Pairs: ")
    for limits in ({}, {"k": 2, "threshold": 0.5}):
        with pytest.raises(ValueError, match="give exactly one of false_alarm, threshold and k"):
            index.pairs(**limits)
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.pairs(k=0)
    assert len(ts.Index(N_FEATURES, family="adaptive", n_bits=16).pairs(k=3)) == 0


@pytest.fixture(params=["memory", "cluster"])
def place(request, tmp_path):
    """Return a function that opens an index on this machine, or on a cluster with one worker in this process."""
    if request.param == "memory":
        yield lambda index: index
        return
    pytest.importorskip("distributed", reason="needs the extra distributed: pip install 'topsign[distributed]'")
    opened = []

    def open_there(index):
        index.save(tmp_path / "index")
        opened.append(ts.distributed.open(tmp_path / "index"))
        return opened[-1]

    yield open_there
    for index in opened:
        index.close()


def equal_rows(n_entries):
    """Return an index with three distinct codes, two of which many entries share; ids of equal codes alternate."""
    rng = np.random.default_rng(3)
    signals = rng.standard_normal((3, N_FEATURES)).astype(np.float32)
    signals[1] = signals[0] + 0.3 * rng.standard_normal(N_FEATURES)
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
    index.add(signals[np.append(np.arange(n_entries - 1) % 2, 2)])
    return index


@pytest.mark.parametrize("limit", [{"threshold": 0.5}, {"threshold": 1.0}, {"false_alarm": 0.01}, {"k": 2}])
def test_pairs_of_equal_codes_are_those_of_the_plain_comparison(limit, place, monkeypatch):
    index = equal_rows(40)
    index.remove([0, 7])
    index = place(index)
    found, groups = index.pairs(**limit), index.groups(**limit)
    monkeypatch.setattr(module.EqualCodes, "find", lambda *_: module.EqualCodes.none())
    plain = index.pairs(**limit)
    for name in ("first", "second", "scores", "p_values"):
        assert_array_equal(getattr(found, name), getattr(plain, name))
    monkeypatch.setattr(module, "HELD_PAIRS", 3)
    assert groups == index.groups(**limit)
    assert {id for group in groups for id in group} == {*plain.first.tolist(), *plain.second.tolist()}


def test_pairs_say_how_many_there_would_be(place):
    index = place(equal_rows(101))
    n_pairs = 100 * 99 // 2
    assert len(index.pairs(threshold=0.5, max_pairs=n_pairs)) == n_pairs
    with pytest.raises(ValueError, match=r"there are 4,950 pairs, more than max_pairs=4949; .*groups\(\)"):
        index.pairs(threshold=0.5, max_pairs=n_pairs - 1)
    with pytest.raises(ValueError, match="there are at least 5,050 pairs, more than max_pairs=10"):
        index.pairs(k=1000, max_pairs=10)
    with pytest.raises(ValueError, match="max_pairs must be at least 0"):
        index.pairs(threshold=0.5, max_pairs=-1)


@pytest.mark.parametrize("place", ["memory", "cluster"])
def test_a_hundred_thousand_equal_rows_need_little_memory(place, tmp_path):
    """Five billion pairs are counted and grouped within 300 MB, including the memory of the cluster's worker."""
    if place == "cluster":
        pytest.importorskip("distributed", reason="needs the extra distributed: pip install 'topsign[distributed]'")
    script = """
import resource, sys, numpy as np, topsign as ts
index = ts.Index(64, family="adaptive", n_bits=16, random_state=7)
index.add(np.broadcast_to(np.random.default_rng(0).standard_normal(64).astype(np.float32), (100_000, 64)))
if sys.argv[1] == "cluster":
    index.save(sys.argv[2])
    index = ts.distributed.open(sys.argv[2])
    index.search(np.ones(64), 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert [len(group) for group in index.groups(threshold=0.9)] == [100_000]
try:
    index.pairs(threshold=0.9)
except ValueError as error:
    assert "there are 4,999,950,000 pairs" in str(error), error
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-c", script, place, str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 300_000


def test_p_values_are_the_tail_of_the_law():
    law = adaptive_pairing(6, 20)
    chances = {}
    for common in range(7):
        for agree in range(common + 1):
            weight = hypergeom.pmf(common, 20, 6, 6) * comb(common, agree) / 2**common
            chances[2 * agree - common] = chances.get(2 * agree - common, 0) + weight
    for value in range(-6, 7):
        tail = sum(chance for other, chance in chances.items() if other >= value)
        assert_allclose(law.log10_p_values(np.array([value])), np.log10(tail), rtol=1e-12, atol=1e-15)


def test_p_values_too_small_for_a_float_have_logarithms():
    law = adaptive_pairing(2048, 8192)
    codes = 2048 * np.log10(2) + np.log10(float(comb(8192, 2048) >> 6000)) + 6000 * np.log10(2)
    assert_allclose(law.log10_p_values(np.array([2048])), -codes, rtol=1e-12)  # equal codes, about 1e-2615
    logs = law.log10_p_values(np.arange(-2048, 2049, 64))
    assert (np.diff(logs) <= 0).all()


@pytest.mark.parametrize("correlation", [0.3, 0.7, 0.95])
def test_scores_are_the_correlation_on_the_mean(correlation):
    """The mean score of 1,500 pairs is right within four standard errors plus 0.01 for the estimate's curvature."""
    rng = np.random.default_rng(3)
    u, w = rng.standard_normal((2, 1500, 1024)).astype(np.float32)
    v = correlation * u + np.sqrt(1 - correlation**2) * w
    index = ts.Index(1024, family="adaptive", n_bits=128, random_state=7)
    index.add(np.vstack([u, v]))
    codes = index.get(range(3000)).codes.to_sparse()
    agreements = np.asarray(codes[:1500].multiply(codes[1500:]).sum(axis=1)).ravel()
    scores = adaptive_pairing(128, 1024).scores(agreements)
    assert abs(scores.mean() - correlation) < 4 * scores.std() / np.sqrt(1500) + 0.01
