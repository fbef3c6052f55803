"""Notebooks run from top to bottom and are stored without outputs."""

import json
import sys

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import notebook_pages

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {number}", "exec"), namespace)
    assert capsys.readouterr().out
    assert not [*tmp_path.iterdir()], "notebooks leave no files behind"


def test_notebooks_are_kept_without_outputs_and_have_their_pages():
    for notebook in NOTEBOOKS:
        content = json.loads(notebook.read_text())
        assert content["nbformat"] == 4
        for cell in content["cells"]:
            assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None), notebook
    assert set(notebook_pages.pages()) == {notebook.stem for notebook in NOTEBOOKS}
    assert len(NOTEBOOKS) >= 5
