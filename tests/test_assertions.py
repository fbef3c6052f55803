"""Every test can fail: it asserts, expects an error or a warning, or calls a helper that does."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent
OUTSIDE = {"check_estimator", "check_family", "doctest", "opcheck", "testmod"}  # helpers of packages that raise


def called(function):
    """Return the names of the functions that a function calls, receives or passes on."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def checks(function):
    nodes = list(ast.walk(function))
    names = called(function)
    return (
        any(isinstance(node, ast.Assert) for node in nodes)
        or not names.isdisjoint({"raises", "warns", "fail"} | OUTSIDE)
        or any(name.startswith("assert_") for name in names)
    )


def test_every_test_asserts_or_calls_a_helper_that_does():
    functions = [
        (path, node)
        for path in sorted(FOLDER.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    helpers = {node.name for _, node in functions if not node.name.startswith("test_") and checks(node)}
    tests = [
        (path, node) for path, node in functions if node.name.startswith("test_") and path.name.startswith("test_")
    ]
    assert len(tests) > 900
    idle = [
        f"{path.name}::{node.name}" for path, node in tests if not checks(node) and helpers.isdisjoint(called(node))
    ]
    assert idle == []
