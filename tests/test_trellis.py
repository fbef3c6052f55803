"""Trellis codes: captured energy, the same bytes on every machine, and errors for bad input."""

import base64
import hashlib
import json
import warnings

import numpy as np
import pytest
import reference
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import topsign as ts
from topsign._rows import SparseRows
from topsign.encoding import encode
from topsign.families import Recipe, TrellisRecipe, trellis
from topsign.kernels import pack_log_factors, unpack_factors
from topsign.projections import Hadamard, Principal
from topsign.projections.learned import round_axes
from topsign.theory import captured_energy, rate_distortion_limit

pytestmark = pytest.mark.core


def steep(rng, n, n_features=32):
    """Return signals that vary along few directions around a mean."""
    spread = np.geomspace(1, 0.02, n_features)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((n_features, n_features)))[0]
    return ((rng.standard_normal((n, n_features)) * spread) @ turn + 0.3).astype(np.float32)


def cosines(a, b):
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def test_principal_axes_keep_more_of_uneven_signals(rng):
    signals, others = steep(rng, 2000), steep(rng, 200)
    shares = {}
    for basis in ("hadamard", "principal"):
        encoder = ts.Encoder(signals.shape[1], n_bytes=4, basis=basis, random_state=1).fit(signals)
        shares[basis] = (cosines(encoder.encode(others).decode(), others) ** 2).mean()
    assert shares["principal"] > shares["hadamard"] + 0.05


def test_bytes_of_a_hadamard_basis_are_the_same_everywhere(path):
    """The format guarantees these digests on every machine and path; the codebooks are trained again on each."""
    trellis.white_book.cache_clear()
    signals = np.random.Generator(np.random.Philox(5)).integers(-9, 10, (6, 96)).astype(np.float32)
    recipe = TrellisRecipe.learn(signals, n_bytes=8, basis="hadamard", center=False, random_state=3)
    assert hashlib.sha256(encode(recipe, signals).tobytes()).hexdigest()[:16] == "c3c14e96612111dc"
    assert recipe.fingerprint == "0c7facfae46f8dc92397612d6e525aa6"


def test_steps_read_two_nibbles_and_reconstruct_their_coordinates(rng, path):
    """The definition of the code: byte b holds nibbles 2b (high) and 2b + 1 (low) of a ring."""
    recipe = TrellisRecipe.learn(steep(rng, 700), n_bytes=5, random_state=1)
    codes = rng.integers(0, 256, (7, recipe.code_bytes), np.uint8)
    design, books = recipe.design, np.split(recipe.design.levels, recipe.design.book_starts[1:-1])
    for row, levels in zip(codes, recipe.levels(codes), strict=True):
        nibbles = [nibble for byte in row[:5].tolist() for nibble in (byte >> 4, byte & 15)]
        for step in range(10):
            begin, end = design.first[step : step + 2]
            book = books[design.book_of_step[step]].reshape(256, end - begin)
            assert_array_equal(levels[begin:end], book[16 * nibbles[step - 1] + nibbles[step]])
    assert sorted(design.coded.tolist()) == sorted(set(design.coded.tolist()))


def test_a_strong_coordinate_has_a_byte_of_its_own():
    """Coordinates of more than four bits are in odd steps, which read both nibbles of their byte."""
    steps = trellis.Steps.of(np.append(np.full(4, 1e4), np.ones(60)), 24)
    strong = np.searchsorted(steps.first, np.flatnonzero(steps.variances > 1), side="right") - 1
    assert (strong % 2 == 1).all()
    assert (steps.dims[strong] == 1).all()
    assert steps.dims[strong - 1].max() <= steps.dims[steps.dims > 1].min()


def test_codebooks_fit_the_sample_better_than_noise(rng):
    """Signals of a few clusters: Lloyd rounds on the sample lower the error of other signals of these clusters."""
    centers = rng.standard_normal((40, 24))
    signals, others = (
        (centers[rng.integers(0, 40, n)] + 0.3 * rng.standard_normal((n, 24))).astype(np.float32) for n in (4000, 400)
    )
    lost = []
    for rounds in (0, trellis.SIGNAL_ROUNDS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trellis, "SIGNAL_ROUNDS", rounds)
            recipe = TrellisRecipe.learn(signals, n_bytes=6, random_state=1)
        decoded = recipe.decode(encode(recipe, others))
        lost.append(1 - (cosines(decoded.astype(float), others.astype(float)) ** 2).mean())
    assert lost[1] < 0.95 * lost[0]


def test_norms_are_put_back(rng):
    signals = steep(rng, 700) * rng.uniform(0.1, 10, (700, 1)).astype(np.float32)
    encoder = ts.Encoder(signals.shape[1], n_bytes=6, metric="inner_product", random_state=1).fit(signals)
    codes = encoder.encode(signals)
    exact = np.sqrt((signals**2).sum(1))
    assert_allclose(codes.norms, exact, rtol=2 ** (1 / 1024) - 1 + 1e-6)  # half a step of 1/512 of an octave
    assert_allclose(np.sqrt((codes.decode() ** 2).sum(1)), codes.norms, rtol=1e-5)
    assert_allclose(encoder.transform(signals), codes.decode() * (exact / codes.norms)[:, None], rtol=1e-4, atol=1e-5)
    assert codes.nbytes == 700 * (6 + 2)
    assert codes.n_bytes == 6


def test_norms_of_all_sizes_fit_two_bytes():
    norms = np.concatenate([[0, 1], np.geomspace(1e-18, 1e18, 500)]).astype(np.float32)
    packed = pack_log_factors(norms)
    assert_allclose(unpack_factors(packed, "log"), norms, rtol=2 ** (1 / 1024) - 1 + 1e-6)
    assert_array_equal(pack_log_factors(unpack_factors(packed, "log")), packed)
    assert [int(one) for one in packed[1]] == [0, 128]


def packed(values, dtype="<i4"):
    return base64.b64encode(np.array(values, dtype).tobytes()).decode()


HOSTILE = {
    "n_bytes": [10**9, 3, "4"],
    "n_coded": [0, 33],
    "first": [
        "x",
        "AAAA",
        packed([-1, *range(1, 9)]),
        packed([0, 30, 20, 10, 5, 4, 3, 2, 1]),
        packed([0] * 8 + [2**31 - 1]),
    ],
    "book_of_step": [packed([0] * 8), packed([*range(7), 2**30]), packed([*range(7), -1])],
    "levels": [packed([0, 1], "i1"), None],
    "amplitudes": [None, "zeros"],
    "gains": ["nan"],
    "emphases": ["inf"],
    "energy": [float("nan")],
    "coded": [3, "repeated"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in HOSTILE.items() for value in values])
def test_hostile_recipes_raise(rng, name, value):
    record = json.loads(json.dumps(TrellisRecipe.learn(steep(rng, 700), n_bytes=4, random_state=1).to_json()))
    n_coded = record["design"]["n_coded"]
    named = {"zeros": packed([0] * n_coded, "<f4"), "nan": packed([np.nan] * n_coded, "<f4")}
    named |= {"inf": packed([np.inf] * n_coded, "<f4"), "repeated": packed([0] * n_coded)}
    record["design"][name] = named.get(value, value) if isinstance(value, str) else value
    with pytest.raises(ts.StorageError, match="recipe"):
        Recipe.from_json(record, "a file")


@pytest.mark.parametrize(("n_features", "n_axes"), [(8, 8), (9, 3), (40, 1), (33, 32), (64, 0)])
def test_principal_projections_are_orthonormal(rng, n_features, n_axes):
    axes = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0][:n_axes]
    projection = Principal(
        n_features=n_features, random_state=1, axes=round_axes(axes) if n_axes else axes.astype(np.int8)
    )
    matrix = projection.rows(np.arange(n_features)) / np.sqrt(n_features)
    assert_allclose(matrix @ matrix.T, np.eye(n_features), atol=1e-5)
    assert_allclose((matrix[:n_axes] * axes).sum(1), 1, atol=0.01)  # rounding rotates an axis by less than 8 degrees
    signals = rng.standard_normal((5, n_features)).astype(np.float32)
    assert_allclose(projection.apply(signals), signals @ matrix.T * np.sqrt(n_features), atol=1e-4)
    assert_allclose(projection.transposed(projection.apply(signals)) / n_features, signals, atol=1e-4)
    again = Principal(n_features=n_features, random_state=1, **projection.options)
    assert again == projection
    assert again.fingerprint() == projection.fingerprint()


@pytest.mark.parametrize(("n_features", "n_axes"), [(8, 8), (9, 3), (40, 1), (150, 100)])
def test_principal_projections_are_those_of_plain_reflections(rng, n_features, n_axes):
    """Files store axes, so other implementations must rotate signals in the same way, within float32 rounding."""
    axes = round_axes(np.linalg.qr(rng.standard_normal((n_features, n_features)))[0][:n_axes])
    signals = rng.standard_normal((5, n_features)).astype(np.float32)
    expected = signals @ reference.reflected_axes(axes)
    if n_axes < n_features:
        rest = Hadamard(n_features=n_features - n_axes, random_state=1)
        expected[:, n_axes:] = rest.apply(expected[:, n_axes:]) / np.sqrt(rest.n_features)
    projected = Principal(n_features=n_features, random_state=1, axes=axes).apply(signals)
    assert_allclose(projected, expected * np.sqrt(n_features), atol=2e-6 * n_features)


def test_many_features_learn_their_first_axes_at_random(rng, monkeypatch):
    monkeypatch.setattr("topsign.families.trellis.EXACT_FEATURES", 16)
    signals = steep(rng, 2000)
    some = TrellisRecipe.learn(signals, n_bytes=4, random_state=1)
    monkeypatch.undo()
    every = TrellisRecipe.learn(signals, n_bytes=4, random_state=1)
    assert_allclose(some.reconstruction_cosine, every.reconstruction_cosine, atol=0.01)


@pytest.mark.parametrize("options", [{}, {"basis": "hadamard"}])
def test_of_many_signals_only_those_learned_from_are_read(rng, monkeypatch, options):
    """Every third signal is read, and the recipe is the same as from only those, for arrays and for lazy rows."""

    class Watched(np.ndarray):
        def __getitem__(self, rows):
            if isinstance(rows, slice) and self.base is not None:
                read.append(rows)
            return super().__getitem__(rows).view(np.ndarray)

    read, signals = [], steep(rng, 2400)
    signals[::3][5] = 0  # this row is not read
    signals[1::3] = np.nan
    monkeypatch.setattr(trellis, "SAMPLE", 800)
    given = {"n_bytes": 5, "random_state": 1} | options
    expected = TrellisRecipe.learn(signals[::3], **given).to_json()
    assert TrellisRecipe.learn(signals.view(Watched), **given).to_json() == expected
    assert {rows.step for rows in read} == {3}
    assert TrellisRecipe.learn(SparseRows(scipy.sparse.csr_array(signals)), **given).to_json() == expected
    signals[99] = np.inf
    with pytest.raises(ValueError, match="first at row 99, column 0"):
        TrellisRecipe.learn(signals, **given)


def test_small_samples_are_refused_or_shrunk(rng):
    with pytest.raises(ValueError, match="a sample of 15 signals is too small to learn axes of 32 features"):
        ts.Encoder(n_bytes=4).fit(steep(rng, 15))
    with pytest.warns(UserWarning, match="shrunk towards equal variances"):
        ts.Encoder(n_bytes=4).fit(steep(rng, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.Encoder(n_bytes=4).fit(steep(rng, 700))


def test_bad_parameters_raise(rng):
    signals = steep(rng, 700)
    for options, words in [
        ({"n_bytes": 0}, "n_bytes"),
        ({"n_bytes": 2**16 + 1}, "n_bytes"),
        ({"n_bytes": 4, "metric": "cosine"}, "metric"),
        ({"n_bytes": 4, "basis": "gaussian"}, "basis"),
        ({"n_bytes": 4, "basis": Hadamard(n_features=31)}, "orthonormal projection"),
        ({"n_bytes": 4, "basis": Hadamard(n_features=32), "random_state": 1}, "its own seed"),
    ]:
        with pytest.raises(ValueError, match=words):
            ts.Encoder(signals.shape[1], **options).fit(signals)
    encoder = ts.Encoder(signals.shape[1], n_bytes=4, random_state=1).fit(signals)
    with pytest.raises(ValueError, match=r"signals\[1\] is all zeros and cannot be encoded; drop that row"):
        encoder.encode(np.stack([signals[0], 0 * signals[0]]))
    with pytest.raises(ValueError, match="another recipe"):
        encoder.decode(clone(encoder).set_params(random_state=2).fit(signals).encode(signals[:2]))


def test_one_byte_is_a_code(rng):
    signals = rng.standard_normal((50, 16)).astype(np.float32)
    encoder = ts.Encoder(signals.shape[1], n_bytes=1, basis="hadamard", center=False, random_state=1).fit(signals)
    assert cosines(encoder.encode(signals).decode(), signals).mean() > 0.4


def test_more_bits_than_coordinates_need_leave_steps_empty(rng):
    signals = rng.standard_normal((50, 6)).astype(np.float32)
    encoder = ts.Encoder(signals.shape[1], n_bytes=8, basis="hadamard", center=False, random_state=1).fit(signals)
    assert encoder.recipe_.design.n_coded == 6
    assert cosines(encoder.encode(signals).decode(), signals).mean() > 0.99


@pytest.mark.parametrize(("n_bytes", "n_signals"), [(6, 2000), (64, 200), (512, 100)])
def test_codes_capture_the_energy_that_plans_assume(rng, n_bytes, n_signals):
    signals = rng.standard_normal((n_signals, 1024)).astype(np.float32)
    encoder = ts.Encoder(1024, n_bytes=n_bytes, basis="hadamard", center=False, random_state=3).fit(signals)
    captured = cosines(encoder.encode(signals).decode(), signals) ** 2
    error = captured.std() / np.sqrt(n_signals) + 1e-4  # rounded to four digits
    assert abs(captured.mean() - ts.theory.trellis_energy(8 * n_bytes / 1024)) < 4 * error


def test_measured_energy_lies_between_scalar_codes_and_shannon():
    rates = np.geomspace(0.1, 1, 15)
    energy = ts.theory.trellis_energy(rates)
    assert (energy < rate_distortion_limit(rates)).all()
    assert (energy > captured_energy(rates)).all()
    assert (np.diff(energy) > 0).all()
    with pytest.raises(ValueError, match="rate must be positive"):
        ts.theory.trellis_energy(0.0)


def test_a_planned_trellis_code_detects_as_often_as_planned(rng):
    plan = ts.theory.plan(correlation=0.4, detection=0.8, false_alarm=0.01, n_features=256, family="trellis")
    index = ts.Index(256, n_bytes=plan.n_bytes, basis="hadamard", center=False, random_state=1)
    entries = rng.standard_normal((400, 256))
    matches = 0.4 * entries + np.sqrt(1 - 0.16) * rng.standard_normal(entries.shape)
    decoded = index.get(index.add(entries)).codes.decode()
    found = cosines(decoded, matches) >= plan.threshold
    false = cosines(decoded, rng.standard_normal(entries.shape)) >= plan.threshold
    assert abs(found.mean() - plan.detection) < 4 * np.sqrt(0.8 * 0.2 / 400) + 0.01  # 0.01: Fisher's approximation
    assert false.mean() < 0.01 + 4 * np.sqrt(0.01 / 400)
    within = ts.theory.plan(correlation=0.4, max_bytes=12, false_alarm=0.01, n_features=256, family="trellis")
    assert within.n_bytes == 10
    assert within.detection > plan.detection  # which needs 8
    with pytest.raises(ts.theory.TargetError, match=r"cannot be reached .*n_bytes=32, asymmetric, 34 bytes\)"):
        ts.theory.plan(correlation=0.01, detection=0.99, false_alarm=1e-6, n_features=64, family="trellis")


@pytest.mark.parametrize("options", [{}, {"basis": "hadamard", "center": False}])
def test_sparse_signals_get_the_codes_of_dense_ones(rng, options):
    sparse = scipy.sparse.random_array((900, 40), density=0.4, rng=rng, format="csr").astype(np.float32)
    sparse = sparse[np.diff(sparse.indptr) > 0]
    dense = sparse.toarray()
    encoders = [
        ts.Encoder(values.shape[1], n_bytes=6, random_state=1, **options).fit(values) for values in (dense, sparse)
    ]
    assert encoders[0].recipe_ == encoders[1].recipe_
    assert encoders[0].encode(dense) == encoders[1].encode(sparse)
    index = ts.Index(40, n_bytes=6, random_state=1, **options)
    index.add(sparse)
    assert index.get(index.ids).codes == encoders[0].encode(dense)


def test_few_bits_code_only_as_many_coordinates_as_steps_can_serve(rng):
    """The cosine with the reconstruction is at least 80% of the limit, with 24 bits for 192 of 4,096 coordinates."""
    signals = rng.standard_normal((200, 4096), dtype=np.float32)
    encoder = ts.Encoder(signals.shape[1], n_bytes=3, basis="hadamard", center=False, random_state=1).fit(signals)
    assert encoder.recipe_.design.n_coded == 32 * 6
    found = encoder.encode(signals).decode()
    # The mean cosine of 200 signals has a standard error of 1 / sqrt(4096 * 200) = 0.0011, 2% of the limit.
    assert cosines(signals, found).mean() > 0.8 * rate_distortion_limit(24 / 4096) ** 0.5


def few_axes(rng, n, n_features=40):
    """Return heavy-tailed signals around a mean, with nearly all variance in five axes."""
    values = rng.standard_t(4, (n, n_features)) * np.where(np.arange(n_features) < 5, 1, 0.02)
    values[:, -1] += 20
    return values.astype(np.float32)


def test_scores_keep_small_coordinates_beside_large_ones(rng):
    signals = few_axes(rng, 2000)
    queries = signals[:50] / np.sqrt((signals[:50] ** 2).sum(1, keepdims=True))
    encoder = ts.Encoder(signals.shape[1], n_bytes=20, random_state=1).fit(signals)
    codes = encoder.encode(signals[:300])
    assert np.abs(codes.scores(encoder.project(queries)) - queries @ codes.decode().T).max() < 1e-4
    assert np.median(1 - cosines(codes.decode(), signals[:300])) < 2e-4  # outliers lose more


def test_the_captured_energy_is_that_of_the_sample(rng):
    sample = rng.standard_normal((4000, 16)).astype(np.float32) * np.geomspace(1, 0.1, 16).astype(np.float32)
    recipe = TrellisRecipe.learn(sample, n_bytes=4, random_state=7)
    assert encode(recipe, sample[:0]).shape == (0, recipe.code_bytes)
    assert 0.97 < recipe.energy_ratio(encode(recipe, sample)) < 1.03
    assert recipe.energy_ratio(encode(recipe, sample[:, ::-1].copy())) < 0.9
    assert recipe.parameters()["n_bytes"] == 4


def test_sizes_of_weights_reach_four_bits_per_feature():
    assert TrellisRecipe.weight_sizes(4) == [3]
    sizes = TrellisRecipe.weight_sizes(384)
    assert len(sizes) > 4
    assert sizes[0] == 3
    assert 3 * 384 < 8 * sizes[-1] <= 4 * 384
