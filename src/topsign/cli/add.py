"""The command ``add``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..signals import open_files
from .app import app, console, exit_on_error, fail, naming
from .options import ArrayName, IndexPath, SignalPath, Threads, Wait, opened_index, read_ids


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
        files = open_files(signals, array)
    if upsert and ids is None:
        raise fail("--upsert needs --ids: entries are replaced by their ids", code=2)
    if len(files) > 1 and (ids is not None or metadata is not None):
        raise fail("--ids and --metadata go with one file, not with a folder", code=2)
    opened = opened_index(index, timeout=timeout)
    for file in files:
        if file.n_features != opened.n_features:
            what = f"{file.name} has signals of {file.n_features} features, {index} takes {opened.n_features}"
            raise fail(what, code=1)
    for file in files:
        notes = None if metadata is None else _read_notes(metadata)
        given = None if ids is None else read_ids(ids)
        with exit_on_error(1), naming(file.name):
            write: Any = opened.upsert if upsert else opened.add
            new = write(file.rows(), ids=given, metadata=notes, n_threads=threads)
        span = f", ids {min(new)} to {max(new)}" if len(new) else ""
        console.print(f"{file.name}: {len(new):,} entries added{span}", highlight=False)
    console.print(f"{index}: {len(opened):,} entries", highlight=False)


def _read_notes(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(f"--metadata: {path}: {error}", code=2) from None
