"""The command ``regions``."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from ..index import Index
from ..signals import open_files
from .app import app, console, exit_on_error, fail
from .options import ArrayName, IndexPath, Recall, opened_index
from .output import bar

CHECK_QUERIES = 5000


@app.command()
def regions(
    index: IndexPath,
    check: Annotated[
        str | None,
        typer.Option(help="Learn nothing; compare searches for a recall with exhaustive ones, for these queries."),
    ] = None,
    n_regions: Annotated[
        int | None, typer.Option("--regions", help="Number of regions. (default: by the number of entries)")
    ] = None,
    recall: Recall = None,
    k: Annotated[int, typer.Option("-k", help="Neighbours that --check counts.")] = 10,
    array: ArrayName = None,
) -> None:
    """Divide the entries into regions, so that topsign search --recall visits a few of them.

    Regions are learned from the codes. Later additions are assigned to them; learn again when the index has grown
    fourfold, which topsign inspect shows.

    [bold]Examples[/]

    topsign regions docs.topsign

    topsign regions docs.topsign --check queries.npy --recall 0.95
    """
    if check is not None and n_regions is not None:
        raise fail("--regions is learned without --check", code=2)
    if check is None and recall is not None:
        raise fail("--recall goes with --check; any recall can be asked for after learning", code=2)
    opened = opened_index(index, readonly=check is not None)
    if check is None:
        show_learned(opened, n_regions)
        return
    with exit_on_error(2):
        files = open_files(check, array)
    with exit_on_error(1):
        queries = np.concatenate([np.asarray(file.rows()[:CHECK_QUERIES]) for file in files])[:CHECK_QUERIES]
        found = opened.check(queries, k=k, recall=0.95 if recall is None else recall)
    console.print(str(found))


def show_learned(index: Index, n_regions: int | None) -> None:
    """Learn the regions of an index with a progress bar, and print their number and properties."""
    with exit_on_error(1), bar("regions, %") as progress:
        found = index.learn_regions(n_regions=n_regions or "auto", progress=progress)
    if found is None:
        text = f"{len(index):,} entries need no regions: comparing all of them is faster"
    else:
        calibrated = f"recall is of {found.recall_of}, calibrated with {found.n_queries:,} queries"
        text = f"{found.n_regions:,} regions of {found.n_entries:,} entries; {calibrated}"
    console.print(text)
