"""Likelihood ratios that an index learns, stores and reports."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app


def noisy(rng, signals, noise=1.5):
    return signals + noise * rng.standard_normal(signals.shape)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, 128)).astype(np.float32)


@pytest.mark.parametrize("kind", [ts.AdaptiveIndex, ts.GroupedIndex, ts.SignIndex])
def test_likelihood_ratios_are_stored_and_come_with_searches(rng, tmp_path, signals, kind):
    options = {"n_bits": 32} if kind is ts.AdaptiveIndex else {"n_bytes": 16}
    index = kind(n_features=128, random_state=1, path=tmp_path / "a.topsign", **options)
    index.add(signals)
    assert index.evidence is None
    with pytest.raises(ValueError, match="take calibrate_evidence before the search"):
        index.search(signals[:2], k=1).likelihood_ratio.log10.sum()
    chosen = np.arange(0, 300, 3)
    model = index.calibrate_evidence(noisy(rng, signals[chosen]), ids=chosen)
    assert (model.n_matches, model.n_impostors) == (100, 100 * 99)
    with ts.open_index(tmp_path / "a.topsign") as again:
        assert again.evidence.to_json() == model.to_json()
        assert again.sources == {}
        found = again.search(noisy(rng, signals[:50]), k=2)
        right = found.ids == np.arange(50)[:, None]
        ratio = found.likelihood_ratio.log10.reshape(50, 2)
        assert_allclose(ratio, model.ratio(found.scores).log10)
        assert ratio[right].mean() > 1
        assert ratio[right].mean() > ratio[~right].mean() + 0.3
        for other in (
            again.search(signals[:1], scoring="hamming"),
            again.search(signals[:1], rescore=signals),
            again.within(signals[:1], threshold=0.5),
        ):
            assert other.evidence is None
    given = index.calibrate_evidence(noisy(rng, signals[chosen]), ids=chosen, impostors=rng.standard_normal((40, 128)))
    assert given.n_impostors == 40 * 100


def test_scores_are_those_of_the_named_entries(rng, signals):
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, random_state=1)
    names = np.array([f"camera {i}" for i in range(300)], object)
    index.add(signals, ids=names)
    queries, ids = noisy(rng, signals[[7, 7, 3]], 0.5), names[[7, 7, 3]]
    model = index.calibrate_evidence(queries, ids=ids)
    assert (model.n_matches, model.n_impostors) == (3, 3)
    whole = index.search(queries, k=300)
    scores = [
        [dict(zip(whole.ids[q], whole.scores[q], strict=True))[name] for name in ("camera 7", "camera 3")]
        for q in range(3)
    ]
    own = np.array(scores)[[0, 1, 2], [0, 0, 1]]
    expected = ts.theory.LikelihoodRatioModel.fit(own, impostors=np.array(scores)[[0, 1, 2], [1, 1, 0]])
    assert_array_equal(model.line, expected.line)


def test_bad_calls(rng, signals):
    index = ts.AdaptiveIndex(n_features=128, n_bits=32, random_state=1)
    index.add(signals)
    with pytest.raises(ValueError, match="ids must be one per signal, got 2 for 3 signals"):
        index.calibrate_evidence(signals[:3], ids=[0, 1])
    with pytest.raises(ValueError, match="known matches must be closer than known impostors"):
        index.calibrate_evidence(-signals[:30], ids=np.arange(30))
    assert index.evidence is None


def test_the_command_line_learns_and_shows_evidence(rng, tmp_path, monkeypatch, signals):
    monkeypatch.chdir(tmp_path)
    np.save("signals.npy", signals)
    np.save("matches.npy", noisy(rng, signals[:60]))
    (tmp_path / "ids.txt").write_text("\n".join(map(str, range(60))))

    def run(line, code=0):
        result = CliRunner().invoke(app, line.split(), env={"COLUMNS": "240"})
        assert result.exit_code == code, result.output
        return result

    run("build signals.npy -o a.topsign --bits 32")
    assert "--evidence goes with -k and an index whose" in run("search a.topsign matches.npy --evidence", code=2).stderr
    shown = " ".join(run("calibrate a.topsign matches.npy --ids ids.txt").stdout.split())
    assert "likelihood ratios learned from 60 matches and 3,540 scores of impostors" in shown
    words = " ".join(run("inspect a.topsign").stdout.split())  # the console width is fixed at its first use
    assert "evidence matches 60, impostors 3540, confidence 0.95, log10 ratio per score" in words
    assert "support" in run("search a.topsign matches.npy -k 1 --evidence").stdout
    rows = json.loads(run("search a.topsign matches.npy -k 1 --evidence --format json").stdout)
    assert rows[0]["log10_lr_low"] <= rows[0]["log10_lr"]
    assert rows[0]["log10_lr_high"] is None or rows[0]["log10_lr_high"] >= rows[0]["log10_lr"]  # None means unbounded
    assert "support for the same source" in rows[0]["support"]
