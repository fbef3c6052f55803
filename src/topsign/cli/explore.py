"""The command ``explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .app import app, console, exit_on_error
from .options import opened_index


@app.command()
def explore(
    index: Annotated[Path | None, typer.Argument(help="Index to browse.", show_default=False)] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 chooses a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Explore detection performance by code size, and the contents of an index, in the browser.

    The page is served only on 127.0.0.1, under an address with a secret token; no data leave the machine. Stop the
    server with Ctrl-C. Needs the extra explore.

    [bold]Examples[/]

    topsign explore

    topsign explore cameras.topsign --no-browser
    """
    with exit_on_error(2):
        from ..explore import serve

        opened = None if index is None else opened_index(index, readonly=True)
        serve(opened, port=port, open_browser=browser, announce=lambda address: console.print(address))
