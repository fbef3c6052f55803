"""The command ``add``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..signals import Location, SignalFile, open_files
from .app import app, console, exit_on_error, fail, naming
from .options import IndexPath, SignalPath, SourceOptions, Wait, opened_index, read_ids, spread


@dataclass(frozen=True)
class AddOptions(SourceOptions):
    """Options for the ids and metadata of added signals."""

    ids: Annotated[
        Path | None,
        typer.Option(
            help="Ids: a .npy file of integers, or a text file with one id per line. (default: the next free integers)"
        ),
    ] = None
    metadata: Annotated[
        Path | None, typer.Option(help="Metadata: a file with one JSON object (or null) per line and signal.")
    ] = None
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace entries whose ids already exist.")] = False

    def open_files(self, signals: Location) -> list[SignalFile]:
        """Open the signal files; reject incompatible options."""
        with exit_on_error(2):
            files = open_files(signals, self.array, self.columns().names)
        if self.upsert and self.ids is None and self.id_column is None:
            raise fail("--upsert needs --ids or --id-column: entries are replaced by their ids", code=2)
        if (self.ids and self.id_column is not None) or (self.metadata and self.metadata_columns is not None):
            raise fail("give --ids or --id-column, and --metadata or --metadata-columns, not both", code=2)
        if len(files) > 1 and (self.ids is not None or self.metadata is not None):
            raise fail("--ids and --metadata go with one file, not with a folder", code=2)
        return files


@app.command()
@spread
def add(index: IndexPath, signals: SignalPath, options: AddOptions, timeout: Wait = None) -> None:
    """Add signals to an index; each file is added completely or not at all.

    [bold]Examples[/]

    topsign add cameras.topsign more.npy

    topsign add cameras.topsign more.npy --ids ids.npy --metadata notes.jsonl

    topsign add docs.topsign changed.npy --ids names.txt --upsert
    """
    opened = opened_index(index, timeout=timeout)
    files = options.open_files(signals)
    add_files(opened, index, files, options)
    console.print(f"{index}: {len(opened):,} entries")


def add_files(index: Any, name: object, files: list[SignalFile], options: AddOptions, **others: Any) -> None:
    """Add files to a local index or a cluster index, each in one transaction."""
    for file in files:
        if file.n_features != index.n_features:
            what = f"{file.name} has signals of {file.n_features} features, {name} takes {index.n_features}"
            raise fail(what, code=1)
    write = index.upsert if options.upsert else index.add
    for file in files:
        with exit_on_error(1), naming(file.name):
            columns = options.columns().read(file)(slice(0, file.n_signals))
            columns |= {} if options.metadata is None else {"metadata": _read_notes(options.metadata)}
            columns |= {} if options.ids is None else {"ids": read_ids(options.ids)}
            new = write(file.rows(), **columns, **others)
        span = f", ids {min(new)} to {max(new)}" if len(new) else ""
        console.print(f"{file.name}: {len(new):,} entries added{span}")


def _read_notes(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(f"--metadata: {path}: {error}", code=2) from None
