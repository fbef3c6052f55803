"""The mutants of ``make test-mutants`` apply to the current source."""

import ast
from pathlib import Path

import mutants
import pytest

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def found():
    return list(mutants.ruled_mutants())


def test_every_chosen_mutant_changes_the_source():
    found = list(mutants.chosen_mutants())
    assert len(found) == len(mutants.CHOSEN) >= 12
    for one in found:
        ast.parse(one.applied((mutants.SOURCE / one.file).read_text()))


def test_rules_make_mutants_of_every_kind(found):
    assert len({one.key for one in found}) == len(found) > 5000
    assert {"<=", "-", "or", "pass", "True", "return None"} <= {one.new for one in found}
    assert sum(one.reason is not None for one in found) >= len(mutants.EQUIVALENT)
    assert {one.reason for one in found} == {None, *mutants.EQUIVALENT.values()}, "an equivalent mutant is gone"
    for one in mutants.choose(found, 100, seed=0):
        text = (mutants.SOURCE / one.file).read_text()
        changed = one.applied(text)
        assert changed != text
        ast.parse(changed)
    assert mutants.choose(found, 50, seed=0) == mutants.choose(found, 300, seed=0)[:50]


def test_every_module_has_tests_that_exist(found):
    assert {name for names in mutants.TESTS.values() for name in names} <= {path.stem for path in FOLDER.glob("*.py")}
    assert all(one.tests for one in {one.file: one for one in found}.values())
