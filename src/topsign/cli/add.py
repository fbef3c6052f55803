"""The command ``add``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..signals import TableColumns, open_files
from .app import app, console, exit_on_error, fail, naming
from .options import (
    ArrayName,
    IdColumn,
    IndexPath,
    MetadataColumns,
    SignalPath,
    Threads,
    Wait,
    opened_index,
    read_ids,
)


@app.command()
def add(
    index: IndexPath,
    signals: SignalPath,
    ids: Annotated[
        Path | None,
        typer.Option(help="Their ids: a .npy of integers, or texts, one per line. [default: the next free]"),
    ] = None,
    metadata: Annotated[Path | None, typer.Option(help="A JSON object (or null) per line, one per signal.")] = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace entries whose ids are there already.")] = False,
    array: ArrayName = None,
    id_column: IdColumn = None,
    metadata_columns: MetadataColumns = None,
    threads: Threads = None,
    timeout: Wait = None,
) -> None:
    """Add signals to an index: all signals of a file, or none.

    [bold]Examples[/]

    topsign add cameras.topsign more.npy

    topsign add cameras.topsign more.npy --ids ids.npy --metadata notes.jsonl

    topsign add docs.topsign changed.npy --ids names.txt --upsert
    """
    with exit_on_error(2):
        columns = TableColumns.of(id_column, metadata_columns)
        files = open_files(signals, array, columns.names)
    if upsert and ids is None and id_column is None:
        raise fail("--upsert needs --ids or --id-column: entries are replaced by their ids", code=2)
    if (ids is not None and id_column is not None) or (metadata is not None and metadata_columns is not None):
        raise fail("give --ids or --id-column, and --metadata or --metadata-columns, not both", code=2)
    if len(files) > 1 and (ids is not None or metadata is not None):
        raise fail("--ids and --metadata go with one file, not with a folder", code=2)
    opened = opened_index(index, timeout=timeout)
    for file in files:
        if file.n_features != opened.n_features:
            what = f"{file.name} has signals of {file.n_features} features, {index} takes {opened.n_features}"
            raise fail(what, code=1)
    for file in files:
        with exit_on_error(1), naming(file.name):
            beside = columns.read(file)(slice(0, file.n_signals))
            beside |= {} if metadata is None else {"metadata": _read_notes(metadata)}
            beside |= {} if ids is None else {"ids": read_ids(ids)}
            write: Any = opened.upsert if upsert else opened.add
            new = write(file.rows(), **beside, n_threads=threads)
        span = f", ids {min(new)} to {max(new)}" if len(new) else ""
        console.print(f"{file.name}: {len(new):,} entries added{span}", highlight=False)
    console.print(f"{index}: {len(opened):,} entries", highlight=False)


def _read_notes(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(f"--metadata: {path}: {error}", code=2) from None
