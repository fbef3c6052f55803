"""The command ``compact``."""

from __future__ import annotations

from .app import app, console, exit_on_error
from .options import IndexPath, Wait, opened_index


@app.command()
def compact(index: IndexPath, timeout: Wait = None) -> None:
    """Drop removed entries and merge small segments; concurrent searches continue.

    [bold]Examples[/]

    topsign compact cameras.topsign
    """
    opened = opened_index(index, timeout=timeout)
    n_removed = opened.info["removed"]
    with exit_on_error(1):
        opened.compact()
    left = f"{len(opened):,} entries in {opened.nbytes:,} bytes"
    console.print(f"{index}: {n_removed:,} removed entries freed, {left}")
