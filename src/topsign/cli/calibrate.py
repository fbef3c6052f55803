"""The command ``calibrate``."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from ..signals import open_files
from .app import app, console, exit_on_error
from .options import ArrayName, IndexPath, SignalPath, opened_index

MAX_SIGNALS = 20_000

Level = Annotated[
    float,
    typer.Option("--false-alarm", help="Smallest false-alarm rate that will be asked for without a model of the tail."),
]


@app.command()
def calibrate(
    index: IndexPath,
    impostors: SignalPath,
    false_alarm: Level = 0.01,
    array: ArrayName = None,
) -> None:
    """Learn the null distribution of scores from signals that match no entry, so that false-alarm rates hold.

    It takes about 1.5 / FALSE_ALARM signals of the kind that will be searched for. The result is stored in the index.

    [bold]Examples[/]

    topsign calibrate sentences.topsign other-sentences.npy
    """
    learn_null(opened_index(index), index, impostors, array, false_alarm=false_alarm)


def learn_null(index: Any, name: object, impostors: str, array: str | None, **options: Any) -> None:
    """Calibrate a local or cluster index, and print a summary."""
    with exit_on_error(1):
        files = open_files(impostors, array)
        total = sum(file.n_signals for file in files)
        step = -(-total // MAX_SIGNALS)  # all signals, or evenly spaced ones if there are more
        signals = np.concatenate([np.asarray(file.rows()[::step]) for file in files])
        learned = index.calibrate(signals, **options)
    console.print(
        f"{name}: calibrated by {learned.n_queries:,} searches for impostors among {learned.n_entries:,} entries; "
        f"false-alarm rates hold from {learned.level:.2g} up without a model, from {learned.floor:.2g} up with one",
    )
