"""Arguments that must be named: a sentence where they are missing, or given by position."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


def named(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function, whose TypeErrors for such arguments say how to call it."""
    parameters = signature(function).parameters.values()
    n_places = sum(one.kind is not Parameter.KEYWORD_ONLY for one in parameters)
    needed = {one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty}

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> Result:
        if len(arguments) > n_places:
            _refuse(function, arguments)
        if not needed <= options.keys():
            _refuse_without(function, needed - options.keys())
        return function(*arguments, **options)

    return call


def _described(function: Callable[..., Any]) -> tuple[str, list[str], list[str]]:
    """Name as it is called, and the names of parameters by position and of others."""
    places, names = list[str](), list[str]()
    for one in signature(function).parameters.values():
        if one.name != "self":
            (names if one.kind is Parameter.KEYWORD_ONLY else places).append(one.name)
    owner, _, name = function.__qualname__.rpartition(".")
    return owner if name == "__init__" else name, places, names


def _refuse_without(function: Callable[..., Any], missing: set[str]) -> NoReturn:
    name, places, names = _described(function)
    lacking = [one for one in names if one in missing]
    example = ", ".join([*places, *(f"{one}=..." for one in lacking)])
    raise TypeError(f"{name} needs {' and '.join(lacking)}: {name}({example}); there are {', '.join(names)}")


def _refuse(function: Callable[..., Any], arguments: tuple[Any, ...]) -> NoReturn:
    name, places, names = _described(function)
    n_given = len(arguments) - ("self" in signature(function).parameters)
    example = ", ".join([*places, *(f"{one}=..." for one in names[: n_given - len(places)])])
    taken = f"{name} takes {' and '.join(places) or 'nothing'} by position"
    given = f"got {n_given} argument{'s' if n_given > 1 else ''}"
    raise TypeError(f"{taken}, {given}; name the rest: {name}({example}); there are {', '.join(names)}")
