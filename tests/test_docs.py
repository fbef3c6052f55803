"""All code blocks and commands of the documentation, all examples and all notebooks run."""

import json
import re
import runpy
import sys

import pytest
from pages import ENGINE_PAGES, PAGES, ROOT, commands, run_blocks, run_commands

pytestmark = pytest.mark.slow

RUN_HERE = [page for page in PAGES if page not in ENGINE_PAGES]  # tests/engines runs these
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder in which all pages and examples of a process run, in any order."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize("page", RUN_HERE, ids=name_of)
def test_code_blocks_and_commands_of_pages_do_what_they_show(page, folder, monkeypatch, capsys):
    """The lines below a command, up to the next "$", equal its output."""
    monkeypatch.chdir(folder)
    languages = re.findall(r"^ *```(\w+)", page.read_text(), flags=re.MULTILINE)
    assert set(languages) <= {"python", "console", "sql"}, "blocks of other languages are not run"
    run_blocks(page, capsys)
    pairs = [*commands(page)]
    answers = run_commands([command for command, _ in pairs], folder) if pairs else []
    for (command, expected), shown in zip(pairs, answers, strict=True):
        wanted = [line.rstrip() for line in expected.splitlines()]
        assert [line.rstrip() for line in shown.splitlines()] == wanted, command


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run_and_are_stored_without_outputs(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {number}", "exec"), namespace)
    assert capsys.readouterr().out
    assert not [*tmp_path.iterdir()], "notebooks leave no files behind"


def test_links_lead_to_files_that_exist():
    generated = {f"tutorials/notebooks/{notebook.stem}.md" for notebook in NOTEBOOKS}
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
        missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert not [link for link in missing if link.removeprefix("../") not in generated], page
