"""The Typer application, its exit codes and its error messages."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from .. import __version__
from ..errors import CalibrationWarning, StorageError

app = typer.Typer(
    name="topsign",
    help="Binary codes of signals that adapt to each signal.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class DataConsole(Console):
    """Console for data: no markup or highlights, and control characters are escaped on a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print text in unbroken lines, and other objects as wide as the terminal."""
        options.setdefault("soft_wrap", all(isinstance(one, str | Text) for one in objects))
        super().print(*(self.shown(one) if isinstance(one, str) else one for one in objects), **options)

    def shown(self, text: str) -> str:
        """Return text as it is printed."""
        return escaped(text, kept="\n") if self.is_terminal else text


def escaped(text: str, *, kept: str = "") -> str:
    """Return text with control, format and separator characters as escape sequences.

    >>> print(escaped("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(repr(one)[1:-1] if unicodedata.category(one) in hidden and one not in kept else one for one in text)


console = DataConsole()
errors = DataConsole(stderr=True)


FLAGS = {
    "n_bits": "--bits",
    "n_bytes": "--bytes",
    "n_pool": "--pool",
    "projection": "--projection",
    "basis": "--projection",
    "metric": "--metric",
    "center": "--center",
    "random_state": "--seed",
    "originals": "--originals",
}
"""Options of codes, keyed by the parameters of the index constructors."""

WORDS = FLAGS | {
    "family": "--family",
    "adaptive_bits": "--adaptive-bits",
    "false_alarm": "--false-alarm",
    "k": "-k",
    "n_regions": "--regions",
    "recall": "--recall",
    "max_bytes": "--max-bytes",
    "queries_per_second": "--queries-per-second",
    "port": "--port",
    "target_recall": "--target-recall",
    "scoring": "--scoring",
    "seed": "--seed",
    "threshold": "--threshold",
    "where": "--where",
    "correlation": "--correlation",
    "detection": "--detection",
}
"""Command-line options, keyed by the library's parameter names."""

PHRASES = {
    "index.ids lists": "topsign list INDEX lists",
    "index[id].metadata": "topsign get INDEX ID",
    "where names": "--where names",
    "where orders": "--where orders",
    "with ids=": "with --ids or --id-column",
    "ids= goes with": "--ids goes with",
    "upsert replaces": "--upsert replaces",
    "by index.calibrate()": "with topsign calibrate",
    "make the index with center=True": "build the index with --center",
    "force=True": "--force",
}
"""Phrases of the library's messages that name its methods, in the words of the command line."""

_ANY = "|".join(WORDS)
_LONG = "|".join(name for name in WORDS if "_" in name)  # names with an underscore are always parameters
_NAMED = re.compile(
    rf"(?<![-\w])(?:({_ANY})=(True\b|False\b|'[^']*'|\"[^\"]*\")?|({_LONG})\b|({_ANY})(?= must\b))"  # not --family
)


def in_options(message: str) -> str:
    """Rewrite a message of the library so that it names options instead of parameters.

    >>> in_options("n_bits must lie in [1, n_pool], got n_bits=9 with center=False")
    '--bits must lie in [1, --pool], got --bits 9 with --no-center'
    """

    def option(found: re.Match[str]) -> str:
        name, value, *alone = found.groups()
        if name is None:
            return WORDS[alone[0] or alone[1]]
        if value in ("True", "False"):
            return WORDS[name] if value == "True" else f"--no-{WORDS[name].removeprefix('--')}"
        return f"{WORDS[name]} {'' if value is None else value[1:-1]}"

    return _NAMED.sub(option, in_commands(message))


def in_commands(message: str) -> str:
    """Rewrite a message of the library so that it names commands instead of methods."""
    for phrase, words in PHRASES.items():
        message = message.replace(phrase, words)
    return message


def fail(message: str, *, code: int) -> typer.Exit:
    """Print an error and exit; code 1 stands for bad data, 2 for bad usage."""
    errors.print(Text("error:", "bold red"), message)
    return typer.Exit(code)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Binary codes of signals that adapt to each signal."""


@contextmanager
def exit_on_error(code: int) -> Iterator[None]:
    """Convert exceptions of the library to a message and an exit code.

    The code is 2 for a missing file or package, and 1 for bad file contents and failures of the machine or cluster.
    ValueError and TypeError exit with ``code``, 2 if the options caused them or 1 if the data did, and the message
    names options instead of parameters.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):  # these derive from RuntimeError
        raise
    except (FileNotFoundError, ImportError) as error:
        raise fail(str(error), code=2) from None
    except (ValueError, TypeError) as error:
        raise fail(in_options(str(error)), code=code) from None
    except (StorageError, OSError, MemoryError, RuntimeError) as error:
        raise fail(str(error), code=1) from None


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print each warning of the library once on the error stream."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        yield
    for message in dict.fromkeys(str(one.message) for one in caught):
        errors.print(Text("warning:", "bold yellow"), in_options(message))


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Prefix errors with the name of the file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"{file}: {error}") from None
