"""Every Python block of the documentation runs, and every example too."""

import os
import re
import runpy
import shlex
import subprocess
import sys

import pytest
from pages import ROOT, blocks, run_blocks

ENGINES_PAGE = ROOT / "docs" / "engines.md"  # run by tests/engines
PAGES = sorted({ROOT / "README.md", *ROOT.glob("docs/*.md")} - {ENGINES_PAGE})
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    languages = re.findall(r"^ *```(\w+)", page.read_text(), flags=re.MULTILINE)
    assert set(languages) <= {"python", "console", "sql"}, "blocks of other languages are not run"
    run_blocks(page, capsys)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_pages_show(page, tmp_path):
    """Lines "$ topsign ..." and "$ python ..." are run; the lines below one, up to the next "$", are what it prints."""
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    for block in blocks(page, "console"):
        pattern = r"^\$ (topsign|python) (.*)\n((?:[^$].*\n|\n)*)"
        for name, command, expected in re.findall(pattern, block, flags=re.MULTILINE):
            program = [sys.executable, *(["-m", "topsign.cli"] if name == "topsign" else []), *shlex.split(command)]
            shown = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment).stdout
            assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in expected.splitlines()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("script", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda script: script.name)
def test_benchmarks_explain_themselves(script):
    shown = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "usage" in shown.stdout


def test_the_picture_of_the_idea_is_what_its_script_draws(tmp_path):
    script = ROOT / "docs" / "draw_idea.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "idea.svg")], check=True, capture_output=True)
    assert (tmp_path / "idea.svg").read_text() == (ROOT / "docs" / "_static" / "idea.svg").read_text()
