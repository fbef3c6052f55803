"""The command ``calibrate``."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from ..signals import open_files
from .app import app, console, exit_on_error
from .options import ArrayName, IndexPath, SignalPath, Threads, opened_index

MAX_SIGNALS = 5000


@app.command()
def calibrate(
    index: IndexPath,
    impostors: SignalPath,
    pairs: Annotated[int, typer.Option(help="Pairs of a signal and an entry to learn from.")] = 500_000,
    array: ArrayName = None,
    threads: Threads = None,
) -> None:
    """Learn the null of scores from signals that match no entry; p-values and E-values then hold for such signals.

    A few hundred signals or more, of the kind that will be searched for. The null is stored in the index.

    [bold]Examples[/]

    topsign calibrate sentences.topsign other-sentences.npy
    """
    opened = opened_index(index)
    with exit_on_error(1):
        files = open_files(impostors, array)
        total = sum(file.n_signals for file in files)
        step = -(-total // MAX_SIGNALS)  # all of a few, every so many of a multitude
        signals = np.concatenate([np.asarray(file.rows()[::step]) for file in files])
        learned = opened.calibrate(signals, n_pairs=pairs, n_threads=threads)
        check = opened.check_null(signals)
    console.print(
        f"{index}: null learned from {learned.asymmetric.n_scores:,} pairs of {learned.n_queries:,} signals; "
        f"p-values are at least {learned.floor:.1g}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"check: {check}", highlight=False, soft_wrap=True)
