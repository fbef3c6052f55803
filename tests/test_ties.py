"""Entries with equal reported scores are in ascending order of their ids, whatever was rounded away."""

import numpy as np
import pytest

import topsign as ts
from topsign.families.sign_comparison import AsymmetricComparison
from topsign.search import Hits

N_FEATURES = 64
pytestmark = pytest.mark.filterwarnings("ignore::topsign.CalibrationWarning")


@pytest.fixture
def base(rng):
    return rng.standard_normal(N_FEATURES)


@pytest.fixture
def queries(rng, base):
    """Queries near the signal, of many norms, so that quotients are rounded in many ways."""
    near = base + 0.5 * rng.standard_normal((40, N_FEATURES))
    return (near * rng.uniform(0.5, 2, (40, 1))).astype(np.float32)


def assert_ordered(ids, scores):
    """Descending scores, ascending ids among equal ones; and there are such, else nothing was tested."""
    ties = np.diff(scores) == 0
    assert (np.diff(scores) <= 0).all()
    assert (np.diff(ids)[ties] > 0).all()
    return int(ties.sum())


@pytest.mark.parametrize("kind", ["adaptive", "sign", "trellis"])
@pytest.mark.parametrize("metric", ["correlation", "inner_product"])
def test_equal_scores_are_in_the_order_of_ids(base, queries, kind, metric):
    options = {"n_features": N_FEATURES, "metric": metric, "random_state": 7}
    if kind == "trellis":
        index = ts.TrellisIndex(**options, n_bytes=8, basis="hadamard", center=False, norms=True)
    else:
        index = ts.AdaptiveIndex(**options, n_bits=16) if kind == "adaptive" else ts.SignIndex(**options)
    # Codes are equal; values differ in the last digits.
    scales = np.random.default_rng(3).uniform(1, 1.9 if metric == "correlation" else 1 + 1e-6, (400, 1))
    index.add((base * scales).astype(np.float32))
    found = index.search(queries, k=400)
    n_ties = sum(assert_ordered(ids, scores) for ids, scores in zip(found.ids, found.scores, strict=True))
    assert n_ties > 0
    matches = index.within(queries, threshold=-100)
    for query in range(len(queries)):
        part = slice(matches.starts[query], matches.starts[query + 1])
        assert_ordered(matches.ids[part], matches.scores[part])


def test_rescored_ties_are_in_the_order_of_ids(base, queries):
    index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=16, random_state=7)
    index.add(np.tile(base, (64, 1)))
    tilted = base + 1e-9 * np.arange(64)[:, np.newaxis] * queries[0].astype(np.float64)
    found = index.search(queries[:1], k=64, rescore=tilted)
    assert assert_ordered(found.ids[0], found.scores[0]) == 63


def test_scores_as_they_are_reported_decide(rng, queries, monkeypatch):
    """Scores rounded to one digit: many values share one, and ids must ascend among them."""
    estimates = AsymmetricComparison.estimates

    def rounded(self, *arguments):
        scores, correlations = estimates(self, *arguments)
        return np.round(scores, 1), correlations

    monkeypatch.setattr(AsymmetricComparison, "estimates", rounded)
    index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=16, random_state=7)
    index.add(rng.standard_normal((300, N_FEATURES)))
    found = index.search(queries, k=300)
    for ids, scores in zip(found.ids, found.scores, strict=True):
        assert assert_ordered(ids, scores) > 200


def test_merged_hits_are_in_the_order_of_reported_scores():
    def part(ids, values):
        scores = np.round(np.array(values, np.float32), 3)
        nothing = np.zeros(len(ids), np.int64)
        return Hits(nothing, nothing, np.array(ids), np.array(values), scores, np.zeros(len(ids)), np.zeros(len(ids)))

    parts = [part([5, 9], [1.0002, 0.5]), part([3, 7], [1.0001, 0.9])]
    assert Hits.merge(parts, descending=True).ids.tolist() == [3, 5, 7, 9]
    assert Hits.merge(parts, descending=True, k=2).ids.tolist() == [3, 5]
    assert Hits.merge(parts, descending=True, k=1).ids.tolist() == [5]  # the largest value is found first
