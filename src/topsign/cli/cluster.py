"""The commands of a Dask cluster: ``topsign cluster encode``, ``search``, ``get`` and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..index import TrellisIndex
from ..signals import TableColumns, list_files, open_file
from .app import app, console, exit_on_error, fail
from .calibrate import Pairs, learn_null
from .get import print_entries
from .list import print_ids
from .options import (
    AdaptiveBits,
    ArrayName,
    Bits,
    Bytes,
    Center,
    EntryIds,
    FalseAlarm,
    Force,
    Format,
    IdColumn,
    Kind,
    LayoutName,
    Limit,
    Local,
    MetadataColumns,
    Metric,
    Nearest,
    Norms,
    Output,
    Pool,
    ProjectionKind,
    QueryPath,
    Scoring,
    Seed,
    ShowMetadata,
    SignalPath,
    WhereText,
    as_ids,
    check_output,
    make_index,
    recipe_options,
)
from .output import progress_bar, write_rows
from .search import search_files

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
def encode(
    signals: SignalPath,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write shards: a folder, s3://, gs:// ...")],
    kind: Kind = None,
    bits: Bits = None,
    n_bytes: Bytes = None,
    n_local: Local = None,
    pool: Pool = None,
    projection: ProjectionKind = None,
    metric: Metric = None,
    layout: LayoutName = None,
    norms: Norms = None,
    center: Center = False,
    seed: Seed = None,
    array: ArrayName = None,
    id_column: IdColumn = None,
    metadata_columns: MetadataColumns = None,
    shard_entries: Annotated[int | None, typer.Option(help="Entries of a shard.  [default: 64 MiB of codes]")] = None,
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
    options = recipe_options(
        bits=bits,
        pool=pool,
        projection=projection,
        metric=metric,
        layout=layout,
        norms=norms,
        seed=seed,
        n_bytes=n_bytes,
        n_local=n_local,
    )
    with exit_on_error(2):
        columns = TableColumns.of(id_column, metadata_columns)
        first = open_file(list_files(signals)[0], array, columns.names)
        index = make_index(kind, first.n_features, options | ({"center": True} if center else {}))
        if isinstance(index, TrellisIndex) and not index.is_fitted:
            index.fit(first.rows())
    with _client(scheduler) as client, _bar("encoding") as progress, exit_on_error(1):
        encoded = _distributed().encode(
            signals,
            output,
            index,
            client=client,
            array=array,
            id_column=columns.id_column,
            metadata_columns=columns.metadata_columns,
            shard_entries=shard_entries,
            progress=progress,
        )
    what = f"{encoded.n_entries:,} entries in {encoded.n_shards:,} shards, {encoded.n_written:,} of them written now"
    console.print(f"{output}: manifest {encoded.version}: {what}", highlight=False, soft_wrap=True)


@cluster.command()
def search(
    shards: Shards,
    queries: QueryPath,
    k: Nearest = None,
    false_alarm: FalseAlarm = None,
    scoring: Scoring = "asymmetric",
    adaptive_bits: AdaptiveBits = None,
    where: WhereText = None,
    force: Force = False,
    metadata: ShowMetadata = False,
    output_format: Format = "table",
    output: Output = None,
    array: ArrayName = None,
    version: Version = None,
    scheduler: Scheduler = None,
) -> None:
    """Find the nearest entries of each query, or all significant ones, as topsign search does.

    Shards are loaded for this search; from Python, topsign.distributed.open loads them once for many.

    [bold]Examples[/]

    topsign cluster search codes queries.npy -k 5

    topsign cluster search s3://bucket/codes queries.npy --scheduler tcp://host:8786 --format csv -o found.csv

    topsign cluster search codes queries.npy --where "year >= 2020" --metadata
    """
    check_output(output_format, output)
    options = {"scoring": scoring, "adaptive_bits": adaptive_bits, "where": where, "with_metadata": metadata}
    options |= {"force": True} if false_alarm is not None and force else {}
    with _opened(shards, scheduler, version) as index:
        rows = search_files(index, queries, array, k, false_alarm, options)
    write_rows(rows, output_format, output)


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
def remove(shards: Shards, ids: EntryIds, scheduler: Scheduler = None) -> None:
    """Remove entries: the shards that hold them are written anew, as a new version of the manifest.

    [bold]Examples[/]

    topsign cluster remove codes doc-1 doc-2
    """
    with _opened(shards, scheduler) as index:
        with exit_on_error(2):
            index.remove(as_ids(index, ids))
        message = f"{shards}: manifest {index.version}: {len(index):,} entries"
    console.print(message, highlight=False, soft_wrap=True)


@cluster.command()
def calibrate(
    shards: Shards,
    impostors: SignalPath,
    pairs: Pairs = 500_000,
    array: ArrayName = None,
    scheduler: Scheduler = None,
) -> None:
    """Learn the null of scores from signals that match no entry, as topsign calibrate does.

    The null is stored in a new version of the manifest.

    [bold]Examples[/]

    topsign cluster calibrate codes other-signals.npy
    """
    with _opened(shards, scheduler) as index:
        learn_null(index, shards, impostors, array, n_pairs=pairs)


@cluster.command()
def verify(shards: Shards, version: Version = None, scheduler: Scheduler = None) -> None:
    """Read all shards: every checksum, every id.

    [bold]Examples[/]

    topsign cluster verify codes
    """
    with _client(scheduler) as client, _bar("verifying") as progress, exit_on_error(1):
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


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bar() as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
