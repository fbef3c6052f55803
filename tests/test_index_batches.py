"""Searches with every batch size that kernels treat differently return exactly the results of comparing every entry."""

from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from test_index import levels_of

import topsign as ts
from topsign import kernels

pytestmark = pytest.mark.slow

# Around the numbers of queries at which scans may change, and more than a tile of queries.
SOME, OTHERS = (1, 5, 16, 64, 200, 257), (2, 7, 63, 65, 256, 300)

# Family, its size (bits of a pool, or bytes), batches. Sizes around whole bytes, tiles of planes, and 16-bit lanes.
CASES = [
    ("adaptive", (1, 64), SOME),
    ("adaptive", (5, 64), OTHERS),
    ("adaptive", (33, 1000), SOME),
    ("adaptive", (100, 129), OTHERS),
    ("adaptive", (512, 8192), (1, 5, 64, 257)),
    ("adaptive", (2500, 65_536), (2, 80)),
    ("grouped", 1, OTHERS),
    ("grouped", 25, SOME),
    ("grouped", 448, (1, 4, 7, 65, 257)),
    ("sign", 1, SOME),
    ("sign", 33, OTHERS),
    ("sign", 1024, (1, 4, 7, 65, 257)),
]
METRICS = ["correlation", "inner_product"]


class Compared:
    """Comparison of every query with every entry by the definitions, (n_queries, n_entries), entries by ascending id.

    Everything is exact: sums are integers, values are products of float32, and scores are float64 products.
    """

    def __init__(self, kind, n_bits, indexes, signals, entered, ids, queries):
        """Encode ``signals[entered]``; a signal that is entered several times is encoded once."""
        recipe = indexes["correlation"].recipe
        projection = recipe.projection
        levels = np.array([levels_of(kind, projected, n_bits) for projected in projection.apply(signals)])
        projected = projection.apply(queries)
        limit = recipe.scorer.limit
        steps = np.abs(projected).max(axis=1) / np.float32(limit)
        rounded = np.rint(projected.astype(float) / steps.astype(float)[:, np.newaxis]).astype(np.int64)
        n_compared = {"adaptive": n_bits, "grouped": recipe.n_pool // 8, "sign": recipe.n_pool}[kind]
        equal_less_different = np.where(projected >= 0, 1, -1) @ levels.T
        self.mismatches = ((n_compared - equal_less_different) // 2)[:, entered]
        self.sums = (rounded @ levels.T)[:, entered]
        self.distances = self.mismatches / n_compared
        self.scales = {metric: index.recipe.prepare(queries).rounded.scales for metric, index in indexes.items()}
        codes = indexes["inner_product"].get(ids).codes.data
        norms = kernels.unpack_factors(codes, "log")
        self.norms = {"correlation": np.ones(len(ids), np.float32), "inner_product": norms}
        self.query_norms = np.sqrt([[reference.square_norm(query)] for query in queries])
        self.correlations = recipe.law(n_compared).correlations(np.arange(n_compared + 1))

    @lru_cache  # noqa: B019 (as short-lived as its test)
    def ranked(self, scoring, metric):
        """Return positions of the entries, nearest first, and scores by position."""
        query_norms = self.query_norms if metric == "inner_product" else 1.0
        if scoring == "hamming":
            keys = self.mismatches
            scores = self.correlations[self.mismatches] * (query_norms * self.norms[metric].astype(float))
        else:
            values = self.sums.astype(np.float32) * self.scales[metric][:, np.newaxis] * self.norms[metric]
            keys, scores = -values, values.astype(float) * query_norms
        n_entries = keys.shape[1]
        nearest = [reference.nearest(row, range(n_entries), n_entries) for row in keys.tolist()]
        return np.array([[position for _, position in row] for row in nearest]), scores


def draw(rng, n_signals, n_features):
    return rng.integers(-9, 10, (n_signals, n_features)).astype(np.float32)


def fill(index, rng, signals):
    """Fill a large and a small segment with shuffled ids, remove entries, and return the remaining ids and signals."""
    ids, entered = rng.permutation(900)[:150], rng.integers(len(signals), size=150)
    for part in (slice(0, 138), slice(138, 150)):
        index.add(signals[entered[part]], ids=ids[part])
    index.remove(ids[::8])
    large, small = index._store.snapshot.segments
    assert len(large.ids) >= 128  # with fewer, a second thread has nothing to do
    assert large.alive is not None
    assert small.alive is not None
    left = np.delete(np.arange(150), np.s_[::8])
    left = left[np.argsort(ids[left])]
    return ids[left], entered[left]


def assert_nearest(found, k, ids, order, distances, scores):
    """Assert that the first k of ``order``, the positions of the considered entries, are found for each query."""
    order = order[:, :k]
    n_found = order.shape[1]
    assert found.ids.shape == (len(order), k)
    assert_array_equal(found.ids[:, :n_found], ids[order])
    assert_array_equal(found.distances[:, :n_found], np.take_along_axis(distances, order, axis=1))
    assert_array_equal(found.scores[:, :n_found], np.take_along_axis(scores, order, axis=1))
    assert_array_equal(found.ids[:, n_found:], -1)
    for filler in (found.distances, found.scores, found.p_values):
        assert np.isnan(filler[:, n_found:]).all()


def assert_matches(found, ids, order, distances, scores, matching):
    """Assert that exactly the positions of ``order`` that are ``matching`` are found."""
    rows, places = np.nonzero(np.take_along_axis(matching, order, axis=1))
    positions = order[rows, places]
    assert_array_equal(found.starts, np.searchsorted(rows, np.arange(len(order) + 1)))
    assert_array_equal(found.ids, ids[positions])
    assert_array_equal(found.distances, distances[rows, positions])
    assert_array_equal(found.scores, scores[rows, positions])


@pytest.mark.parametrize(("kind", "size", "batches"), CASES)
def test_batches_of_every_size_are_exact(rng, kind, size, batches):
    """Both scorings on every path; metric, k, considered entries and threads are random for each search.

    Eight signals are entered 150 times, and one query in seven is one of them, so nearly all results are tied.
    """
    sizes = {"n_bits": size[0], "n_pool": size[1]} if kind == "adaptive" else {"n_bytes": size}
    n_features = min(size[1] if kind == "adaptive" else 8 * size, 2048)
    signals, queries = draw(rng, 8, n_features), draw(rng, max(batches), n_features)
    queries[::7] = signals[rng.integers(8, size=len(queries[::7]))]
    indexes = {
        metric: ts.Index(family=kind, n_features=n_features, random_state=7, metric=metric, **sizes)
        for metric in METRICS
    }
    for index in indexes.values():
        ids, entered = fill(index, np.random.default_rng(n_features), signals)
    compared = Compared(kind, sizes.get("n_bits", 0), indexes, signals, entered, ids, queries)
    for scoring, name, n_queries in product(("hamming", "asymmetric"), kernels.available(), batches):
        metric = rng.choice(METRICS)
        orders, scores = compared.ranked(scoring, metric)
        rows = slice(first := rng.integers(len(queries) - n_queries + 1), first + n_queries)
        some = rng.random(len(ids)) < rng.choice([0.1, 0.6, 1.0])
        order = orders[rows][some[orders[rows]]].reshape(n_queries, -1)
        truth = ids, order, compared.distances[rows], scores[rows]
        n_some = order.shape[1]
        k = int(rng.choice([1, 2, 10, rng.integers(1, n_some + 1), n_some, n_some + 5]))
        middle = first, order[0, n_some // 3]  # an entry that just matches, and its copies
        if scoring == "hamming":
            limits = {"radius": compared.distances[middle]}
            matching = compared.distances[rows] <= limits["radius"]
        else:
            limits = {"threshold": float(scores[middle])}
            matching = scores[rows] >= limits["threshold"]
        options = {"scoring": scoring}
        options["among"] = None if some.all() else rng.permutation(ids[some])
        with kernels.use(name), kernels.threads(int(rng.integers(1, 3))):
            assert_nearest(indexes[metric].search(queries[rows], k=k, **options), k, *truth)
            assert_matches(indexes[metric].within(queries[rows], **limits, **options), *truth, matching)
