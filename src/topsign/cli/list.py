"""The command ``list``."""

from __future__ import annotations

from typing import Any

from .app import app, exit_on_error
from .options import IndexPath, Limit, opened_index
from .output import write_lines


@app.command(name="list")
def list_ids(
    index: IndexPath,
    limit: Limit = None,
) -> None:
    """Print the ids of all entries, one per line.

    [bold]Examples[/]

    topsign list cameras.topsign

    topsign list cameras.topsign --limit 10
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(1):
        print_ids(opened.ids[:limit])


def print_ids(ids: Any) -> None:
    """Print ids, one per line."""
    for start in range(0, len(ids), 10_000):
        write_lines(map(str, ids[start : start + 10_000]))
