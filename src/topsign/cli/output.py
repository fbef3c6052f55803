"""Output of the commands: tables, JSON, result files and progress bars."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .app import console, escaped, fail

SUFFIXES = (".parquet", ".csv", ".json")
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
"""Formats of result files, and of pictures."""

Row = dict[str, Any]


# Progress


def _progress(description: str, *columns: Any, **options: Any) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    parts = TextColumn(description), BarColumn(), *columns, TimeRemainingColumn()
    return Progress(*parts, console=Console(stderr=True), **options)


@contextmanager
def bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on the error stream, with a rate; yield a callback of the numbers done and in total."""
    from rich.progress import MofNCompleteColumn, ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    with _progress("{task.description}", MofNCompleteColumn(), Rate()) as progress:
        shown = progress.add_task(name, total=None)
        try:
            yield lambda done, total: progress.update(shown, completed=done, total=total)
        finally:
            progress.update(shown, visible=progress.tasks[0].total is not None)


@contextmanager
def stage_bar() -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar of named stages; yield a callback of the stage and the fraction done of all stages."""
    from rich.progress import TaskProgressColumn

    with _progress("{task.description:18}", TaskProgressColumn(), speed_estimate_period=3600) as progress:
        shown = progress.add_task("starting", total=1.0)
        yield lambda stage, done: progress.update(shown, description=stage, completed=done)


# Text


def show_rows(
    rows: list[Row],
    names: Sequence[str],
    *,
    output: Path | None = None,
    json: bool = False,
    left: Sequence[str] = (),
    forms: Mapping[str, str | Callable[[Row], str]] | None = None,
) -> None:
    """Print rows as a table or as JSON, or write them to a file and print its name.

    In tables, None is blank, and ``forms`` has formats of columns, or functions of the row.
    """
    if output is not None:
        write_rows(rows, names, output)
        show_result(f"{output}: {len(rows):,} rows", {"output": str(output), "rows": len(rows)}, json)
        return
    if json:
        show_json(rows)
        return

    def cell(row: Row, name: str) -> str:
        form = (forms or {}).get(name, "")
        return form(row) if callable(form) else "" if row[name] is None else format(row[name], form)

    show_table([[cell(row, name) for name in names] for row in rows], names, left=left)


def show_table(rows: Iterable[Sequence[str]], names: Sequence[str], *, left: Sequence[str] = ()) -> None:
    """Print a table without borders; columns are aligned right unless ``left`` names them."""
    lines = [names, *([console.shown(cell).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    for line in lines:
        cells = (
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(names, line, widths, strict=True)
        )
        console.print("  ".join(cells).rstrip())


def show_values(values: Mapping[str, str], *, title: str) -> None:
    """Print a title, and a table of names and values, which may have several lines."""
    width = max(map(len, values))
    console.print(title)
    for name, value in values.items():
        first, *others = value.split("\n")
        console.print("\n".join([f"{name:>{width}}  {first}", *(" " * (width + 2) + other for other in others)]))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of data, unchanged into a pipe, and with escaped control characters on a terminal."""
    if sys.stdout.isatty():
        lines = map(escaped, lines)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def as_json(value: object, *, indent: int | None = 1) -> str:
    """Return standard JSON: arrays as lists, dataclasses as objects, and null for NaN."""
    from ..paper.measuring import plain

    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def show_json(value: object) -> None:
    """Print a value as JSON."""
    write_lines([as_json(value)])


def show_result(text: str, record: Mapping[str, object], json: bool) -> None:
    """Print the result of a command, as text or as JSON."""
    if json:
        show_json(record)
    else:
        console.print(text)


# Result files


def check_output(path: Path | None, option: str = "--output", *, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Reject an output file of another format, or in a folder that does not exist."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise fail(f"{option} must be one of {', '.join(suffixes)}, got {path}", code=2)
    if not path.absolute().parent.is_dir():
        raise fail(f"{option}: the folder {path.absolute().parent} does not exist; create it first", code=2)


def write_rows(rows: list[Row], names: Sequence[str], output: Path) -> None:
    """Write rows to a JSON, CSV or Parquet file, by its suffix; metadata is JSON in the latter two."""
    from .._files import write_file

    if output.suffix == ".json":
        content = f"{as_json(rows)}\n".encode()
    else:
        rows = [row | {name: as_json(row[name], indent=None) for name in names if name == "metadata"} for row in rows]
        content = _parquet(rows, names) if output.suffix == ".parquet" else _csv(rows, names)
    write_file(output, lambda file: file.write(content))


def _csv(rows: list[Row], names: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(["" if row[name] != row[name] else row[name] for name in names] for row in rows)  # NaN != NaN
    return buffer.getvalue().encode()


def _parquet(rows: list[Row], names: Sequence[str]) -> bytes:
    from ..errors import install

    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError(f"writing Parquet needs pyarrow: {install('files')}") from None
    has_texts = any(isinstance(row.get("id"), str) for row in rows)
    kinds = dict.fromkeys(("query", "rank", "group"), arrow.int64())
    kinds |= {"id": arrow.string() if has_texts else arrow.int64(), "metadata": arrow.string()}
    schema = arrow.schema([(name, kinds.get(name, arrow.float64())) for name in names])
    image = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, schema), image)
    return image.getvalue()
