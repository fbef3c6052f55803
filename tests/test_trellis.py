"""Trellis codes: captured energy, the same bytes on every machine, and errors for bad input."""

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import topsign as ts
from topsign._rows import SparseRows
from topsign.encoding import encode
from topsign.families import Recipe, TrellisRecipe
from topsign.families.trellis import design as design_module
from topsign.families.trellis import learning
from topsign.kernels.trellis import pack_norms, unpack_norms
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


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
def test_white_signals_reach_nearly_the_shannon_limit(rng, rate):
    signals = rng.standard_normal((40, 512)).astype(np.float32)
    encoder = ts.TrellisEncoder(bits_per_feature=rate, basis="hadamard", center=False, random_state=1).fit(signals)
    shares = cosines(encoder.encode(signals).decode(), signals) ** 2
    error = shares.std() / np.sqrt(len(shares))
    limit = float(rate_distortion_limit(rate))
    assert shares.mean() - 4 * error < limit
    assert shares.mean() + 4 * error > 0.91 * limit  # measured: .92 to .97 of the limit at these rates
    assert shares.mean() - 4 * error > float(captured_energy(rate))


def test_principal_axes_keep_more_of_uneven_signals(rng):
    signals, others = steep(rng, 2000), steep(rng, 200)
    shares = {}
    for basis in ("hadamard", "principal"):
        encoder = ts.TrellisEncoder(4, basis=basis, random_state=1).fit(signals)
        shares[basis] = (cosines(encoder.encode(others).decode(), others) ** 2).mean()
    assert shares["principal"] > shares["hadamard"] + 0.05


def test_bytes_of_a_hadamard_basis_are_the_same_everywhere(path):
    """The format guarantees these digests on every machine and path."""
    signals = np.random.Generator(np.random.Philox(5)).integers(-9, 10, (6, 96)).astype(np.float32)
    recipe = TrellisRecipe.learn(signals, n_bits=64, basis="hadamard", center=False, random_state=3)
    codes = encode(recipe, signals).codes
    assert hashlib.sha256(codes.tobytes()).hexdigest()[:16] == "1d7a9b462be80e29"
    assert recipe.fingerprint == "678a8ed63949a9fce497adc7578d14a8"


def test_scores_are_cosines_of_reconstructions(rng):
    signals, queries = steep(rng, 700), steep(rng, 20)
    for options in ({"basis": "hadamard", "center": False}, {"basis": "hadamard"}, {}, {"n_local": 8}):
        encoder = ts.TrellisEncoder(6, random_state=1, **options).fit(signals)
        codes = encoder.encode(signals)
        decoded = codes.decode()
        assert_allclose(np.sqrt((decoded**2).sum(1)), 1, atol=1e-5)
        unit = queries / np.sqrt((queries**2).sum(1, keepdims=True))
        # Queries are rounded to 8 bits, with an error of at most 1/254 of the largest coordinate in each of 32.
        assert np.abs(codes.scores(encoder.project(queries)) - unit @ decoded.T).max() < 0.02


def test_norms_are_put_back(rng):
    signals = steep(rng, 700) * rng.uniform(0.1, 10, (700, 1)).astype(np.float32)
    encoder = ts.TrellisEncoder(6, norms=True, random_state=1).fit(signals)
    codes = encoder.encode(signals)
    exact = np.sqrt((signals**2).sum(1))
    assert_allclose(codes.norms, exact, rtol=2 ** (1 / 1024) - 1 + 1e-6)  # half a step of 1/512 of an octave
    assert_allclose(np.sqrt((codes.decode() ** 2).sum(1)), codes.norms, rtol=1e-5)
    assert_allclose(encoder.transform(signals), codes.decode() * (exact / codes.norms)[:, None], rtol=1e-4, atol=1e-5)
    assert codes.nbytes == 700 * (6 + 2)
    assert codes.n_bytes == 6


def test_norms_of_all_sizes_fit_two_bytes():
    norms = np.concatenate([[0, 1], np.geomspace(1e-18, 1e18, 500)]).astype(np.float32)
    packed = pack_norms(norms)
    assert_allclose(unpack_norms(packed), norms, rtol=2 ** (1 / 1024) - 1 + 1e-6)
    assert_array_equal(pack_norms(unpack_norms(packed)), packed)
    assert [int(one) for one in packed[1]] == [0, 128]


def test_codes_slice_join_and_travel(rng):
    signals = steep(rng, 700)
    for norms in (False, True):
        codes = ts.TrellisEncoder(4, norms=norms, random_state=1).fit(signals).encode(signals)
        assert ts.TrellisCodes.concatenate([codes[:300], codes[300:]]) == codes
        assert len(codes[5]) == 1
        assert codes[:3] != codes[3:6]
        again = ts.read_codes(codes.to_bytes())
        assert again == codes
        assert_array_equal(again.levels, codes.levels)
        assert_array_equal(again.decode(), codes.decode())


def test_damaged_messages_raise(rng):
    codes = (
        ts.TrellisEncoder(4, basis="hadamard", center=False, random_state=1).fit(steep(rng, 9)).encode(steep(rng, 9))
    )
    message = codes.to_bytes()
    for at in range(0, len(message), 7):
        with pytest.raises(ts.StorageError):
            ts.read_codes(message[:at] + bytes([message[at] ^ 4]) + message[at + 1 :])
        with pytest.raises(ts.StorageError):
            ts.read_codes(message[:at])


@pytest.mark.parametrize(
    "change",
    [
        {"n_bits": 10**9},
        {"window": 99},
        {"n_coded": 0},
        {"n_coded": 33},
        {"offsets": "x"},
        {"offsets": "AAAA"},
        {"amplitudes": None},
        {"coded": 3},
    ],
)
def test_hostile_recipes_raise(rng, change):
    record = json.loads(json.dumps(TrellisRecipe.learn(steep(rng, 700), n_bits=32, random_state=1).to_json()))
    record["designs"][0] |= change
    with pytest.raises(ts.StorageError, match="recipe"):
        Recipe.from_json(record, "a file")


def test_recipes_travel_as_json(rng):
    for options in ({"basis": "hadamard", "center": False}, {}, {"n_local": 4}, {"center": False}):
        recipe = TrellisRecipe.learn(steep(rng, 700), n_bits=32, random_state=1, **options)
        again = Recipe.from_json(json.loads(json.dumps(recipe.to_json())), "a file")
        assert again == recipe
        for mine, theirs in zip(again.cells, recipe.cells, strict=True):
            assert_array_equal(mine.tables.scales, theirs.tables.scales)
            assert_array_equal(mine.tables.linear, theirs.tables.linear)
    other = TrellisRecipe.learn(steep(rng, 700), n_bits=32, random_state=1)
    assert "designs" in other.difference(recipe)[0]


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
    monkeypatch.setattr("topsign.families.trellis.learning.EXACT_FEATURES", 16)
    signals = steep(rng, 2000)
    some = TrellisRecipe.learn(signals, n_bits=32, random_state=1)
    monkeypatch.undo()
    every = TrellisRecipe.learn(signals, n_bits=32, random_state=1)
    assert_allclose(some.designs[0].deviations.max(), every.designs[0].deviations.max(), rtol=0.01)


@pytest.mark.parametrize("options", [{}, {"basis": "hadamard"}, {"n_local": 4}])
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
    monkeypatch.setattr(learning, "SAMPLE", 800)
    given = {"n_bits": 40, "random_state": 1} | options
    expected = TrellisRecipe.learn(signals[::3], **given).to_json()
    assert TrellisRecipe.learn(signals.view(Watched), **given).to_json() == expected
    assert {rows.step for rows in read} == {3}
    assert TrellisRecipe.learn(SparseRows(scipy.sparse.csr_array(signals)), **given).to_json() == expected
    signals[99] = np.inf
    with pytest.raises(ValueError, match="first at row 99, column 0"):
        TrellisRecipe.learn(signals, **given)


def test_small_samples_are_refused_or_shrunk(rng):
    with pytest.raises(ValueError, match="a sample of 15 signals is too small to learn axes of 32 features"):
        ts.TrellisEncoder(4).fit(steep(rng, 15))
    with pytest.warns(UserWarning, match="shrunk towards equal variances"):
        ts.TrellisEncoder(4).fit(steep(rng, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.TrellisEncoder(4).fit(steep(rng, 700))


def test_bad_parameters_raise(rng):
    signals = steep(rng, 700)
    for options, words in [
        ({}, "exactly one of n_bytes and bits_per_feature"),
        ({"n_bytes": 4, "bits_per_feature": 1}, "exactly one of"),
        ({"n_bytes": 2}, "two windows of bits"),
        ({"n_bytes": 4, "window": 13}, "window"),
        ({"n_bytes": 4, "basis": "gaussian"}, "basis"),
        ({"n_bytes": 4, "basis": Hadamard(n_features=31)}, "orthonormal projection"),
        ({"n_bytes": 4, "basis": Hadamard(n_features=32), "random_state": 1}, "its own seed"),
    ]:
        with pytest.raises(ValueError, match=words):
            ts.TrellisEncoder(**options).fit(signals)
    encoder = ts.TrellisEncoder(4, random_state=1).fit(signals)
    with pytest.raises(ValueError, match=r"signals\[1\] is all zeros and cannot be encoded; drop that row"):
        encoder.encode(np.stack([signals[0], 0 * signals[0]]))
    with pytest.raises(ValueError, match="another recipe"):
        encoder.decode(clone(encoder).set_params(random_state=2).fit(signals).encode(signals[:2]))


def test_outliers_and_spikes_get_codes(rng):
    signals = np.eye(64, dtype=np.float32)
    encoder = ts.TrellisEncoder(16, basis="hadamard", center=False, random_state=1).fit(signals)
    assert cosines(encoder.encode(signals).decode(), signals).min() > 0.8


def test_measured_energy_lies_between_scalar_codes_and_shannon():
    rates = np.geomspace(0.05, 1, 15)
    for window in (8, 10, 12):
        energy = ts.theory.trellis_energy(rates, window=window)
        assert (energy < rate_distortion_limit(rates)).all()
        assert (energy > captured_energy(rates)).all()
        assert (np.diff(energy) > 0).all()
    with pytest.raises(ValueError, match="window must be one of"):
        ts.theory.trellis_energy(1.0, window=9)
    with pytest.raises(ValueError, match="rate must be positive"):
        ts.theory.trellis_energy(0.0)


def test_a_planned_trellis_code_detects_as_often_as_planned(rng):
    plan = ts.theory.plan(correlation=0.4, detection=0.8, false_alarm=0.01, n_features=256, family="trellis")
    index = ts.TrellisIndex(n_features=256, n_bytes=plan.n_bytes, basis="hadamard", center=False, random_state=1)
    entries = rng.standard_normal((400, 256))
    matches = 0.4 * entries + np.sqrt(1 - 0.16) * rng.standard_normal(entries.shape)
    decoded = index.get(index.add(entries)).codes.decode()
    found = cosines(decoded, matches) >= plan.threshold
    false = cosines(decoded, rng.standard_normal(entries.shape)) >= plan.threshold
    assert abs(found.mean() - plan.detection) < 4 * np.sqrt(0.8 * 0.2 / 400) + 0.01  # 0.01: Fisher's approximation
    assert false.mean() < 0.01 + 4 * np.sqrt(0.01 / 400)
    within = ts.theory.plan(correlation=0.4, max_bytes=10, false_alarm=0.01, n_features=256, family="trellis")
    assert within.n_bytes == 10
    assert within.detection > plan.detection  # which needs 8
    with pytest.raises(ts.theory.TargetError, match="32 bytes, the most considered"):
        ts.theory.plan(correlation=0.01, detection=0.99, false_alarm=1e-6, n_features=64, family="trellis")


def test_the_page_has_the_captured_energy_of_white_signals():
    folder = Path(__file__).parents[1]
    page = (folder / "docs" / "reference" / "trellis-measurements.md").read_text()
    for name in ("shares", "detection"):
        rows = json.loads((folder / "benchmarks" / "results" / "trellis" / f"{name}.json").read_text())["measured"]
        for row in [row for part in rows.values() for row in part]:
            key, digits = ("share", 4) if name == "shares" else ("d_prime", 2)
            assert f"{row[key]:.{digits}f}".lstrip("0") in page, (name, row)


@pytest.mark.parametrize("options", [{"n_local": 4}, {"basis": "hadamard", "center": False}])
def test_sparse_signals_get_the_codes_of_dense_ones(rng, options):
    sparse = scipy.sparse.random_array((900, 40), density=0.4, rng=rng, format="csr").astype(np.float32)
    sparse = sparse[np.diff(sparse.indptr) > 0]
    dense = sparse.toarray()
    encoders = [ts.TrellisEncoder(6, random_state=1, **options).fit(values) for values in (dense, sparse)]
    assert encoders[0].recipe_ == encoders[1].recipe_
    assert encoders[0].encode(dense) == encoders[1].encode(sparse)
    index = ts.TrellisIndex(n_features=40, n_bytes=6, random_state=1, **options)
    index.add(sparse)
    assert index.get(index.ids).codes == encoders[0].encode(dense)


def test_few_bits_code_as_many_coordinates_as_windows_can_serve(rng):
    """The cosine with the reconstruction is at least 80% of the limit, with 24 bits for 3,072 of 4,096 coordinates."""
    signals = rng.standard_normal((200, 4096), dtype=np.float32)
    encoder = ts.TrellisEncoder(3, basis="hadamard", center=False, random_state=1).fit(signals)
    assert encoder.recipe_.designs[0].n_coded == 128 * 24
    found = encoder.encode(signals).decode()
    cosines = np.sum(signals * found, 1) / np.linalg.norm(signals, axis=1) / np.linalg.norm(found, axis=1)
    # The mean cosine of 200 signals has a standard error of 1 / sqrt(4096 * 200) = 0.0011, 2% of the limit.
    assert cosines.mean() > 0.8 * rate_distortion_limit(24 / 4096) ** 0.5


def test_more_coordinates_than_norms_can_sum_are_refused(rng):
    signals = rng.standard_normal((1, 2**20), dtype=np.float32)
    index = ts.TrellisIndex(n_features=2**20, n_bytes=2**15, basis="hadamard", center=False, random_state=1)
    with pytest.raises(
        ValueError, match=r"at most 532,577 coordinates of equal variance, .* got 1,048,576; use adaptive"
    ):
        index.add(signals)


def few_axes(rng, n, n_features=40):
    """Return heavy-tailed signals around a mean, with nearly all variance in five axes."""
    values = rng.standard_t(4, (n, n_features)) * np.where(np.arange(n_features) < 5, 1, 0.02)
    values[:, -1] += 20
    return values.astype(np.float32)


def test_levels_reach_the_tails_where_few_axes_hold_nearly_everything(rng):
    signals, others = few_axes(rng, 2000), few_axes(rng, 300)
    lost = {}
    for fine in (False, True):
        recipe = TrellisRecipe.learn(signals, n_bits=96, random_state=1, fine=fine)
        assert recipe.designs[0].fine == fine
        decoded = ts.TrellisCodes(encode(recipe, others).codes, recipe=recipe).decode()
        lost[fine] = 1 - (cosines(decoded.astype(float), others.astype(float)) ** 2).mean()
    assert lost[True] < 0.5 * lost[False]  # measured: .03 to .4 of it, depending on the outliers
    local = TrellisRecipe.learn(signals, n_bits=96, random_state=1, n_local=2)
    assert all(design.fine for design in local.designs)


def test_only_few_axes_are_fine_and_a_record_says_so(rng):
    gentle = rng.standard_normal((2000, 40)) * np.geomspace(1, 0.3, 40)
    for signals, options, fine in [
        (few_axes(rng, 2000), {}, True),
        (few_axes(rng, 2000), {"basis": "hadamard"}, False),
        (gentle, {}, False),
    ]:
        recipe = TrellisRecipe.learn(signals.astype(np.float32), n_bits=96, random_state=1, **options)
        record = json.loads(json.dumps(recipe.to_json()))
        assert record["designs"][0]["fine"] is fine
        assert Recipe.from_json(record, "a file").designs[0].fine == fine
    record["designs"][0]["fine"] = 1
    with pytest.raises(ts.StorageError, match="fine must be"):
        Recipe.from_json(record, "a file")


def test_two_digits_keep_small_coordinates_beside_large_ones(rng):
    """With one digit, the errors of scores for the same codes are a hundred times as large."""
    signals = few_axes(rng, 2000)
    queries, errors = signals[:50] / np.sqrt((signals[:50] ** 2).sum(1, keepdims=True)), {}
    encoder = ts.TrellisEncoder(20, random_state=1).fit(signals)
    codes, projected = encoder.encode(signals[:300]), encoder.project(queries)
    (cell,) = encoder.recipe_.cells
    (rounded,) = encoder.recipe_.cells.round(np.asarray(projected))
    assert rounded.fine_bits == 6
    whole = rounded.values.astype(np.int64) * 64 + rounded.fine
    assert_array_equal(np.abs(whole).max(axis=1), 127 * 64)
    exact = np.asarray(projected)[:, cell.design.coded] * cell.design.values / np.sqrt(40)
    assert np.abs(whole - exact / rounded.scales[:, np.newaxis]).max() < 0.501
    for fine in (True, False):
        design = replace(encoder.recipe_.designs[0], fine=fine)
        codes.recipe = replace(encoder.recipe_, designs=(design,))
        errors[fine] = np.abs(codes.scores(projected) - queries @ codes.decode().T).max()
    assert errors[True] < 1e-4
    assert errors[False] > 10 * errors[True]


def test_the_coefficients_of_norms_use_their_bits_and_no_more(rng):
    """Sums stay within 2**30 and coefficients within 2**14, and one of these limits is reached."""
    largest = design_module.MAX_LEVEL
    for quadratic, linear in (
        (rng.uniform(1, 2, 400), np.zeros(400)),
        (np.append(1.0, np.full(9, 1e-3)), np.zeros(10)),
        (np.full(4, 1.0), np.array([200.0, 0, 0, 0])),
        (rng.uniform(1, 2, 100), rng.uniform(-20, 20, 100)),
    ):
        found, rest = design_module._integer_norm(quadratic, linear)
        squares, slopes = found["quadratic"].astype(np.float64), found["linear"].astype(np.float64)
        assert rest == 0
        total = (largest**2 * squares + largest * np.abs(slopes)).sum() / 2**30
        limits = np.array([total, squares.max() / 2**14, np.abs(slopes).max() / 2**14])
        assert 0.9 < limits.max() < 1.1
        assert_allclose((squares * found["unit"]).sum(), quadratic.sum(), rtol=1e-6)
        assert_allclose(slopes * found["unit"], linear, atol=found["unit"])


def test_cells_of_local_bases(rng):
    sample = rng.standard_normal((4000, 16)).astype(np.float32)
    recipe = TrellisRecipe.learn(sample, n_bytes=8, n_local=16, random_state=7)
    assert recipe.cells.last_byte == 7
    assert encode(recipe, sample[:0]).codes.shape == (0, recipe.code_bytes)
    assert 0.9 < recipe.energy_ratio(encode(recipe, sample).codes) < 1.1
    assert recipe.parameters()["n_bytes"] == 8


def test_sizes_of_weights_are_whole_bytes_up_to_four_bits_per_feature():
    assert TrellisRecipe.weight_sizes(4) == [24]
    sizes = TrellisRecipe.weight_sizes(384)
    assert len(sizes) > 4
    assert sizes[0] == 24
    assert 3 * 384 < sizes[-1] <= 4 * 384
    assert all(size % 8 == 0 for size in sizes)


def test_a_stored_mean_must_be_the_one_given(rng, tmp_path):
    sample = rng.standard_normal((500, 16)).astype(np.float32) + 1
    mean = sample.mean(axis=0)
    options = {"n_features": 16, "n_bytes": 8, "basis": "hadamard", "random_state": 7}
    ts.TrellisIndex(**options, center=mean, path=tmp_path / "centred").add(sample)
    ts.TrellisIndex(**options, center=False, path=tmp_path / "plain").add(sample)
    assert len(ts.TrellisIndex(**options, center=mean, path=tmp_path / "centred")) == 500
    for path, center in (("centred", mean + 1), ("plain", mean)):
        with pytest.raises(ValueError, match=r"center|mean"):
            ts.TrellisIndex(**options, center=center, path=tmp_path / path)
