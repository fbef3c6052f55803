"""The Typer application, its exit codes, its error messages and its text output. Imports nothing slow."""

from __future__ import annotations

import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, getdoc, signature
from typing import Annotated, Any, get_type_hints

import typer

from .. import __version__

app = typer.Typer(
    name="topsign",
    help="Compact codes of signals: detection, search and classification on the codes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def escaped(text: str, *, kept: str = "") -> str:
    """Return text with control, format and separator characters as escape sequences.

    >>> print(escaped("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(repr(one)[1:-1] if unicodedata.category(one) in hidden and one not in kept else one for one in text)


class Output:
    """Standard output or the error stream; control characters are escaped on a terminal."""

    def __init__(self, stream: str) -> None:
        self._stream = stream

    def shown(self, text: str) -> str:
        """Return text as it is printed."""
        return escaped(text, kept="\n") if getattr(sys, self._stream).isatty() else text

    def print(self, *objects: Any, label: str = "", color: str = "") -> None:
        """Print lines of text, after a coloured label; other objects are drawn by rich, as wide as the terminal."""
        if all(isinstance(one, str) for one in objects):
            plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
            start = [label if plain else typer.style(label, fg=color, bold=True)] if label else []
            typer.echo(" ".join([*start, *map(self.shown, objects)]), err=self._stream == "stderr")
            return
        from rich.console import Console

        Console(stderr=self._stream == "stderr", markup=False, emoji=False, highlight=False).print(*objects)


console, errors = Output("stdout"), Output("stderr")


def fail(message: str, *, code: int) -> typer.Exit:
    """Print an error and exit; code 1 stands for damage and failures, 2 for bad input."""
    errors.print(message, label="error:", color="red")
    return typer.Exit(code)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Compact codes of signals: detection, search and classification on the codes."""


@contextmanager
def _explained(code: int) -> Iterator[None]:
    """Print each warning of the library once, and convert its exceptions to a message and an exit code.

    The code is ``code`` for bad values and types, 2 for a missing file or package, and 1 for damage and for failures of
    the machine or cluster.
    """
    from ..errors import CalibrationWarning, StorageError

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            try:
                yield
            finally:
                for message in dict.fromkeys(str(one.message) for one in caught):
                    errors.print(message, label="warning:", color="yellow")
    except (typer.Exit, typer.Abort):  # these derive from RuntimeError
        raise
    except FileNotFoundError as error:
        raise fail(str(error) if error.filename is None else f"{error.filename} does not exist", code=2) from None
    except ImportError as error:
        raise fail(str(error), code=2) from None
    except (ValueError, TypeError) as error:
        raise fail(str(error), code=code) from None
    except (StorageError, OSError, MemoryError, RuntimeError) as error:
        raise fail(str(error), code=1) from None


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Prefix errors with the name of the file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"{file}: {error}") from None


def command(
    group: typer.Typer = app, name: str | None = None, *, code: int = 2
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command, whose exit code is ``code`` if the library refuses a value.

    Each parameter that is a dataclass becomes one option per field, and exceptions of the library become messages.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
        parameters = list[Parameter]()
        for own, parameter in signature(function).parameters.items():
            inner = signature(groups[own]).parameters if own in groups else {own: parameter}
            known = get_type_hints(groups[own], include_extras=True) if own in groups else hints
            parameters += [one.replace(annotation=known[one.name]) for one in inner.values()]

        @wraps(function)
        def call(**given: Any) -> None:
            for own, kind in groups.items():
                given[own] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            with _explained(code):
                function(**given)

        parameters.sort(key=lambda one: one.default is not Parameter.empty)  # parameters with defaults must come last
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        group.command(name=name, help=help_text(getdoc(function) or ""))(call)
        return call

    return register


def help_text(doc: str) -> str:
    """Return a docstring for the help: a line for each paragraph and for each example, which begins with topsign."""
    paragraphs = doc.split("\n\n")
    return "\n\n".join(one.replace("\n", "\n\n" if one.startswith("topsign ") else " ") for one in paragraphs)
