"""Indexes return exactly the results of comparing every entry, with valid significance."""

import threading
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import topsign as ts
from topsign import kernels
from topsign.index import addition
from topsign.search.query_block import query_blocks
from topsign.store import segments

pytestmark = pytest.mark.core

N_FEATURES = 128
KINDS = ["adaptive", "grouped", "sign", "chosen"]
SIZES = [1, 5, 31, 32, 33, 100]
METRICS = ["correlation", "inner_product"]


def pairwise(kinds, sizes):
    """Return cases that have every two of a kind, a metric, a size and a path."""
    paths = kernels.available()
    return [
        (kind, METRICS[(i + j) % 2], size, paths[(i + j) % len(paths)])
        for i, kind in enumerate(kinds)
        for j, size in enumerate(sizes)
    ]


# Tolerance of interpolated p-values for 128 features, at which the distribution has corners; 1e-4 was measured.
P_VALUE_ERROR = 2e-4


def make_index(kind, size, *, n_features=N_FEATURES, **options):
    """Return an index of any kind, and the arguments of its searches; ``size`` are bits, or four per byte."""
    options = {"n_features": n_features, "random_state": 7} | options
    if kind == "adaptive":
        return ts.Index(family="adaptive", n_bits=size, **options), {}
    if kind == "chosen":
        n_pool = options.pop("n_pool", n_features)
        return ts.Index(family="sign", n_bytes=n_pool // 8, **options), {"adaptive_bits": size}
    return ts.Index(family=kind, n_bytes=-(-size // 4), **options), {}


def levels_of(kind, projected, n_bits):
    """Return the signs that a code keeps of projections, 0 for those that it does not."""
    signs = np.where(projected >= 0, 1, -1)
    if kind == "grouped":
        kept = np.zeros(len(projected), bool)
        for start in range(0, len(projected), 8):
            kept[start + int(np.argmax(np.abs(projected[start : start + 8])))] = True
        return np.where(kept, signs, 0)
    if kind == "adaptive":
        kept = np.zeros(len(projected), bool)
        kept[reference.select_locations(projected, n_bits)] = True
        return np.where(kept, signs, 0)
    return signs


class Naive:
    """Comparison of every query with every signal by the definitions.

    Values of queries are rounded to integers, so that sums are exact; the value of an entry is its sum times the scale
    of the query, times the factor of the entry, in float32.
    """

    def __init__(self, index, kind, size, signals, queries):
        recipe = index.recipe
        self.kind, self.size, self.metric, self.recipe = kind, size, index.metric, recipe
        self.n_pool, projection = recipe.n_pool, recipe.projection
        projected = dict(zip(signals, projection.apply(list(signals.values())), strict=True))
        queries = np.atleast_2d(np.float32(queries))
        self.query_norms = [np.sqrt(reference.square_norm(query)) for query in queries]
        self.n_compared = {"adaptive": size, "grouped": self.n_pool // 8, "sign": self.n_pool, "chosen": size}[kind]
        projected_queries = projection.apply(queries)
        kept = [self._kept(query) for query in projected_queries]
        self.visible = [
            np.where(some, query, np.float32(0)) for some, query in zip(kept, projected_queries, strict=True)
        ]
        levels = {i: levels_of(kind, projected[i], size) for i in signals}
        rounded, steps = zip(*(self._rounded(query) for query in self.visible), strict=True)
        self.sums = [{i: int(values @ levels[i]) for i in signals} for values in rounded]
        signs = [some * np.where(query >= 0, 1, -1) for some, query in zip(kept, projected_queries, strict=True)]
        self.mismatches = [{i: int(np.count_nonzero(one * levels[i] < 0)) for i in signals} for one in signs]
        self.scales = recipe.prepare(queries, adaptive_bits=size if kind == "chosen" else None).rounded.scales
        self._check_scales(steps, levels)
        codes = dict(zip(signals, index.get(list(signals)).codes.data, strict=True))
        self.norms = {i: np.float32(1) for i in signals}
        if self.metric == "inner_product":
            self.norms = {i: self._norm(codes[i], signals[i]) for i in signals}

    def _kept(self, query):
        """Return which projections a query compares."""
        kept = np.full(len(query), self.kind != "chosen")
        if self.kind == "chosen":
            kept[reference.select_locations(query, self.size)] = True
        return kept

    def _rounded(self, query):
        limit = self.recipe.scorer.limit
        step = np.float32(np.abs(query).max() / np.float32(limit))
        return np.rint(query.astype(float) / float(step)).astype(np.int64), step

    def _check_scales(self, steps, levels):
        """Scales turn integer sums into estimated correlations of a normal signal."""
        if self.kind == "chosen":
            expected = [
                step * norm * np.sqrt(np.pi / 2) / (query.astype(float) @ query)
                for step, norm, query in zip(steps, self.query_norms, self.visible, strict=True)
            ]
        else:
            largest = np.sort(np.abs(np.random.default_rng(0).standard_normal((100_000, 8))), axis=1)[:, -1].mean()
            kept = {"sign": np.sqrt(2 / np.pi), "grouped": largest}.get(self.kind)
            if kept is None:
                kept = ts.theory.mean_kept_magnitude(n_bits=self.size, n_pool=self.n_pool)
            pairs = zip(steps, self.query_norms, strict=True)
            expected = [step / (norm * self.n_compared * kept) for step, norm in pairs]
        assert_allclose(self.scales, expected, rtol=0.01 if self.kind == "grouped" else 1e-5)

    def _norm(self, code, signal):
        """Return the norm that a code stores, which is within a thousandth of the signal's."""
        norm = kernels.unpack_factors(code[np.newaxis], "log")[0]
        assert_allclose(norm, np.linalg.norm(signal.astype(float)), rtol=2 ** (1 / 1024) - 1 + 1e-6)
        return norm

    def keys(self, row, ids, scoring):
        """Sort key of entries: mismatches, or negative values."""
        return [self.mismatches[row][i] if scoring == "hamming" else -self.value(row, i) for i in ids]

    def value(self, row, i):
        return np.float32(self.sums[row][i]) * self.scales[row] * self.norms[i]

    def correlation(self, row, i, scoring):
        if scoring == "asymmetric":
            return float(self.value(row, i)) / float(self.norms[i])
        distance = self.mismatches[row][i] / self.n_compared
        if self.kind == "grouped":
            return float(ts.theory.correlation_from_hamming(distance, n_bytes=1))
        return float(ts.theory.correlation_from_hamming(distance, n_bits=self.n_compared, n_pool=self.n_pool))

    def score(self, row, i, scoring):
        """Return the score of an entry: a float32 value, multiplied in float64."""
        if scoring == "asymmetric":
            return float(self.value(row, i)) * (self.query_norms[row] if self.metric == "inner_product" else 1)
        product = self.query_norms[row] * float(self.norms[i]) if self.metric == "inner_product" else 1
        return self.correlation(row, i, scoring) * product

    def p_value(self, row, i, scoring):
        law = self.recipe.isotropic_null(self.n_compared)
        if scoring == "hamming":
            return 10 ** float(law.mismatch_log10_pvalues[self.mismatches[row][i]])
        rho = self.correlation(row, i, scoring)
        if self.kind == "chosen":
            energy = reference.square_norm(self.visible[row])
            return float(stats.norm.sf(rho * np.sqrt(energy / (np.pi / 2)) / self.query_norms[row]))
        return 10 ** float(law._log10_pvalues(np.array([rho]), "asymmetric")[0])  # not interpolated


def draw_signals(rng, n_signals, n_features=N_FEATURES):
    """Return integer signals of which every third is a copy, so there are many ties."""
    signals = rng.integers(-9, 10, (n_signals, n_features)).astype(np.float32)
    copies = np.arange(0, n_signals, 3)
    signals[copies] = signals[rng.permutation(copies) - 1]  # the signal before some copy
    return signals


def fill(index, rng, n_signals=24):
    """Make three additions with shuffled ids, remove some entries, and return the signals by id."""
    signals = draw_signals(rng, n_signals, index.n_features)
    ids = rng.permutation(10 * n_signals)[:n_signals]
    for part in np.array_split(np.arange(n_signals), [n_signals * 2 // 3, n_signals - 2]):
        assert_array_equal(index.add(signals[part], ids=ids[part]), ids[part])
    removed = ids[:: max(2, n_signals // 4)]
    index.remove(removed)
    return {int(i): signal for i, signal in zip(ids, signals, strict=True) if i not in removed}


def assert_neighbors(found, naive, ids, k, scoring):
    ids = list(ids)
    for row in range(len(found)):
        expected = reference.nearest(naive.keys(row, ids, scoring), ids, k)
        wanted = [-1 if one is None else one[1] for one in expected]
        assert_array_equal(found.ids[row], wanted)
        real = [i for i in wanted if i >= 0]
        n_real = len(real)
        assert_array_equal(found.distances[row, :n_real], [naive.mismatches[row][i] / naive.n_compared for i in real])
        assert_array_equal(found.scores[row, :n_real], [naive.score(row, i, scoring) for i in real])
        for filler in (found.distances, found.scores, found.p_values):
            assert filler.shape == found.ids.shape
            assert np.isnan(filler[row, n_real:]).all()


@pytest.mark.parametrize(("kind", "metric", "n_bits", "path"), pairwise(KINDS, SIZES), indirect=["path"])
def test_searches_are_exact(path, rng, kind, metric, n_bits):
    """Several segments, shuffled ids, ties, removals, filters, any k, two threads."""
    index, options = make_index(kind, n_bits, metric=metric)
    signals = fill(index, rng)
    assert len(index._store.snapshot.segments) > 1
    queries = np.vstack([draw_signals(rng, 4), next(iter(signals.values()))])
    naive = Naive(index, kind, n_bits, signals, queries)
    some = rng.permutation(list(signals))[:7]
    for scoring in ("hamming", "asymmetric"):
        for k, n_threads in ((1, 1), (4, 2), (len(signals), 1), (len(signals) + 5, 2)):
            with ts.threads(n_threads):
                found = index.search(queries, k=k, scoring=scoring, **options)
            assert_neighbors(found, naive, signals, k, scoring)
        found = index.search(queries, k=9, scoring=scoring, among=some, **options)
        assert_neighbors(found, naive, some, 9, scoring)


@pytest.mark.parametrize(
    ("kind", "metric", "n_queries", "path"), pairwise(KINDS, [1, 2, 9, 70, 300]), indirect=["path"]
)
def test_batches_are_exact(path, rng, monkeypatch, kind, metric, n_queries):
    monkeypatch.setitem(query_blocks.__kwdefaults__, "n_bytes", 4 * N_FEATURES * 64)  # several blocks of queries
    index, options = make_index(kind, 6, metric=metric)
    signals = fill(index, rng, 15)
    queries = draw_signals(rng, n_queries)
    naive = Naive(index, kind, 6, signals, queries)
    for scoring in ("hamming", "asymmetric"):
        assert_neighbors(index.search(queries, k=3, scoring=scoring, **options), naive, signals, 3, scoring)


def assert_within(found, naive, ids, scoring, false_alarm):
    """Assert that range searches return the entries whose corrected p-value is small enough."""
    level = 1 - (1 - false_alarm) ** (1 / len(ids))
    total = 0
    for row in range(len(found)):
        p_values = {i: naive.p_value(row, i, scoring) for i in ids}
        assert min(abs(p / level - 1) for p in p_values.values()) > 2 * P_VALUE_ERROR or scoring == "hamming"
        matching = [i for i in ids if p_values[i] <= level]
        expected = [i for _, i in reference.nearest(naive.keys(row, matching, scoring), matching, len(matching))]
        part = slice(*found.starts[row : row + 2])
        assert_array_equal(found.ids[part], expected)
        assert_array_equal(found.scores[part], [naive.score(row, i, scoring) for i in expected])
        assert_array_equal(found.distances[part], [naive.mismatches[row][i] / naive.n_compared for i in expected])
        assert_allclose(found.p_values[part], [p_values[i] for i in expected], rtol=P_VALUE_ERROR)
        total += len(matching)
    assert 0 < total < len(found) * len(ids)


@pytest.mark.parametrize(("kind", "metric", "n_bits", "path"), pairwise(KINDS, [32, 33, 40]), indirect=["path"])
def test_range_searches_are_exact(path, rng, kind, metric, n_bits):
    index, options = make_index(kind, n_bits, metric=metric)
    signals = fill(index, rng)
    queries = np.vstack([draw_signals(rng, 5), 2 * list(signals.values())[3]])
    naive = Naive(index, kind, n_bits, signals, queries)
    some = rng.permutation(list(signals))[:9]
    for scoring in ("hamming", "asymmetric"):
        found = index.within(queries, false_alarm=0.99, scoring=scoring, **options)
        assert_within(found, naive, list(signals), scoring, 0.99)
        found = index.within(queries, false_alarm=0.99, scoring=scoring, among=some, **options)
        assert_within(found, naive, list(some), scoring, 0.99)
    for radius in (0, 0.375, 0.5, 1):
        found = index.within(queries, radius=radius, scoring="hamming", **options)
        for row in range(len(queries)):
            near = [i for i in signals if naive.mismatches[row][i] <= radius * naive.n_compared]
            expected = [i for _, i in reference.nearest(naive.keys(row, near, "hamming"), near, len(near))]
            assert_array_equal(found.ids[found.starts[row] : found.starts[row + 1]], expected)
    boundary = float(naive.score(0, next(iter(signals)), "asymmetric"))  # one entry scores exactly this
    for threshold in (boundary, 0.0, -1e9):
        found = index.within(queries, threshold=threshold, **options)
        for row in range(len(queries)):
            high = [i for i in signals if naive.score(row, i, "asymmetric") >= threshold]
            expected = [i for _, i in reference.nearest(naive.keys(row, high, "asymmetric"), high, len(high))]
            assert_array_equal(found.ids[found.starts[row] : found.starts[row + 1]], expected)


@pytest.mark.parametrize(
    ("kind", "metric", "scoring"),
    [
        ("grouped", "correlation", "hamming"),
        ("grouped", "inner_product", "asymmetric"),
        ("sign", "correlation", "asymmetric"),
        ("sign", "inner_product", "hamming"),
    ],
)
def test_rescoring_orders_candidates_exactly(path, rng, kind, metric, scoring, tmp_path):
    index, _ = make_index(kind, 33, metric=metric)
    signals = fill(index, rng)
    queries = draw_signals(rng, 5)
    rows = np.zeros((max(signals) + 1, N_FEATURES), np.float32)
    rows[list(signals)] = list(signals.values())
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    candidates = index.search(queries, k=16, scoring=scoring)
    for source in (rows, mapped, lambda ids: rows[ids]):
        found = index.search(queries, k=4, rescore=source, scoring=scoring)
        for row, query in enumerate(queries):
            where = dict(zip(candidates.ids[row].tolist(), candidates.distances[row], strict=True))
            cosines = {i: reference.cosine(query, signals[i]) for i in where}
            values = {i: float(query @ signals[i]) for i in where} if metric == "inner_product" else cosines
            # With integers, copies of a signal tie exactly, and other signals differ by far more than rounding.
            expected = reference.nearest([-round(value, 9) for value in values.values()], list(values), 4)
            assert_array_equal(found.ids[row], [i for _, i in expected])
            assert_allclose(found.scores[row], [values[i] for _, i in expected], rtol=1e-6, atol=1e-9)
            assert_array_equal(found.distances[row], [where[i] for _, i in expected])
            r = np.array([cosines[i] for _, i in expected])
            t = r * np.sqrt((N_FEATURES - 1) / (1 - r**2))
            assert_allclose(found.p_values[row], stats.t.sf(t, N_FEATURES - 1), rtol=1e-9)
    everything = index.search(queries, k=len(signals) + 2, rescore=rows)
    assert (everything.ids[:, -2:] == -1).all()
    assert np.isnan(everything.scores[:, -2:]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_entries_come_and_go(rng, kind):
    index, options = make_index(kind, 20)
    signals = draw_signals(rng, 12)
    assert len(index) == 0
    assert index.ids.tolist() == []
    assert_array_equal(index.search(signals[:2], k=3, **options).ids, -1)
    assert index.within(signals[:2], false_alarm=0.5, **options).starts.tolist() == [0, 0, 0]
    assert_array_equal(index.add(signals[:5]), range(5))
    assert_array_equal(index.add(signals[5], ids=[40]), [40])
    assert_array_equal(index.add(signals[6:8]), [41, 42])
    assert index.add(signals[:0]).tolist() == []
    assert index.ids.tolist() == [0, 1, 2, 3, 4, 40, 41, 42]
    index.remove([42, 1])
    assert index.ids.tolist() == [0, 2, 3, 4, 40, 41]
    assert len(index) == 6
    assert [i in index for i in (0, 1, 40, 42, 43, -1, 2**70, "x")] == [True, False, True] + 5 * [False]
    assert_array_equal(index.add(signals[8]), [43])  # an id is not reused unless requested
    assert_array_equal(index.add(signals[9], ids=[1]), [1])
    index.remove([])
    index.remove(index.ids)
    assert len(index) == 0
    assert index.nbytes == 0
    assert_array_equal(index.add(signals[:1]), [44])
    assert index.search(np.empty((0, N_FEATURES)), k=3, **options).ids.shape == (0, 3)
    assert index.within(np.empty((0, N_FEATURES)), false_alarm=0.1, **options).starts.tolist() == [0]
    assert index.search(signals[0], k=2, among=[], **options).ids.tolist() == [[-1, -1]]


def test_codes_come_back_in_the_order_asked(rng):
    signals = rng.standard_normal((20, N_FEATURES))
    ids = rng.permutation(100)[:20]
    wanted = [13, 2, 2, 19]
    for metric in METRICS:
        index = ts.Index(N_FEATURES, family="adaptive", n_bits=20, metric=metric, random_state=7)
        encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=20, metric=metric, random_state=7).fit(signals)
        for part in np.split(np.arange(20), [9, 12]):
            index.add(signals[part], ids=ids[part])
        assert index.get(ids[wanted]).codes == encoder.encode(signals[wanted])
        assert index.get([]).codes == encoder.encode(signals[:0])
        assert index.recipe == encoder.recipe_


def test_segments_stay_few_and_small_ones_merge(rng, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 32)
    index, _ = make_index("grouped", 9)
    signals = draw_signals(rng, 200)
    ids = rng.permutation(200)
    for i in range(100):
        index.add(signals[i], ids=[ids[i]])
        if i % 10 == 9:
            index.remove([ids[i - 3]])
    sizes = [len(segment.ids) for segment in index._store.snapshot.segments]
    assert max(sizes) <= 32
    assert len(sizes) <= 100 / 16 + 2 * np.log2(32)
    index.add(signals[100:], ids=ids[100:])  # shuffled ids are sorted in parts
    alive = {int(i): s for i, s in zip(ids, signals, strict=True) if i in index}
    assert len(alive) == 190
    for segment in index._store.snapshot.segments:
        assert (np.diff(segment.ids) > 0).all()
    naive = Naive(index, "grouped", 9, alive, signals[:3])
    for scoring in ("hamming", "asymmetric"):
        assert_neighbors(index.search(signals[:3], k=30, scoring=scoring), naive, alive, 30, scoring)
    held = index.nbytes
    index.remove(ids[100:])  # whole segments are removed, and their memory is freed
    assert index.nbytes < 0.55 * held


@pytest.mark.slow
@pytest.mark.parametrize("shuffled", [False, True])
def test_adding_holds_few_codes_twice(rng, monkeypatch, shuffled):
    """Codes are made as rows and stored in blocks, piece by piece."""
    monkeypatch.setattr(addition, "CODES_BYTES", 2**20)
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 2**12)
    n = 160_000
    signals, ids = rng.standard_normal((n, 64)).astype(np.float32), rng.permutation(n) if shuffled else np.arange(n)
    index = ts.Index(64, family="sign", n_bytes=128, random_state=7)
    index.add(signals[:100], ids=ids[:100])
    tracemalloc.start()
    index.add(signals[100:], ids=ids[100:])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.nbytes > 20 * 2**20
    assert peak - index.nbytes < 10 * 2**20  # 4 MiB of projections, 3 MiB of ids, rows and blocks of a piece
    for segment in index._store.snapshot.segments:
        assert (np.diff(segment.ids) > 0).all()
    assert_array_equal(index.ids, np.arange(n))
    wanted = rng.permutation(n)[:100]
    signs = index.recipe.projection.apply(signals[np.argsort(ids)[wanted]]) >= 0
    assert_array_equal(index.get(wanted).codes.data, np.packbits(signs, axis=1, bitorder="little"))


def test_a_zero_query_is_refused_with_its_row(rng):
    queries = draw_signals(rng, 3)
    for kind in KINDS:
        for metric in METRICS:
            index, options = make_index(kind, 32, metric=metric)
            index.add(draw_signals(rng, 9))
            queries[2] = 0 if index.recipe.center is None else index.recipe.center
            for scoring in ("hamming", "asymmetric"):
                with pytest.raises(ValueError, match=r"queries\[2\] .* matches nothing; drop that row"):
                    index.search(queries, k=4, scoring=scoring, **options)
                with pytest.raises(ValueError, match=r"queries\[2\] is all zeros and matches nothing"):
                    index.within(queries, false_alarm=0.5, scoring=scoring, **options)
            index.search(queries[:2], k=4, **options)


OPTIONS = {
    "search": {"k": 7, "recall": 0.9, "rescore": 12, "with_metadata": True},
    "within": {"radius": 0.4, "threshold": 0.2, "false_alarm": 0.9, "with_metadata": True},
}
SHARED_OPTIONS = {"where": "year < 300", "among": range(100, 500), "scoring": "hamming", "adaptive_bits": 20}


@pytest.mark.parametrize("method", OPTIONS)
def test_every_accepted_option_has_an_effect(method, rng):
    """Each combination of up to three options raises, or gives another result without any one of them."""
    signals = rng.standard_normal((600, 64)).astype(np.float32)
    index = ts.Index(64, family="sign", n_bytes=8, originals="float16")
    index.add(signals, metadata=[{"year": row} for row in range(600)])
    queries = signals[:20] + rng.standard_normal((20, 64)).astype(np.float32)
    options, found = OPTIONS[method] | SHARED_OPTIONS, {}
    columns = ("ids", "scores", "distances", "log10_p_values", "metadata", "exhaustive", "starts", "n_entries")
    for names in (some for size in range(4) for some in combinations(options, size)):
        try:
            result = getattr(index, method)(queries, **{name: options[name] for name in names})
        except ValueError:
            continue
        found[names] = repr([np.asarray(getattr(result, column, None)).tolist() for column in columns])
        for left in names:
            assert found.get(tuple(name for name in names if name != left)) != found[names], (names, left)
    assert len(found) > 20


@pytest.mark.parametrize("scoring", ["hamming", "asymmetric"])
def test_searches_beside_additions_see_whole_batches(path, rng, scoring):
    """Every result is that of the index after some number of complete additions."""
    batches = np.split(draw_signals(rng, 120), 30)
    queries = draw_signals(rng, 2)
    answers, counts = [], []
    plain, _ = make_index("adaptive", 16)
    for batch in [batches[0][:0], *batches]:
        plain.add(batch)
        answers.append(plain.search(queries, k=5, scoring=scoring).ids.tolist())
    index, _ = make_index("adaptive", 16)
    seen, failures, done = [], [], threading.Event()

    def keep_searching():
        try:
            while not done.is_set():
                counts.append(len(index))
                seen.append(index.search(queries, k=5, scoring=scoring).ids.tolist())
        except BaseException as error:  # a thread's error must fail the test
            failures.append(error)

    threads = [threading.Thread(target=keep_searching) for _ in range(3)]
    for thread in threads:
        thread.start()
    for batch in batches:
        index.add(batch)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(count % 4 == 0 for count in counts)
    assert all(answer in answers for answer in seen)
    assert index.search(queries, k=5, scoring=scoring).ids.tolist() == answers[-1]


def test_threads_that_add_take_turns(rng):
    index, _ = make_index("adaptive", 16)
    signals = draw_signals(rng, 20)
    given = []

    def keep_adding():
        for _ in range(10):
            given.append(index.add(signals))

    threads = [threading.Thread(target=keep_adding) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_array_equal(np.sort(np.concatenate(given)), np.arange(4 * 10 * 20))
    assert_array_equal(index.ids, np.arange(4 * 10 * 20))


def made_of_256(kind, **options):
    """Return an index of signals of 256 features: 64 bits, 64 groups, or 256 signs."""
    if kind == "adaptive":
        return ts.Index(256, family="adaptive", n_bits=64, **options)
    return ts.Index(family="grouped" if kind == "grouped" else "sign", n_features=256, n_bytes=32, **options)


@pytest.mark.parametrize(
    ("kind", "scoring", "projection"),
    [
        ("adaptive", "asymmetric", "hadamard"),
        ("adaptive", "hamming", "hadamard"),
        ("adaptive", "asymmetric", "gaussian"),
        ("adaptive", "hamming", "gaussian"),
        ("grouped", "asymmetric", "hadamard"),
        ("grouped", "hamming", "hadamard"),
        ("grouped", "asymmetric", "gaussian"),
        ("sign", "asymmetric", "hadamard"),
        ("chosen", "asymmetric", "hadamard"),
        ("chosen", "asymmetric", "gaussian"),
        ("chosen", "hamming", "hadamard"),
    ],
)
def test_corrected_levels_hold_over_random_databases(kind, scoring, projection):
    """False matches in 30 databases of 100 entries with 40 queries each, of which one in five has a planted match.

    The level is per search, so the number of searches without a planted match that return anything is at most
    binomial(960, level). The limit is its 0.999 quantile, so one seed in a thousand fails. Nearly all planted matches,
    with a correlation of 0.8, are found.
    """
    level, false_searches, found_plants = 0.05, 0, 0
    for seed in range(30):
        rng = np.random.default_rng([seed, 5])
        options = {"adaptive_bits": 64} if kind == "chosen" else {}
        index = made_of_256(kind, basis=projection, random_state=seed)
        entries = rng.standard_normal((100, 256))
        index.add(entries)
        queries = rng.standard_normal((40, 256))
        queries[:8] = 0.6 * queries[:8] + 0.8 * entries[:8]
        found = index.within(queries, false_alarm=level, scoring=scoring, **options)
        false_searches += np.count_nonzero(np.diff(found.starts[8:]))
        found_plants += sum(row in found.ids[found.starts[row] : found.starts[row + 1]] for row in range(8))
    assert false_searches <= stats.binom.ppf(0.999, 960, level)
    assert found_plants >= 0.98 * 240
    if scoring == "asymmetric":  # the distribution is continuous, so the level is attained
        assert false_searches >= stats.binom.ppf(0.001, 960, level)


@pytest.mark.parametrize("projection", ["hadamard", "gaussian"])
@pytest.mark.parametrize("kind", ["adaptive", "grouped", "sign", "chosen"])
def test_scores_estimate_correlations_and_inner_products(rng, kind, projection):
    """Means over projections are within four standard errors of the true values.

    A further 2% are allowed: kept rows underestimate small correlations (by 0.5% at 0.1), and distances over an
    orthonormal pool have a bias of order 1 / n_features.
    """
    query, *noise = np.linalg.qr(rng.standard_normal((256, 51)))[0].T
    entries = 0.1 * query + np.sqrt(1 - 0.01) * np.array(noise)
    for metric, truth in (("correlation", 0.1), ("inner_product", 0.6)):
        for scoring in ("asymmetric", "hamming"):
            means = []
            for seed in range(30):
                index = made_of_256(kind, basis=projection, metric=metric, random_state=seed)
                index.add(2 * entries)
                options = {"adaptive_bits": 64} if kind == "chosen" else {}
                means.append(index.search(3 * query, k=50, scoring=scoring, **options).scores.mean())
            error = np.std(means, ddof=1) / np.sqrt(len(means))
            assert abs(np.mean(means) - truth) < 4 * error + 0.02 * truth
            assert error < 0.05 * truth


X = np.random.default_rng(0).standard_normal((5, 20))


def made(kind="adaptive", **options):
    size = {"n_bits": 6} if kind == "adaptive" else {"n_bytes": 3}
    index = ts.Index(family=kind, n_features=20, random_state=7, **size, **options)
    index.add(X)
    return index


CALLS = [
    (lambda: ts.Index(1, family="adaptive", n_bits=1), ValueError, "n_features must be at least 2, got 1"),
    (lambda: made(basis="fourier"), ValueError, "basis must be one of"),
    (lambda: made(metric="cosine"), ValueError, "metric must be one of 'correlation', 'inner_product'"),
    (
        lambda: made().add(X, ids=[4, 3, 2, 1, 9]),
        ValueError,
        "ids must be new, but 1, 2, 3 and 1 more are in the index",
    ),
    (lambda: made().add(X[0], ids=[-1]), ValueError, "ids must lie in [0, 2**63), got -1"),
    (lambda: made().add(X[0], ids=np.array([2**63], np.uint64)), ValueError, "got 9223372036854775808"),
    (lambda: made().add(X[0], ids=[1.0]), TypeError, "sequence of integers, got shape (1,) and dtype float64"),
    (lambda: made().add(X[0], ids=7), TypeError, "one-dimensional sequence of integers, got shape ()"),
    (lambda: made().remove([0, 7]), ValueError, "ids must be in the index, but 7 is not; list the ids of the index"),
    (lambda: made().search(X, k=0), ValueError, "k must be at least 1, got 0"),
    (lambda: made().search(X, scoring="cosine"), ValueError, "scoring must be one of 'hamming', 'asymmetric'"),
    (lambda: made().search(X, rescore=X[:, 1:]), ValueError, "rescore must have 20 features, got 19"),
    (lambda: made().search(X, rescore=lambda ids: X[:1]), ValueError, "one signal per id, got 1 for 5 ids"),
    (lambda: made().search(X, rescore=9), ValueError, "rescore=9 candidates are fewer than k=10"),
    (lambda: made("sign").search(X, adaptive_bits=25), ValueError, "adaptive_bits must be in [1, 24], got 25"),
    (lambda: made().within(X, radius=0.1, false_alarm=0.1), ValueError, "got radius and false_alarm"),
    (lambda: made().within(X, threshold=0.1, force=True), ValueError, "force goes with false_alarm: matches within"),
    (
        lambda: made("sign").within(X, false_alarm=0.1, adaptive_bits=8, force=True),
        ValueError,
        "force has no effect with adaptive_bits",
    ),
    (lambda: made().within(X, radius=0.1), ValueError, 'radius goes with scoring="hamming", got scoring="asymmetric"'),
    (
        lambda: made().within(X, threshold=0.1, scoring="hamming"),
        ValueError,
        'threshold goes with scoring="asymmetric"',
    ),
    (lambda: made().within(X, radius=3, scoring="hamming"), ValueError, "radius must be in [0, 1], got 3"),
    (lambda: made().within(X, threshold=np.nan), ValueError, "threshold must be finite, got nan"),
]


@pytest.mark.parametrize(("call", "error", "words"), CALLS, ids=[words for _, _, words in CALLS])
def test_bad_input_says_what_was_wrong(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_ids_run_out(rng):
    index = made()
    index.add(X[0], ids=[2**63 - 1])
    with pytest.raises(ValueError, match="no ids are left after 9223372036854775807"):
        index.add(X[0])
    assert 2**63 - 1 in index
