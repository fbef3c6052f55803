"""Commands for regions, originals and machines."""

import json
from dataclasses import asdict

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
    arguments = ["build", tmp_path / "signals.npy", "-o", tmp_path / "a", "--n-bytes", "8"]
    result = run(*arguments, "--originals", "float16", "--regions")
    assert result.exit_code == 0, result.output
    return tmp_path, result


def test_build_keeps_originals_and_says_that_few_entries_need_no_regions(built):
    folder, result = built
    index = ts.open_index(folder / "a")
    assert index.originals == "float16"
    assert "need no regions" in result.output


def test_regions_are_learned_checked_inspected_and_searched(built):
    folder, _ = built
    result = run("regions", folder / "a", "--n-regions", "32")
    assert "32 regions of 2,700 entries; recall is of signals" in result.output
    result = run("regions", folder / "a", "--check", folder / "queries.npy", "--recall", "0.9")
    assert "recall@10 of signals: asked 0.900, achieved" in result.output
    sizes = json.loads(run("inspect", folder / "a", "--json").stdout)["sizes"]
    assert sizes["regions"] == 32
    assert sizes["growth_since_learning"] == "1.00"
    assert sizes["originals_bytes"] > 2700 * 16 * 2
    result = run("search", folder / "a", folder / "queries.npy", "-k", "3", "--recall", "0.9", "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == 900


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "a", "queries.npy", "--recall", "2"], "recall must"),
        (["plan", "--recall", "1.5", "--n-entries", "1e9"], "recall must lie in (0, 1)"),
        (["plan", "--recall", "0.9", "--n-entries", "0"], "got recall=0.9, n_entries=0 and queries_per_second=1"),
        (["plan", "--recall", "0.9", "--n-entries", "1e307"], "lower n_entries, queries_per_second or"),
        (["plan", "--n-entries", "1e9"], "--recall to plan machines"),
    ],
)
def test_messages_name_the_bad_options(built, monkeypatch, arguments, words):
    monkeypatch.chdir(built[0])
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_clusters_are_planned():
    found = json.loads(
        run("plan", "--n-entries", "1e9", "--recall", "0.95", "--queries-per-second", "1000", "--json").stdout
    )
    assert found == json.loads(json.dumps(asdict(ts.theory.plan_cluster(1e9, recall=0.95, queries_per_second=1000))))
    shown = run("plan", "--n-entries", "1e9", "--recall", "0.95").output
    assert "a cost model" in shown
    assert "65,536" in shown


def test_plans_use_the_constants_of_a_file(tmp_path):
    constants = {"seconds_per_entry": 3e-8, "network_seconds": 0.5}
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(constants))
    asked = ["plan", "--n-entries", "1e9", "--recall", "0.95", "--queries-per-second", "5000", "--costs", str(path)]
    found = json.loads(run(*asked, "--json").stdout)
    costs = ts.theory.SearchCosts(**constants)
    expected = asdict(ts.theory.plan_cluster(1e9, recall=0.95, queries_per_second=5000, costs=costs))
    origin, *others = found.pop("assumptions")
    assert others == list(expected.pop("assumptions")[1:])
    assert found == expected
    assert found["latency_seconds"] > 0.5
    assert f"constants from {path}: seconds_per_entry, network_seconds; all others are default" in origin
    assert f"constants from {path}" in run(*asked).output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"seconds_per_page": 1}', "'seconds_per_page' is no constant of the cost model; its constants are visited"),
        (b'{"network_seconds": 1e999}', "is not JSON with finite numbers: 1e999"),
        (b"[1, 2]", "must contain a JSON object"),
        (b" " * 70_000 + b"{}", "is larger than 65,536 bytes"),
    ],
)
def test_bad_files_of_constants_are_refused(tmp_path, content, words):
    path = tmp_path / "costs.json"
    path.write_bytes(content)
    result = run("plan", "--n-entries", "1e9", "--recall", "0.95", "--costs", str(path))
    assert result.exit_code == 1
    shown = " ".join(result.output.split())
    assert shown.startswith(f"error: --costs {path}: ")
    assert words in shown
