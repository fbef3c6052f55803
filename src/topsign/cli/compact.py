"""The command ``compact``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .app import app, console, exit_on_error
from .options import IndexPath, Wait, opened_index


@app.command()
def compact(
    index: IndexPath,
    shrink: Annotated[bool, typer.Option("--shrink", help="Give the free bytes back to the file system.")] = False,
    timeout: Wait = None,
) -> None:
    """Free the bytes of removed entries, while searches go on.

    Additions use them again. With --shrink a shorter copy replaces the file; programs that have it open go on.

    [bold]Examples[/]

    topsign compact cameras.topsign

    topsign compact cameras.topsign --shrink
    """
    opened = opened_index(index, timeout=timeout)
    n_removed = opened.n_removed
    with exit_on_error(1):
        opened.compact(shrink=shrink)
    left = f"{len(opened):,} entries in {opened.nbytes:,} bytes"
    file = f", the file has {os.stat(index).st_size:,}" if shrink else ""
    console.print(f"{index}: {n_removed:,} removed entries freed, {left}{file}", highlight=False)
