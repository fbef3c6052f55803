"""API reference: every public name has a page, every parameter a description, and every command a section."""

import importlib
import inspect
import re
import sys

import pytest
from pages import ROOT

import topsign

sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import command_line
import reference_pages as reference

pytestmark = pytest.mark.slow

PUBLIC_MODULES = sorted(name for name, home in topsign._HOMES.items() if not home)


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def test_every_public_module_has_its_page(pages):
    assert set(PUBLIC_MODULES) <= set(pages)


@pytest.mark.parametrize("module", ["", *PUBLIC_MODULES, "plots", "evaluation"])
def test_every_public_name_has_its_page(pages, module):
    """Names of ``__all__``, except modules and names that packages share internally."""
    home = importlib.import_module(f"topsign.{module}".rstrip("."))
    text = "\n".join(pages.values())
    names = getattr(home, "__all__", [name for name in vars(home) if name.startswith("plot_")])
    for name in set(names) - reference.SHARED.get(module, set()):
        value = getattr(home, name)
        if not inspect.ismodule(value):
            found = re.search(rf":: topsign\.([\w.]+\.)?{name}$", text, flags=re.MULTILINE)
            assert found, f"topsign.{module}.{name} has no page"
            if inspect.isclass(value):
                page = found[0].removeprefix(":: topsign.")
                assert page in pages, f"{page} has no page of its own"


def test_class_pages_list_every_public_method(pages):
    for full, value in reference.documented().items():
        if inspect.isclass(value):
            listed = set(re.findall(r"\w+", "".join(re.findall(r":members:(.*)", pages[full[len("topsign.") :]]))))
            own = {name for name, one in inspect.getmembers(value, inspect.isfunction) if is_ours(name, one)}
            assert own <= listed, full


def is_ours(name, function):
    return not name.startswith("_") and function.__module__.startswith("topsign")


def callables():
    """Yield every public function, class and method with its name and docstring."""
    for full, value in reference.documented().items():
        if inspect.isclass(value) and not issubclass(value, BaseException):
            yield full, value, value
        if inspect.isclass(value):
            for name, member in reference.members(value).items():
                if inspect.isfunction(member):
                    yield f"{full}.{name}", member, getattr(value, name)
        elif callable(value):
            yield full, value, value


def test_every_parameter_is_described():
    silent = []
    for full, value, shown in callables():
        lines = (inspect.getdoc(shown) or "").splitlines()
        assert lines, f"{full} has no docstring"
        completed = reference.described(reference.complete(full, value, lines))
        silent += [f"{full}({name}=)" for name in reference.parameters(value) if len(completed.get(name, "")) < 8]
    assert not silent, f"describe them in their docstrings, or in docs/_tools/words.toml: {silent}"


def test_a_parameter_without_a_description_is_detected():
    def search(queries, unheard_of):
        """Searches."""

    completed = reference.described(reference.complete("search", search, ["Searches."]))
    assert completed["queries"]
    assert "unheard_of" not in completed


def test_words_of_one_name_belong_to_a_public_name():
    known = {full.removeprefix("topsign.") for full, _, _ in callables()}
    assert set(reference.WORDS) - {"words", "constants"} <= known


def test_every_command_and_option_is_in_the_reference():
    page = command_line.page()
    for name, command in command_line.commands():
        section = page.split(f"## `{name}`\n")[1].split("\n## ")[0]
        for option in command.params:
            flags = [flag for flag in option.opts if flag.startswith("-")]
            assert all(flag in section for flag in flags), f"{name} {flags}"
    assert {"topsign search", "topsign explore", "topsign cameras identify"} <= {
        name for name, _ in command_line.commands()
    }
