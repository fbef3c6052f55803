"""Arguments that must be named: a sentence where they are given by position."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


def named(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function, whose TypeError for too many positional arguments says how to call it."""
    parameters = signature(function).parameters.values()
    n_places = sum(one.kind is not Parameter.KEYWORD_ONLY for one in parameters)

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> Result:
        if len(arguments) > n_places:
            _refuse(function, arguments)
        return function(*arguments, **options)

    return call


def _refuse(function: Callable[..., Any], arguments: tuple[Any, ...]) -> NoReturn:
    places, names = list[str](), list[str]()
    for one in signature(function).parameters.values():
        if one.name != "self":
            (names if one.kind is Parameter.KEYWORD_ONLY else places).append(one.name)
    owner, _, name = function.__qualname__.rpartition(".")
    name = owner if name == "__init__" else name
    n_given = len(arguments) - bool(owner)
    example = ", ".join([*places, *(f"{one}=..." for one in names[: n_given - len(places)])])
    taken = f"{name} takes {' and '.join(places) or 'nothing'} by position"
    given = f"got {n_given} argument{'s' if n_given > 1 else ''}"
    raise TypeError(f"{taken}, {given}; name the rest: {name}({example}); there are {', '.join(names)}")
