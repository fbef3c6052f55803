"""The command ``remove``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app, console, exit_on_error, fail
from .options import IndexPath, Wait, as_ids, opened_index, read_ids

RemovedIds = Annotated[list[str] | None, typer.Argument(help="Ids to remove.", show_default=False)]
RemovedFile = Annotated[
    Path | None, typer.Option("--ids", help="Ids in a .npy file, or in a text file with one id per line.")
]


@app.command()
def remove(
    index: IndexPath,
    ids: RemovedIds = None,
    ids_file: RemovedFile = None,
    timeout: Wait = None,
) -> None:
    """Remove entries by id; if any id is unknown, none is removed.

    [bold]Examples[/]

    topsign remove cameras.topsign 17 42

    topsign remove cameras.topsign --ids gone.npy

    topsign remove docs.topsign doc-17
    """
    check_removed(ids, ids_file)
    remove_entries(opened_index(index, timeout=timeout), index, ids, ids_file)


def check_removed(ids: list[str] | None, ids_file: Path | None) -> None:
    """Require ids either on the command line or in a file."""
    if bool(ids) == (ids_file is not None):
        raise fail("give ids, or a file of them with --ids", code=2)


def remove_entries(index: Any, name: object, ids: list[str] | None, ids_file: Path | None) -> None:
    """Remove entries from a local or cluster index."""
    with exit_on_error(2):
        wanted: Any = as_ids(index, ids) if ids else read_ids(ids_file) if ids_file else []
        index.remove(wanted)
    console.print(f"{name}: {len(wanted):,} removed, {len(index):,} entries left")
