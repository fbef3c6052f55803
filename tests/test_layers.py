"""Imports go one way, rooms keep their secrets, and modules stay small enough to read."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import topsign

ROOT = Path(topsign.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    {"errors", "_arrays", "_lazy", "_named", "_warning"},
    {"_rows"},
    {"_checks", "_files"},
    {"_random", "_page", "_estimators"},
    {"kernels", "theory"},
    {"projections", "trellis"},
    {"cells"},
    {"recipe"},
    {"encoding", "codes"},
    {"learning"},
    {"signals", "embeddings", "trellis_encoder"},
    {"index", "heads"},
    {"gpu", "neighbors", "evaluation"},
    {"nn", "export", "distributed"},
    {"explore"},
    {"plots"},
    {"__init__"},
    {"paper"},
    {"cli"},
    {"__main__"},
]

INDEX_LAYERS = [
    {"ids", "tables"},
    {"results"},
    {"storage"},
    {"search", "filters"},
    {"trellis_pairs"},
    {"pairs", "verbs", "first"},
    {"entries", "nulls", "centering"},
    {"searching"},
    {"index"},
    {"adaptive", "sign", "trellis"},
    {"__init__"},
]
"""Rooms within index/, in the order in which they may import each other."""

LONGEST = 400
"""Lines of a module."""


def parts(source):
    return [part.removesuffix(".py") for part in source.relative_to(ROOT).parts]


def imports(source):
    """What a source file imports from topsign, as paths from its root: ("index", "results"), ("kernels",) ..."""
    here = source.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            assert not any(name.split(".")[0] == "topsign" for name in names), f"{source}: import relatively"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] != "topsign", f"{source}: import relatively"
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                is_module = (ROOT.joinpath(*base, alias.name)).is_dir() or (
                    ROOT.joinpath(*base, f"{alias.name}.py")
                ).exists()
                yield (*base, alias.name) if is_module else tuple(base) or ("__init__",), alias.name


def layer_of(name, layers):
    return next(i for i, layer in enumerate(layers) if name in layer)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: "/".join(parts(source)))
def test_imports_go_one_way(source):
    here = parts(source)
    for module, _ in imports(source):
        if module[0] != here[0]:
            earlier = layer_of(module[0], LAYERS) < layer_of(here[0], LAYERS)
            assert earlier, f"{'/'.join(here)} imports {'.'.join(module)}"
        elif here[0] == "index" and len(module) > 1 and module[1] != here[1]:
            earlier = layer_of(module[1], INDEX_LAYERS) < layer_of(here[1], INDEX_LAYERS)
            assert earlier, f"{'/'.join(here)} imports {'.'.join(module)}"


def private(name):
    return name.startswith("_") and not name.startswith("__")


def test_no_room_uses_the_private_names_of_another():
    trees = {source: ast.parse(source.read_text()) for source in SOURCES}
    defined = {}
    for source, tree in trees.items():
        names = defined.setdefault(parts(source)[0], set())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    for source, tree in trees.items():
        room = parts(source)[0]
        foreign = set().union(*(names for other, names in defined.items() if other != room)) - defined[room]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                assert node.attr not in foreign, f"{source}:{node.lineno} uses {node.attr}"
        for module, name in imports(source):
            elsewhere = module[0] != room and (private(name) or any(map(private, module[1:])))
            assert not elsewhere, f"{source} imports {name} of {'.'.join(module)}"


def test_the_command_line_uses_public_names_alone():
    """What rooms export, from the room itself, as a user would; array types and atomic files are shared by all."""
    for source in ROOT.glob("cli/*.py"):
        for module, name in imports(source):
            if module[0] not in ("cli", "paper"):
                exported = len(module) == 1 and not private(name)
                allowed = exported and (module[0] in ("_arrays", "_files") or not private(module[0]))
                assert allowed, f"{source.name} imports {name} of {'.'.join(module)}"


def test_modules_can_be_read_in_one_sitting():
    native = ROOT.parent.parent / "native"
    for source in (*SOURCES, *native.rglob("*.h"), *native.rglob("*.cpp")):
        assert len(source.read_text().splitlines()) <= LONGEST, source


def test_public_names_stand_in_one_table():
    """The names for type checkers are those of the table, and dir() shows them alone."""
    (block,) = (node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    homes = {alias.name: node.module or "" for node in block.body for alias in node.names}
    assert homes == topsign._HOMES
    assert dir(topsign) == sorted(homes)
    assert {"nn", "distributed"} < set(dir(topsign))


def test_public_names_exist_and_nothing_optional_is_imported():
    for name in topsign.__all__:
        assert hasattr(topsign, name)
    optional = ["torch", "dask", "distributed", "matplotlib", "faiss", "pyarrow", "safetensors"]
    # scikit-learn may import pandas, and pandas pyarrow, where they are installed.
    program = (
        "import sys, sklearn.base; before = set(sys.modules); import topsign; "
        f"print([name for name in {optional} if name in set(sys.modules) - before])"
    )
    shown = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    assert shown.stderr == ""


def test_the_reference_imports_nothing_from_the_package():
    source = Path(__file__).parent / "reference.py"
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert names == {"hashlib", "math", "numpy"}


def test_every_room_is_on_the_map():
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text()
    for room in {parts(source)[0] for source in SOURCES}:
        assert f"{room}.py" in text or f"{room}/" in text, room


def test_the_walks_name_what_there_is():
    """Hops of CONTRIBUTING.md, numbered lines of a file and a name defined in it: real, and at most 14 a walk."""
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text()
    walks = text.split("## The walk of ")[1:]
    assert len(walks) == 2
    for walk in walks:
        hops = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", walk, re.M)
        numbered = re.findall(r"^\d+\. ", walk, re.M)
        assert 8 <= len(hops) <= len(numbered) <= 14
        for file, name in hops:
            defined = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
            assert set(name.split(".")) <= defined, (file, name)
