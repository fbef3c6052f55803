"""Imports follow the layers, private names stay in their package, and only families/ compares family names."""

import ast
import re
import sys
from pathlib import Path

import numpy as np

import topsign
from topsign import _lazy

ROOT = Path(topsign.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
TREES = {source: ast.parse(source.read_text()) for source in SOURCES}


def ordered(text):
    """Return layers separated by >, in the order in which they may import each other."""
    return [set(layer.split()) for layer in text.split(">")]


LAYERS = ordered(
    "_arrays _lazy errors > _rows > _checks _files > _estimators _page _random _safetensors > kernels theory > "
    "projections > codes significance > families > encoding > embeddings encoders signals > heads store > search > "
    "index > evaluation gpu > distributed export nn > explore testing > plots > __init__ > cameras paper > cli > "
    "__main__ "
)

INNER_LAYERS = {
    "theory": ordered("order_statistics > distances rates > tails trellis > grouped > detection > planning > __init__"),
    "significance": ordered("likelihood_ratios p_values > null_distributions score_calibration > __init__"),
    "families": ordered(
        "comparison > agreement base > weight_encoder > projected > signs trellis > adaptive trellis_pairs > __init__"
    ),
    "store": ordered("backends segments > versions > memory stored_columns > folder_store > __init__"),
    "search": ordered("engine regions sample > pairs query_block > originals > recall > __init__"),
    "index": ordered("filters > entries > significance addition results > regions > base > index > __init__"),
}
"""Modules within a package."""

LATE = {("families", "base"): {"weight_encoder"}, ("families", "trellis"): {"trellis_pairs"}}
"""Imports inside functions that break an import cycle of defaults: a base class and what it returns by default."""

LONGEST = 900
"""Lines of a file, whatever its language."""


def parts(source):
    return [part.removesuffix(".py") for part in source.relative_to(ROOT).parts]


def imports(source):
    """Imports of a source file from topsign, as paths from its root: ("index", "results"), ("kernels",) ...

    Lazy imports inside functions are included; imports under ``if TYPE_CHECKING`` are not executed and are ignored.
    """
    here = source.relative_to(ROOT).parts
    guards = [node for node in ast.walk(TREES[source]) if isinstance(node, ast.If)]
    guards = [node for node in guards if getattr(node.test, "id", "").endswith("TYPE_CHECKING")]
    never = {id(one) for guard in guards for one in ast.walk(guard)}
    for node in ast.walk(TREES[source]):
        if id(node) in never:
            continue
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


def test_imports_go_one_way():
    for here, module in [(parts(one), module) for one in SOURCES for module, _ in imports(one)]:
        if module[0] != here[0]:
            earlier = layer_of(module[0], LAYERS) < layer_of(here[0], LAYERS)
            assert earlier, f"{'/'.join(here)} imports {'.'.join(module)}"
        elif here[0] in INNER_LAYERS and len(module) > 1 and module[1] != here[1]:
            if module[1] in LATE.get((here[0], here[1]), ()):
                continue
            layers = INNER_LAYERS[here[0]]
            earlier = layer_of(module[1], layers) < layer_of(here[1], layers)
            assert earlier, f"{'/'.join(here)} imports {'.'.join(module)}"


def test_only_the_table_of_extensions_imports_by_name():
    """``import_module`` and ``__import__`` hide imports from this test, so one table lists the allowed modules."""
    allowed = {("_lazy",), ("__init__",)}
    for source, tree in TREES.items():
        for node in ast.walk(tree):
            name = getattr(node, "id", None) or getattr(node, "attr", None)
            if name in ("import_module", "__import__") and tuple(parts(source)) not in allowed:
                raise AssertionError(f"{source}:{node.lineno} imports by name; use _lazy.EXTENSIONS")
    for module in _lazy.EXTENSIONS.values():
        package = module.removeprefix("topsign.").split(".")[0]
        assert layer_of(package, LAYERS) > layer_of("index", LAYERS), f"{module} is no extension"


FAMILY_NAMES = ("adaptive", "grouped", "sign", "trellis")
FAMILY_TYPES = {f"{name.capitalize()}{kind}" for name in FAMILY_NAMES for kind in ("Codes", "Recipe", "Index")}


def test_nothing_outside_families_asks_which_family_it_is():
    """No comparison with a family's name, and no isinstance of its types."""
    outside = [source for source in SOURCES if parts(source)[0] != "families"]
    for source, node in [(one, node) for one in outside for node in ast.walk(TREES[one])]:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [one.value for one in sides if isinstance(one, ast.Constant) and one.value in FAMILY_NAMES]
            assert not names, f"{source}:{node.lineno} compares with the family {names}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            named = {getattr(one, "id", None) or getattr(one, "attr", None) for one in ast.walk(node.args[1])}
            assert not named & FAMILY_TYPES, f"{source}:{node.lineno} asks for {named & FAMILY_TYPES}"


def private(name):
    return name.startswith("_") and not name.startswith("__")


def test_no_package_uses_the_private_names_of_another():
    defined = {}
    for source, tree in TREES.items():
        names = defined.setdefault(parts(source)[0], set())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    for source, tree in TREES.items():
        room = parts(source)[0]
        foreign = set().union(*(names for other, names in defined.items() if other != room)) - defined[room]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                assert node.attr not in foreign, f"{source}:{node.lineno} uses {node.attr}"
        for module, name in imports(source):
            elsewhere = module[0] != room and (private(name) or any(map(private, module[1:])))
            assert not elsewhere, f"{source} imports {name} of {'.'.join(module)}"


def test_the_command_line_uses_only_public_names():
    """Commands import public names from packages, as a user would, except for array types and atomic files."""
    for source in ROOT.glob("cli/*.py"):
        for module, name in imports(source):
            if module[0] not in ("cli", "paper"):
                exported = len(module) == 1 and not private(name)
                allowed = exported and (module[0] in ("_arrays", "_files") or not private(module[0]))
                assert allowed, f"{source.name} imports {name} of {'.'.join(module)}"


def test_files_have_at_most_900_lines():
    native = [one for kind in ("*.h", "*.cpp") for one in (ROOT.parent.parent / "native").rglob(kind)]
    cuda = [one for kind in ("*.cu", "*.cuh") for one in (ROOT / "gpu").rglob(kind)]
    assert native
    assert cuda
    for source in (*SOURCES, *native, *cuda):
        assert len(source.read_text().splitlines()) <= LONGEST, source


def test_a_class_name_has_one_meaning():
    homes = {}
    for source, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{'/'.join(parts(source))}:{node.lineno}")
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_public_names_are_in_one_table():
    """Type checkers see the names of the table, and dir() lists only these."""
    (block,) = (node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    homes = {alias.name: node.module or "" for node in block.body for alias in node.names}
    assert homes == topsign._HOMES
    assert dir(topsign) == sorted(homes)
    assert {"cameras", "nn", "distributed"} < set(dir(topsign))


def test_the_reference_imports_nothing_from_the_package():
    source = Path(__file__).parent / "reference.py"
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert names == {"hashlib", "math", "numpy"}


def test_contributing_lists_every_package():
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text()
    for room in {parts(source)[0] for source in SOURCES}:
        assert f"{room}.py" in text or f"{room}/" in text, room


def calls_of(action):
    """Return the functions of the package that an action calls, as files and qualified names, in order."""
    found = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            found.append((str(Path(frame.f_code.co_filename).relative_to(ROOT)), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def test_documented_call_paths_are_real(tmp_path, rng):
    """The numbered steps of CONTRIBUTING.md (a file and a function) are called in this order, at most 14 per path."""
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text()
    walks = [one.split("\n## ")[0] for one in text.split("## The path of ")[1:]]
    signals = rng.standard_normal((300, 64))
    index = topsign.Index(64, family="grouped", n_bytes=4, random_state=1, path=tmp_path / "a.topsign")
    actions = [lambda: index.add(signals), lambda: index.search(signals[:2], k=3)]
    for walk, action in zip(walks, actions, strict=True):
        hops = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", walk, re.M)
        assert 8 <= len(hops) == len(re.findall(r"^\d+\. ", walk, re.M)) <= 14
        calls = iter(calls_of(action))
        for hop in hops:
            assert any(call == hop for call in calls), f"{hop} is not called after the step before it"
        index.search(signals[:2], k=3)  # the first search also checks the null distribution


def test_common_calls_pass_through_few_functions(tmp_path, rng):
    """A second query of a grouped index in memory, and a second addition to a folder, without comprehensions."""
    signals = rng.standard_normal((2000, 64)).astype(np.float32)
    made = [
        topsign.Index(64, family="grouped", n_bytes=16, random_state=7, path=path) for path in (None, tmp_path / "a")
    ]
    for index in made:
        index.add(signals)
    actions = [(70, 18, lambda: made[0].search(signals[:1])), (130, 24, lambda: made[1].add(signals[:10]))]
    for most_functions, most_files, action in actions:
        action()
        inner = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
        found = {(file, name) for file, name in calls_of(action) if not name.endswith(inner)}
        assert len(found) <= most_functions, sorted(found)
        assert len({file for file, _ in found}) <= most_files
