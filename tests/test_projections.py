"""Projections: correct, reproducible, and small in memory."""

import pickle
import tracemalloc

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import topsign as ts
from topsign import kernels
from topsign.kernels import choice

pytestmark = pytest.mark.core

KINDS = [
    ("hadamard", {}),
    ("circulant", {}),
    ("circulant", {"spectrum": "gaussian"}),
    ("gaussian", {}),
    ("rademacher", {}),
    ("sparse", {}),
    ("sparse", {"density": 1 / 3}),
]
EPSILON = 2.0**-24  # half a unit in the last place of float32, relative


def rounding(n, norms):
    """Return a bound on the rounding error of float32 projections: n additions of values below sqrt(n) |x|."""
    return EPSILON * n * np.sqrt(n) * np.max(norms)


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join([kind[0], *map(str, kind[1].values())]))
def make(request):
    kind, options = request.param

    def make_it(n_features, n_pool=None, seed=7):
        return ts.make_projection(kind, n_features=n_features, n_pool=n_pool, random_state=seed, **options)

    return make_it


@pytest.mark.parametrize(
    ("n_features", "n_pool"),
    [(1, 1), (2, 2), (3, 7), (64, 64), (64, 40), (64, 150), (100, 100), (100, 250), (384, 384)],
)
def test_hadamard_equals_the_reference(path, rng, n_features, n_pool):
    signal = rng.standard_normal(n_features).astype(np.float32)
    projection = ts.make_projection("hadamard", n_features=n_features, n_pool=n_pool, random_state=7)
    expected = reference.hadamard(signal, 7, projection.rounds, n_pool)
    assert_array_equal(projection.apply(signal)[0], expected)


@pytest.mark.parametrize("n", [2, 3, 100, 384, 1000, 1024, 8191])
@pytest.mark.parametrize("kind", ["hadamard", "circulant"])
def test_structured_pools_are_orthonormal_of_size_exactly_n(kind, n):
    projection = ts.make_projection(kind, n_features=n, random_state=7)
    chosen = np.arange(n) if n <= 1024 else np.r_[0:200, n - 200 : n]
    rows = projection.rows(chosen).astype(np.float64)
    assert_allclose(rows @ rows.T / n, np.eye(len(chosen)), atol=40 * EPSILON * np.log2(2 * n))


def test_gaussian_entries_are_the_inverse_normal_cdf_of_the_stream():
    rows = ts.make_projection("gaussian", n_features=9, n_pool=50, random_state=7).rows([0, 49])
    for row, number in zip(rows, (0, 49), strict=True):
        uniforms = [((word >> 12) + 0.5) / 2**52 for word in reference.philox_words(7, "gaussian", number, 9)]
        assert_allclose(row, norm.ppf(uniforms), rtol=2 * EPSILON)


def test_rademacher_and_sparse_entries_follow_the_stream():
    rademacher = ts.make_projection("rademacher", n_features=70, n_pool=5, random_state=7).rows([4])[0]
    assert_array_equal(rademacher, reference.random_signs(7, "rademacher", 4, 70))
    sparse = ts.make_projection("sparse", n_features=70, n_pool=5, random_state=7, density=0.25).rows([4])[0]
    words = reference.philox_words(7, "sparse", 4, 70)
    expected = [(2 if word & 1 else -2) if word >> 32 < 2**30 else 0 for word in words]
    assert_array_equal(sparse, expected)


@pytest.mark.parametrize(("n_features", "n_pool"), [(64, 64), (100, 60), (100, 333)])
def test_apply_multiplies_by_the_rows(make, rng, n_features, n_pool):
    projection = make(n_features, n_pool)
    signals = rng.standard_normal((5, n_features)).astype(np.float32)
    everything = projection.rows(range(n_pool)).astype(np.float64)
    expected = signals.astype(np.float64) @ everything.T
    assert projection.shape == everything.shape == (n_pool, n_features)
    bound = rounding(n_features, np.linalg.norm(signals, axis=1))
    assert_allclose(projection.apply(signals), expected, rtol=0, atol=bound)
    rows = [n_pool - 1, 0, 3, 3]
    assert_allclose(projection.apply(signals, rows=rows), expected[:, rows], rtol=0, atol=bound)


def test_chosen_rows_of_structured_pools_are_the_same_bits(rng):
    for kind, n_pool in (("hadamard", 100), ("hadamard", 250), ("circulant", 250)):
        projection = ts.make_projection(kind, n_features=100, n_pool=n_pool, random_state=7)
        signals = rng.standard_normal((4, 100))
        rows = rng.permutation(n_pool)[:30]
        assert_array_equal(projection.apply(signals, rows=rows), projection.apply(signals)[:, rows])


def test_a_row_depends_only_on_the_seed_and_its_number(make):
    few, many = make(50, 20), make(50, 40)
    if few.kind in {"gaussian", "rademacher", "sparse"}:
        assert_array_equal(few.rows([3, 19]), many.rows([3, 19]))
    assert_array_equal(many.rows([7, 1])[::-1], many.rows([1, 7]))
    assert not np.array_equal(make(50, 20, seed=8).rows([3]), few.rows([3]))


TYPES = [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64, bool]


@pytest.mark.parametrize(("make", "dtype"), list(zip(KINDS, TYPES, strict=True)), indirect=["make"])
def test_inputs_of_every_type_and_order(make, rng, dtype, tmp_path):
    projection = make(60)
    signals = rng.integers(0, 2, (6, 60)).astype(dtype)
    expected = projection.apply(signals.astype(np.float32))
    assert expected.dtype == np.float32
    assert_array_equal(projection.apply(signals), expected)
    assert_array_equal(projection.apply(np.asfortranarray(signals)), expected)
    assert_array_equal(projection.apply(np.repeat(signals, 2, axis=1)[:, ::2]), expected)
    np.save(tmp_path / "signals.npy", signals)
    assert_array_equal(projection.apply(np.load(tmp_path / "signals.npy", mmap_mode="r")), expected)
    one = projection.apply(signals[2])
    assert one.shape == (1, 60)
    assert_allclose(one[0], expected[2], rtol=0, atol=rounding(60, 8))


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_and_batches_do_not_change_a_bit(path, rng, n_threads):
    projection = ts.make_projection("hadamard", n_features=100, n_pool=150, random_state=7)
    signals = rng.standard_normal((37, 100))
    with kernels.threads(n_threads):
        together = projection.apply(signals)
    assert_array_equal(together, np.vstack([projection.apply(signal) for signal in signals]))


@pytest.mark.parametrize("kind", ["gaussian", "rademacher", "sparse"])
def test_fitting_the_workspace_does_not_change_dense_projections(kind, rng, monkeypatch):
    def make(n_features, n_pool):
        return ts.make_projection(kind, n_features=n_features, n_pool=n_pool, random_state=7)

    whole = make(50, 300)
    signals = rng.standard_normal((9, 50))
    expected = whole.apply(signals)
    assert whole.fits
    monkeypatch.setattr(type(whole), "workspace_bytes", 5000)
    parts = make(50, 300)
    assert not parts.fits
    bound = rounding(50, np.linalg.norm(signals, axis=1))
    assert_allclose(parts.apply(signals), expected, rtol=0, atol=bound)
    assert_allclose(parts.apply(signals, rows=[299, 5]), expected[:, [299, 5]], rtol=0, atol=bound)


def test_structured_pools_hold_memory_in_proportion_to_n():
    n = 2**16
    signal = np.ones((1, n), np.float32)
    for kind in ("hadamard", "circulant"):
        tracemalloc.start()
        projection = ts.make_projection(kind, n_features=n, random_state=7)
        projection.apply(signal)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * n, kind  # a matrix would take 4 * n * n


def test_equality_pickling_and_fingerprints(make):
    projection = make(100, 120)
    again = pickle.loads(pickle.dumps(projection))
    assert again == projection
    assert hash(again) == hash(projection)
    assert again.fingerprint() == projection.fingerprint()
    assert repr(again) == repr(projection)
    others = [make(100, 120, seed=8), make(100, 119), make(99, 120)]
    for other in others:
        assert other != projection
        assert other.fingerprint() != projection.fingerprint()
    assert len(pickle.dumps(projection)) < 500


def test_fingerprints_are_the_same_everywhere():
    shape = {"n_features": 100, "n_pool": 130}
    made = {kind: ts.make_projection(kind, **shape, random_state=7).fingerprint() for kind in ts.projections.KINDS}
    assert made == {
        "circulant": "51b5b765fd5eaa28d765e48229a10325",
        "gaussian": "0b9b3dd8d3f7cc16f4027adcdb7e1b85",
        "hadamard": "d29e530bcebfd19ef5af07b4db4b0ca8",
        "rademacher": "9d820dfcf9d496ad5e3161d1c6af71b9",
        "sparse": "d81a0b971cf7c205a08a497184582095",
    }


def test_without_the_library_the_first_use_raises_with_a_remedy(monkeypatch):
    def no_paths():
        raise OSError("it is not there")

    monkeypatch.setattr(choice, "_active", None)
    monkeypatch.setattr(choice, "native_paths", no_paths)
    monkeypatch.setattr(choice, "all_native_paths", no_paths)
    for name in (None, "portable"):
        monkeypatch.delenv("TOPSIGN_KERNELS", raising=False)
        if name is not None:
            monkeypatch.setenv("TOPSIGN_KERNELS", name)
        with pytest.raises(ImportError, match="needs its compiled library, but it is not there; install topsign again"):
            kernels.active()
    info = kernels.info()
    assert info["kernels"] is None
    assert info["available"] == []
    assert info["unavailable"]["portable"] == "it is not there"
