"""Bad input raises before anything is written; messages say what was given and what to do."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import topsign as ts
from topsign.families import AdaptiveRecipe
from topsign.index import deferred_of

pytestmark = pytest.mark.core

X = np.random.default_rng(0).standard_normal((5, 20))
ENCODER = ts.Encoder(family="adaptive", n_bits=6, random_state=7).fit(X)
CENTERED = ts.Encoder(family="adaptive", n_bits=6, center=True, random_state=7).fit(X)
CODES = ENCODER.encode(X)
NORMED = ts.Encoder(family="adaptive", n_bits=6, metric="inner_product", random_state=7).fit(X).encode(X)
PROJECTED = ENCODER.project(X)
INDEX = ts.Index(20, family="adaptive", n_bits=4, random_state=7)
INDEX.add(X, ids=list("abcde"), metadata=[{"year": row} for row in range(5)])
PROJECTION = ts.make_projection("hadamard", n_features=20, random_state=7)
PAIRS = AdaptiveRecipe.make(n_features=8, n_bits=2, random_state=7)  # codes of two bits


def with_value(value, row=3, column=4):
    signals = X.copy()
    signals[row, column] = value
    return signals


def column(values):
    return pytest.importorskip("pandas").Series(values)


CALLS = {
    ValueError: [
        (lambda: ENCODER.encode(with_value(np.nan)), "NaN or infinity in signals, first at row 3, column 4"),
        (
            lambda: ENCODER.project(with_value(-np.inf)),
            "NaN or infinity in queries, first at row 3, column 4 (-inf); remove or replace",
        ),
        (lambda: ENCODER.encode(with_value(1e39)), "signals row 3 is too large for float32 scores"),
        (lambda: ENCODER.encode(X[:, :19]), "signals must have 20 features, got 19 (shape (5, 19))"),
        (lambda: PROJECTION.apply(X[None]), "got shape (1, 5, 20)"),
        (lambda: ENCODER.encode(np.zeros(20)), "signals[0] is all zeros and cannot be encoded; drop that row"),
        (
            lambda: CENTERED.encode(CENTERED.recipe_.mean),
            "signals[0] equals the mean that center=True removes and cannot be encoded; drop that row",
        ),
        (lambda: ts.threads(0).__enter__(), "n_threads must be at least 1, got 0"),
        (lambda: ts.Encoder(family="adaptive", n_bits=21).fit(X), "got n_bits=21 with n_pool=20; raise n_pool"),
        (lambda: ts.Encoder(family="adaptive", n_bits=6, n_pool=2**24 + 1).fit(X), "in [1, 16777216], got 16777217"),
        (lambda: ts.Index(20, family="grouped", n_bytes=0), "n_bytes must be at least 1, got 0"),
        (lambda: ts.SignEmbedding(n_bits=6, projection="fourier").fit(X), "got 'fourier'"),
        (lambda: ts.SignEmbedding(n_bits=6, random_state=-1).fit(X), "random_state must be in [0, "),
        (lambda: ts.SignEmbedding(n_bits=6, projection=PROJECTION).fit(X), "shape (20, 20), but these data"),
        (
            lambda: ts.SignEmbedding(n_bits=20, projection=PROJECTION, random_state=1).fit(X),
            "has its own seed; leave random_state=None",
        ),
        (lambda: ts.UniversalEmbedding(n_bits=6, step=0).fit(X), "step must be positive and finite, got 0"),
        (lambda: ts.AdaptiveEmbedding(n_bits=6).fit(X), "exactly one reference, got 5 rows; use Encoder"),
        (lambda: ts.AdaptiveEmbedding(n_bits=6).fit(np.zeros(20)), "the reference is zero"),
        (lambda: ts.make_projection("fourier", n_features=8), "kind must be one of 'gaussian', 'rademacher'"),
        (lambda: ts.make_projection("hadamard", n_features=0), "n_features must be at least 1, got 0"),
        (lambda: ts.make_projection("hadamard", n_features=8, rounds=0), "rounds must be in [1, 64], got 0"),
        (lambda: ts.make_projection("sparse", n_features=8, density=2), "density must be in (0, 1], got 2"),
        (lambda: ts.make_projection("circulant", n_features=8, spectrum="flat"), "spectrum must be one of"),
        (lambda: PROJECTION.apply(X, rows=[20]), "rows must lie in [0, 20), the rows of the pool, got 20"),
        (lambda: CODES.mismatches(X[:, :7]), "n_pool=20, got shape (5, 7); pass what project() returned"),
        (lambda: CODES.scores(PROJECTED, metric="cosine"), "metric must be one of 'correlation', 'inner_product'"),
        (
            lambda: CODES.scores(PROJECTED, query_norms=np.ones(4)),
            "query_norms must be 5 finite values, none negative, got shape (4,)",
        ),
        (lambda: ts.AdaptiveCodes.concatenate([]), "at least one part"),
        (
            lambda: ts.AdaptiveCodes.concatenate([CODES, NORMED]),
            "must have equal recipes, got metric='correlation' and metric='inner_product'",
        ),
        (lambda: ts.AdaptiveCodes(CODES.data[:, 1:], recipe=CODES.recipe), "must be uint8 of shape (n_codes, "),
        (lambda: ts.AdaptiveCodes(CODES.data ^ 255, recipe=CODES.recipe), "not a packed code at row 0 (5 such rows)"),
        (lambda: ts.AdaptiveCodes.from_locations([[3, 3]], [[1, 1]], recipe=PAIRS), "ascend without repeats"),
        (lambda: ts.AdaptiveCodes.from_locations([[3, 8]], [[1, 1]], recipe=PAIRS), "lie in [0, 8)"),
        (lambda: ts.AdaptiveCodes.from_locations([[3, 4]], [[1, 0]], recipe=PAIRS), "signs must be +1 or -1"),
        (lambda: ts.AdaptiveCodes.from_locations([3, 4], [1, 1], recipe=PAIRS), "got shapes (2,) and (2,)"),
        (lambda: ts.hamming(CODES.data, CODES.data, n_bits=6), "must be uint8 with 1 bytes in the last axis"),
        (lambda: ts.hamming(np.ones((2, 1)), np.ones(1), n_bits=6), "got dtype float64"),
        (lambda: ts.theory.storage_bits(n_bits=9, n_pool=8), "n_bits=9 with n_pool=8"),
        (lambda: ts.theory.expected_hamming(1.1, n_bits=1, n_pool=8), "correlation must lie in [-1, 1], got 1.1"),
        (lambda: ts.theory.expected_hamming_bound(-0.1, n_bits=1, n_pool=8), "holds for correlations in [0, 1]"),
        (lambda: ts.theory.pair_flip_probability(1.0, uv=0.9, uw=0.9, vw=-0.9), "cannot be the correlations of three"),
        (lambda: ts.theory.order_statistic_mean(9, n=8), "rank must be integers in [1, n], got 9 with n=8"),
        (
            lambda: ts.theory.correlation_from_hamming(3, n_bits=4, n_pool=8),
            "divide mismatches by the number of bits kept",
        ),
        (lambda: ts.theory.correlation_interval(5, n_bits=4, n_pool=8), "integers in [0, 4]"),
        (
            lambda: ts.theory.correlation_interval(3, n_bits=4, n_pool=8, confidence=95),
            "confidence must lie in (0, 1), got 95",
        ),
        (lambda: ts.significance.correct_pvalues([2.0]), "p_values must lie in [0, 1]"),
        (lambda: ts.significance.correct_pvalues([0.1, 0.2], n_entries=0), "n_entries must be at least 1, got 0"),
        (
            lambda: ts.theory.roc(correlation=0.1, n_features=100, n_bits=8),
            "give n_bits and n_pool of an adaptive code",
        ),
        (lambda: ts.theory.chernoff_lower(10, 2.0), "relative_error of the lower tail must lie in (0, 1]"),
        (lambda: ts.theory.poisson_binomial_pmf([0.5, 1.5]), "a vector of values in [0, 1]"),
        (lambda: ts.theory.universal_expected_hamming(-1.0, step=2.0), "finite and not negative"),
        (lambda: ts.theory.universal_undithered_hamming(0.5, step=1e6), "terms for correlation 0.5"),
        (lambda: INDEX.add([[1.0, 2.0], [1.0]]), "rows of different lengths; pad or cut them"),
        (lambda: INDEX.add(scipy.sparse.csr_array(X[:, :5])), "signals must have 20 features, got 5"),
        (lambda: ts.Index(20, family="adaptive", center=scipy.sparse.csr_array(X[:1])), "center must be True,"),
        (lambda: INDEX.search(X, where="id == 'a'"), "ids are not metadata; use among="),
        (lambda: INDEX.add(X[:2], ids=["f", "\ud800"]), "ids must be Unicode texts, got '\\ud800' at row 1"),
        (lambda: INDEX.add(X[:1], ids=["f"], metadata=[{1: 2}]), "row 0 is not preserved by JSON, got {1: 2}"),
        (
            lambda: INDEX.add(X[:1], ids=["f"], metadata=[{"a": "x\ud800"}]),
            "metadata at row 0 has '\\ud800', which is not a Unicode character",
        ),
    ],
    TypeError: [
        (lambda: ts.Encoder(8, nbytes=4), "Encoder() has no parameter nbytes: did you mean n_bytes?"),
        (
            lambda: ts.Head.from_weights([[1.0]], other=4),
            "no parameter other: it takes basis, biases, classes, family, ",
        ),
        (lambda: INDEX.search(X, recal=0.9), "Index.search() has no parameter recal: did you mean recall?"),
        (
            lambda: ts.Index.from_recipe(INDEX.recipe, paht="x"),
            "from_recipe() has no parameter paht: did you mean path?",
        ),
        (lambda: ts.SignEmbedding(nbits=8), "SignEmbedding() has no parameter nbits: did you mean n_bits?"),
        (lambda: ts.open_index("x", readony=True), "open_index() has no parameter readony: did you mean readonly?"),
        (lambda: PROJECTION.apply(X.astype(complex)), "must be real numbers"),
        (lambda: PROJECTION.apply(X.astype(np.longdouble)), "at most float64"),
        (lambda: PROJECTION.apply([["a"] * 20]), "must be real numbers"),
        (lambda: ts.Encoder(family="adaptive", n_bits=6.0).fit(X), "n_bits must be an integer, got 6.0 of type float"),
        (
            lambda: ts.SignEmbedding(n_bits=6, random_state=np.random.RandomState(7)).fit(X),
            "use numpy.random.default_rng(seed)",
        ),
        (lambda: ts.UniversalEmbedding(n_bits=6, step="wide").fit(X), "step must be a number, got 'wide'"),
        (lambda: ts.make_projection("hadamard", n_features=8, depth=2), "has the options ['rounds'], got ['depth']"),
        (lambda: ts.make_projection("gaussian", n_features=8, rounds=2), "has no options, got ['rounds']"),
        (lambda: PROJECTION.apply(X, rows=[1.5]), "one-dimensional sequence of integers"),
        (lambda: PROJECTION.rows([[1]]), "locations must be a one-dimensional sequence"),
        (lambda: INDEX.add(column(list(X))), "got a column of 5 ndarrays; convert it with np.stack(column)"),
        (lambda: ENCODER.fit(column(X.tolist())), "got a column of 5 lists; convert it with np.stack(column)"),
        (lambda: INDEX.search(None), "queries must be an array of signals, got None"),
        (lambda: INDEX.add([None] * 20), "signals must be real numbers"),
        (lambda: ts.Head.from_weights(scipy.sparse.csr_array(X)), "weights must be dense, got a sparse matrix"),
        (lambda: INDEX.search(X, "10"), "k must be an integer, got '10' of type str"),
        (lambda: INDEX.within(X[:1], threshold="0.5"), "threshold must be a number, got '0.5' of type str"),
        (lambda: ts.read_codes("TSCM"), "message must be bytes, got str"),
        (lambda: INDEX.add(X[:2], ids=[5, "a"]), "ids must be all texts or all integers, got 5 of type int at row 0"),
        (lambda: INDEX.add(X[:1], ids=["f"], metadata={"a": 1}), "metadata must be a sequence of one dict"),
        (lambda: INDEX.add(X[:2], ids=["f", "g"], metadata=[{}, 3]), "got 3 of type int at row 1"),
    ],
    NotFittedError: [
        (lambda: ts.AdaptiveEmbedding(n_bits=6).transform(X), "not fitted yet"),
        (lambda: ts.Encoder(20, family="adaptive", n_bits=6).encode(X), "not fitted yet"),
        (lambda: ts.Encoder(20, family="adaptive", n_bits=6).project(X), "not fitted yet"),
    ],
    ts.StorageError: [(lambda: ts.read_codes(b"PK"), "not a message of codes: expected b'TSCM', got b'PK'")],
}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [pytest.param(call, error, words, id=words) for error, calls in CALLS.items() for call, words in calls],
)
def test_bad_input_says_what_was_wrong(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)
    assert len(INDEX) == 5


@pytest.mark.parametrize("constructor", ["adaptive", "grouped", "sign", "trellis"])
def test_an_index_that_has_not_learned_says_so(constructor):
    options = {"n_bytes": 5, "center": False} if constructor == "trellis" else {"center": True}
    index = ts.Index(family=constructor, n_features=20, random_state=7, **options)
    assert deferred_of(index) is not None
    assert (index.n_features, len(index), index.ids.tolist()) == (20, 0, [])
    for call in (
        lambda: index.recipe,
        lambda: index.search(X),
        lambda: index.within(X, threshold=0.5),
        lambda: index.pairs(k=1),
        lambda: index.project(X),
        lambda: index.calibrate(X),
        lambda: index.check(X, recall=None).null,
        lambda: index.get([]),
    ):
        with pytest.raises(NotFittedError, match=r"has not learned its recipe yet; call fit\(sample\), or add signals"):
            call()
    index.fit(np.random.default_rng(1).standard_normal((700, 20)))
    assert deferred_of(index) is None
    assert index.search(X).ids.shape == (5, 10)


@pytest.mark.parametrize("setting", ["0", "two", "-1", ""])
def test_bad_thread_settings(monkeypatch, setting):
    monkeypatch.setenv("TOPSIGN_NUM_THREADS", setting)
    with pytest.raises(ValueError, match="TOPSIGN_NUM_THREADS must be a positive integer, got"):
        ENCODER.encode(X)


def test_thread_setting_is_used(monkeypatch):
    monkeypatch.setenv("TOPSIGN_NUM_THREADS", "3")
    assert ts.kernels.info()["n_threads"] == 3
    with ts.threads(2):
        assert ts.kernels.n_threads() == 2
    assert ts.kernels.n_threads() == 3


def test_unknown_kernels_are_refused():
    with (
        pytest.raises(ValueError, match=r"TOPSIGN_KERNELS must be one of 'avx512', .*'portable', got 'sse'"),
        ts.kernels.use("sse"),
    ):
        pass


def test_a_k_that_asks_for_empty_places_is_refused(rng):
    index = ts.Index(64, family="adaptive", n_bits=16, random_state=1)
    index.add(rng.standard_normal((30, 64)))
    assert index.search(np.ones((2, 64)), k=100).ids.shape == (2, 100)
    for k in (10**9, 2**63):
        with pytest.raises(ValueError, match=f"k={k} gives .* but only 30 entries are considered"):
            index.search(np.ones((2, 64)), k=k)
