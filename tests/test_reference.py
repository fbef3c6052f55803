"""API reference: every public name is listed, and every parameter is described where ``help`` shows it."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from functools import cache, reduce

import pytest
from pages import ROOT

import topsign

API = ROOT / "docs" / "reference" / "api.rst"
LISTED = re.findall(r"^   ([\w.]+)$", API.read_text(), flags=re.MULTILINE)


def named(name):
    try:
        return importlib.import_module(f"topsign.{name}")
    except ModuleNotFoundError:
        return reduce(getattr, name.split("."), topsign)


def names_of(module):
    """Public names of a module of which the reference shows all."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in getattr(module, "__all__", own) if not name.startswith("_")]


def test_every_public_name_is_listed():
    modules = {name for name, home in topsign._HOMES.items() if not home}
    assert set(topsign._HOMES) - modules <= set(LISTED)
    assert modules <= {name.split(".")[0] for name in LISTED}


def callables():
    """Yield every function, class and method of the reference with its name and the docstrings that describe it."""
    for listed in LISTED:
        value = named(listed)
        one = {listed: value}
        if inspect.ismodule(value):
            one = {f"{listed}.{name}": getattr(value, name) for name in names_of(value)}
        for full, found in one.items():
            if inspect.isclass(found):
                if not issubclass(found, BaseException):
                    ours = [
                        inspect.getdoc(base) or "" for base in found.__mro__ if base.__module__.startswith("topsign")
                    ]
                    yield full, found, [*ours, fields_of(found)]
                yield from methods(full, found)
            elif callable(found):
                yield full, found, [inspect.getdoc(found) or ""]


def methods(full, cls):
    """Methods of a class; recipes and projections have those of Recipe and Projection."""
    if any(issubclass(cls, base) and cls is not base for base in (topsign.Recipe, topsign.projections.Projection)):
        return
    bases = [base for base in cls.__mro__ if base.__module__.startswith("topsign")]
    for name in {name for base in bases for name in vars(base) if not name.startswith("_")}:
        member = getattr(cls, name)
        if inspect.isroutine(member) and callable(member) and member.__module__.startswith("topsign"):
            overridden = [inspect.getdoc(getattr(base, name)) or "" for base in bases if name in vars(base)]
            yield f"{full}.{name}", member, overridden


def test_unknown_keywords_are_refused_with_a_suggestion():
    """By every class, method and function that is imported from topsign itself; a recipe's own methods are internal."""
    modules, n_checked = {name for name, home in topsign._HOMES.items() if not home}, 0
    for full, found, _ in callables():
        kinds = {one.kind for one in inspect.signature(found).parameters.values()}
        own = full.split(".")[0] not in {*modules, "paper", "Recipe"} and "bad_checksum" not in full
        if own and inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_KEYWORD not in kinds:
            unbound = "." in full and not inspect.ismethod(found)
            with pytest.raises(TypeError, match=r"has no parameter unknown_: (did you mean \w+\?|it takes \w+)"):
                found(*[topsign] * unbound, unknown_=1)
            n_checked += 1
    assert n_checked > 30


@cache
def fields_of(cls):
    """Comments that start with ``#:`` on fields of a dataclass or named tuple, in the form of Attributes."""
    found = []
    for base in cls.__mro__ if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields") else ():
        if base.__module__.startswith("topsign"):
            source = textwrap.dedent(inspect.getsource(base))
            lines, body = source.splitlines(), ast.parse(source).body[0].body
            for node, below in zip(body, [*body[1:], None], strict=True):
                if isinstance(node, ast.AnnAssign):
                    comment = " ".join(re.findall(r"#: (.*)", "\n".join(lines[node.lineno - 1 : node.end_lineno])))
                    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                        comment = str(below.value.value)
                    found += [f"{node.target.id} :", f"    {comment}"]
    return "\n".join(["Attributes", "----------", *found])


def parameters(value):
    """Names of the parameters that a user may pass."""
    if inspect.isclass(value) and not (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        maker = value.__new__ if value.__init__ is object.__init__ else value.__init__
        if not (getattr(maker, "__module__", None) or "").startswith("topsign"):
            return []  # made as its base class is
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls") and name[0] != "_"]


def is_described(name, docstring):
    """Whether an entry of Parameters or Attributes, or a sentence with ``name``, describes a parameter."""
    entries = re.findall(r"^(\S.*)\n    (.{8})", docstring, flags=re.MULTILINE)
    listed = {one.strip().lstrip("*") for names, _ in entries for one in names.split(" :")[0].split(",")}
    return name in listed or re.search(rf"``{name}(``|=)", docstring) is not None


def test_every_parameter_is_described_in_its_docstring():
    silent = []
    for full, value, docstrings in callables():
        assert docstrings[0], f"{full} has no docstring"
        names = [name for name in parameters(value) if not any(is_described(name, one) for one in docstrings)]
        silent += [f"{full}({name}=)" for name in names]
    assert not silent, silent


def test_a_parameter_without_a_description_is_detected():
    docstring = "Parameters\n----------\nqueries, ids : array\n    One row each.\n\nAt most ``k`` results; recall."
    assert all(is_described(name, docstring) for name in ("queries", "ids", "k"))
    assert not is_described("recall", docstring)
