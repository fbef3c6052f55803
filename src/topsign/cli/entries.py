"""Commands that change and list entries: ``build``, ``add``, ``remove``, ``get`` and ``list``."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import command, console, errors, fail, naming
from .options import (
    CodeOptions,
    IndexPath,
    Json,
    Scheduler,
    SignalPath,
    SourceOptions,
    Timeout,
    Version,
    as_ids,
    cluster_client,
    opened_index,
    read_ids,
)
from .output import as_json, bar, show_result, write_lines

if TYPE_CHECKING:
    from ..index import Index
    from ..signals import SignalFile, TableColumns

CHUNK_ROWS, CHUNK_BYTES = 32_768, 2**26
"""Signals per transaction, the most that an interruption can lose."""

INTERRUPTED = 130
"""Exit code of a build interrupted by Ctrl-C."""

EntryIds = Annotated[list[str], typer.Argument(help="Ids of entries.", show_default=False)]


@command()
def build(
    signals: SignalPath,
    output: Annotated[str, typer.Option("--output", "-o", help="The new index: a folder, s3://, gs:// ...")],
    codes: CodeOptions,
    source: SourceOptions,
    originals: Annotated[
        str | None, typer.Option(help="Keep the signals on disk for rescoring: float32, float16 or int8.")
    ] = None,
    regions: Annotated[
        bool,
        typer.Option("--regions", help="Learn regions, so that topsign search --recall visits only part of the index."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted build, or add new files.")] = False,
    segment_entries: Annotated[
        int | None, typer.Option(help="With --scheduler: entries per segment. (default: 64 MiB of codes)")
    ] = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Build an index from signals; ids are row numbers, over all files sorted by name, or come from a column.

    Each chunk of signals is stored durably before the next one, so --resume continues an interrupted build without
    duplicates. With --scheduler, workers write the segments, and all entries appear in one version.

    [bold]Examples[/]

    topsign build docs.parquet -o docs.topsign --family trellis --n-bytes 24 --originals float16 --regions
    topsign build signals.npy -o cameras.topsign --family grouped --n-bytes 512
    topsign build folder-of-files/ -o cameras.topsign --family sign --n-bytes 512 --resume
    topsign build docs.parquet --id-column doc_id --vector-column x --metadata-columns title -o d.topsign --n-bytes 24
    topsign build s3://bucket/signals -o s3://bucket/codes.topsign --n-bytes 24 --scheduler tcp://host:8786
    """
    from ..store import exists

    there = exists(output)
    if there and not resume:
        raise fail(f"{output} exists; use --resume to continue it, topsign add to add to it, or another name", code=2)
    if segment_entries is not None and scheduler is None:
        raise fail("--segment-entries goes with --scheduler", code=2)
    if scheduler is None:
        _build_here(signals, output, codes, source, originals, there)
    else:
        _build_on_cluster(signals, output, codes, source, originals, there, segment_entries, scheduler)
    with opened_index(output, readonly=not regions, scheduler=scheduler) as index:
        if regions and index.regions is None:
            text, _ = learn_regions(index)
            errors.print(text)
        n_segments = index.info["segments"]
        record = {"index": output, "entries": len(index), "bytes": index.nbytes, "segments": n_segments}
        size = f"{index.nbytes:,} bytes" if scheduler is None else f"{n_segments:,} segments"
        show_result(f"{output}: {len(index):,} entries in {size}", record, json)


def _build_on_cluster(
    signals: str,
    output: str,
    codes: CodeOptions,
    source: SourceOptions,
    originals: str | None,
    there: bool,
    segment_entries: int | None,
    scheduler: str,
) -> None:
    from ..index import open_index
    from ..signals import list_files, open_file

    columns = source.columns()
    if there:
        index = open_index(output, readonly=True)
        _check_recipe(index, codes, originals)
    else:
        index = codes.new_index(open_file(list_files(signals)[0], source.vector_column, columns.names).n_features)
    with index, cluster_client(scheduler) as client, bar("encoding") as progress:
        from .. import distributed

        distributed.encode(
            signals,
            output,
            index,
            client=client,
            vector_column=source.vector_column,
            id_column=columns.id_column,
            metadata_columns=columns.metadata_columns,
            originals=originals,
            segment_entries=segment_entries,
            progress=progress,
        )


def _build_here(
    signals: str, output: str, codes: CodeOptions, source: SourceOptions, originals: str | None, there: bool
) -> None:
    from ..index import open_index
    from ..signals import FilesRows

    with nullcontext() if there else _discarded(output):
        files = source.open_files(signals)
        rows = FilesRows(files)
        if not len(rows):
            raise ValueError(f"{signals} holds no signals")
        if there:
            index = open_index(output)
            _check_recipe(index, codes, originals)
        else:
            index = codes.new_index(files[0].n_features, rows, path=output, originals=originals)
        with index:
            columns = source.columns()
            taken = {file.name: _taken(file, columns, index.sources.get(file.name)) for file in files}
            _add_files(index, files, taken, columns, f"topsign build {signals} -o {output} --resume{source}")


@contextmanager
def _discarded(output: str) -> Iterator[None]:
    """Remove the index of a build that fails in its first chunk, so that the next build needs no --resume.

    An interrupted build keeps its entries.
    """
    from ..errors import StorageError
    from ..index import open_index

    try:
        yield
    except BaseException as error:
        is_interrupted = isinstance(error, KeyboardInterrupt) or getattr(error, "exit_code", None) == INTERRUPTED
        with suppress(StorageError, OSError):
            with open_index(output, readonly=True) as left:
                is_small = len(left) <= (0 if is_interrupted else CHUNK_ROWS)
            if is_small and "://" not in output:
                shutil.rmtree(output)
        raise


def _check_recipe(index: Index, codes: CodeOptions, originals: str | None) -> None:
    """Raise ValueError if the options of a resumed build differ from the original ones."""
    problem = index.recipe.disagreement(codes.family, **codes.given())
    if problem is None and originals not in (None, index.originals):
        problem = f"originals={index.originals!r}, got originals={originals!r}"
    if problem is not None:
        raise ValueError(f"{index.path} was started with {problem}; omit those options to continue it")


def _taken(file: SignalFile, columns: TableColumns, before: dict[str, Any] | None) -> int:
    """Return the number of signals of a file that are stored; raise ValueError if the file has changed since."""
    if before is None:
        return 0
    now = file.identity()
    if not {"taken", "columns", *now} <= before.keys():
        raise ValueError(
            f"{file.name} is a source of this index that topsign build did not add, so that --resume cannot continue "
            "it; use topsign add"
        )
    for name in now:
        if now[name] != before[name]:
            what = "first or last signal" if name == "crc32" else name
            values = "" if name == "crc32" else f": {before[name]} then, {now[name]} now"
            raise ValueError(f"{file.name} has changed since this build started: its {what} differs{values}")
    if list(columns.names) != before["columns"]:
        values = f"columns: {before['columns']} then, {list(columns.names)} now"
        raise ValueError(f"{file.name} was read with other options, {values}; give the same ones")
    return int(before["taken"])


def _add_files(index: Index, files: list[SignalFile], taken: dict[str, int], columns: TableColumns, again: str) -> None:
    """Add the remaining signals in chunks."""
    total, done = sum(file.n_signals for file in files), sum(taken.values())
    try:
        with bar("encoding") as progress, _kept_interrupts() as raise_interrupt:
            progress(done, total)
            for file in files:
                identity, rows, read_columns = file.identity(), file.rows(), columns.read(file)
                for chunk in _chunks(file, rows.dtype.itemsize, taken[file.name]):
                    note = file.name, identity | {"columns": list(columns.names), "taken": chunk.stop}
                    with naming(file.name):
                        index.add(rows, rows=chunk, source=note, **read_columns(chunk))
                    done += chunk.stop - chunk.start
                    progress(done, total)
                    raise_interrupt()
    except KeyboardInterrupt:
        index.refresh()  # the interrupt may have come between a commit and its snapshot
        errors.print(f"interrupted: {len(index):,} of {total:,} signals are stored; continue with: {again}")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _kept_interrupts() -> Iterator[Callable[[], None]]:
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


def _chunks(file: SignalFile, itemsize: int, start: int) -> list[slice]:
    n_rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, file.n_features * itemsize)))
    return [slice(at, min(at + n_rows, file.n_signals)) for at in range(start, file.n_signals, n_rows)]


def learn_regions(index: Any, n_regions: int | None = None) -> tuple[str, dict[str, Any]]:
    """Learn the regions of an index with a progress bar; return their properties as text and as JSON."""
    with bar("regions, %") as progress:
        found = index.learn_regions(n_regions="auto" if n_regions is None else n_regions, progress=progress)
    if found is None:
        return f"{len(index):,} entries need no regions: comparing all of them is faster", {"regions": 0}
    record = {"regions": found.n_regions, "recall_of": found.recall_of, "queries": found.n_queries}
    calibrated = f"recall is of {found.recall_of}, calibrated with {found.n_queries:,} queries"
    return f"{found.n_regions:,} regions of {found.n_entries:,} entries; {calibrated}", record


@command()
def add(
    index: IndexPath,
    signals: SignalPath,
    source: SourceOptions,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="Ids: a .npy file of integers, or a text file with one id per line. (default: the next free integers)"
        ),
    ] = None,
    metadata: Annotated[
        Path | None, typer.Option(help="Metadata: a file with one JSON object (or null) per line and signal.")
    ] = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace entries whose ids already exist.")] = False,
    timeout: Timeout = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Add signals to an index; each file is added completely or not at all.

    topsign build --scheduler --resume is better for many signals, because there the workers encode them.

    [bold]Examples[/]

    topsign add cameras.topsign more.npy
    topsign add cameras.topsign more.npy --ids ids.npy --metadata notes.jsonl
    topsign add docs.topsign changed.npy --ids names.txt --upsert
    """
    files = source.open_files(signals)
    if upsert and ids is None and source.id_column is None:
        raise fail("--upsert needs --ids or --id-column: entries are replaced by their ids", code=2)
    if (ids and source.id_column is not None) or (metadata and source.metadata_columns is not None):
        raise fail("give --ids or --id-column, and --metadata or --metadata-columns, not both", code=2)
    if len(files) > 1 and (ids is not None or metadata is not None):
        raise fail("--ids and --metadata go with one file, not with a folder", code=2)
    with opened_index(index, timeout=timeout, scheduler=scheduler) as opened:
        for file in files:
            if file.n_features != opened.n_features:
                raise ValueError(
                    f"{file.name} has signals of {file.n_features} features, {index} takes {opened.n_features}"
                )
        added = []
        for file in files:
            with naming(file.name):
                columns = source.columns().read(file)(slice(0, file.n_signals))
                columns |= {} if metadata is None else {"metadata": _read_metadata(metadata)}
                columns |= {} if ids is None else {"ids": read_ids(ids, opened)}
                new = (opened.upsert if upsert else opened.add)(file.rows(), **columns)
            span = f", ids {min(new)} to {max(new)}" if len(new) else ""
            added.append({"file": file.name, "added": len(new)})
            if not json:
                console.print(f"{file.name}: {len(new):,} entries added{span}")
        show_result(f"{index}: {len(opened):,} entries", {"index": index, "entries": len(opened), "files": added}, json)


def _read_metadata(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(f"--metadata: {path}: {error}", code=2) from None


@command()
def remove(
    index: IndexPath,
    removed: Annotated[
        list[str] | None, typer.Argument(metavar="[IDS]...", help="Ids to remove.", show_default=False)
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Ids in a .npy file, or in a text file with one id per line.")
    ] = None,
    erase: Annotated[bool, typer.Option("--erase", help="Also delete every file that holds the entries.")] = False,
    timeout: Timeout = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Remove entries by id; if any id is unknown, none is removed. topsign compact frees their space.

    [bold]Examples[/]

    topsign remove cameras.topsign 17 42
    topsign remove cameras.topsign --ids gone.npy
    topsign remove docs.topsign doc-17 --erase
    """
    if bool(removed) == (ids is not None):
        raise fail("give ids, or a file of them with --ids", code=2)
    with opened_index(index, timeout=timeout, scheduler=scheduler) as opened:
        n_before = len(opened)
        opened.remove(read_ids(ids, opened) if ids else as_ids(opened, removed or []), erase=erase)
        n_removed, n_left = n_before - len(opened), len(opened)
        record = {"index": index, "removed": n_removed, "entries": n_left}
        show_result(f"{index}: {n_removed:,} removed, {n_left:,} entries left", record, json)


@command()
def get(
    index: IndexPath, ids: EntryIds, version: Version = None, scheduler: Scheduler = None, json: Json = False
) -> None:
    """Print the ids and metadata of entries, one JSON object per line, or all in a JSON list.

    [bold]Examples[/]

    topsign get cameras.topsign 17 42
    topsign get docs.topsign doc-1
    """
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        found = [{"id": one.id, "metadata": one.metadata} for one in opened.get(as_ids(opened, ids))]
        write_lines([as_json(found)] if json else (as_json(one, indent=None) for one in found))


@command(name="list")
def list_ids(
    index: IndexPath,
    limit: Annotated[int | None, typer.Option(help="Maximum number of ids to print.", min=0)] = None,
    version: Version = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Print the ids of all entries, one per line, or as a JSON list.

    [bold]Examples[/]

    topsign list cameras.topsign
    topsign list cameras.topsign --limit 10
    """
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        ids = opened.ids[:limit]
        write_lines([as_json(ids, indent=None)] if json else map(str, ids))
