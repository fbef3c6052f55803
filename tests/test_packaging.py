"""What a user meets at installation: types, and an import that is silent and light."""

import subprocess
import sys

import pytest

OPTIONAL = ["torch", "pyarrow", "pandas", "matplotlib", "dask", "faiss", "safetensors", "typer", "rich"]


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)


def test_the_import_is_silent_and_light(tmp_path):
    """Neither optional packages, nor those that only some names of the library need."""
    program = (
        f"import sys, topsign; print([name for name in {[*OPTIONAL, 'sklearn', 'scipy.stats']} if name in sys.modules])"
    )
    shown = run("-W", "error", "-c", program, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.strip() == "[]"


def test_every_public_name_can_be_had_and_is_listed(tmp_path):
    program = """
import topsign
for name in topsign.__all__:
    assert getattr(topsign, name) is not None and name in dir(topsign), name
try:
    topsign.no_such_name
except AttributeError as error:
    print(error)
"""
    shown = run("-c", program, cwd=tmp_path)
    assert shown.stdout.strip() == "module 'topsign' has no attribute 'no_such_name'", shown.stderr


USER = """
import numpy as np
import numpy.typing as npt
import topsign as ts

index = ts.AdaptiveIndex(n_features=64, n_bits=8, random_state=7)
index.add(np.zeros((2, 64)))
ids: npt.NDArray[np.int64] = index.search(np.zeros(64), k=1).ids
table = ts.export.FaissBinary.of(index).mismatches([1, 2])
"""


def test_a_user_of_mypy_sees_our_types(tmp_path):
    """A small project of its own: right uses pass in strict mode, wrong ones do not."""
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(USER + "index.search(np.zeros(64), k='three')\nindex.serch\n")
    shown = run("-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "right.py", "wrong.py", cwd=tmp_path)
    errors = [line for line in shown.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[0] for line in errors] == ["wrong.py", "wrong.py"], shown.stdout
    assert 'Argument "k" to "search" of "Searching" has incompatible type "str"; expected "int"' in errors[0]
    assert '"AdaptiveIndex" has no attribute "serch"' in errors[1]
