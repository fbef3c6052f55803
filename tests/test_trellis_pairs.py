"""Pairs of trellis codes: scores equal the definition exactly, and pairs equal those of comparing all codes."""

import csv

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from test_trellis import steep

import topsign as ts
from topsign.families import trellis_pairs
from topsign.index import deferred_of
from topsign.search import pairs as module
from topsign.search.engine import living_ranges
from topsign.store import segments

OPTIONS = [{"basis": "hadamard", "center": False}, {"basis": "hadamard"}, {}]
N_FEATURES = 32


@pytest.fixture
def signals(rng):
    """Signals of which every tenth has a near copy and an exact copy."""
    signals = steep(rng, 60)
    signals[1::10] = signals[::10] + 0.01 * steep(rng, 6)
    signals[2::10] = signals[::10]
    return signals


def make(signals, **options):
    index = ts.Index(N_FEATURES, **{"n_bytes": 6, "random_state": 1} | options)
    return index if deferred_of(index) is None else index.fit(steep(np.random.default_rng(5), 700))


def plain_cosines(index, ids):
    """Return the cosines of all pairs by the definition."""
    recipe, design = index.recipe, index.recipe.design
    mean = np.zeros(N_FEATURES) if recipe.mean is None else recipe.projection.apply(recipe.mean[np.newaxis])[0]
    rows = [
        reference.trellis_coordinates(levels, design.values.tolist(), mean, design.coded.tolist())
        for levels in index.get(ids).codes.levels.tolist()
    ]
    cosines = np.empty((len(rows), len(rows)))
    for i, one in enumerate(rows):
        for j in range(i, len(rows)):
            cosines[i, j] = cosines[j, i] = reference.trellis_cosine(one, rows[j])
    return cosines


@pytest.mark.parametrize("options", OPTIONS)
def test_pairs_are_those_of_the_plain_comparison(signals, options, path, monkeypatch):
    monkeypatch.setattr(segments, "MERGED_ENTRIES", 16)
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * N_FEATURES * 7)
    monkeypatch.setattr(trellis_pairs, "COMPARED_BYTES", 8 * N_FEATURES * 9)
    index = make(signals, **options)
    numbers = np.random.default_rng(2).permutation(500)[:60]
    for part in np.array_split(np.arange(60), 3):
        index.add(signals[part], ids=numbers[part])
    index.remove(numbers[[5, 50, 59]])
    ids = index.ids
    cosines = plain_cosines(index, ids)
    decoded = index.get(ids).codes.decode().astype(np.float64)
    assert_allclose(cosines, decoded @ decoded.T, atol=1e-6)  # multiples of 2**-23, and float32
    first, second = np.triu_indices(len(ids), 1)
    values = cosines[first, second]
    for threshold in (0.9, float(np.sort(values)[-20]), -1):
        found, kept = index.pairs(threshold=threshold), values >= threshold
        order = np.lexsort((second[kept], first[kept], -values[kept]))
        assert_array_equal(found.first, ids[first[kept][order]])
        assert_array_equal(found.second, ids[second[kept][order]])
        assert_array_equal(found.scores, values[kept][order])
        assert np.isnan(found.p_values).all()
    assert (values == 1).sum() >= 5  # copies
    for k in (1, 3, 80):
        found = index.pairs(k=k)
        off = cosines.copy()
        np.fill_diagonal(off, -np.inf)
        nearest = np.argsort(-off, axis=1, kind="stable")[:, : min(k, len(ids) - 1)]  # ties by ascending id
        wanted = {tuple(sorted((int(ids[i]), int(ids[j])))) for i in range(len(ids)) for j in nearest[i]}
        have = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
        assert len(have) == len(set(have))
        assert set(have) == wanted
        assert_array_equal(found.scores, [cosines[tuple(np.searchsorted(ids, pair))] for pair in have])


def test_few_and_many_pairs_have_the_same_scores(signals, monkeypatch):
    index = make(signals)
    index.add(signals)
    few = index.pairs(threshold=0.99)
    monkeypatch.setattr(trellis_pairs, "MANY", 10**9)
    assert_array_equal(few.scores, index.pairs(threshold=0.99).scores)
    assert 0 < len(few) < 60


def test_limits_that_do_not_go_with_trellis_codes_are_refused(signals):
    index = make(signals)
    assert len(index.pairs(k=1)) == 0
    index.add(signals)
    with pytest.raises(ValueError, match="which this family does not have; give threshold"):
        index.pairs(false_alarm=1e-3)
    with pytest.raises(ValueError, match="give exactly one of false_alarm, threshold and k, got threshold and k"):
        index.pairs(threshold=0.5, k=2)
    with pytest.raises(ValueError, match=r"threshold must be in \[-1, 1\], got 1.5"):
        index.pairs(threshold=1.5)


def test_zero_reconstructions_have_score_zero(signals):
    """All levels have the value zero here, so reconstructions are zero."""
    index = make(signals, basis="hadamard", center=False)
    index.add(signals[:5])
    pairing = index.recipe.pairing()
    pairing.steps[:] = 0
    comparison = pairing.prepare(index.get(range(5)).codes.data)
    rows, values = comparison.rank(living_ranges(index._store.snapshot), 2)
    assert_array_equal(rows, [[0, 1]] * 5)  # ties by ascending id
    assert_array_equal(values, np.zeros((5, 2)))


def test_dedupe_takes_trellis_codes(signals, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from topsign.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()  # learned from as a whole
    np.save("parts/a.npy", signals)
    np.save("parts/b.npy", steep(np.random.default_rng(5), 700))

    def run(command, code=0):
        shown = CliRunner().invoke(app, command.split())
        assert shown.exit_code == code, shown.output
        return " ".join(shown.output.split())

    codes = "--family trellis --n-bytes 6"
    run(f"dedupe parts {codes} --threshold 0.999 -o groups.csv")
    with open("groups.csv") as file:
        group_of = {int(row["id"]): row["group"] for row in csv.DictReader(file)}
    assert all(group_of[row] == group_of[row + 2] for row in range(0, 60, 10))
    run(f"build parts -o some.topsign {codes}")
    run("dedupe some.topsign --threshold 0.999 -o again.csv")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "groups.csv").read_text()
    assert "trellis codes need --threshold" in run(f"dedupe parts {codes} -o no.csv", code=2)
    assert "is an index, which already has codes" in run(
        f"dedupe some.topsign {codes} --threshold 0.9 -o x.csv", code=2
    )
    assert not (tmp_path / "no.csv").exists()
