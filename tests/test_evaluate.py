"""Evaluation on a user's signals: results compared with a plain computation, notes on bad rows, page and command."""

import json
import shlex
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app
from topsign.evaluation import Option, Recall, render, sample
from topsign.evaluation.measurement import Neighborhoods, measure_stored
from topsign.evaluation.report import Configuration, choose, configurations
from topsign.evaluation.sample import Extrapolation, Truth, split_signals

pytestmark = pytest.mark.slow


def embeddings(rng, n_signals, n_features=64):
    spectrum = 1 / np.sqrt(1 + np.arange(n_features) / 4)
    return (0.6 + rng.standard_normal((n_signals, n_features)) * spectrum).astype(np.float32)


@pytest.fixture(scope="module")
def found_for_given_queries():
    rng = np.random.default_rng(5)
    signals, queries = embeddings(rng, 600), embeddings(rng, 60)
    return ts.evaluate(signals, queries=queries, n_bits=[16], target_recall=0.5), signals, queries


METRICS = [("correlation", False), ("correlation", True), ("inner_product", False)]


def exact(signals, queries, metric="correlation", center=False):
    """True neighbours by a metric, nearest first."""
    mean = signals.mean(axis=0, dtype=np.float64) if center else 0
    rows, asked = signals - mean, queries - mean
    if metric != "inner_product":
        rows, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, asked))
    return np.argsort(-(asked @ rows.T), axis=1)


def recall(ids, truth, k):
    return np.mean([len(set(mine[:k]) & set(true[:k])) / k for mine, true in zip(ids, truth, strict=True)])


@pytest.mark.parametrize(("metric", "center"), METRICS)
def test_all_rows_are_measured_against_one_truth(rng, metric, center):
    """For signals with a large mean, recall equals that of an index of the sample, for the requested metric."""
    signals, queries = embeddings(rng, 600), embeddings(rng, 40)
    found = ts.evaluate(signals, queries=queries, n_bits=[16], metric=metric, center=center)
    truth = exact(signals, queries, metric, center)
    names = [one.name for one in found.candidates]
    assert ("adaptive, 16 bits" in names, "adaptive, 16 bits, centred" in names) == {
        ("correlation", False): (True, True),
        ("correlation", True): (False, True),
        ("inner_product", False): (True, False),
    }[metric, center]
    for one in found.candidates:
        index = one.configuration.make(64, originals="float32", random_state=0)
        with warnings.catch_warnings(action="ignore"):  # about few signals for learning axes, and about p-values
            index.add(signals)
            ids = index.search(queries, k=100).ids
            rescored = {factor: index.search(queries, k=10, rescore=10 * factor).ids for factor in (4, 10, 40)}
        assert_allclose([part.share for part in one.recall], [recall(ids, truth, k) for k in (1, 10, 100)])
        assert_allclose(one.option(None).measured.share, recall(ids, truth, 10))
        for factor, mine in rescored.items():
            assert_allclose(one.option(factor).measured.share, recall(mine, truth, 10), err_msg=f"{one.name} {factor}")
        assert all(part.low <= part.share <= part.high for part in one.recall)
        assert_allclose(
            one.bytes_per_entry,
            (index.nbytes - index.info["bytes"]["originals"]) / 600 + index.recipe.shared_nbytes / 600,
        )


@pytest.mark.parametrize(("metric", "center"), METRICS)
@pytest.mark.parametrize("block_values", [2**24, 64])
def test_exact_neighbors_are_exact(rng, monkeypatch, metric, center, block_values):
    monkeypatch.setattr(sample, "BLOCK_VALUES", block_values)  # all entries in one block, or 8 at a time
    entries, queries = (0.3 + rng.standard_normal((2, 50, 8))).astype(np.float32)
    made = Truth.of(metric, entries, center=center)
    assert (made.neighbors(entries, queries, 5) == exact(entries, queries, metric, center)[:, :5]).all()
    some = np.array([rng.permutation(50)[:20] for _ in queries])
    wanted = [
        [one for one in order if one in mine]
        for order, mine in zip(exact(entries, queries, metric, center), some, strict=True)
    ]
    assert made.ordered(entries, queries, some).tolist() == wanted


def option(n_bytes, low, milliseconds, name="a", factor=None, **settings):
    made, share = Configuration("sign", name, {}, True), Recall(10, low, low, low)
    times = {"milliseconds": milliseconds, "single_milliseconds": 2 * milliseconds} | settings
    return Option(made, factor, n_bytes, share, share, **times)


def test_the_cheapest_that_meets_the_target_is_recommended():
    small, fast, large = option(10, 0.96, 2.0), option(20, 0.97, 1.0, "b"), option(30, 0.99, 3.0, "c")
    missing = option(5, 0.94, 0.1, "d")
    assert choose([large, fast, small, missing], 0.95) == (small, fast)
    assert choose([large, small, missing], 0.95) == (small, large)
    assert choose([small, missing], 0.95) == (small, missing)
    assert choose([large, fast, small, missing], 0.98)[0] == large
    assert choose([large, fast, small, missing], 0.999) == (large, fast)
    slower = option(10, 0.99, 5.0, factor=40)
    assert choose([slower, small], 0.95) == (small, slower)


def test_regions_are_recommended_only_if_single_queries_are_faster(found_for_given_queries):
    plain, other = option(10, 0.96, 2.0), option(30, 0.97, 2.5, "b")
    pays = option(12, 0.96, 3.0, recall=0.97, originals="float16", single_milliseconds=3.0)
    slow = replace(pays, milliseconds=0.1, single_milliseconds=3.5)
    assert choose([plain, other, slow], 0.95) == (plain, other)
    assert choose([plain, other, slow, pays], 0.95) == (pays, plain)
    assert choose([replace(plain, expected=Recall(10, 0.9, 0.9, 0.9)), slow], 0.95)[0] == slow  # nothing else does
    found = replace(found_for_given_queries[0], best=pays, second=plain, target_recall=0.95)
    assert "in 3.00 ms for a single query and 3.00 ms each in a batch." in found.recommendation()
    assert found.alternative().endswith("17% smaller, but slower for single queries.")


def test_the_recommendation_says_whether_the_target_is_met(found_for_given_queries):
    easy, signals, _ = found_for_given_queries
    assert easy.met
    assert easy.best.expected.low >= 0.5
    assert easy.best.bytes_per_entry == min(
        one.bytes_per_entry for part in easy.candidates for one in part.options if one.expected.low >= 0.5
    )
    assert easy.alternative() is not None
    hard = replace(easy, target_recall=0.9999)
    assert not hard.met
    assert hard.recommendation().startswith("No configuration meets a recall of 100%; the closest is: ")
    with pytest.raises(ValueError, match=r"target_recall must be in \[0, 1\]"):
        ts.evaluate(signals, target_recall=95)
    with pytest.raises(ValueError, match="metric must be one of"):
        ts.evaluate(signals, metric="euclidean")
    with pytest.raises(ValueError, match="center=True applies to the metric 'correlation'"):
        ts.evaluate(signals, metric="inner_product", center=True)


@pytest.mark.parametrize("factor", [None, 10])
def test_the_printed_python_gives_the_printed_recall(found_for_given_queries, factor):
    """The code of every configuration is executed, with codes only and with rescoring."""
    found, signals, queries = found_for_given_queries
    for one in found.candidates:
        code = replace(found, best=one.option(factor)).python()
        assert code.splitlines()[-1].startswith("neighbors = index.search(queries, k=10")
        names = {"signals": signals, "queries": queries}
        with warnings.catch_warnings(action="ignore"):
            exec(code, names)
        share = recall(names["neighbors"].ids, exact(signals, queries), 10)
        assert_allclose(one.option(factor).measured.share, share, err_msg=one.name)


def test_stored_options_are_measured_as_they_are_printed(found_for_given_queries):
    """Of all types of originals, the smallest on disk is recommended if it is as fast and meets the target."""
    found, signals, queries = found_for_given_queries
    rescored = max((one.option(10) for one in found.candidates), key=lambda one: one.measured.share)
    truth = exact(signals, queries)
    part = split_signals(signals, queries, n_entries=1000, n_queries=100, seed=0)
    nearest = [truth[:, :100]]
    known = Neighborhoods(Truth.of("correlation", signals), [np.arange(600)], nearest, Extrapolation.of(10, 600, 600))
    assert (part.entries == signals).all()
    stored = measure_stored(rescored, part, known, 0.5, 0)
    assert [(one.originals, one.disk_bytes) for one in stored] == [("float32", 260), ("float16", 132), ("int8", 68)]
    for one in stored:
        code = replace(found, best=one).python()
        assert f"originals={one.originals!r}" in code
        names = {"signals": signals, "queries": queries}
        with warnings.catch_warnings(action="ignore"):
            exec(code, names)
        assert_allclose(one.measured.share, recall(names["neighbors"].ids, truth, 10))
    same = [replace(one, milliseconds=1.0, expected=Recall(10, 0.9, 0.9, 0.9)) for one in stored]
    assert choose(same, 0.5)[0].originals == "int8"
    assert choose([*same[:2], replace(same[2], expected=Recall(10, 0.4, 0.4, 0.4))], 0.5)[0].originals == "float16"


def test_regions_are_measured(monkeypatch, rng):
    """From 20,000 entries on, regions are measured, and the printed code gives the printed recall."""
    centres = rng.standard_normal((300, 16))
    signals = (centres[rng.integers(0, 300, 20_040)] + 0.4 * rng.standard_normal((20_040, 16))).astype(np.float32)
    signals, queries = signals[:-40], signals[-40:]
    monkeypatch.setattr("topsign.evaluation.measurement.REGION_MARGINS", (0.5,))
    monkeypatch.setattr("topsign.evaluation.measurement.ORIGINAL_TYPES", ("float16",))
    monkeypatch.setattr("topsign.evaluation.measurement.configurations", few_configurations)
    found = ts.evaluate(signals, queries=queries, target_recall=0.8)
    (regional,) = [one for one in found.stored if one.recall is not None]
    assert (regional.recall, regional.originals, regional.disk_bytes) == (0.9, "float16", 36)
    assert regional.measured.share >= 0.8
    index = ts.Index(16, **found.best.configuration.parameters, family="sign", originals="float16", random_state=0)
    with warnings.catch_warnings(action="ignore"):
        index.add(signals)
        index.learn_regions()
    n_bytes = (index.nbytes - index.info["bytes"]["originals"] + index.recipe.shared_nbytes) / len(index)
    assert_allclose(regional.bytes_per_entry, n_bytes)
    paid = 1.25 * regional.single_milliseconds < found.candidates[0].option(None).single_milliseconds
    assert paid or found.best != regional or not found.candidates[0].option(None).meets(0.8)
    code = replace(found, best=regional)
    assert "--originals float16 --regions" in code.command()
    assert code.command().endswith("-k 10 --recall 0.9")
    assert "index.learn_regions()\nneighbors = index.search(queries, k=10, recall=0.9)" in code.python()
    names = {"signals": signals, "queries": queries}
    with warnings.catch_warnings(action="ignore"):
        exec(code.python(), names)
    assert_allclose(recall(names["neighbors"].ids, exact(signals, queries), 10), regional.measured.share)
    assert "regions searched for a recall of 0.9" in render(found)


def few_configurations(*given, **options):
    found, notes = configurations(*given, **options)
    return [one for one in found if one.name == "sign, 2 bytes"], notes


def test_the_printed_commands_and_python_read_the_files(tmp_path, rng, monkeypatch):
    """For a table with a column of ids, the printed shell commands and the printed code give the printed recall."""
    monkeypatch.chdir(tmp_path)
    signals, queries = embeddings(rng, 600), embeddings(rng, 60)
    ids = [f"document {row}" for row in range(600)]
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(signals.ravel()), 64)
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "vector": vectors}), "docs.parquet")
    np.save("q.npy", queries)
    line = ["evaluate", "docs.parquet", "--queries", "q.npy", "--id-column", "id", "--n-bits", "16", "--json"]
    line += ["--target-recall", "0.9"]
    record = json.loads(CliRunner().invoke(app, line).stdout)
    assert record["met"]
    truth = exact(signals, queries)[:, :10]
    with warnings.catch_warnings(action="ignore"):
        exec(record["python"], names := {})
    mine = [[ids.index(one) for one in row] for row in names["neighbors"].ids]
    assert_allclose(recall(mine, truth, 10), record["best"]["measured"]["share"])
    build, search = record["command"].splitlines()
    assert "--id-column id" in build
    for command in (build, f"{search} -o found.json"):
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
    mine = [[] for _ in queries]
    for row in json.loads(Path("found.json").read_text()):
        mine[row["query"]].append(ids.index(row["id"]))
    assert_allclose(recall(mine, truth, 10), record["best"]["measured"]["share"])


def test_recall_of_ten_times_the_sample_is_extrapolated():
    """For white signals, at most 2 of 12 options leave their 95% interval; the mean error is below 3 points."""
    rng = np.random.default_rng(3)
    signals, queries = (rng.standard_normal((n, 64)).astype(np.float32) for n in (10_000, 400))
    sample = ts.evaluate(signals, n_entries=1000, n_bits=[16], queries=queries, random_state=1)
    assert (sample.n_entries, sample.n_signals, sample.n_nested) == (1000, 10_000, 100)
    assert "10,000 entries" in sample.recommendation()
    true = exact(signals, queries)
    errors, outside = [], 0
    for one in sample.candidates[:3]:
        index = one.configuration.make(64, random_state=1)
        index.add(signals)
        with warnings.catch_warnings(action="ignore"):
            ids = index.search(queries, k=400).ids
        for each in one.options:
            depth = 10 * (each.factor or 1)
            actual = np.mean([np.isin(mine[:10], found[:depth]).mean() for mine, found in zip(true, ids, strict=True)])
            errors.append(abs(each.expected.share - actual))
            outside += not each.expected.low <= actual <= each.expected.high
    assert len(errors) == 12
    assert outside <= 2
    assert np.mean(errors) < 0.03
    further = Extrapolation.of(10, 1000, 10**6)
    shares = [np.full(400, 0.9), np.full(400, 0.7)]
    ten_times, more = Extrapolation.of(10, 1000, 10_000).expected(*shares, 0.8), further.expected(*shares, 0.8)
    assert all(one < other for one, other in zip(more, ten_times, strict=True))
    assert_allclose(Extrapolation.of(10, 1000, 900).expected(*shares, None)[0], 0.9)


def test_too_few_queries_for_a_recall_are_reported(rng):
    found = ts.evaluate(embeddings(rng, 300), queries=embeddings(rng, 60), n_bits=[8])
    assert any("60 queries cannot confirm a recall of 95%: at least 72 are needed" in note for note in found.notes)


def test_false_alarms_are_measured_with_held_out_signals(rng):
    found = ts.evaluate(embeddings(rng, 2400), n_bits=[8, 16], n_queries=400)
    rates = found.false_alarms
    # 200 searches at a level of 0.1 have a standard error of 0.021, and the 200 calibration searches add as much.
    assert 0.1 - 4 * 0.03 <= rates["calibrated"][0] <= 0.1 + 4 * 0.03
    if "as they are" in rates:
        assert found.false_alarm_advice() is None or "index.calibrate()" in found.false_alarm_advice()


def test_unusable_signals_are_reported(rng):
    signals = embeddings(rng, 1000)
    signals[5], signals[7, 3], signals[[20, 21]], signals[:, 9] = 0, np.nan, signals[30], 2.0
    signals[5] = 0
    found = ts.evaluate(signals, n_bits=[8], n_entries=2000, n_queries=50)
    words = " | ".join(found.notes)
    assert "1 of 1,000 signals hold NaN or infinity and were left out (row 7)" in words
    assert "1 of 1,000 signals are zero and were left out (row 5)" in words
    assert "signals are duplicates of another one" in words
    assert "1 of 64 columns are constant (the first is 9)" in words
    with pytest.raises(ValueError, match="at least 210 usable signals, 200 entries and 10 held-out queries, got"):
        ts.evaluate(signals[:209])
    with pytest.raises(
        ValueError, match=r"got 98; give more signals, or pass queries separately \(1 of 102 .*; 2 of 100 .*\)$"
    ):
        ts.evaluate(signals[:102])
    with pytest.raises(ValueError, match=r"at least 10 usable queries, got 4 \("):
        ts.evaluate(signals[200:500], queries=signals[600:604])
    for n_rows in (210, 230, 250, 400):
        part = split_signals(embeddings(rng, n_rows), None, n_entries=1000, n_queries=500, seed=0)
        assert len(part.entries) + len(part.queries) == n_rows
        assert len(part.entries) >= 200
        assert len(part.queries) >= 10
    some = split_signals(embeddings(rng, 600), None, n_entries=300, n_queries=200, seed=0)
    assert (len(some.entries), len(some.queries)) == (300, 100)
    with pytest.raises(ValueError, match="n_bits must be in"):
        ts.evaluate(signals, n_bits=[65])
