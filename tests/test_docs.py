"""All code blocks of the documentation and all examples run twice in one folder."""

import re
import runpy
import subprocess
import sys

import pytest
from pages import ENGINE_PAGES, PAGES, ROOT, blocks, commands, files_of, run_blocks, run_commands

pytestmark = pytest.mark.slow

RUN_HERE = [page for page in PAGES if page not in ENGINE_PAGES]  # tests/engines runs these
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder in which all pages and examples of a process run, in any order, each twice."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize("page", RUN_HERE, ids=name_of)
def test_code_blocks_run_twice(page, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    languages = re.findall(r"^ *```(\w+)", page.read_text(), flags=re.MULTILINE)
    assert set(languages) <= {"python", "console", "sql"}, "blocks of other languages are not run"
    run_blocks(page, capsys)
    run_blocks(page, capsys)


@pytest.mark.parametrize("page", [page for page in RUN_HERE if [*commands(page)]], ids=name_of)
def test_commands_print_what_the_pages_show_twice(page, folder):
    """The lines below a command, up to the next "$", equal its output, also when it is run again."""
    pairs = [*commands(page)] * 2
    answers = run_commands([command for command, _ in pairs], folder)
    for (command, expected), shown in zip(pairs, answers, strict=True):
        wanted = [line.rstrip() for line in expected.splitlines()]
        assert [line.rstrip() for line in shown.splitlines()] == wanted, command


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run_twice(example, capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(example)])
    shown = []
    for _ in range(2):
        runpy.run_path(str(example), run_name="__main__")
        shown.append(capsys.readouterr().out)
    assert shown[0]
    assert shown[0] == shown[1]


def test_pages_and_examples_write_different_files():
    """Pages can then be run in any order in one folder."""
    owners = {}
    for page in RUN_HERE:
        code = [*blocks(page, "python"), *(" ".join(command) for command, _ in commands(page))]
        for name in files_of("\n".join(code)):
            owners.setdefault(name, set()).add(name_of(page))
    for example in EXAMPLES:
        for name in files_of(example.read_text()):
            owners.setdefault(name, set()).add(example.name)
    shared = {name: pages for name, pages in owners.items() if len(pages) > 1}
    assert not shared, f"choose other names: {shared}"
    assert len(owners) > 10


def test_the_readme_fits_two_screens_and_a_table():
    """At most 95 lines, and a table of at most 15, which benchmarks write."""
    before, table, after = re.split(r"<!-- (?:begin|end) headline -->", (ROOT / "README.md").read_text())
    assert len((before + after).splitlines()) <= 95
    assert len(table.splitlines()) <= 15


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES], ids=name_of)
def test_links_lead_to_files_that_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    generated = {f"tutorials/notebooks/{notebook.stem}.md" for notebook in ROOT.glob("notebooks/*.ipynb")}
    assert not [link for link in missing if link.removeprefix("../") not in generated]


@pytest.mark.parametrize("script", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda script: script.name)
def test_benchmarks_explain_themselves(script):
    shown = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "usage" in shown.stdout


def test_the_picture_of_the_idea_is_what_its_script_draws(tmp_path):
    script = ROOT / "docs" / "draw_idea.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "idea.svg")], check=True, capture_output=True)
    assert (tmp_path / "idea.svg").read_text() == (ROOT / "docs" / "_static" / "idea.svg").read_text()
