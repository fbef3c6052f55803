"""The commands of a Dask cluster: ``topsign cluster encode``, ``search``, ``get`` and so on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..signals import list_files, open_file
from .add import AddOptions, add_files
from .app import app, console, exit_on_error, fail
from .calibrate import Level, learn_null
from .dedupe import GroupOptions, write_groups
from .get import print_entries
from .list import print_ids
from .options import (
    ArrayName,
    CodeOptions,
    EntryIds,
    Limit,
    Originals,
    QueryPath,
    SignalPath,
    SourceOptions,
    as_ids,
    check_output,
    make_index,
    spread,
)
from .output import bar
from .remove import RemovedFile, RemovedIds, check_removed, remove_entries
from .search import SearchOptions, search_files

cluster = typer.Typer(
    name="cluster", help="Run commands on a Dask cluster, with an index in a shared folder or an object store."
)
app.add_typer(cluster)

IndexPlace = Annotated[str, typer.Argument(metavar="INDEX", help="A folder, s3://, gs:// ...", show_default=False)]
Scheduler = Annotated[
    str | None, typer.Option(help="Scheduler address, e.g. tcp://host:8786. (default: a local cluster in this process)")
]
Version = Annotated[int | None, typer.Option("--version", help="Version of the index. (default: the newest)")]


@cluster.command()
@spread
def encode(
    signals: SignalPath,
    output: Annotated[str, typer.Option("--output", "-o", help="The index: a folder, s3://, gs:// ...")],
    codes: CodeOptions,
    source: SourceOptions,
    originals: Originals = None,
    segment_entries: Annotated[int | None, typer.Option(help="Entries per segment. (default: 64 MiB of codes)")] = None,
    scheduler: Scheduler = None,
) -> None:
    """Encode signals into an index; ids are row numbers over all files sorted by name, or come from a column.

    Run the same command again to continue after an interruption; finished segments are kept. If the folder has new
    files, their signals are added. An index in a local folder also works with topsign search and all other commands.

    [bold]Examples[/]

    topsign cluster encode signals/ -o codes.topsign --bits 512 --seed 7

    topsign cluster encode s3://bucket/signals -o s3://bucket/codes.topsign --seed 7 --scheduler tcp://host:8786

    topsign cluster encode docs/ --id-column doc_id --vector-column embedding --metadata-columns title,year -o d.topsign
    """
    with exit_on_error(2):
        columns = source.columns()
        first = open_file(list_files(signals)[0], source.array, columns.names)
        index = make_index(codes.family, first.n_features, codes.given())
    with _client(scheduler) as client, bar("encoding") as progress, exit_on_error(1):
        encoded = _distributed().encode(
            signals,
            output,
            index,
            client=client,
            array=source.array,
            id_column=columns.id_column,
            metadata_columns=columns.metadata_columns,
            originals=originals,
            segment_entries=segment_entries,
            progress=progress,
        )
    what = f"{encoded.n_entries:,} entries in {encoded.n_segments:,} segments, {encoded.n_written:,} written now"
    console.print(f"{output}: version {encoded.version}: {what}")


@cluster.command()
@spread
def search(
    index_path: IndexPlace,
    queries: QueryPath,
    options: SearchOptions,
    version: Version = None,
    scheduler: Scheduler = None,
) -> None:
    """Find the nearest entries of each query, or all significant ones, like topsign search.

    Workers load the segments for this search only; in Python, topsign.distributed.open loads them once for many.

    [bold]Examples[/]

    topsign cluster search codes.topsign queries.npy -k 5

    topsign cluster search s3://bucket/codes.topsign queries.npy --scheduler tcp://host:8786 --format csv -o found.csv

    topsign cluster search codes.topsign queries.npy --where "year >= 2020" --metadata
    """
    check_output(options.output_format, options.output)
    with _opened(index_path, scheduler, version) as index:
        search_files(index, queries, options)


@cluster.command()
@spread
def add(index_path: IndexPlace, signals: SignalPath, options: AddOptions, scheduler: Scheduler = None) -> None:
    """Add a few signals, like topsign add; each file creates a new version.

    Use topsign cluster encode for many signals, because there the workers encode them.

    [bold]Examples[/]

    topsign cluster add codes.topsign more.npy

    topsign cluster add codes.topsign changed.parquet --id-column doc_id --metadata-columns title,year --upsert
    """
    files = options.open_files(signals)
    with _opened(index_path, scheduler) as index:
        add_files(index, index_path, files, options)
        _print_state(index_path, index)


@cluster.command()
@spread
def dedupe(index_path: IndexPlace, options: GroupOptions, version: Version = None, scheduler: Scheduler = None) -> None:
    """Find groups of near-duplicates among the entries, like topsign dedupe.

    [bold]Examples[/]

    topsign cluster dedupe codes.topsign -o groups.parquet
    """
    with _opened(index_path, scheduler, version) as index:
        write_groups(index, options.output, options.limit(index.recipe))


@cluster.command()
def get(index_path: IndexPlace, ids: EntryIds, version: Version = None, scheduler: Scheduler = None) -> None:
    """Print the ids and metadata of entries, one JSON object per line.

    [bold]Examples[/]

    topsign cluster get codes.topsign doc-1 doc-2
    """
    with _opened(index_path, scheduler, version) as index, exit_on_error(2):
        print_entries(index.get(as_ids(index, ids)))


@cluster.command(name="list")
def list_ids(index_path: IndexPlace, limit: Limit = None, version: Version = None, scheduler: Scheduler = None) -> None:
    """Print the ids of all entries, one per line.

    [bold]Examples[/]

    topsign cluster list codes.topsign --limit 10
    """
    with _opened(index_path, scheduler, version) as index:
        print_ids(index.ids[:limit])


@cluster.command()
def remove(
    index_path: IndexPlace, ids: RemovedIds = None, ids_file: RemovedFile = None, scheduler: Scheduler = None
) -> None:
    """Remove entries; topsign cluster compact frees their space.

    [bold]Examples[/]

    topsign cluster remove codes.topsign doc-1 doc-2

    topsign cluster remove codes.topsign --ids gone.npy
    """
    check_removed(ids, ids_file)
    with _opened(index_path, scheduler) as index:
        remove_entries(index, index_path, ids, ids_file)
        _print_state(index_path, index)


@cluster.command()
def calibrate(
    index_path: IndexPlace,
    impostors: SignalPath,
    false_alarm: Level = 0.01,
    array: ArrayName = None,
    scheduler: Scheduler = None,
) -> None:
    """Calibrate false-alarm rates with signals that match no entry, like topsign calibrate.

    [bold]Examples[/]

    topsign cluster calibrate codes.topsign other-signals.npy
    """
    with _opened(index_path, scheduler) as index:
        learn_null(index, index_path, impostors, array, false_alarm=false_alarm)


@cluster.command()
def compact(index_path: IndexPlace, scheduler: Scheduler = None) -> None:
    """Drop removed entries, merge small segments, and delete older versions.

    [bold]Examples[/]

    topsign cluster compact codes.topsign
    """
    with _opened(index_path, scheduler) as index:
        index.compact()
        _print_state(index_path, index)


@cluster.command()
def verify(index_path: IndexPlace, version: Version = None, scheduler: Scheduler = None) -> None:
    """Verify all segments: every checksum and every id.

    [bold]Examples[/]

    topsign cluster verify codes.topsign
    """
    with _opened(index_path, scheduler, version) as index, bar("verifying") as progress:
        index.verify(progress=progress)
        console.print(f"{index_path}: sound: {len(index):,} entries")


def _distributed() -> Any:
    with exit_on_error(2):
        from .. import distributed
    return distributed


@contextmanager
def _client(scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler, or None for a local cluster."""
    _distributed()
    if scheduler is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise fail(f"no scheduler answers at {scheduler}: {error}", code=1) from None
    with client:
        yield client


@contextmanager
def _opened(index_path: str, scheduler: str | None, version: int | None = None) -> Iterator[Any]:
    """Open the index on the cluster."""
    with (
        _client(scheduler) as client,
        exit_on_error(1),
        _distributed().open(index_path, client=client, version=version) as index,
    ):
        yield index


def _print_state(index_path: str, index: Any) -> None:
    """Print the version and the number of entries after a change."""
    console.print(f"{index_path}: version {index.version}: {len(index):,} entries")
