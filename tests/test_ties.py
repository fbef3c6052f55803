"""Entries with equal reported scores are in ascending order of their ids, at the last place too, on every path."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from small import visit_regions

import topsign as ts
from topsign.families.comparison import DecodedComparison, unit_queries
from topsign.families.trellis import TrellisRecipe
from topsign.search import originals
from topsign.search.engine import Hits
from topsign.store import segments

N_FEATURES, N_ENTRIES = 64, 300
KINDS = ["adaptive", "grouped", "sign", "chosen rows", "trellis", "decoded"]
pytestmark = pytest.mark.filterwarnings("ignore::topsign.CalibrationWarning")


@pytest.fixture
def base(rng):
    return rng.standard_normal(N_FEATURES)


@pytest.fixture
def queries(rng, base):
    """Return queries near the signal with many norms, so that quotients are rounded in many ways."""
    near = base + 0.5 * rng.standard_normal((40, N_FEATURES))
    return (near * rng.uniform(0.5, 2, (40, 1))).astype(np.float32)


def near_copies(base, metric):
    """Return signals with equal codes whose values are equal or differ in the last digits, and shuffled ids."""
    rng = np.random.default_rng(3)
    scales = rng.uniform(1, 1.9 if metric == "correlation" else 1 + 1e-6, (N_ENTRIES, 1))
    signals = (base * scales + 1e-6 * rng.standard_normal((N_ENTRIES, N_FEATURES))).astype(np.float32)
    signals[::3] = signals[1::3]
    return signals, rng.permutation(10 * N_ENTRIES)[:N_ENTRIES]


def make(kind, metric="correlation", **more):
    """Return an index, and options of its searches."""
    options = {"n_features": N_FEATURES, "metric": metric, "random_state": 7, **more}
    if kind in ("trellis", "decoded"):
        return ts.Index(**options, n_bytes=8, basis="hadamard", center=False), {}
    if kind == "adaptive":
        return ts.Index(family="adaptive", **options, n_bits=16), {}
    if kind == "grouped":
        return ts.Index(family="grouped", **options, n_bytes=8), {}
    return ts.Index(family="sign", **options, n_bytes=8), {"adaptive_bits": 16} if kind == "chosen rows" else {}


def decode(monkeypatch):
    """Compare trellis codes by decoding, as for a family without a specialised comparison."""

    def prepare(self, queries, *, part=None, **_):
        return DecodedComparison(self, *unit_queries(self, queries, part=part))

    monkeypatch.setattr(TrellisRecipe, "prepare", prepare)


def assert_decided(index, queries, n_entries=N_ENTRIES, **options):
    """Assert that, for every k, results are ordered by descending score and ascending id, and that there are ties."""
    whole = index.search(queries, k=n_entries, **options)
    order = np.lexsort((whole.ids, -whole.scores))
    assert_array_equal(order, np.broadcast_to(np.arange(n_entries), order.shape))
    assert (np.diff(whole.scores) == 0).sum() > 100
    for k in (1, 2, 3, 7, 50, n_entries - 1):
        found = index.search(queries, k=k, **options)
        assert_array_equal(found.ids, whole.ids[:, :k])
        assert_array_equal(found.scores, whole.scores[:, :k])
    return whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_reported_scores_and_ids_decide(base, queries, kind, metric, path, monkeypatch):
    if kind == "decoded":
        decode(monkeypatch)
    index, options = make(kind, metric)
    signals, ids = near_copies(base, metric)
    for part in np.array_split(np.arange(N_ENTRIES), 3):
        index.add(signals[part], ids=ids[part])
    whole = assert_decided(index, queries, **options)
    matches = index.within(queries, threshold=-100, **options)
    assert_array_equal(matches.ids, whole.ids.ravel())
    assert_array_equal(matches.scores, whole.scores.ravel())


@pytest.mark.parametrize("kind", ["adaptive", "grouped", "trellis"])
def test_reported_scores_and_ids_decide_in_regions_and_on_a_cluster(base, queries, kind, tmp_path, monkeypatch):
    signals, ids = near_copies(base, "correlation")
    index, _ = make(kind, path=tmp_path / "index")
    index.add(signals, ids=ids)
    whole = assert_decided(index, queries)
    cluster = ts.distributed.open(tmp_path / "index")
    found = assert_decided(cluster, queries)
    cluster.close()
    index.learn_regions(n_regions=2)
    visit_regions(monkeypatch, 2)
    visited = assert_decided(index, queries, recall=0.9)
    for other in (found, visited):
        assert_array_equal(other.ids, whole.ids)
        assert_array_equal(other.scores, whole.scores)


def test_rescored_ties_are_in_the_order_of_ids(base, queries):
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=16, random_state=7)
    index.add(np.tile(base, (64, 1)))
    tilted = base + 1e-9 * np.arange(64)[:, np.newaxis] * queries[0].astype(np.float64)
    found = index.search(queries[:1], k=64, rescore=tilted)
    assert len(set(found.scores[0])) == 1
    assert_array_equal(found.ids[0], np.arange(64))


@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_equal_signals_that_are_kept_are_found_in_the_order_of_ids(base, queries, rng, metric, monkeypatch):
    """With more equal signals than candidates, the choice by float32 products must not matter."""
    monkeypatch.setattr(originals, "BLOCK_BYTES", 4 * N_FEATURES * 64)  # several blocks
    index, _ = make("adaptive", metric, originals="float32", center=True)
    signals = np.vstack([rng.standard_normal((600, N_FEATURES)), np.tile(base, (200, 1))])
    shuffled = rng.permutation(800)
    ids = rng.permutation(9000)[:800]
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 200)
    for part in np.array_split(np.arange(800), 4):
        index.add(signals[shuffled[part]], ids=ids[part])
    queries = np.vstack([base, queries[:5]])
    by_id = dict(zip(ids.tolist(), signals[shuffled], strict=True))
    mean = index.recipe.center.astype(np.float64)
    for k in (3, 40, 250):
        found = index.search(queries, k=k, recall=0.9)
        assert (found.recall == 1).all()
        for query, got in zip(queries, found.ids, strict=True):
            inner = {i: (query - mean) @ (np.float32(signal) - mean) for i, signal in by_id.items()}
            if metric == "correlation":
                norms = {i: np.linalg.norm(np.float32(signal) - mean) for i, signal in by_id.items()}
                inner = {i: value / norms[i] / np.linalg.norm(query - mean) for i, value in inner.items()}
            expected = sorted(inner, key=lambda i: (-np.float32(inner[i]), i))[:k]
            assert_array_equal(got, expected)


def test_merged_hits_are_in_the_order_of_scores_and_ids():
    def part(ids, values):
        nothing = np.zeros(len(ids), np.int64)
        values = np.array(values, np.float32)
        return Hits(nothing, nothing, np.array(ids), values, values / 3.0, np.zeros(len(ids)), np.zeros(len(ids)))

    parts = [part([5, 9], [1, 0.5]), part([3, 7], [1, 0.9])]
    assert Hits.merge(parts).ids.tolist() == [3, 5, 7, 9]
    assert Hits.merge(parts, k=2).ids.tolist() == [3, 5]
    assert Hits.merge(parts, k=1).ids.tolist() == [3]
