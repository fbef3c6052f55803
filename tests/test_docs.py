"""Every Python block of the documentation runs, and every example too."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch, capsys):
    """Blocks of one page run in order in one namespace; a line ending in "# -> x" must print or show x."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks or "```" not in page.read_text()
    namespace = {}
    for block in blocks:
        for statement in split_at_expectations(block):
            code, expected = statement
            exec(compile(code, str(page), "exec"), namespace)
            if expected is not None:
                assert capsys.readouterr().out.strip() == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_pages_show(page, tmp_path):
    """Lines "$ topsign ..." and "$ python ..." are run; the lines below one, up to the next "$", are what it prints."""
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL):
        pattern = r"^\$ (topsign|python) (.*)\n((?:[^$].*\n|\n)*)"
        for name, command, expected in re.findall(pattern, block, flags=re.MULTILINE):
            program = [sys.executable, *(["-m", "topsign.cli"] if name == "topsign" else []), *shlex.split(command)]
            shown = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=environment).stdout
            assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in expected.splitlines()]


def split_at_expectations(block):
    """(code, expected output or None): code up to each line that ends in "# -> ..."."""
    lines = []
    for line in block.splitlines():
        lines.append(line)
        if "# -> " in line:
            yield "\n".join(lines), line.split("# -> ")[1].strip()
            lines = []
    yield "\n".join(lines), None


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
