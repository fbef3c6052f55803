"""The application that all commands belong to, and its exit codes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

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
console = Console(markup=False, emoji=False)  # what is printed is data: paths and metadata may look like markup
errors = Console(stderr=True, markup=False, emoji=False)


def fail(message: str, *, code: int) -> typer.Exit:
    """Prints an error; code 1 is for the data, 2 for the call."""
    errors.print(Text("error:", "bold red"), Text(message), highlight=False, soft_wrap=True)
    return typer.Exit(code)


def show_version(wanted: bool) -> None:
    """Prints the version and exits."""
    if wanted:
        console.print(__version__, highlight=False)
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
    """Turns exceptions of the library into a message and an exit code, by their type.

    2: a file or package that is not there. 1: what files hold, and what a machine or cluster lacks. Bad values
    (ValueError, TypeError) are ``code``: 2 where they come from the options, 1 where they come from the data.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):  # RuntimeErrors, too
        raise
    except (FileNotFoundError, ImportError) as error:
        raise fail(str(error), code=2) from None
    except (ValueError, TypeError) as error:
        raise fail(str(error), code=code) from None
    except (StorageError, OSError, MemoryError, RuntimeError) as error:
        raise fail(str(error), code=1) from None


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Prints warnings of the library on the error stream, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        yield
    for message in dict.fromkeys(str(one.message) for one in caught):
        errors.print(Text("warning:", "bold yellow"), Text(message), highlight=False, soft_wrap=True)


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Names the file whose contents are refused."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"{file}: {error}") from None
