"""The commands of a Dask cluster: ``topsign cluster encode``, ``search``, ``get`` and so on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..index import TrellisIndex
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
    name="cluster", help="The same on a Dask cluster: codes in shards, on a shared folder or in an object store."
)
app.add_typer(cluster)

Shards = Annotated[str, typer.Argument(help="Where the shards are: a folder, s3://, gs:// ...", show_default=False)]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of the cluster, say tcp://host:8786; this process alone when not given.")
]
Version = Annotated[int | None, typer.Option("--manifest", help="Version of the manifest; the newest when not given.")]


@cluster.command()
@spread
def encode(
    signals: SignalPath,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write shards: a folder, s3://, gs:// ...")],
    codes: CodeOptions,
    source: SourceOptions,
    shard_entries: Annotated[int | None, typer.Option(help="Entries of a shard. (default: 64 MiB of codes)")] = None,
    scheduler: Scheduler = None,
) -> None:
    """Encode signals into shards; ids are row numbers, through the files in order of their names, or of a column.

    The same command goes on after an interruption: finished shards are kept. With further files in the folder of
    signals it adds their shards, as a new version of the manifest.

    [bold]Examples[/]

    topsign cluster encode signals/ -o codes --bits 512 --seed 7

    topsign cluster encode s3://bucket/signals -o s3://bucket/codes --seed 7 --scheduler tcp://host:8786

    topsign cluster encode docs/ --id-column doc_id --vector-column embedding --metadata-columns title,year -o codes
    """
    with exit_on_error(2):
        columns = source.columns()
        first = open_file(list_files(signals)[0], source.array, columns.names)
        mean = {"center": True} if codes.center else {}
        index = make_index(codes.kind, first.n_features, codes.given() | mean)
        if isinstance(index, TrellisIndex) and not index.is_fitted:
            index.fit(first.rows())
    with _client(scheduler) as client, bar("encoding") as progress, exit_on_error(1):
        encoded = _distributed().encode(
            signals,
            output,
            index,
            client=client,
            array=source.array,
            id_column=columns.id_column,
            metadata_columns=columns.metadata_columns,
            shard_entries=shard_entries,
            progress=progress,
        )
    what = f"{encoded.n_entries:,} entries in {encoded.n_shards:,} shards, {encoded.n_written:,} of them written now"
    console.print(f"{output}: manifest {encoded.version}: {what}", highlight=False, soft_wrap=True)


@cluster.command()
@spread
def search(
    shards: Shards, queries: QueryPath, options: SearchOptions, version: Version = None, scheduler: Scheduler = None
) -> None:
    """Find the nearest entries of each query, or all significant ones, as topsign search does.

    Shards are loaded for this search; from Python, topsign.distributed.open loads them once for many.

    [bold]Examples[/]

    topsign cluster search codes queries.npy -k 5

    topsign cluster search s3://bucket/codes queries.npy --scheduler tcp://host:8786 --format csv -o found.csv

    topsign cluster search codes queries.npy --where "year >= 2020" --metadata
    """
    check_output(options.output_format, options.output)
    with _opened(shards, scheduler, version) as index:
        search_files(index, queries, options)


@cluster.command()
@spread
def add(shards: Shards, signals: SignalPath, options: AddOptions, scheduler: Scheduler = None) -> None:
    """Add a few signals, as topsign add does: each file becomes a shard, and a new version of the manifest.

    encode is for many signals: there the workers encode them.

    [bold]Examples[/]

    topsign cluster add codes more.npy

    topsign cluster add codes changed.parquet --id-column doc_id --metadata-columns title,year --upsert
    """
    files = options.open_files(signals)
    with _opened(shards, scheduler) as index:
        add_files(index, shards, files, options)
        _print_state(shards, index)


@cluster.command()
@spread
def dedupe(shards: Shards, options: GroupOptions, version: Version = None, scheduler: Scheduler = None) -> None:
    """Find groups of near-duplicates among the entries, as topsign dedupe does.

    [bold]Examples[/]

    topsign cluster dedupe codes -o groups.parquet
    """
    with _opened(shards, scheduler, version) as index:
        write_groups(index, options.output, options.limit(index.recipe.family))


@cluster.command()
def get(shards: Shards, ids: EntryIds, version: Version = None, scheduler: Scheduler = None) -> None:
    """Print the ids and metadata of entries, one JSON object per line.

    [bold]Examples[/]

    topsign cluster get codes doc-1 doc-2
    """
    with _opened(shards, scheduler, version) as index, exit_on_error(2):
        print_entries(index.get(as_ids(index, ids)))


@cluster.command(name="list")
def list_ids(shards: Shards, limit: Limit = None, version: Version = None, scheduler: Scheduler = None) -> None:
    """Print the ids of all entries, one per line.

    [bold]Examples[/]

    topsign cluster list codes --limit 10
    """
    with _opened(shards, scheduler, version) as index:
        print_ids(index.ids[:limit])


@cluster.command()
def remove(shards: Shards, ids: RemovedIds = None, ids_file: RemovedFile = None, scheduler: Scheduler = None) -> None:
    """Remove entries: the shards that hold them are written anew, as a new version of the manifest.

    [bold]Examples[/]

    topsign cluster remove codes doc-1 doc-2

    topsign cluster remove codes --ids gone.npy
    """
    check_removed(ids, ids_file)
    with _opened(shards, scheduler) as index:
        remove_entries(index, shards, ids, ids_file)
        _print_state(shards, index)


@cluster.command()
def calibrate(
    shards: Shards,
    impostors: SignalPath,
    false_alarm: Level = 0.01,
    array: ArrayName = None,
    scheduler: Scheduler = None,
) -> None:
    """Learn the null of scores from signals that match no entry, as topsign calibrate does.

    The null is stored in a new version of the manifest.

    [bold]Examples[/]

    topsign cluster calibrate codes other-signals.npy
    """
    with _opened(shards, scheduler) as index:
        learn_null(index, shards, impostors, array, false_alarm=false_alarm)


@cluster.command()
def compact(
    shards: Shards, keep: Annotated[int, typer.Option(help="Versions of the manifest to keep, the newest ones.")] = 1
) -> None:
    """Delete older versions of the manifest, and the shards that only those need.

    [bold]Examples[/]

    topsign cluster compact codes
    """
    with exit_on_error(2):
        gone = _distributed().compact(shards, keep=keep)
    what = f"{gone.n_versions:,} older versions and {gone.n_shards:,} shards deleted, {gone.n_bytes:,} bytes freed"
    console.print(f"{shards}: {what}", highlight=False, soft_wrap=True)


@cluster.command()
def verify(shards: Shards, version: Version = None, scheduler: Scheduler = None) -> None:
    """Read all shards: every checksum, every id.

    [bold]Examples[/]

    topsign cluster verify codes
    """
    with _client(scheduler) as client, bar("verifying") as progress, exit_on_error(1):
        n_entries = _distributed().verify(shards, client=client, version=version, progress=progress)
    console.print(f"{shards}: sound: {n_entries:,} entries", highlight=False, soft_wrap=True)


def _distributed() -> Any:
    with exit_on_error(2):
        from .. import distributed
    return distributed


@contextmanager
def _client(scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster named, None for a local one."""
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
def _opened(shards: str, scheduler: str | None, version: int | None = None) -> Iterator[Any]:
    """The index over the shards, on the cluster named."""
    with (
        _client(scheduler) as client,
        exit_on_error(1),
        _distributed().open(shards, client=client, version=version) as index,
    ):
        yield index


def _print_state(shards: str, index: Any) -> None:
    """What is in the folder after a change."""
    console.print(f"{shards}: manifest {index.version}: {len(index):,} entries", highlight=False, soft_wrap=True)
