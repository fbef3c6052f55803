"""The application that all commands belong to, and how it tells of mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .. import __version__
from ..errors import StorageError

app = typer.Typer(
    name="topsign",
    help="Binary codes of signals that adapt to each signal.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


def fail(message: str, *, code: int) -> typer.Exit:
    """Says what is wrong: code 1 for the data, 2 for the call."""
    errors.print("[bold red]error:[/]", Text(message), highlight=False, soft_wrap=True)
    return typer.Exit(code)


def show_version(wanted: bool) -> None:
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
def told(code: int) -> Iterator[None]:
    """Turns the library's refusals into messages: what a file holds is code 1, other refusals are ``code``."""
    try:
        yield
    except (StorageError, TimeoutError) as error:
        raise fail(str(error), code=1) from None
    except (ValueError, TypeError) as error:
        raise fail(str(error), code=code) from None


@contextmanager
def named(file: str) -> Iterator[None]:
    """Names the file whose contents are refused."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from None
