"""Evaluation on a user's signals: numbers against a plain computation, notes on bad rows, page and command."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app
from topsign.evaluation import measurement, render
from topsign.evaluation.data import measure_isotropy


def embeddings(rng, n_signals, n_features=64):
    spectrum = 1 / np.sqrt(1 + np.arange(n_features) / 4)
    return (0.6 + rng.standard_normal((n_signals, n_features)) * spectrum).astype(np.float32)


@pytest.fixture(scope="module")
def found():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ts.evaluate(embeddings(np.random.default_rng(0), 2400), n_bits=[8, 16], n_queries=200)


def test_recall_is_that_of_an_index_of_the_same_sample(rng):
    """Queries that are given, all signals in the sample: the same index, searched plainly."""
    signals, queries = embeddings(rng, 800), embeddings(rng, 40)
    found = ts.evaluate(signals, queries=queries, n_bits=[16])
    mean = signals.mean(axis=0, dtype=np.float64).astype(np.float32)
    units, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (signals - mean, queries - mean))
    truth = np.argsort(-(asked @ units.T), axis=1)
    index = ts.AdaptiveIndex(n_features=64, n_bits=16, center=mean, random_state=0)
    index.add(signals)
    index.calibrate()  # no doubt is spoken
    ids = index.search(queries, k=100).ids
    expected = [
        np.mean([len(set(mine[:k]) & set(true[:k])) / k for mine, true in zip(ids, truth, strict=True)])
        for k in (1, 10, 100)
    ]
    adaptive = found.candidates[0]
    assert_allclose([one.share for one in adaptive.recall], expected)
    assert all(one.low <= one.share <= one.high for one in adaptive.recall + adaptive.rescored)
    assert all(exact.share >= plain.share for plain, exact in zip(adaptive.recall, adaptive.rescored, strict=True))
    assert_allclose(adaptive.bytes_per_entry, index.nbytes / 800 + 4 * 64 / 800)


def test_trellis_codes_are_measured_against_neighbours_of_the_signals_as_they_are(rng):
    signals, queries = embeddings(rng, 800), embeddings(rng, 40)
    found = ts.evaluate(signals, queries=queries, n_bits=[16])
    assert found.center
    units, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (signals, queries))
    truth = np.argsort(-(asked @ units.T), axis=1)
    for one in found.candidates[2:]:
        names = {"ts": ts}
        exec(f"index = {one.configuration.constructor(64)}", names)
        with warnings.catch_warnings(action="ignore"):  # of few signals to learn axes from, and of doubtful p-values
            names["index"].add(signals)
            ids = names["index"].search(queries, k=10, rescore=signals, rescore_factor=10).ids
        expected = np.mean([len(set(a) & set(b[:10])) / 10 for a, b in zip(ids, truth, strict=True)])
        assert_allclose(one.rescored[1].share, expected)
    assert found.smaller is None or found.smaller.bytes_per_entry < found.best.bytes_per_entry


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("block_values", [2**24, 64])
def test_exact_neighbors_are_exact(rng, monkeypatch, centred, block_values):
    monkeypatch.setattr(measurement, "BLOCK_VALUES", block_values)  # all entries in one block, or 8 at a time
    entries, queries = rng.standard_normal((2, 50, 8)).astype(np.float32)
    mean = np.full(8, 0.3 if centred else 0, np.float32)
    units = (entries - mean) / np.linalg.norm(entries - mean, axis=1, keepdims=True)
    wanted = np.argsort(-((queries - mean) @ units.T), axis=1)[:, :5]
    assert (measurement.exact_neighbors(entries, queries, 5, mean if centred else None) == wanted).all()


def test_codes_grow_better_and_the_recommendation_names_one(found):
    assert [one.name for one in found.candidates] == [
        "adaptive, 8 bits",
        "adaptive, 16 bits",
        "sign, 64 bits",
        "trellis, 4 bytes, learned axes",
        "trellis, 8 bytes, learned axes",
        "trellis, 4 bytes, axes of 16 cells",
        "trellis, 8 bytes, random axes",
    ]
    at_10 = [one.recall[1].share for one in found.candidates]
    assert at_10[0] < at_10[1]
    assert found.best in found.candidates
    assert found.center
    assert "--center" in found.command("my.npy")
    assert found.best.name in found.recommendation()


def test_local_axes_are_measured_where_the_sample_is_large_enough(rng):
    """In 1,024 entries and more of 64 features; the calls build what was measured, and its axes are counted."""
    signals, queries = embeddings(rng, 1100), embeddings(rng, 40)
    found = ts.evaluate(signals, queries=queries, n_bits=[8])
    (local,) = (one for one in found.candidates if "cells" in one.name)
    assert local.name == "trellis, 4 bytes, axes of 16 cells"
    assert local.command("x.npy") == "topsign build x.npy -o index.topsign --family trellis --bytes 4 --local 16"
    names = {"ts": ts}
    exec(f"index = {local.configuration.constructor(64)}", names)
    index = names["index"]
    with warnings.catch_warnings(action="ignore"):  # of few signals to learn axes from
        index.add(signals)
    assert_allclose(local.bytes_per_entry, index.nbytes / 1100 + index.recipe.shared_nbytes / 1100)
    units, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (signals, queries))
    truth, ids = np.argsort(-(asked @ units.T), axis=1), index.search(queries, k=10).ids
    expected = np.mean([len(set(a) & set(b[:10])) / 10 for a, b in zip(ids, truth, strict=True)])
    assert_allclose(local.recall[1].share, expected)
    few = ts.evaluate(signals[:1000], queries=queries, n_bits=[8])
    assert not any("cells" in one.name for one in few.candidates)
    assert any("16 cells take at least 1,024 entries" in note for note in few.notes)
    assert "--local 16" in render(replace(found, smaller=local))


def test_signals_of_few_features_have_trellis_codes_of_two_windows(rng):
    found = ts.evaluate(embeddings(rng, 400, 32), n_bits=[8], n_queries=20)
    assert {one.configuration.parameters.get("n_bytes") for one in found.candidates} == {None, 3, 4}


def test_the_recommended_python_runs(found, rng):
    names = {"ts": ts, "signals": embeddings(rng, 600), "queries": embeddings(rng, 3)}
    exec(found.python(), names)
    assert len(names["index"]) == 600


def test_calibration_is_measured_on_pairs_that_taught_nothing(found):
    """As they are, nearly every pair is significant; calibrated, shares are nominal within a factor of 1.5."""
    shares = {row.null: row.shares for row in found.calibration}
    assert shares["as they are"][2] > 100 * 1e-3
    assert shares["centred"][2] > 2 * 1e-3
    assert found.calibrate
    for share, level in zip(shares["calibrated"][:3], found.levels, strict=False):
        assert 1 / 1.5 < share / level < 1.5


def test_isotropy_is_told_in_a_sentence(rng):
    white = measure_isotropy(rng.standard_normal((3000, 32)).astype(np.float32))
    assert white.effective_dimensions > 30
    assert white.sentence(32).startswith("The signals are nearly isotropic")
    assert "not isotropic" in measure_isotropy(embeddings(rng, 3000)).sentence(64)


def test_what_does_not_fit_is_said_in_words(rng):
    signals = embeddings(rng, 1000)
    signals[5], signals[7, 3], signals[[20, 21]], signals[:, 9] = 0, np.nan, signals[30], 2.0
    signals[5] = 0
    found = ts.evaluate(signals, n_bits=[8], n_entries=2000, n_queries=50)
    words = " | ".join(found.notes)
    assert "1 of 1,000 signals hold NaN or infinity and were left out (row 7)" in words
    assert "1 of 1,000 signals are zero and were left out (row 5)" in words
    assert "signals repeat another one exactly" in words
    assert "1 of 64 columns are constant (the first is 9)" in words
    assert re.search(r"only \d+ signals", words)
    with pytest.raises(ValueError, match="at least 200 usable signals and 10 queries, got"):
        ts.evaluate(signals[:100])
    with pytest.raises(ValueError, match="n_bits must be in"):
        ts.evaluate(signals, n_bits=[65])


def test_the_page_is_one_file(found):
    text = render(found, source="<my>.npy")
    assert "&lt;my&gt;.npy" in text
    assert text.count("<table") == text.count("</table>") == 2
    assert text.count("<svg") == 1
    assert not re.search(r"<script|@import|https?:|url\(", text)
    assert not re.search(r'(fill|stroke)="#', text)  # colours follow the page into the dark


def test_the_command(tmp_path, rng):
    np.save(tmp_path / "x.npy", embeddings(rng, 900))
    line = ["evaluate", str(tmp_path / "x.npy"), "--bits", "8", "--page", str(tmp_path / "page")]
    result = CliRunner().invoke(app, line, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "recommended: " in result.stdout
    assert "topsign build" in result.stdout
    assert (tmp_path / "page" / "index.html").read_text().startswith("<!doctype html>")
    result = CliRunner().invoke(app, [*line[:4], "--json"])
    record = json.loads(result.stdout)
    assert record["best"]["configuration"]["has_null"]
    families = [one["configuration"]["family"] for one in record["candidates"]]
    assert families == ["adaptive", "sign", "trellis", "trellis", "trellis"]
    np.save(tmp_path / "few.npy", embeddings(rng, 9))
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path / "few.npy")])
    assert result.exit_code == 1
    assert "an evaluation takes at least 200 usable signals" in result.stderr
