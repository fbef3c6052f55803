"""API reference: every parameter of a public name has a description."""

import inspect
import sys

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import reference_pages as reference

pytestmark = pytest.mark.slow


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
