"""Pages of the API reference, generated from the public names: one per class, and one per module of functions.

The description of a parameter is taken from the docstring, from the comment on a field of a dataclass, or from
``words.toml`` if the parameter means the same everywhere. This module does not need Sphinx; tests read the same pages.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
import tomllib
from functools import cache
from pathlib import Path

import topsign
from topsign._lazy import lazy

FOLDER = Path(__file__).parent
WORDS = tomllib.loads((FOLDER / "words.toml").read_text())

# Public modules besides topsign, in the order of the menu; some need an extra.
MODULES = (
    "theory",
    "significance",
    "signals",
    "projections",
    "heads",
    "heads.onnx",
    "nn",
    "gpu",
    "distributed",
    "export",
    "cameras",
    "evaluation",
    "plots",
    "kernels",
    "families",
    "testing",
    "paper.heads",
    "paper.printed",
)

# Names that packages of the library share with each other; they are not part of the public API.
SHARED = {
    "families": {
        "CodeComparison",
        "Gather",
        "Logits",
        "METRICS",
        "Null",
        "PairComparison",
        "Pairing",
        "SCORINGS",
        "unit_queries",
    },
    "kernels": {
        "BLOCK",
        "CodeBlocks",
        "CodeRange",
        "FACTOR_BYTES",
        "Kernels",
        "GROUP",
        "Layout",
        "Means",
        "OriginalRows",
        "Panels",
        "Preparation",
        "Product",
        "RegionChoice",
        "RegionCodes",
        "RegionHits",
        "RegionModel",
        "RegionPlan",
        "RegionRule",
        "Ring",
        "RoundedQueries",
        "Scoring",
        "Visits",
        "pack_log_factors",
        "unpack_factors",
    },
    "signals": {"Location", "TableColumns", "Place", "notes_of", "plain_values"},
    "evaluation": {"render"},
}

GROUPS = {
    "Codes": {"codes", "embeddings", "encoders", "families"},
    "Search": {"index"},
    "Heads and classifiers": {"heads"},
    "Evaluation and errors": {"evaluation", "errors"},
}


def public_names(module: str) -> list[str]:
    """Public names of a module ("" for topsign), without modules."""
    home = load(module)
    names = getattr(home, "__all__", None)
    if names is None:
        own = (name for name, value in vars(home).items() if getattr(value, "__module__", None) == home.__name__)
        names = [name for name in own if not name.startswith("_")]
    names = set(names) - SHARED.get(module, set())
    return sorted(name for name in names if not inspect.ismodule(getattr(home, name)))


@cache
def load(module: str):
    """Import a module by its name below topsign."""
    return importlib.import_module(f"topsign.{module}".rstrip("."))


@cache
def documented() -> dict[str, object]:
    """All public names with their values; names of topsign are not repeated for its modules."""
    found = {f"topsign.{name}": getattr(topsign, name) for name in public_names("")}
    for module in MODULES:
        for name in public_names(module):
            value = getattr(load(module), name)
            if not any(value is other for other in found.values() if not isinstance(value, (tuple, dict, str))):
                found[f"topsign.{module}.{name}"] = value
    return found


def members(cls: type) -> dict[str, object]:
    """Public members that the library defines, including those of base classes, in source order."""
    found: dict[str, object] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("topsign"):
            for name, value in vars(base).items():
                shown = getattr(cls, name, None)
                is_method = inspect.isroutine(shown) and shown.__module__.startswith("topsign")
                if not name.startswith("_") and (is_method or isinstance(value, (property, lazy))):
                    found.setdefault(name, getattr(shown, "__func__", shown) if is_method else value)
    return found


# Sentences ------------------------------------------------------------------------------------------------------


def parameters(value: object) -> dict[str, inspect.Parameter]:
    """Parameters that a user may pass, by name, without self."""
    if inspect.isclass(value) and not is_record(value):
        maker = value.__new__ if value.__init__ is object.__init__ else value.__init__
        if not (getattr(maker, "__module__", None) or "").startswith("topsign"):
            return {}  # made as its base class is
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return {}
    hidden = {"self", "cls"}
    return {name: one for name, one in signature.parameters.items() if name not in hidden and name[0] != "_"}


def described(lines: list[str]) -> dict[str, str]:
    """Descriptions in the sections Parameters and Attributes of a docstring, by name."""
    found: dict[str, str] = {}
    section, names = "", []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and re.fullmatch("-{3,}", below):
            section, names = line, []
        elif section in ("Parameters", "Attributes") and line and not line.startswith((" ", "-")):
            names = [name.strip().lstrip("*") for name in line.split(" :")[0].split(",")]
            found.update((name, "") for name in names)
        elif line.startswith(" "):
            found.update((name, f"{found[name]} {line.strip()}".strip()) for name in names)
    return found


def field_sentences(cls: type) -> dict[str, str]:
    """Comments and strings that follow the fields of a dataclass or named tuple in the source."""
    sentences: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("topsign"):
            source = textwrap.dedent(inspect.getsource(base))
            lines, body = source.splitlines(), ast.parse(source).body[0].body
            for node, below in zip(body, [*body[1:], None], strict=True):
                if isinstance(node, ast.AnnAssign):
                    comment = " ".join(re.findall(r"  # (.*)", "\n".join(lines[node.lineno - 1 : node.end_lineno])))
                    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                        comment = str(below.value.value)
                    sentences[node.target.id] = sentence(comment)
    return sentences


def sentence(text: str) -> str:
    """Capitalise the text and end it with a full stop."""
    return text and text[0].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def missing(name: str, value: object, lines: list[str]) -> dict[str, str]:
    """Descriptions of parameters that the docstring does not describe; empty if none is known."""
    given = described(lines)
    fields = field_sentences(value) if is_record(value) else {}
    shared = {**WORDS["words"], **WORDS.get(name.removeprefix("topsign."), {})}
    return {one: fields.get(one) or shared.get(one, "") for one in parameters(value) if not given.get(one)}


def is_record(value: object) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return dataclasses.is_dataclass(value) or hasattr(value, "_fields")


def complete(name: str, value: object, lines: list[str]) -> list[str]:
    """Add missing descriptions of parameters to a docstring."""
    additions = []
    known = parameters(value)
    given = described(lines)
    for one, text in missing(name, value, lines).items():
        if text and one not in given:
            kind = type_of(known[one])
            additions += [f"{one} : {kind}" if kind else one, f"    {text}"]
        elif text:
            at = next(i for i, line in enumerate(lines) if re.match(rf"(\w+, )*\**{one}\b( :|,|$)", line))
            lines = [*lines[: at + 1], f"    {text}", *lines[at + 1 :]]
    if not additions:
        return lines
    headings = [i for i in range(len(lines) - 1) if lines[i] and re.fullmatch("-{3,}", lines[i + 1])]
    heading = "Attributes" if is_record(value) else "Parameters"
    own = [i for i in headings if lines[i] == heading]
    if own:
        end = min((i for i in headings if i > own[0]), default=len(lines))
        return [*trimmed(lines[:end]), *additions, "", *lines[end:]]
    doctests = [i for i, line in enumerate(lines) if line.startswith(">>> ")]
    end = min([*headings, *doctests], default=len(lines))
    examples = ["Examples", "--------"] if end in doctests else []
    return [*trimmed(lines[:end]), "", heading, "-" * len(heading), *additions, "", *examples, *lines[end:]]


def trimmed(lines: list[str]) -> list[str]:
    """Remove empty lines at the end."""
    return "\n".join(lines).rstrip().split("\n")


def type_of(parameter: inspect.Parameter) -> str:
    """Short type of a parameter; empty if it is not short."""
    kind = parameter.annotation if isinstance(parameter.annotation, str) else ""
    kind = kind.replace("npt.ArrayLike", "array").replace("RandomState", "int or Generator, optional")
    kind = re.sub(r"\b(Float|Int|UInt)\d+\b|\bBytes\b|\bArray\b", "array", kind)
    kind = kind.replace(" | None", ", optional").replace(" | ", " or ")
    return kind if re.fullmatch(r"[\w, ]+", kind) and "Any" not in kind else ""


# Pages ----------------------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Text of every page of the reference in reStructuredText, by its name."""
    names = documented()
    texts = {"index": index_page(names)}
    for full, value in names.items():
        if inspect.isclass(value):
            texts[full.removeprefix("topsign.")] = class_page(full, value)
    for module in MODULES:
        texts[module] = module_page(module, {full: value for full, value in names.items() if of(full, module)})
    texts["functions"] = functions_page({full: value for full, value in names.items() if full.count(".") == 1})
    return texts


def of(full: str, module: str) -> bool:
    """Whether a name belongs to this module."""
    return full.rpartition(".")[0] == f"topsign.{module}"


def title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def class_page(full: str, cls: type) -> str:
    module = full.rpartition(".")[0]
    directive = "autoexception" if issubclass(cls, BaseException) else "autoclass"
    listed = f"   :members: {', '.join(members(cls))}\n" if members(cls) else ""
    name = full if module == "topsign" else full.removeprefix("topsign.")
    return f"{title(name.removeprefix('topsign.'))}.. currentmodule:: {module}\n\n.. {directive}:: {full}\n{listed}"


def module_page(module: str, names: dict[str, object]) -> str:
    classes = [full for full, value in names.items() if inspect.isclass(value)]
    text = f"{title(f'topsign.{module}')}.. automodule:: topsign.{module}\n   :no-members:\n\n"
    if classes:
        listed = "".join(f"   {full.removeprefix('topsign.')}\n" for full in classes)
        text += f".. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    return text + "".join(entry(full, value) for full, value in names.items() if full not in classes)


def functions_page(names: dict[str, object]) -> str:
    functions = {full: value for full, value in names.items() if not inspect.isclass(value)}
    return title("Functions") + ".. currentmodule:: topsign\n\n" + "".join(entry(*one) for one in functions.items())


def entry(full: str, value: object) -> str:
    if callable(value):
        return f".. autofunction:: {full}\n\n"
    words = WORDS["constants"].get(full.removeprefix("topsign."), "")
    return f".. py:data:: {full}\n   :value: {value!r}\n\n   {words}\n\n"


def index_page(names: dict[str, object]) -> str:
    text = title("API reference") + (
        "Only the names listed here are public. Methods return NumPy arrays for every type of input\n"
        "(:doc:`/how-to/interchange`). The :doc:`/reference/glossary` defines the terms.\n\n"
    )
    homes = {full: topsign._HOMES[full.removeprefix("topsign.")] for full in names if full.count(".") == 1}
    for group, packages in GROUPS.items():
        classes = [
            full for full, home in homes.items() if home.split(".")[0] in packages and inspect.isclass(names[full])
        ]
        text += tree(group, [full.removeprefix("topsign.") for full in classes])
    return text + tree("Functions and modules", ["functions", *MODULES])


def tree(caption: str, entries: list[str]) -> str:
    return (
        f".. toctree::\n   :caption: {caption}\n   :maxdepth: 1\n\n{''.join(f'   {one}{chr(10)}' for one in entries)}\n"
    )


def resolve(full: str) -> object:
    """Return the object with this dotted name."""
    value: object = topsign
    for part in full.split(".")[1:]:
        value = getattr(value, part)
    return value
