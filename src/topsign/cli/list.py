"""The command ``list``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .app import app, exit_on_error
from .options import IndexPath, opened_index


@app.command(name="list")
def list_ids(
    index: IndexPath,
    limit: Annotated[int | None, typer.Option(help="Print at most so many.")] = None,
) -> None:
    """Print the ids of all entries, one per line.

    [bold]Examples[/]

    topsign list cameras.topsign

    topsign list cameras.topsign --limit 10
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(1):
        ids = opened.ids
        for start in range(0, len(ids[:limit]), 10_000):
            sys.stdout.writelines(f"{id}\n" for id in ids[:limit][start : start + 10_000])
