"""The command ``verify``."""

from __future__ import annotations

from .app import app, console, exit_on_error
from .options import IndexPath, opened_index
from .output import show_null


@app.command()
def verify(index: IndexPath) -> None:
    """Read all of an index: every file, every checksum, every id.

    [bold]Examples[/]

    topsign verify cameras.topsign
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(1):
        opened.verify()
    sound = f"sound: {len(opened):,} entries, {opened.nbytes:,} bytes in {opened.info['segments']:,} segments"
    console.print(f"{index}: {sound}")
    show_null(opened)
