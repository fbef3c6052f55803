"""The command ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..signals import open_files
from .app import app, console, exit_on_error
from .options import ArrayName, IndexPath, SignalPath, Threads, as_ids, opened_index

MAX_SIGNALS = 20_000

Level = Annotated[
    float,
    typer.Option("--false-alarm", help="Smallest false-alarm rate that will be asked for without a model of the tail."),
]


MatchedIds = Annotated[
    Path | None,
    typer.Option(
        "--ids",
        help="Learn likelihood ratios instead: the signals match the entries with these ids, one per line.",
    ),
]


@app.command()
def calibrate(
    index: IndexPath,
    impostors: SignalPath,
    false_alarm: Level = 0.01,
    ids: MatchedIds = None,
    array: ArrayName = None,
    threads: Threads = None,
) -> None:
    """Learn the null distribution of scores from signals that match no entry, so that false-alarm rates hold.

    It takes about 1.5 / FALSE_ALARM signals of the kind that will be searched for. The result is stored in the index.

    [bold]Examples[/]

    topsign calibrate sentences.topsign other-sentences.npy

    topsign calibrate cameras.topsign photographs.npy --ids cameras.txt
    """
    if ids is not None:
        return _learn_evidence(opened_index(index), index, impostors, array, ids, threads)
    learn_null(opened_index(index), index, impostors, array, false_alarm=false_alarm, n_threads=threads)


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


def _learn_evidence(index: Any, name: object, signals: str, array: str | None, ids: Path, threads: int | None) -> None:
    """Learn likelihood ratios from signals that match entries, and print how many were used."""
    with exit_on_error(1):
        wanted = as_ids(index, [line for line in ids.read_text().split("\n") if line])
        known = np.concatenate([np.asarray(file.rows()) for file in open_files(signals, array)])
        model = index.calibrate_evidence(known, ids=wanted, n_threads=threads)
    console.print(
        f"{name}: likelihood ratios learned from {model.n_matches:,} matches and {model.n_impostors:,} scores of "
        "impostors; topsign search --evidence shows them",
    )
