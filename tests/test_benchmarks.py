"""Benchmarks: results hold tables with their conditions, and pages show these tables."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

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


def test_pages_show_the_rows_that_a_table_asks_for(load):
    table = load("shared.results").table("t", ["code", "bytes"], [["a", 1], ["a", 2], ["b", 2]], shown={"bytes": [2]})
    machine = dict.fromkeys(("processor", "cores", "kernels", "load"))
    report = {"tables": [table], "machine": machine, "command": "", "commit": "", "date": ""}
    found = load("page").section("one", report, "")
    assert "| --- | --- |\n| a | 2 |\n| b | 2 |\n\n`benchmarks/results/one.json` has all 3 rows.\n" in found


@pytest.mark.slow
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
