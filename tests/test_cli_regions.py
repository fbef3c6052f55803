"""Commands for regions, originals and machines."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import topsign as ts
from topsign.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def built(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((40, 16))
    signals = (centres[rng.integers(40, size=3000)] + 0.5 * rng.standard_normal((3000, 16))).astype(np.float32)
    np.save(tmp_path / "signals.npy", signals[300:])
    np.save(tmp_path / "queries.npy", signals[:300])
    arguments = ["build", tmp_path / "signals.npy", "-o", tmp_path / "a", "--family", "trellis", "--bytes", "8"]
    result = run(*arguments, "--originals", "float16", "--regions")
    assert result.exit_code == 0, result.output
    return tmp_path, result


def test_build_keeps_originals_and_says_that_few_entries_need_no_regions(built):
    folder, result = built
    index = ts.open_index(folder / "a")
    assert index.originals == "float16"
    assert "originals in" in result.output
    assert "need no regions" in result.output


def test_regions_are_learned_checked_inspected_and_searched(built):
    folder, _ = built
    result = run("regions", folder / "a", "--regions", "32")
    assert "32 regions of 2,700 entries; recall is of signals" in result.output
    result = run("regions", folder / "a", "--check", folder / "queries.npy", "--recall", "0.9")
    assert "recall@10 of signals: asked 0.900, achieved" in result.output
    sizes = json.loads(run("inspect", folder / "a", "--json").stdout)["sizes"]
    assert sizes["regions"] == 32
    assert sizes["growth_since_learning"] == "1.00"
    assert sizes["originals_bytes"] > 2700 * 16 * 2
    result = run("search", folder / "a", folder / "queries.npy", "-k", "3", "--recall", "0.9", "--format", "json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == 900


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["regions", "a", "--check", "queries.npy", "--regions", "9"], "without --check"),
        (["regions", "a", "--recall", "0.9"], "goes with --check"),
        (["search", "a", "queries.npy", "--recall", "2"], "--recall must"),
        (["search", "a", "queries.npy", "--recall", "0.9", "--false-alarm", "0.1"], "go with -k"),
        (["plan", "--recall", "1.5", "--entries", "1e9"], "--recall must lie in (0, 1)"),
        (["plan", "--entries", "1e9"], "--recall to plan machines"),
    ],
)
def test_messages_name_the_bad_options(built, monkeypatch, arguments, words):
    monkeypatch.chdir(built[0])
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_clusters_are_planned():
    found = json.loads(
        run("plan", "--entries", "1e9", "--recall", "0.95", "--queries-per-second", "1000", "--json").stdout
    )
    assert found == json.loads(json.dumps(ts.theory.plan_cluster(1e9, recall=0.95, queries_per_second=1000).as_dict()))
    shown = run("plan", "--entries", "1e9", "--recall", "0.95").output
    assert "a cost model" in shown
    assert "65,536" in shown


def test_more_queries_entries_and_recall_cost_more():
    plan = ts.theory.plan_cluster
    base = plan(1e8, recall=0.95, queries_per_second=100)
    assert plan(1e8, recall=0.95, queries_per_second=1000).n_cores > base.n_cores
    assert plan(1e8, recall=0.98, queries_per_second=100).visited > base.visited
    bigger = plan(1e9, recall=0.95, queries_per_second=100)
    assert bigger.visited < base.visited
    assert bigger.seconds_per_query > base.seconds_per_query
    assert bigger.memory_bytes == 10 * base.memory_bytes
