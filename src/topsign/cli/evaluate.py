"""The command ``evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..evaluation import METRICS, STORED_WORDS, Evaluation, SignalSource, recall_words, render, stored_numbers
from ..evaluation import evaluate as run_evaluation
from ..paper.measuring import plain
from ..signals import open_files
from .app import app, console, exit_on_error, fail
from .options import ArrayName, IdColumn, SignalPath
from .output import plain_table, stage_bar

MAX_VALUES = 2**28


@app.command()
def evaluate(
    signals: SignalPath,
    queries: Annotated[str | None, typer.Option(help="Signals to search for; held out when not given.")] = None,
    target_recall: Annotated[float, typer.Option(help="Share of the true 10 nearest that a search shall find.")] = 0.95,
    metric: Annotated[
        str, typer.Option(help=f"What makes neighbours true: {', '.join(METRICS)}, of the signals as given.")
    ] = METRICS[0],
    center: Annotated[
        bool, typer.Option("--center", help="Subtract the mean of the signals before true correlations are computed.")
    ] = False,
    n_signals: Annotated[
        int | None, typer.Option(help="Entries of the index to come. (default: the number of signals)")
    ] = None,
    bits: Annotated[list[int] | None, typer.Option(help="A size of adaptive codes; may be repeated.")] = None,
    entries: Annotated[int, typer.Option(help="Signals in the sample, at most.")] = 50_000,
    page: Annotated[Path | None, typer.Option(help="Write a page into this folder: index.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample and of the projection.")] = 0,
    array: ArrayName = None,
    id_column: IdColumn = None,
) -> None:
    """Measure recall, bytes, time and false alarms on a sample of signals, before an index is built.

    Recommends the index of the fewest resident bytes that meets --target-recall, with the commands that build and
    search it.

    [bold]Examples[/]

    topsign evaluate embeddings.npy --target-recall 0.98

    topsign evaluate docs.parquet --array embedding --id-column id --queries queries.npy --page evaluation/
    """
    with exit_on_error(1):
        given, total = _read(signals, array, id_column)
        asked = None if queries is None else _read(queries, array, None)[0]
    with stage_bar() as progress, exit_on_error(1):
        found = run_evaluation(
            given,
            queries=asked,
            target_recall=target_recall,
            metric=metric,
            center=center,
            n_signals=total if n_signals is None else n_signals,
            n_bits=bits,
            n_entries=entries,
            random_state=seed,
            progress=progress,
        )
    found = found.of(SignalSource(signals, queries, array, id_column))
    if page is not None:
        try:
            page.mkdir(parents=True, exist_ok=True)
            (page / "index.html").write_text(render(found), encoding="utf-8")
        except OSError as error:
            raise fail(f"{page} cannot be written: {error}", code=1) from None
    if as_json:
        print(json.dumps(_plain(found), indent=1))
    else:
        _show(found)
        if page is not None:
            console.print(f"\nthe page: {(page / 'index.html').absolute()}")


def _read(location: str, array: str | None, id_column: str | None) -> tuple[Any, int]:
    """Return the rows of all files, or a sample if there are many, and the total number of rows."""
    files = open_files(location, array, () if id_column is None else (id_column,))
    total = sum(file.n_signals for file in files)
    step = max(1, -(-total * files[0].n_features // MAX_VALUES))
    parts = [np.asarray(file.rows()[::step] if step > 1 else file.rows()[:]) for file in files if file.n_signals]
    return (np.concatenate(parts) if parts else np.empty((0, files[0].n_features))), total


def _show(found: Evaluation) -> None:
    console.print(found.isotropy.sentence(found.n_features))
    for note in found.notes:
        console.print(f"note: {note}")
    titles = ("code", "bytes", "recall@1", "@10", "@100", "@10, 40 rescored", "100", "400", "ms/query")
    table = plain_table(titles, left=("code",))
    for one in found.candidates:
        shares = [f"{part.share:.3f}" for part in one.recall] + [""] * (3 - len(one.recall))
        shares += [f"{option.measured.share:.3f}" for option in one.options if option.factor is not None]
        table.add_row(one.name, f"{one.bytes_per_entry:.0f}", *shares, f"{one.option(None).milliseconds:.2f}")
    console.print()
    console.print(table)
    console.print(f"\n{recall_words(found)}")
    if found.stored:
        names = ("stored as", "resident bytes", "bytes on disk", "recall@10", "ms/query")
        stored = plain_table(names, left=("stored as",))
        for option in found.stored:
            stored.add_row(option.name, *stored_numbers(option), f"{option.milliseconds:.2f}")
        console.print(f"\n{STORED_WORDS}")
        console.print(stored)
    if found.false_alarms:
        levels = [f"at {level:g}" for level in found.levels]
        alarms = plain_table(["searches with a match", *levels], left=("searches with a match",))
        for row in found.false_alarms:
            alarms.add_row(row.null, *(f"{rate:.3f}" for rate in row.rates))
        console.print(f"\nfalse alarms: {found.n_judged:,} searches for held-out signals")
        console.print(alarms)
    console.print(f"\nasked: {found.target_recall:.0%} of the true 10 nearest")
    console.print(f"recommended: {found.recommendation()}")
    for more in (found.alternative(), found.false_alarm_advice()):
        if more is not None:
            console.print(more)
    console.print(f"\n{found.command()}\n")
    console.print(found.python())


def _plain(found: Evaluation) -> dict[str, Any]:
    record: dict[str, Any] = plain(found)
    texts = {"command": found.command(), "python": found.python(), "sentence": found.recommendation()}
    return record | texts | {"alternative": found.alternative(), "met": found.met}
