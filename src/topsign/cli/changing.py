"""Commands that change an index: ``build``, ``add``, ``remove``, ``compact``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.progress import ProgressColumn as Column
from rich.text import Text

from .._arrays import Array
from ..index import AdaptiveIndex, Index, SignIndex, open_index
from ..kernels import LAYOUTS
from ..projections import KINDS
from ..recipe import METRICS
from .app import app, console, errors, fail, named, told
from .sources import Source, open_sources

CHUNK_ROWS, CHUNK_BYTES = 16_384, 2**28
"""Of signals that a build takes in one transaction: what an interruption may cost."""

IndexPath = Annotated[Path, typer.Argument(help="The index, a file.", show_default=False)]
SignalPath = Annotated[
    Path,
    typer.Argument(help="Signals: .npy, .npz, .parquet, .safetensors, or a directory of .npy.", show_default=False),
]
ArrayName = Annotated[str | None, typer.Option("--array", help="Which array or column of the file holds the signals.")]
Threads = Annotated[int | None, typer.Option(help="Threads; every core when not given.")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait for another writer; no limit when not given.")]


def opened_index(path: Path, *, readonly: bool = False, timeout: float | None = None) -> Index[Any]:
    """The index in a file that a command names."""
    if not path.is_file():
        raise fail(f"{path} does not exist, or is not a file", code=2)
    with told(2):
        return open_index(path, readonly=readonly, timeout=timeout)


@app.command()
def build(
    signals: SignalPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The index to make.")],
    kind: Annotated[str | None, typer.Option(help="adaptive or sign.  [default: adaptive]")] = None,
    bits: Annotated[int | None, typer.Option(help="Projections kept per signal.  [default: 512]")] = None,
    pool: Annotated[int | None, typer.Option(help="Projections computed.  [default: the signal's length]")] = None,
    projection: Annotated[str | None, typer.Option(help=f"{', '.join(KINDS)}.  [default: hadamard]")] = None,
    metric: Annotated[str | None, typer.Option(help=f"{', '.join(METRICS)}.  [default: correlation]")] = None,
    layout: Annotated[str | None, typer.Option(help=f"{', '.join(LAYOUTS)}.  [default: compact]")] = None,
    norms: Annotated[bool | None, typer.Option("--norms/--no-norms", help="Keep norms.  [default: norms]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the projection; a fresh one when not given.")] = None,
    array: ArrayName = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a build that was interrupted.")] = False,
    threads: Threads = None,
) -> None:
    """Make an index of signals; ids are their row numbers.

    Signals are read from a memory map in chunks, each stored for good before the next begins: an interrupted build
    goes on with --resume, without duplicates. Parquet and compressed .npz are unpacked into a temporary file first.

    [bold]Examples[/]

    topsign build signals.npy -o cameras.topsign --bits 512

    topsign build folder-of-npy/ -o cameras.topsign --resume

    topsign build signals.parquet --array embedding -o cameras.topsign --kind sign --pool 4096
    """
    if output.exists() and not resume:
        raise fail(f"{output} exists; --resume goes on with it, topsign add adds to it, or choose another name", code=2)
    given = {"n_bits": bits, "n_pool": pool, "projection": projection, "metric": metric, "layout": layout}
    given |= {"norms": norms, "random_state": seed}
    options = {name: value for name, value in given.items() if value is not None}
    with open_sources(signals, array) as sources:
        with told(2):
            index = _made(output, kind, sources[0].signals.shape[1], options)
        taken = index.sources
        for source in sources:
            _check_resumed(source, taken.get(source.name))
        _take(index, sources, threads, again=f"topsign build {signals} -o {output} --resume")
    console.print(f"{output}: {len(index):,} entries in {index.nbytes:,} bytes", highlight=False)


def _made(output: Path, kind: str | None, n_features: int, options: dict[str, Any]) -> Index[Any]:
    """A new index, or the one there is, whose parameters those given must be."""
    if output.exists():
        header = open_index(output, readonly=True).header
        names = ("n_bits", "n_pool", "projection", "metric", "layout", "norms")
        stored = {name: header[name] for name in names} | {"random_state": header["seed"]}
        options, kind = stored | options, kind or header["kind"]
    if kind == "sign":
        if "n_bits" in options and not output.exists():
            raise ValueError("--bits goes with --kind adaptive; a sign index keeps the signs of the whole --pool")
        options = {name: value for name, value in options.items() if name not in ("n_bits", "layout")}
        return SignIndex(n_features=n_features, path=output, **options)
    if kind not in (None, "adaptive"):
        raise ValueError(f"--kind must be adaptive or sign, got {kind}")
    return AdaptiveIndex(n_features=n_features, path=output, **options)


def _check_resumed(source: Source, before: dict[str, Any] | None) -> None:
    if before is not None:
        now = source.identity
        for name in now:
            if now[name] != before[name]:
                what = "first or last signal" if name == "crc32" else name
                values = "" if name == "crc32" else f": {before[name]} then, {now[name]} now"
                raise fail(f"{source.name} is not what this build began with, its {what} differs{values}", code=1)


class Rate(Column):
    """Signals per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


def progress_bar() -> Progress:
    parts = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn()
    return Progress(*parts, console=errors)


def _take(index: Index[Any], sources: list[Source], threads: int | None, again: str) -> None:
    """Adds what is not in the index yet, a chunk at a time."""
    taken = index.sources
    total = sum(len(source.signals) for source in sources)
    done = sum(taken.get(source.name, {"taken": 0})["taken"] for source in sources)
    try:
        with progress_bar() as progress, told(1):
            bar = progress.add_task("encoding", total=total, completed=done)
            for source in sources:
                identity = source.identity
                for chunk in _chunks(source.signals, taken.get(source.name, {"taken": 0})["taken"]):
                    note = source.name, identity | {"taken": chunk.stop}
                    with named(source.name):
                        index.add(source.signals, rows=chunk, n_threads=threads, source=note)
                    done += chunk.stop - chunk.start
                    progress.update(bar, completed=done)
    except KeyboardInterrupt:
        message = f"interrupted: {len(index):,} of {total:,} signals are stored; go on with: {again}"
        errors.print(message, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _chunks(signals: Array, start: int) -> list[slice]:
    n_rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, signals.shape[1] * signals.dtype.itemsize)))
    return [slice(at, min(at + n_rows, len(signals))) for at in range(start, len(signals), n_rows)]


@app.command()
def add(
    index: IndexPath,
    signals: SignalPath,
    ids: Annotated[
        Path | None, typer.Option(help="Their ids: a .npy of integers. [default: the next free ones]")
    ] = None,
    metadata: Annotated[Path | None, typer.Option(help="A JSON object (or null) per line, one per signal.")] = None,
    array: ArrayName = None,
    threads: Threads = None,
    timeout: Wait = None,
) -> None:
    """Add signals to an index: all of them, or none.

    [bold]Examples[/]

    topsign add cameras.topsign more.npy

    topsign add cameras.topsign more.npy --ids ids.npy --metadata notes.jsonl
    """
    with open_sources(signals, array) as sources:
        if len(sources) > 1 and (ids is not None or metadata is not None):
            raise fail("--ids and --metadata go with one file, not with a directory", code=2)
        opened = opened_index(index, timeout=timeout)
        width = opened.n_features
        for source in sources:
            if source.signals.shape[1] != width:
                what = f"{source.name} has signals of {source.signals.shape[1]} features, {index} takes {width}"
                raise fail(what, code=1)
        for source in sources:
            notes = None if metadata is None else _read_notes(metadata)
            given = None if ids is None else _read_ids(ids)
            with told(1), named(source.name):
                new = opened.add(source.signals, ids=given, metadata=notes, n_threads=threads)
            span = f", ids {new.min()} to {new.max()}" if len(new) else ""
            console.print(f"{source.name}: {len(new):,} entries added{span}", highlight=False)
    console.print(f"{index}: {len(opened):,} entries", highlight=False)


def _read_ids(path: Path) -> Array:
    try:
        return cast(Array, np.load(path))
    except (OSError, ValueError) as error:
        raise fail(f"--ids: {path}: {error}", code=2) from None


def _read_notes(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(f"--metadata: {path}: {error}", code=2) from None


@app.command()
def remove(
    index: IndexPath,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids to remove.", show_default=False)] = None,
    ids_file: Annotated[Path | None, typer.Option("--ids", help="Ids in a .npy file.")] = None,
    timeout: Wait = None,
) -> None:
    """Remove entries by their ids: all of them, or none where one is unknown.

    [bold]Examples[/]

    topsign remove cameras.topsign 17 42

    topsign remove cameras.topsign --ids gone.npy
    """
    if bool(ids) == (ids_file is not None):
        raise fail("give ids, or a file of them with --ids", code=2)
    wanted: Any = ids if ids_file is None else _read_ids(ids_file)
    opened = opened_index(index, timeout=timeout)
    with told(2):
        opened.remove(wanted)
    console.print(f"{index}: {len(wanted):,} removed, {len(opened):,} entries left", highlight=False)


@app.command()
def compact(index: IndexPath, timeout: Wait = None) -> None:
    """Free the bytes of removed entries, while searches go on.

    The file does not become shorter: additions use its free pages.

    [bold]Examples[/]

    topsign compact cameras.topsign
    """
    opened = opened_index(index, timeout=timeout)
    removed = opened.n_removed
    with told(1):
        opened.compact()
    left = f"{len(opened):,} entries in {opened.nbytes:,} bytes"
    console.print(f"{index}: {removed:,} removed entries freed, {left}", highlight=False)
