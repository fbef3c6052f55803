"""Benchmarks: results hold tables with their conditions, and pages show these tables."""

import importlib
import json
import re
import shutil
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
    assert {name.partition("-")[0] for name in places - {"headline"}} == set(names)  # tables-16-cores: another machine
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {*names, "run", "page", "compare", "equal_storage"}


def test_a_page_shows_the_tables_of_a_result(tmp_path, load):
    page, results = load("page"), load("shared.results")
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- begin headline -->\nold\n<!-- end headline -->\n")
    guide = tmp_path / "docs/reference/a.md"
    guide.write_text("<!-- begin heads -->\nold\n<!-- end heads -->\n<!-- begin gpu -->\n<!-- end gpu -->\n")
    cells = ["grouped", 12_345, 0.12345, results.spread([2.0, 3.0, 7.0]), results.ratio([2.0, 2.0], [1.0, 4.0]), None]
    chart = {"file": "drawn", "x": "n", "y": "share", "by": "code"}
    shown = results.table("Title", ["code", "n", "share", "ms", "times", "x"], [cells], "A  note.", chart)
    machine = {"processor": "P", "cores": 2, "kernels": "avx2", "load": 0.5}
    report = {"tables": [shown], "headline": [["task", "words"]], "machine": machine, "command": "python x.py"}
    pages = page.pages({"heads": report | {"commit": "c", "date": "d"}}, tmp_path)
    assert "| grouped | 12,345 | 0.123 | 3 | 1.25 |  |" in pages[guide]
    assert "![Title](../images/drawn.png)" in pages[guide]
    assert "`python x.py`; P, 2 cores, avx2 kernels, load 0.5, commit `c`, d." in pages[guide]
    assert page.NOT_YET in pages[guide]
    assert "| task | words | [heads](benchmarks/results/heads.json) |" in pages[tmp_path / "README.md"]
    page.draw({"heads": report}, tmp_path)
    assert (tmp_path / "drawn.png").stat().st_size > 0
    with pytest.raises(ValueError, match="a row of 1 cells for 2 columns"):
        results.table("Title", ["a", "b"], [[1]])


def test_a_page_edited_by_hand_is_reported(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    page = tmp_path / "docs/reference/benchmarks.md"
    page.write_text(page.read_text().replace("<!-- end gpu -->", "by hand\n<!-- end gpu -->"))
    shown = run("page.py", "--check", "--out", tmp_path)
    assert shown.returncode == 1
    assert shown.stderr.startswith("docs/reference/benchmarks.md: not what")


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


def test_an_unknown_benchmark_is_named():
    shown = run("run.py", "--only", "serach")
    assert shown.returncode == 2
    assert "no benchmark is called serach" in shown.stderr


def test_checkouts_are_compared_by_the_times_of_their_tables(load):
    compare, results = load("compare"), load("shared.results")
    report = {"tables": [results.table("T", ["code", "n", "ms", "times"], [["sign", 4, results.spread([1, 2]), 2.0]])]}
    old = dict(compare.times_of(report))
    assert old == {"T, sign, 4, ms": {"median": 1.5, "least": 1.0, "most": 2.0}}
    new = {name: {key: 3 * value for key, value in times.items()} for name, times in old.items()}
    (row,) = compare.compared([(old, new)])
    assert (row["ratio_of_least"], row["median_ratio"]) == (3, 3)


def test_detection_agrees_with_theory(load):
    detection = load("detection")
    scored = [(family, "asymmetric") for family in ("sign", "grouped", "adaptive", "trellis")]
    cases = [(family, 448, scoring) for family, scoring in [*scored, ("sign", "hamming"), ("grouped", "hamming")]]
    sums, sizes = detection.simulate(cases, 600, n_recipes=1)
    assert set(sizes.values()) == {448, 450}
    for case in cases:
        found, theory = detection.d_prime(sums[case]), detection.predicted(*case)
        # d' of n pairs has a variance near (1 + d'**2 / 4) / n: four standard errors.
        assert abs(found - theory) < 4 * np.sqrt((1 + theory**2 / 4) / 600), case


def test_recall_counts_the_true_neighbours_found(load):
    text = load("text_embeddings")
    rng = np.random.default_rng(0)
    entries, queries = (rng.standard_normal((n, 16)).astype(np.float32) for n in (300, 4))
    truth = text.nearest(queries, entries, 10)
    assert np.array_equal(truth, np.argsort(-(queries @ entries.T), axis=1, kind="stable")[:, :10])
    half = np.hstack([truth[:, 5:], np.full((4, 5), -1)])
    assert text.recalls(truth[:, ::-1], truth).tolist() == [1.0] * 4
    assert text.recalls(half, truth).tolist() == [0.5] * 4


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
