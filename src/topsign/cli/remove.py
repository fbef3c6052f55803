"""The command ``remove``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app, console, exit_on_error, fail
from .options import IndexPath, Wait, as_ids, opened_index, read_ids


@app.command()
def remove(
    index: IndexPath,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids to remove.", show_default=False)] = None,
    ids_file: Annotated[Path | None, typer.Option("--ids", help="Ids in a .npy file, or texts, one per line.")] = None,
    timeout: Wait = None,
) -> None:
    """Remove entries by their ids: all of them, or none where one is unknown.

    [bold]Examples[/]

    topsign remove cameras.topsign 17 42

    topsign remove cameras.topsign --ids gone.npy

    topsign remove docs.topsign doc-17
    """
    if bool(ids) == (ids_file is not None):
        raise fail("give ids, or a file of them with --ids", code=2)
    opened = opened_index(index, timeout=timeout)
    with exit_on_error(2):
        wanted: Any = as_ids(opened, ids) if ids else read_ids(ids_file) if ids_file else []
        opened.remove(wanted)
    console.print(f"{index}: {len(wanted):,} removed, {len(opened):,} entries left", highlight=False)
