"""Benchmarks: results hold tables with their conditions, and pages show these tables."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import topsign as ts

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def run(script, *given):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, given)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_pages_agree_with_results():
    shown = run("page.py", "--check")
    assert shown.returncode == 0, shown.stderr


def test_every_result_is_on_a_page_and_every_place_has_a_script(load):
    page, names = load("page"), load("run").NAMES
    texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    places = {name for text in texts for name in re.findall(r"<!-- begin ([\w-]+) -->", text)}
    assert set(page.load(BENCHMARKS / "results")) <= places
    assert places - {"headline"} == set(names)
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {*names, "run", "page", "compare", "equal_storage"}


def test_results_carry_command_machine_versions_commit_and_spread(tmp_path):
    shown = run("run.py", "--quick", "--only", "import_time", "--results", tmp_path)
    assert shown.returncode == 0, shown.stderr
    report = json.loads((tmp_path / "import_time.json").read_text())
    assert report["command"] == "python benchmarks/import_time.py --quick"
    assert report["versions"]["topsign"] == ts.__version__
    assert report["machine"]["kernels"] in ts.kernels.available()
    assert set(report) >= {"date", "commit", "tables", "headline"}
    (table,) = report["tables"]
    name, took = table["rows"][0]
    assert (name, table["columns"]) == ("python only", ["program", "ms"])
    assert 0 < took["least"] <= took["median"] <= took["most"]


def test_adaptive_codes_stay_within_the_bytes(load):
    families = load("shared.families")
    for n_bytes in (6, 24, 100):
        shape = families.adaptive_shape(1024, n_bytes)
        more = shape | {"n_bits": shape["n_bits"] + 1}
        assert ts.kernels.Layout(**shape).code_bytes <= n_bytes < ts.kernels.Layout(**more).code_bytes


def test_codes_of_peers_are_ranked_by_their_reconstructions(load):
    pytest.importorskip("faiss")
    text, peers = load("text_embeddings"), load("shared.peers")
    rng = np.random.default_rng(0)
    entries = text.unit(rng.standard_normal((700, 32)) * np.geomspace(1, 0.2, 32) + 0.1)
    queries = text.unit(entries[:20] + 0.1 * rng.standard_normal((20, 32)))
    truth = text.nearest(queries, entries, 10)
    found, *_ = text.theirs(lambda *_: (lambda signals: signals, 8), entries, entries, queries, 4, 0)
    assert text.recalls(found[:, :10], truth).min() == 1
    found, n_bytes, shared, _ = text.theirs(peers.itq, entries, entries, queries, 4, 0)
    assert text.recalls(found[:, :10], truth).mean() > 0.25  # ten of 700 by chance would be 0.014
    assert (n_bytes, shared) == (4, 4 * (32 * 32 + 32) + 4 * 32)
    for name, (family, parameters) in text.OURS.items():
        found, *_ = text.ours(family, parameters, entries, entries, queries, 4, 0)
        assert text.recalls(found[:, :10], truth).mean() > 0.25, name
