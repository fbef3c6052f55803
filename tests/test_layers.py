"""Imports go one way: each layer uses only those before it."""

import ast
import subprocess
import sys
from pathlib import Path

import topsign

LAYERS = [
    {"errors", "_arrays"},
    {"_rows"},
    {"_checks", "_files"},
    {"_random"},
    {"kernels", "theory"},
    {"projections"},
    {"recipe"},
    {"encoding", "codes"},
    {"signals", "embeddings"},
    {"index", "heads"},
    {"gpu"},
    {"nn", "export", "distributed"},
    {"plots"},
    {"__init__"},
    {"paper"},
    {"cli"},
]
INDEX_ROOMS = ["results", "storage", "search", "index"]  # adaptive, sign and __init__ are on top of them
SOURCES = sorted(Path(topsign.__file__).parent.rglob("*.py"))


def layer_of(name):
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def imported_parts(source):
    """Top-level parts of topsign that a source file imports."""
    root = Path(topsign.__file__).parent
    depth = len(source.relative_to(root).parts) - 1
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth + 1:
            named = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from ("__init__" if name == "__version__" else name for name in named)
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not any(name.split(".")[0] == "topsign" for name in names), f"{source}: import relatively"


def test_imports_go_one_way():
    root = Path(topsign.__file__).parent
    assert len(SOURCES) > 10
    for source in SOURCES:
        part = source.relative_to(root).parts[0].removesuffix(".py")
        for imported in imported_parts(source):
            allowed = layer_of(imported) < layer_of(part) or imported == part
            assert allowed, f"{source.name} in {part} imports {imported}"


def test_imports_inside_the_index_go_one_way():
    root = Path(topsign.__file__).parent / "index"
    for source in sorted(root.rglob("*.py")):
        parts = source.relative_to(root).parts
        room = parts[0].removesuffix(".py")
        place = INDEX_ROOMS.index(room) if room in INDEX_ROOMS else len(INDEX_ROOMS)
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == len(parts):
                named = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
                for name in named:
                    assert name not in INDEX_ROOMS or INDEX_ROOMS.index(name) < place, f"{source} imports {name}"


def test_no_package_uses_underscore_names_of_another():
    root = Path(topsign.__file__).parent
    packages = {}
    for source in SOURCES:
        packages.setdefault(source.relative_to(root).parts[0].removesuffix(".py"), []).append(source)
    for package, sources in packages.items():
        trees = {source: ast.parse(source.read_text()) for source in sources}
        nodes = [(source, node) for source, tree in trees.items() for node in ast.walk(tree)]
        own = {node.name for _, node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        for source, node in nodes:
            used = [node.attr] if isinstance(node, ast.Attribute) else []
            if isinstance(node, ast.ImportFrom) and node.level:
                used = [alias.name for alias in node.names]
            private = [name for name in used if name.startswith("_") and not name.startswith("__")]
            assert set(private) <= own | {*LAYERS[0], *LAYERS[1], *LAYERS[2]}, f"{source} of {package} uses {private}"


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
