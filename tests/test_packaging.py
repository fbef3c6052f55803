"""Packaging: types, metadata, and an import that is fast and prints nothing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import topsign
from topsign.errors import install

pytestmark = [pytest.mark.core, pytest.mark.slow]

ROOT = Path(__file__).parents[1]

OPTIONAL = ["torch", "pyarrow", "pandas", "matplotlib", "dask", "faiss", "safetensors", "typer", "rich"]


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)


def test_workflows_run_every_target_and_name_what_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[1].split())
    assert targets <= set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    workflows = {path.stem: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
    whole = "\n".join(workflows.values())
    run = set(re.findall(r"run: make ([\w-]+)$|^ {10}- ([\w-]+)$", whole, flags=re.MULTILINE))
    # The others are the parts of make test, an emulation of the ARM job, hours of measurements, or no tests.
    left = {"test-fast", "test-slow", "test-arm", "bench", "cameras", "clean"}
    assert targets - {one or other for one, other in run} == left
    assert "needs: [tests, wheels, sdist]" in workflows["release"]
    assert "uses: ./.github/workflows/tests.yml" in workflows["release"]
    for script in re.findall(r"\btests/[\w/]+\.(?:py|sh)\b", makefile + whole):
        assert (ROOT / script).exists()


def test_the_import_is_silent_and_light(tmp_path):
    """The import loads no optional packages, and no packages that only some names of the library need."""
    program = (
        f"import sys, topsign; print([name for name in {[*OPTIONAL, 'sklearn', 'scipy.stats']} if name in sys.modules])"
    )
    shown = run("-W", "error", "-c", program, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.strip() == "[]"


def test_indexes_and_theory_are_light(tmp_path):
    """The slowest parts of SciPy are imported by the first call that needs them."""
    heavy = ["scipy.stats", "scipy.optimize", "scipy.interpolate", "sklearn"]
    program = f"""
import sys, topsign as ts
ts.theory.expected_hamming
with ts.Index(64, family="adaptive", n_bits=8, random_state=7, path="a.topsign") as index:
    index.add([[1.0] * 64])
print([name for name in {heavy} if name in sys.modules])
"""
    shown = run("-W", "error", "-c", program, cwd=tmp_path)
    assert (shown.stdout, shown.stderr) == ("[]\n", "")


def test_only_estimators_need_scikit_learn(tmp_path):
    """Without the package, indexes and heads work, and a missing recipe raises the base class of NotFittedError."""
    program = """
import sys
sys.modules["sklearn"] = None  # every import of it raises
import numpy as np, topsign as ts
signals = np.random.default_rng(0).standard_normal((200, 64))
index = ts.Index(64, n_bytes=8, basis="hadamard", random_state=7)
try:
    index.recipe
except ValueError as error:
    print(error)
index.add(signals)
print(*index.search(signals[:2], k=1).ids[:, 0], ts.Head.from_weights(signals, n_bytes=8).predict(signals[3:4]))
try:
    ts.Encoder
except ImportError:
    print("Encoder is an estimator")
"""
    shown = run("-c", program, cwd=tmp_path)
    assert shown.stdout.splitlines() == [
        "this index has not learned its recipe yet; call fit(sample), or add signals to learn from",
        "0 1 [3]",
        "Encoder is an estimator",
    ], shown.stderr


USER = """
import numpy as np
import numpy.typing as npt
import topsign as ts

index = ts.Index(64, family="adaptive", n_bits=8, random_state=7)
index.add(np.zeros((2, 64)))
ids: npt.NDArray[np.int64] = index.search(np.zeros(64), k=1).ids
table = ts.export.nearest([1, 2], [0, 1], k=1, n_entries=2)
"""


def test_a_user_of_mypy_sees_our_types(tmp_path):
    """In a small separate project, correct uses pass in strict mode and wrong uses fail."""
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(USER + "index.search(np.zeros(64), k='three')\nindex.serch\n")
    shown = run("-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "right.py", "wrong.py", cwd=tmp_path)
    errors = [line for line in shown.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[0] for line in errors] == ["wrong.py", "wrong.py"], shown.stdout
    assert 'Argument "k" to "search" of "BaseIndex" has incompatible type "str"; expected "int"' in errors[0]
    assert '"Index" has no attribute "serch"' in errors[1]


def test_version_changelog_and_citation_agree():
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    assert cited == newest == topsign.__version__
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert f"license: {licence}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_conda_recipe_agrees_with_the_package():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == topsign.__version__
    needed = set(project["dependencies"])
    needed.add(f"python{project['requires-python']}")
    assert {one.replace(" ", "") for one in recipe["requirements"]["run"]} == needed
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"topsign = {project['scripts']['topsign']}"


def test_messages_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    named = [extra for text in sources.values() for extra in re.findall(r"install\('(\w+)'\)", text)]
    assert len(named) > 8
    assert set(named) <= set(extras)
    assert install("plot") == "pip install 'topsign[plot]' (in a clone: pip install '.[plot]')"
