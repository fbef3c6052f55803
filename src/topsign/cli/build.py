"""The command ``build``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import StorageError
from ..index import Index, open_index
from ..signals import SignalFile, TableColumns, open_files
from .app import app, console, errors, exit_on_error, fail, naming
from .options import (
    CodeOptions,
    Originals,
    SignalPath,
    SourceOptions,
    fit_index,
    make_index,
    parameters_for,
    spread,
)
from .output import kept_interrupts, progress_bar
from .regions import show_learned

CHUNK_ROWS, CHUNK_BYTES = 32_768, 2**26
"""Signals per transaction, the most that an interruption can lose. Three such chunks are in memory."""

INTERRUPTED = 130
"""Exit code of a build interrupted by Ctrl-C."""


@app.command()
@spread
def build(
    signals: SignalPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new index.")],
    codes: CodeOptions,
    source: SourceOptions,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Calibrate p-values with the signals themselves.")
    ] = False,
    originals: Originals = None,
    regions: Annotated[
        bool,
        typer.Option("--regions", help="Learn regions, so that topsign search --recall visits only part of the index."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted build.")] = False,
) -> None:
    """Build an index from signals; ids are row numbers or come from a column.

    Signals are read in chunks while the previous chunk is encoded. Each chunk is stored durably before the next one, so
    --resume continues an interrupted build without duplicates.

    [bold]Examples[/]

    topsign build signals.npy -o cameras.topsign --family grouped --bytes 512

    topsign build vectors.npy -o vectors.topsign --family grouped --bytes 48 --center --originals int8 --calibrate

    topsign build sentences.npy -o sentences.topsign --family trellis --bytes 48 --originals float16

    topsign build docs.parquet -o docs.topsign --family trellis --bytes 24 --originals float16 --regions

    topsign build folder-of-files/ -o cameras.topsign --resume

    topsign build signals.parquet --array embedding -o cameras.topsign --family sign --bytes 512

    topsign build docs.parquet --id-column doc_id --vector-column embedding --metadata-columns title,year -o d.topsign
    """
    if output.exists() and not resume:
        raise fail(f"{output} exists; use --resume to continue it, topsign add to add to it, or another name", code=2)
    most = 0 if output.exists() else CHUNK_ROWS
    with _discarded(output, most), exit_on_error(2):
        columns = source.columns()
        if calibrate and originals is None and not resume:
            raise ValueError("--calibrate needs --originals; or calibrate later: topsign calibrate INDEX IMPOSTORS")
        files = open_files(signals, source.array, columns.names)
        if not any(file.n_signals for file in files):
            raise ValueError(f"{signals} holds no signals")
        if output.exists():
            index = open_index(output)
            _check_recipe(index, codes, originals)
        else:
            place = {} if originals is None else {"originals": originals}
            index = make_index(codes.family, files[0].n_features, codes.given() | place, output)
            fit_index(index, files)
    with _discarded(output, most), exit_on_error(1):
        for file in files:
            _check_resumed(file, index.sources.get(file.name))
        _add_files(index, files, columns, again=f"topsign build {signals} -o {output} --resume")
        if calibrate and index.calibration is None:
            index.calibrate()
    if regions and index.regions is None:
        show_learned(index, None)
    console.print(f"{output}: {len(index):,} entries in {index.nbytes:,} bytes")


@contextmanager
def _discarded(output: Path, most: int) -> Iterator[None]:
    """Remove an index of at most ``most`` entries if a build fails, so that the next build needs no --resume.

    An interrupted build keeps its entries.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or getattr(error, "exit_code", None) == INTERRUPTED:
            most = 0
        with suppress(StorageError, OSError):
            with open_index(output, readonly=True) as left:
                is_small = len(left) <= most
            if is_small:
                shutil.rmtree(output)
        raise


def _check_recipe(index: Index, codes: CodeOptions, originals: str | None) -> None:
    """Raise ValueError if the options of a resumed build differ from the original ones."""
    given = parameters_for(codes.family or index.family, codes.given())
    problem = index.recipe.disagreement(codes.family, **given)
    if problem is None and originals not in (None, index.originals):
        problem = f"originals={index.originals!r}, got originals={originals!r}"
    if problem is not None:
        raise ValueError(f"{index.path} was started with {problem}; omit those options to continue it")


def _check_resumed(file: SignalFile, before: dict[str, Any] | None) -> None:
    """Raise ValueError if a file has changed since the build started."""
    if before is not None:
        now = file.identity()
        for name in now:
            if now[name] != before[name]:
                what = "first or last signal" if name == "crc32" else name
                values = "" if name == "crc32" else f": {before[name]} then, {now[name]} now"
                raise ValueError(f"{file.name} has changed since this build started: its {what} differs{values}")


def _add_files(index: Index, files: list[SignalFile], columns: TableColumns, again: str) -> None:
    """Add the remaining signals in chunks."""
    taken = {name: record["taken"] for name, record in index.sources.items()}
    total = sum(file.n_signals for file in files)
    done = sum(taken.get(file.name, 0) for file in files)
    try:
        with progress_bar() as progress, kept_interrupts() as raise_interrupt:
            bar = progress.add_task("encoding", total=total, completed=done)
            for file in files:
                identity, rows, read_columns = file.identity(), file.rows(), columns.read(file)
                chunks = _chunks(file, rows.dtype.itemsize, taken.get(file.name, 0))
                for chunk in chunks:
                    note = file.name, identity | {"taken": chunk.stop}
                    with naming(file.name):
                        index.add(rows, rows=chunk, source=note, **read_columns(chunk))
                    done += chunk.stop - chunk.start
                    progress.update(bar, completed=done)
                    raise_interrupt()
    except KeyboardInterrupt:
        index.refresh()  # the interrupt may have come between a commit and its snapshot
        message = f"interrupted: {len(index):,} of {total:,} signals are stored; continue with: {again}"
        errors.print(message)
        raise typer.Exit(INTERRUPTED) from None


def _chunks(file: SignalFile, itemsize: int, start: int) -> list[slice]:
    n_rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, file.n_features * itemsize)))
    return [slice(at, min(at + n_rows, file.n_signals)) for at in range(start, file.n_signals, n_rows)]
