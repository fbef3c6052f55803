"""The command ``evaluate``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from ..evaluation import Evaluation, render
from ..evaluation import evaluate as run_evaluation
from ..signals import open_files
from .app import app, console, errors, exit_on_error, fail
from .options import ArrayName, SignalPath, Threads

MAX_VALUES = 2**28


@app.command()
def evaluate(
    signals: SignalPath,
    queries: Annotated[str | None, typer.Option(help="Signals to search for; held out when not given.")] = None,
    bits: Annotated[list[int] | None, typer.Option(help="A size of adaptive codes; may be repeated.")] = None,
    entries: Annotated[int, typer.Option(help="Signals in the sample, at most.")] = 50_000,
    page: Annotated[Path | None, typer.Option(help="Write a page into this folder: index.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample and of the projection.")] = 0,
    array: ArrayName = None,
    threads: Threads = None,
) -> None:
    """Is it good enough on my signals? Recall, bytes, time and p-values, from a sample, before anything is built.

    [bold]Examples[/]

    topsign evaluate embeddings.npy

    topsign evaluate embeddings.parquet --array embedding --queries queries.npy --bits 48 --bits 96 --page evaluation/
    """
    with exit_on_error(1):
        given, asked = _read(signals, array), None if queries is None else _read(queries, array)
    columns = TextColumn("{task.description:18}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=errors) as progress, exit_on_error(1):
        bar = progress.add_task("starting", total=1.0)
        found = run_evaluation(
            given,
            queries=asked,
            n_bits=bits,
            n_entries=entries,
            random_state=seed,
            n_threads=threads,
            progress=lambda what, done: progress.update(bar, description=what, completed=done),
        )
    if page is not None:
        try:
            page.mkdir(parents=True, exist_ok=True)
            (page / "index.html").write_text(render(found, source=Path(signals).name), encoding="utf-8")
        except OSError as error:
            raise fail(f"{page} cannot be written: {error}", code=1) from None
    if as_json:
        print(json.dumps(_plain(found, signals), indent=1))
    else:
        _show(found, signals)
        if page is not None:
            console.print(f"\nthe page: {(page / 'index.html').absolute()}", highlight=False, soft_wrap=True)


def _read(location: str, array: str | None) -> Any:
    """Rows of all files; many are thinned out as they are read."""
    files = open_files(location, array)
    total = sum(file.n_signals for file in files)
    step = max(1, -(-total * files[0].n_features // MAX_VALUES))
    parts = [np.asarray(file.rows()[::step] if step > 1 else file.rows()[:]) for file in files if file.n_signals]
    return np.concatenate(parts) if parts else np.empty((0, files[0].n_features))


def _show(found: Evaluation, signals: str) -> None:
    console.print(found.isotropy.sentence(found.n_features), highlight=False)
    for note in found.notes:
        console.print(f"note: {note}", highlight=False)
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("code", "bytes", "recall@1", "@10", "@100", "rescored@1", "@10", "@100", "ms/query"):
        table.add_column(name, justify="left" if name == "code" else "right")
    for one in found.candidates:
        shares = [f"{part.share:.3f}" for part in (*one.recall, *one.rescored)]
        table.add_row(one.name, f"{one.bytes_per_entry:.0f}", *shares, f"{one.milliseconds:.2f}")
    console.print(table, highlight=False)
    nulls = Table(box=None, pad_edge=False)
    for name in ("p-values", *(f"below {level:g}" for level in found.levels)):
        nulls.add_column(name, justify="left" if name == "p-values" else "right")
    for row in found.calibration:
        nulls.add_row(row.null, *(f"{share:.2g}" for share in row.shares))
    console.print("\nshares of random pairs, which should be the level itself", highlight=False)
    console.print(nulls, highlight=False)
    console.print(f"\nrecommended: {found.recommendation()}", highlight=False)
    console.print(f"\n{found.command(signals)}\n", highlight=False, soft_wrap=True)
    console.print(found.python(), highlight=False, soft_wrap=True)
    if found.smaller is not None:
        console.print(f"\n{found.alternative()}\n", highlight=False)
        console.print(found.smaller.command(signals), highlight=False, soft_wrap=True)


def _plain(found: Evaluation, signals: str) -> dict[str, Any]:
    record = asdict(found)
    record["isotropy"]["spectrum"] = found.isotropy.spectrum.tolist()
    for one in (record["best"], record["smaller"] or {}, *record["candidates"]):
        one.get("configuration", {}).pop("index", None)
    return record | {"command": found.command(signals), "python": found.python(), "sentence": found.recommendation()}
