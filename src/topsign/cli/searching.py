"""The command ``search``."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from .._arrays import Array
from ..index import Matches, Neighbors, SignIndex
from ..theory.inference import SCORINGS
from .app import app, console, fail, told
from .changing import ArrayName, IndexPath, Threads, opened_index
from .sources import open_sources

FORMATS = ("table", "json", "csv", "parquet")
COLUMNS = ("query", "rank", "id", "score", "distance", "p_value")


@app.command()
def search(
    index: IndexPath,
    queries: Annotated[Path, typer.Argument(help="Queries, in the forms that build takes.", show_default=False)],
    k: Annotated[int | None, typer.Option("-k", help="Nearest entries of each query.  [default: 10]")] = None,
    false_alarm: Annotated[
        float | None, typer.Option(help="Instead of -k: every match that is significant at this level, per query.")
    ] = None,
    scoring: Annotated[str, typer.Option(help=f"{' or '.join(SCORINGS)}.")] = "asymmetric",
    adaptive_bits: Annotated[int | None, typer.Option(help="Of a sign index: signs each query chooses.")] = None,
    metadata: Annotated[bool, typer.Option("--metadata", help="Show what was noted with each entry.")] = False,
    output_format: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write into this file.")] = None,
    array: ArrayName = None,
    threads: Threads = None,
) -> None:
    """Find the nearest entries of each query, or all significant ones.

    [bold]Examples[/]

    topsign search cameras.topsign queries.npy -k 5

    topsign search cameras.topsign queries.npy --false-alarm 1e-6 --format csv -o matches.csv

    topsign search cameras.topsign queries.npy --scoring hamming --format json
    """
    if output_format not in FORMATS:
        raise fail(f"--format must be one of {', '.join(FORMATS)}, got {output_format}", code=2)
    if k is not None and false_alarm is not None:
        raise fail("give -k or --false-alarm, not both: a number of entries, or all significant ones", code=2)
    if output_format == "parquet" and output is None:
        raise fail("--format parquet needs --output FILE", code=2)
    opened = opened_index(index, readonly=True)
    options: dict[str, Any] = {"scoring": scoring, "n_threads": threads}
    if adaptive_bits is not None:
        if not isinstance(opened, SignIndex):
            raise fail("--adaptive-bits goes with a sign index; each entry of this one chose its own", code=2)
        options["adaptive_bits"] = adaptive_bits
    rows: list[dict[str, Any]] = []
    with open_sources(queries, array) as sources:
        for source in sources:
            width = source.signals.shape[1]
            if width != opened.n_features:
                raise fail(f"{source.name} has {width} features, {index} has signals of {opened.n_features}", code=1)
            with told(1 if _is_data(source.signals) else 2):
                if false_alarm is None:
                    found = _neighbor_rows(opened.search(source.signals, k=10 if k is None else k, **options))
                else:
                    found = _match_rows(opened.within(source.signals, false_alarm=false_alarm, **options))
            first = rows[-1]["query"] + 1 if rows else 0
            rows += [row | {"query": row["query"] + first} for row in found]
    if metadata:
        notes = opened.get(np.array([row["id"] for row in rows], np.int64)).metadata
        rows = [row | {"metadata": note} for row, note in zip(rows, notes, strict=True)]
    _write_rows(rows, output_format, output)


def _is_data(signals: Array) -> bool:
    """Whether the queries themselves are unusable, and not what was asked of them."""
    blocks = range(0, len(signals), 1024)
    return not all(np.isfinite(np.asarray(signals[at : at + 1024], np.float64)).all() for at in blocks)


def _neighbor_rows(found: Neighbors) -> list[dict[str, Any]]:
    places = np.argwhere(found.ids >= 0)
    return [_row(found, tuple(place), int(place[0]), int(place[1])) for place in places]


def _match_rows(found: Matches) -> list[dict[str, Any]]:
    queries = np.repeat(np.arange(len(found)), np.diff(found.starts))
    return [_row(found, at, int(query), int(at - found.starts[query])) for at, query in enumerate(queries)]


def _row(found: Any, at: Any, query: int, rank: int) -> dict[str, Any]:
    values = (
        query,
        rank + 1,
        int(found.ids[at]),
        *(float(x[at]) for x in (found.scores, found.distances, found.p_values)),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _write_rows(rows: list[dict[str, Any]], output_format: str, output: Path | None) -> None:
    names = [*COLUMNS, *(["metadata"] if rows and "metadata" in rows[0] else [])]
    if output_format == "parquet":
        assert output is not None
        _write_parquet(rows, names, output)
        return
    if output_format == "json":
        text = json.dumps(rows, indent=1) + "\n"
    elif output_format == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([json.dumps(row[n]) if n == "metadata" else row[n] for n in names] for row in rows)
        text = buffer.getvalue()
    elif output is not None:
        raise fail("--output goes with --format json, csv or parquet", code=2)
    else:
        _show_table(rows, names)
        return
    if output is None:
        sys.stdout.write(text)
    else:
        writing(output, lambda draft: draft.write_text(text))


def _show_table(rows: list[dict[str, Any]], names: list[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "metadata" else "right")
    for row in rows:
        shown = [str(row["query"]), str(row["rank"]), str(row["id"]), f"{row['score']:.4f}", f"{row['distance']:.4f}"]
        shown += [f"{row['p_value']:.2g}", *([json.dumps(row["metadata"])] if "metadata" in row else [])]
        table.add_row(*shown)
    console.print(table, highlight=False)
    if not rows:
        console.print("no matches", highlight=False)


def _write_parquet(rows: list[dict[str, Any]], names: list[str], output: Path) -> None:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise fail("writing parquet needs pyarrow: pip install 'topsign[files]'", code=2) from None
    types = dict(zip(COLUMNS, (arrow.int64(),) * 3 + (arrow.float64(),) * 3, strict=True))
    columns = {name: arrow.array([row[name] for row in rows], types[name]) for name in COLUMNS}
    if "metadata" in names:
        columns["metadata"] = arrow.array([json.dumps(row["metadata"]) for row in rows], arrow.string())
    writing(output, lambda draft: parquet.write_table(arrow.table(columns), draft))


def writing(output: Path, write: Callable[[Path], object]) -> None:
    """A file that appears when it is complete."""
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(output)
    except OSError as error:
        raise fail(f"{output} cannot be written: {error}", code=1) from None
    finally:
        draft.unlink(missing_ok=True)
