"""The command ``calibrate``."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from ..signals import open_files
from .app import app, console, exit_on_error
from .options import ArrayName, IndexPath, SignalPath, Threads, opened_index

MAX_SIGNALS = 5000

Pairs = Annotated[int, typer.Option(help="Pairs of a signal and an entry to learn from.")]


@app.command()
def calibrate(
    index: IndexPath,
    impostors: SignalPath,
    pairs: Pairs = 500_000,
    array: ArrayName = None,
    threads: Threads = None,
) -> None:
    """Learn the null of scores from signals that match no entry; p-values and E-values then hold for such signals.

    A few hundred signals or more, of the kind that will be searched for. The null is stored in the index.

    [bold]Examples[/]

    topsign calibrate sentences.topsign other-sentences.npy
    """
    learn_null(opened_index(index), index, impostors, array, n_pairs=pairs, n_threads=threads)


def learn_null(index: Any, name: object, impostors: str, array: str | None, **options: Any) -> None:
    """Calibrate an index, here or on a cluster, and print what was learned."""
    with exit_on_error(1):
        files = open_files(impostors, array)
        total = sum(file.n_signals for file in files)
        step = -(-total // MAX_SIGNALS)  # all of a few, every so many of a multitude
        signals = np.concatenate([np.asarray(file.rows()[::step]) for file in files])
        learned = index.calibrate(signals, **options)
        check = index.check_null(signals)
    console.print(
        f"{name}: null learned from {learned.nulls['asymmetric'].n_scores:,} pairs of {learned.n_queries:,} signals; "
        f"p-values are at least {learned.floor:.1g}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"check: {check}", highlight=False, soft_wrap=True)
