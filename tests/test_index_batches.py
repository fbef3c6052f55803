"""Searches with every batch size that kernels treat differently return exactly the results of comparing every entry."""

from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from numpy_kernels import PATHS, use_path

import topsign as ts
from topsign import kernels

pytestmark = pytest.mark.slow

# Around the numbers of queries at which scans change: 3, 6, 64 (a table of scores), 256 (a table of mismatches).
SOME, OTHERS = (1, 5, 16, 64, 200, 257), (2, 7, 63, 65, 256, 300)

# Bits, pool, batches. At (100, 129) and (1040, 8192) some blocks of 128 rows keep more than 16 locations; above 8,192
# rows a table's row numbers are wide, and plain comparison takes long.
CASES = [(1, 64, SOME), (5, 64, OTHERS), (31, 400, SOME), (32, 400, OTHERS), (33, 1000, SOME), (100, 129, OTHERS)]
CASES += [(512, 8192, (1, 5, 64, 65, 257)), (1040, 8192, (2, 7, 65)), (2500, 65_536, (5, 7, 80))]

METRICS = ["correlation", "inner_product"]


class Compared:
    """Comparison of every query with every entry by the definitions, (n_queries, n_entries), entries by ascending id.

    Everything is exact: mismatches are counts, sums are float32 in the order of additions of all kernels, and scores
    are float64 quotients.
    """

    def __init__(self, projection, n_bits, signals, entered, queries):
        """Encode ``signals[entered]``; a signal that is entered several times is encoded once."""
        pairs = zip(signals, projection.apply(signals), strict=True)
        entries = [reference.entry(signal, projected, n_bits) for signal, projected in pairs]
        projected = projection.apply(queries)
        counts = np.array([reference.all_mismatches(projected >= 0, bits, rows) for rows, bits, _, _ in entries])
        sums = np.array([reference.all_score_sums(projected, bits, rows) for rows, bits, _, _ in entries])
        norms, scales = np.array([entry[2:] for entry in entries], np.float32)[entered].T
        self.mismatches, self.sums = counts.T[:, entered], sums.T[:, entered]
        self.distances = self.mismatches / n_bits
        self.norms, self.weights = norms, {"correlation": scales / norms, "inner_product": scales}
        self.query_norms = np.sqrt([[reference.square_norm(query)] for query in queries])
        law = {"n_bits": n_bits, "n_pool": projection.n_pool}
        self.correlations = ts.theory.correlation_from_hamming(np.arange(n_bits + 1) / n_bits, **law)

    @lru_cache  # noqa: B019 (as short-lived as its test)
    def ranked(self, scoring, metric):
        """Return positions of the entries, nearest first, and scores by position."""
        if scoring == "hamming":
            keys = self.mismatches
            factors = self.query_norms * self.norms if metric == "inner_product" else 1.0
            scores = self.correlations[self.mismatches] * factors
        else:
            keys = -(self.sums * self.weights[metric])
            scores = -keys.astype(float) / (1 if metric == "inner_product" else self.query_norms)
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
    large, small = index.store.snapshot.segments
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


@pytest.mark.parametrize(("n_bits", "n_pool", "batches"), CASES)
def test_batches_of_every_size_are_exact(rng, n_bits, n_pool, batches):
    """Both layouts and scorings on every path; metric, k, considered entries and threads are random for each search.

    Eight signals are entered 150 times, and one query in seven is one of them, so nearly all results are tied.
    """
    n_features = min(n_pool, 2048)
    signals, queries = draw(rng, 8, n_features), draw(rng, max(batches), n_features)
    queries[::7] = signals[rng.integers(8, size=len(queries[::7]))]
    shape = {"n_features": n_features, "n_pool": n_pool, "n_bits": n_bits, "random_state": 7}
    compared = None
    for layout in kernels.LAYOUTS:
        indexes = {metric: ts.AdaptiveIndex(layout=layout, metric=metric, **shape) for metric in METRICS}
        for index in indexes.values():
            ids, entered = fill(index, np.random.default_rng(n_bits), signals)
        compared = compared or Compared(index.recipe.projection, n_bits, signals, entered, queries)
        for scoring, name, n_queries in product(("hamming", "asymmetric"), PATHS, batches):
            if name == "numpy" and n_queries not in (5, 65):
                continue  # it is slow and processes 64 queries at a time for every batch size
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
            options = {"scoring": scoring, "n_threads": int(rng.integers(1, 3))}
            options["among"] = None if some.all() else rng.permutation(ids[some])
            with use_path(name):
                assert_nearest(indexes[metric].search(queries[rows], k=k, **options), k, *truth)
                assert_matches(indexes[metric].within(queries[rows], **limits, **options), *truth, matching)


@pytest.mark.parametrize("layout", kernels.LAYOUTS)
def test_scores_have_the_one_order_of_additions(path, rng, layout):
    """Features are 2**-30 and, one in ten, 2**30; if the large ones cancel, the order of additions matters."""
    projection = ts.make_projection("sparse", n_features=256, n_pool=2048, random_state=7, density=1 / 256)
    powers, signs = rng.choice([-30, 30], (100, 256), p=[0.9, 0.1]), rng.choice([-1.0, 1.0], (100, 256))
    signals, queries = np.split(np.float32(signs * 2.0**powers), [30])
    index = ts.AdaptiveIndex(n_features=256, n_pool=2048, n_bits=33, projection=projection, layout=layout)
    index.add(signals)
    compared = Compared(projection, 33, signals, np.arange(30), queries)
    order, scores = compared.ranked("asymmetric", "correlation")
    for rows in (slice(0, 3), slice(0, 70)):
        truth = index.ids, order[rows], compared.distances[rows], scores[rows]
        assert_nearest(index.search(queries[rows], k=30), 30, *truth)
    projected, entries = projection.apply(queries), zip(signals, projection.apply(signals), strict=True)
    codes = [reference.entry(signal, values, 33)[:2] for signal, values in entries]
    in_turn = [np.cumsum(projected[:, rows] * np.where(bits, 1.0, -1.0), axis=1)[:, -1] for rows, bits in codes]
    assert np.count_nonzero(np.float32(in_turn) != compared.sums.T) > 100  # another order gives a different result


def test_the_batch_reference_equals_the_single_query_reference(rng):
    projected = rng.standard_normal((5, 90)).astype(np.float32)
    rows, bits = np.sort(rng.permutation(90)[:37]), rng.random(37) < 0.5
    counts, sums = reference.all_mismatches(projected >= 0, bits, rows), reference.all_score_sums(projected, bits, rows)
    assert_array_equal(counts, [reference.mismatches(query >= 0, bits, rows) for query in projected])
    assert_array_equal(sums, [reference.score_sum(query, bits, rows) for query in projected])
