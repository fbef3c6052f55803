"""Output of the commands: result rows, progress bars and atomically written files."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from .._files import write_file
from ..errors import install
from ..index import Index, Matches, Neighbors
from ..significance import probability_text
from .app import console, errors, escaped, exit_on_error

COLUMNS = ("query", "rank", "id", "score", "distance", "p_value", "log10_p_value", "e_value")

Row = dict[str, Any]


class Rate(ProgressColumn):
    """Signals per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def progress_bar() -> Progress:
    """Return a progress bar on the error stream."""
    parts = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn()
    return Progress(*parts, console=errors)


@contextmanager
def bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on the error stream; yield a callback of the numbers done and in total."""
    with progress_bar() as progress:
        shown = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(shown, completed=done, total=total)


@contextmanager
def stage_bar() -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar of named stages; yield a callback of the stage and the fraction done of all stages."""
    parts = TextColumn("{task.description:18}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*parts, console=errors, speed_estimate_period=3600) as progress:
        shown = progress.add_task("starting", total=1.0)
        yield lambda stage, done: progress.update(shown, description=stage, completed=done)


@contextmanager
def kept_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a function that raises a lost KeyboardInterrupt, because Python drops those raised in finalizers."""
    received = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    def raise_lost() -> None:
        if received:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, or handled by the application
        yield raise_lost
        return
    signal.signal(signal.SIGINT, receive)
    try:
        yield raise_lost
    finally:
        signal.signal(signal.SIGINT, before)


def result_rows(found: Neighbors | Matches, first_query: int) -> list[Row]:
    """Return one row per result; queries are numbered from ``first_query``."""
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows()]
    return [row | {"query": row["query"] + first_query} for row in rows]


def plain_table(names: Iterable[str], *, left: Sequence[str] = ()) -> Table:
    """Return a table without borders; columns are aligned right unless ``left`` names them."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def named_values(values: Mapping[str, str], *, title: str) -> Table:
    """Return a table of names and values."""
    table = Table(show_header=False, title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    for name, value in values.items():
        table.add_row(name, value)
    return table


def show_null(index: Index) -> None:
    """Print a warning if the p-values of an uncalibrated index do not fit its entries."""
    if index.calibration is None and not (found := index.check(recall=None).null).trusted:
        remedy = "topsign calibrate learns a null that does" + (
            "" if index.recipe.parameters().get("center") else ", --center helps"
        )
        message = f"p-values do not fit these signals: {found}; {remedy}"
        errors.print(Text("warning:", "bold yellow"), message)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of data, unchanged into a pipe, and with escaped control characters on a terminal."""
    if sys.stdout.isatty():
        lines = map(escaped, lines)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def write_rows(rows: list[Row], output_format: str, output: Path | None) -> None:
    """Write results in the requested format to the screen or a file."""
    names = [*COLUMNS, *(["metadata"] if rows and "metadata" in rows[0] else [])]
    if output_format == "table":
        _show_table(rows, names)
        return
    content = encode_table(rows, names, output_format)
    if output is None:
        write_lines(content.decode().removesuffix("\n").split("\n"))
    else:
        with exit_on_error(1):
            write_file(output, lambda file: file.write(content))


def encode_table(rows: list[Row], names: Sequence[str], output_format: str) -> bytes:
    """Return rows as the bytes of a JSON, CSV or Parquet file; metadata is JSON in the latter two."""
    if output_format == "parquet":
        return _parquet(rows, names)
    if output_format == "json":
        return (json.dumps(rows, indent=1) + "\n").encode()
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([json.dumps(row[n]) if n == "metadata" else row[n] for n in names] for row in rows)
    return buffer.getvalue().encode()


def _show_table(rows: list[Row], names: list[str]) -> None:
    shown_names = [name for name in names if name != "log10_p_value"]  # which p-values are written from
    table = plain_table(shown_names, left=("metadata",))
    for row in rows:
        shown = [str(row["query"]), str(row["rank"]), str(row["id"]), f"{row['score']:.4f}", f"{row['distance']:.4f}"]
        shown += [
            probability_text(row["log10_p_value"]),
            f"{row['e_value']:.2g}",
            *([json.dumps(row["metadata"])] if "metadata" in row else []),
        ]
        table.add_row(*map(console.shown, shown))
    console.print(table)
    if not rows:
        console.print("no matches")


def _parquet(rows: list[Row], names: Sequence[str]) -> bytes:
    with exit_on_error(2):
        try:
            import pyarrow as arrow
            import pyarrow.parquet as parquet
        except ImportError:
            raise ImportError(f"writing Parquet needs pyarrow: {install('files')}") from None
    types = dict(zip(COLUMNS, (arrow.int64(),) * 3 + (arrow.float64(),) * 5, strict=True)) | {"group": arrow.int64()}
    types |= {"id": arrow.string()} if any(isinstance(row["id"], str) for row in rows) else {}
    columns = {name: arrow.array([row[name] for row in rows], types[name]) for name in names if name != "metadata"}
    if "metadata" in names:
        columns["metadata"] = arrow.array([json.dumps(row["metadata"]) for row in rows], arrow.string())
    image = io.BytesIO()
    parquet.write_table(arrow.table(columns), image)
    return image.getvalue()
