"""The command ``info``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from .. import __version__, kernels
from .app import app, console, exit_on_error


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Show processor, kernels, threads and versions for bug reports, and why faster kernels are not used.

    [bold]Examples[/]

    topsign info

    topsign info --json
    """
    with exit_on_error(1):
        shown = {"topsign": __version__, **kernels.info()}
    if as_json:
        console.print_json(json.dumps(shown))
        return
    table = Table(show_header=False)
    for name, value in shown.items():
        if isinstance(value, dict):
            value = "\n".join(f"{path}: {reason}" for path, reason in value.items())
        elif isinstance(value, list):
            value = ", ".join(value)
        table.add_row(name, "-" if value is None else str(value))
    console.print(table)
