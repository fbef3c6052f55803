"""Embeddings: the paper's, its baselines, and the encoder."""

import numpy as np
import pytest
import reference
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import topsign as ts
from topsign import kernels

pytestmark = pytest.mark.core

ESTIMATORS = [
    ts.SignEmbedding(n_bits=12, random_state=7),
    ts.UniversalEmbedding(n_bits=12, random_state=7),
    ts.UniversalEmbedding(n_bits=12, step=0.5, dither=False, random_state=7),
    ts.Encoder(family="adaptive", n_bits=12, n_pool=40, random_state=7),
    ts.Encoder(family="adaptive", n_bits=12, n_pool=40, center=True, random_state=7),
]


def one_signal(estimator):
    accepted = "fit takes one signal of shape (n_features,), as AdaptiveEmbedding does"
    return {} if isinstance(estimator, ts.Encoder) else {"check_fit1d": accepted}


@pytest.mark.filterwarnings("ignore:step=")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=one_signal)
def test_scikit_learn_conventions(estimator, check):
    """All checks pass or skip. The check of array API input is skipped unless SCIPY_ARRAY_API is set."""
    check(estimator)


@pytest.mark.parametrize(
    ("n", "n_bits", "n_pool"), [(2, 1, 2), (3, 3, 3), (64, 63, 64), (100, 65, 129), (384, 24, 384)]
)
def test_adaptive_embedding_is_the_definition(path, rng, n, n_bits, n_pool):
    signals = rng.standard_normal((6, n)).astype(np.float32)
    embedding = ts.AdaptiveEmbedding(n_bits=n_bits, n_pool=n_pool, random_state=7).fit(signals[0])
    rounds = embedding.projection_.rounds
    projected = [reference.hadamard(signal, 7, rounds, n_pool) for signal in signals]
    locations = reference.select_locations(projected[0], n_bits)
    assert_array_equal(embedding.locations_, locations)
    expected = [reference.pack(row[locations] >= 0) for row in projected]
    assert_array_equal(embedding.reference_code_, expected[0])
    assert_array_equal(embedding.transform(signals), expected)


@pytest.mark.parametrize("embedding", [ts.SignEmbedding(12, random_state=7), ts.UniversalEmbedding(12, random_state=7)])
def test_one_signal_is_a_matrix_of_one_row(rng, embedding):
    signal = rng.standard_normal(20) / 4
    assert_array_equal(embedding.fit(signal).transform([signal]), embedding.fit([signal]).transform([signal]))


def test_a_step_of_another_scale_is_announced(rng):
    """A step that fits separates a signal from its noisy copy and both from another; the steps warned of do not."""
    signals = 100 * rng.standard_normal((2, 200))
    near = np.vstack([signals[0] + 30 * rng.standard_normal(200), signals[1]])
    scale = np.linalg.norm(signals[0])

    def distances(step):
        embedding = ts.UniversalEmbedding(512, step=step, random_state=7).fit(signals)
        code, others = embedding.transform(signals[:1]), embedding.transform(near)
        return ts.hamming(code, others, n_bits=512)

    assert distances(2 * scale)[0] < 0.2 < 0.4 < distances(2 * scale)[1] + 0.1
    with pytest.warns(UserWarning, match=r"step=2 is far from .* a step of about [23]\.\de\+03 fits"):
        assert distances(2.0)[0] > 0.4
    with pytest.warns(UserWarning, match="all codes are nearly equal"):
        assert distances(100 * scale)[1] < 0.1


def assert_encoder_is_the_definition(signals, n_bits, n_pool, n_threads):
    encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=n_bits, n_pool=n_pool, random_state=7).fit(signals)
    with ts.threads(n_threads):
        codes = encoder.encode(signals)
    rounds = encoder.recipe_.projection.rounds
    for i, signal in enumerate(signals):
        projected = reference.hadamard(signal, 7, rounds, n_pool)
        locations = reference.select_locations(projected, n_bits)
        assert_array_equal(codes.locations[i], locations)
        assert_array_equal(codes.signs[i], np.where(projected[locations] >= 0, 1, -1))
    assert (encoder.transform(signals) != codes.to_sparse()).nnz == 0


@given(st.data(), st.integers(1, 140), st.integers(1, 300))
def test_encoder_of_any_shape_is_the_definition(data, n, n_pool):
    values = st.integers(-3, 3) | st.floats(-1e6, 1e6, width=32)
    lists = st.lists(values, min_size=n, max_size=n)
    signal = data.draw(lists.filter(lambda row: np.abs(row).max() > 1e-9))  # smaller norms raise
    n_bits = data.draw(st.integers(1, n_pool))
    for name in kernels.available():
        with kernels.use(name):
            assert_encoder_is_the_definition(np.float32([signal]), n_bits, n_pool, n_threads=1)


def test_sign_embedding_packs_signs_of_projections(rng):
    signals = rng.standard_normal((5, 50))
    embedding = ts.SignEmbedding(n_bits=77, projection="gaussian", random_state=7).fit(signals)
    projected = embedding.projection_.apply(signals)
    assert_array_equal(embedding.transform(signals), [reference.pack(row >= 0) for row in projected])


@pytest.mark.parametrize("dither", [True, False])
def test_universal_embedding_is_the_parity_of_cells(rng, dither):
    signals = 3 * rng.standard_normal((5, 50))
    embedding = ts.UniversalEmbedding(n_bits=33, step=1.5, dither=dither, random_state=7).fit(signals)
    words = reference.philox_words(7, "universal dither", 0, 33)
    shifts = [((word >> 12) + 0.5) / 2**52 * 3.0 * dither for word in words]
    assert_allclose(embedding.dither_, shifts)
    cells = [
        [int((value + shift) // 1.5) % 2 for value, shift in zip(row, shifts, strict=True)]
        for row in embedding.projection_.apply(signals).tolist()
    ]
    assert_array_equal(embedding.transform(signals), [reference.pack(row) for row in cells])


def dense(rows):
    return rows.toarray() if hasattr(rows, "toarray") else rows


def test_a_pipeline_sees_the_code_itself(rng):
    signals = rng.standard_normal((20, 64))
    signals[3] = 0
    encoder = ts.Encoder(signals.shape[1], family="adaptive", n_bits=8, n_pool=100, random_state=7).fit(signals)
    rows = encoder.transform(signals)
    assert rows.shape == (20, 100)
    assert_array_equal(np.diff(rows.indptr), np.where(np.arange(20) == 3, 0, 8))  # a zero signal has no code
    assert_array_equal(rows[4:].toarray(), encoder.encode(signals[4:]).to_sparse().toarray())
    assert_array_equal(encoder.get_feature_names_out()[[0, 99]], ["encoder0", "encoder99"])
    model = make_pipeline(ts.Encoder(family="adaptive", n_bits=8, random_state=7), LogisticRegression())
    assert model.fit(signals, np.arange(20) % 2).score(signals, np.arange(20) % 2) > 0.9
    with pytest.raises(ValueError, match="sparse"):  # like scikit-learn's transformers with sparse output
        encoder.set_output(transform="pandas").transform(signals)


def test_hamming_broadcasts(rng):
    codes = rng.integers(0, 256, (4, 2), dtype=np.uint8)
    codes[:, 1] &= 0b11
    bits = np.unpackbits(codes, axis=1, bitorder="little")[:, :10]
    expected = (bits[:, np.newaxis] != bits).mean(axis=2)
    assert_allclose(ts.hamming(codes[:, np.newaxis], codes, n_bits=10), expected)
    assert ts.hamming(codes[0], codes[1], n_bits=10) == expected[0, 1]


def make_sparse(rng, n_signals, n_features, density=0.05):
    rows = rng.standard_normal((n_signals, n_features)) * (rng.random((n_signals, n_features)) < density)
    rows[:, 0] = 1  # none is zero
    return scipy.sparse.csr_array(rows.astype(np.float32))


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_sparse_signals_give_the_codes_of_dense_ones(rng, form):
    rows = make_sparse(rng, 30, 200)
    dense, sparse = rows.toarray(), form(rows)
    for make in (
        lambda: ts.SignEmbedding(48, random_state=7),
        lambda: ts.UniversalEmbedding(48, random_state=7),
        lambda: ts.Encoder(family="adaptive", random_state=7, center=True),
    ):
        one, other = make().fit(dense), make().fit(sparse)
        assert_array_equal(as_dense(one.transform(dense)), as_dense(other.transform(sparse)))
    assert other.encode(sparse) == one.encode(dense)
    assert_array_equal(other.project(sparse), one.project(dense))
    one, other = (ts.AdaptiveEmbedding(random_state=7).fit(part[[3]]) for part in (dense, scipy.sparse.csr_array(rows)))
    assert_array_equal(one.transform(dense), other.transform(sparse))


def as_dense(values):
    return values.toarray() if scipy.sparse.issparse(values) else values
