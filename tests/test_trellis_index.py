"""Indexes of trellis codes: searches agree with the definition, and files store the learned recipe."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t
from test_trellis import steep

import topsign as ts
from topsign.families import trellis
from topsign.index import Index, deferred_of
from topsign.index.significance import check_codes

# The signals here are strongly anisotropic, and a random basis warns about it.
pytestmark = [
    pytest.mark.core,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning"),
]

OPTIONS = [{"basis": "hadamard", "center": False}, {"basis": "hadamard"}, {}]


def make(signals, **options):
    index = ts.Index(signals.shape[1], **{"n_bytes": 5, "random_state": 1} | options)
    if deferred_of(index) is not None:
        index.fit(signals)
    return index


def test_learned_bases_have_no_p_values(rng):
    signals = steep(rng, 700)
    index = make(signals)
    index.add(signals)
    assert np.isnan(index.search(signals[:2], k=3).p_values).all()
    for check in (index.check(signals[:50], recall=None).null, check_codes(index.recipe, index._store.snapshot)):
        assert check.n_pairs == 0  # nothing was compared, because there is no null to check
    with pytest.raises(ValueError, match="false_alarm needs p-values"):
        index.within(signals[:2], false_alarm=0.01)
    with pytest.raises(ValueError, match="no signs to compare"):
        index.search(signals[:2], scoring="hamming")


def test_inner_products_grow_with_the_signals(rng):
    """The two bytes of a factor hold the norms of very small and very large signals."""
    signals, queries, found = steep(rng, 700), steep(rng, 4), []
    for scale in (1.0, 1e-9, 1e9):
        index = make(scale * signals, metric="inner_product")
        index.add(scale * signals)
        found.append(index.search(queries, k=700).scores / scale)
    assert_allclose(found[1:], found[:1] * 2, rtol=2e-3, atol=2e-3 * found[0].max())


@pytest.mark.parametrize("options", OPTIONS)
def test_rescored_p_values_are_exact_or_nan(rng, options):
    """Only a random basis has a null for exact scores; with a learned basis the isotropic null would give 3e-11."""
    signals, queries = steep(rng, 700), steep(rng, 4)
    index = make(signals, **options)
    index.add(signals)
    found = index.search(queries, k=3, rescore=signals)
    for row, query in enumerate(queries):
        chosen = signals[found.ids[row]].astype(np.float64)
        exact = chosen @ query / (np.linalg.norm(chosen, axis=1) * np.linalg.norm(query))
        assert_allclose(found.scores[row], exact, rtol=1e-6)
        deviates = exact * np.sqrt(31 / (1 - exact**2))
        expected = t.sf(deviates, 31) if index.recipe.mean is None and options else np.nan
        assert_allclose(found.p_values[row], expected, rtol=1e-5)
    index.calibrate(steep(rng, 400))
    calibrated = index.search(queries, k=3, rescore=signals).p_values  # those of the codes, which were learned from
    whole = index.search(queries, k=700)
    for row in range(4):
        by_code = dict(zip(whole.ids[row].tolist(), whole.p_values[row], strict=True))
        assert_array_equal(calibrated[row], [by_code[id] for id in found.ids[row].tolist()])


def test_drift_is_that_of_the_last_thousand_entries(rng):
    """The entries come from all segments, without removed ones, however small the last addition was."""
    signals, others = steep(rng, 3000), rng.standard_normal((900, 32))
    index = make(signals)
    index.add(signals)
    index.add(others)
    index.add(signals[:100])
    assert index.info["segments"] == 3
    alone = Index.from_recipe(index.recipe)
    alone.add(np.concatenate([others, signals[:100]]))
    assert_allclose(index.check(recall=None).drift, alone.check(recall=None).drift, rtol=1e-9)
    assert index.check(recall=None).drift < 0.9
    index.remove(index.ids[3000:3890])
    assert 0.95 < index.check(recall=None).drift < 1.05
    index.remove(index.ids)
    assert index.check(recall=None).drift is None


@pytest.mark.parametrize("options", [{"basis": "hadamard", "center": False}, {"basis": "hadamard"}])
def test_distances_are_those_of_correlations_without_bias(rng, options):
    """For matches with a correlation of 0.5, the mean estimate is right within four standard errors."""
    entries = rng.standard_normal((400, 128)).astype(np.float32)
    index = make(entries, n_bytes=8, **options)
    index.add(entries)
    noise = rng.standard_normal(entries.shape)
    matches = 0.5 * entries / np.linalg.norm(entries, axis=1, keepdims=True)
    matches = matches + np.sqrt(0.75 / 128) * noise
    exact = (matches * entries).sum(1) / np.linalg.norm(matches, axis=1) / np.linalg.norm(entries, axis=1)
    found = np.array([index.search(matches[i], k=1, among=[i]).distances[0, 0] for i in range(0, 400, 4)])
    errors = np.cos(np.pi * found) - exact[::4]
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(len(errors)) + 0.01  # 0.01: the fraction is measured
    assert index.recipe.reconstruction_cosine < 0.75


@pytest.mark.parametrize("basis", ["principal", "hadamard"])
def test_a_mean_may_be_given(rng, basis, tmp_path):
    signals = rng.standard_normal((700, 32)).astype(np.float32) + np.linspace(0, 2, 32, dtype=np.float32)
    learned = ts.Encoder(signals.shape[1], n_bytes=8, basis=basis, random_state=1).fit(signals)
    given = ts.Encoder(signals.shape[1], n_bytes=8, basis=basis, center=learned.recipe_.mean, random_state=1).fit(
        signals
    )
    assert_array_equal(given.recipe_.mean, learned.recipe_.mean)
    assert (learned.encode(signals).data == given.encode(signals).data).mean() > 0.99  # float32 of the same mean
    other = np.full(32, 0.1)
    index = ts.Index(32, n_bytes=8, basis=basis, center=other, random_state=1, path=tmp_path / "it")
    index.add(signals)
    assert_allclose(index.recipe.mean, other, rtol=1e-7)
    assert (index.search(signals[:50], k=1).ids[:, 0] == np.arange(50)).mean() > 0.9
    index.close()
    with pytest.raises(ValueError, match="another mean"):
        ts.Index(32, n_bytes=8, basis=basis, center=2 * other, path=tmp_path / "it")
    with pytest.raises(ValueError, match="a mean of 32 finite values"):
        ts.Index(32, n_bytes=8, center=[1.0])


def test_a_sample_that_does_not_stay_in_memory_gives_the_same_recipe(rng, monkeypatch):
    signals = steep(rng, 4000, 40)
    options = {"n_features": 40, "n_bytes": 8, "random_state": 0}
    kept = ts.Index(**options).fit(signals)
    monkeypatch.setattr(trellis, "HELD_VALUES", 0)
    assert ts.Index(**options).fit(signals).recipe == kept.recipe
