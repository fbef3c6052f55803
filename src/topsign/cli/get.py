"""The command ``get``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..index import Entry
from .app import app, exit_on_error
from .options import EntryIds, IndexPath, as_ids, opened_index
from .output import write_lines


@app.command()
def get(
    index: IndexPath,
    ids: EntryIds,
) -> None:
    """Print the ids and metadata of entries, one JSON object per line.

    [bold]Examples[/]

    topsign get cameras.topsign 17 42

    topsign get docs.topsign doc-1
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(2):
        entries = opened.get(as_ids(opened, ids))
    print_entries(entries)


def print_entries(entries: Iterable[Entry]) -> None:
    """Print ids and metadata, one JSON object per line."""
    write_lines(json.dumps({"id": one.id, "metadata": one.metadata}, ensure_ascii=False) for one in entries)
