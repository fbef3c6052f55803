"""The commands of a Dask cluster: ``cluster encode``, ``cluster search``, ``cluster verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..signals import list_files, open_file
from .app import app, console, exit_on_error, fail
from .options import (
    AdaptiveBits,
    ArrayName,
    Bits,
    FalseAlarm,
    Format,
    Kind,
    LayoutName,
    Metric,
    Nearest,
    Norms,
    Output,
    Pool,
    ProjectionKind,
    QueryPath,
    Scoring,
    Seed,
    SignalPath,
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
    pool: Pool = None,
    projection: ProjectionKind = None,
    metric: Metric = None,
    layout: LayoutName = None,
    norms: Norms = None,
    seed: Seed = None,
    array: ArrayName = None,
    shard_entries: Annotated[int | None, typer.Option(help="Entries of a shard.  [default: 64 MiB of codes]")] = None,
    scheduler: Scheduler = None,
) -> None:
    """Encode signals into shards; ids are row numbers, through the files in order of their names.

    The same command goes on after an interruption: finished shards are kept. With further files in the folder of
    signals it adds their shards, as a new version of the manifest.

    [bold]Examples[/]

    topsign cluster encode signals/ -o codes --bits 512 --seed 7

    topsign cluster encode s3://bucket/signals -o s3://bucket/codes --seed 7 --scheduler tcp://host:8786
    """
    options = recipe_options(
        bits=bits, pool=pool, projection=projection, metric=metric, layout=layout, norms=norms, seed=seed
    )
    with exit_on_error(2):
        n_features = open_file(list_files(signals)[0], array).n_features
        index = make_index(kind, n_features, options)
    with _client(scheduler) as client, _bar("encoding") as progress, exit_on_error(1):
        encoded = _distributed().encode(
            signals, output, index, client=client, array=array, shard_entries=shard_entries, progress=progress
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
    """
    check_output(output_format, output)
    options = {"scoring": scoring, "adaptive_bits": adaptive_bits}
    with (
        _client(scheduler) as client,
        exit_on_error(1),
        _distributed().open(shards, client=client, version=version) as index,
    ):
        rows = search_files(index, queries, array, k, false_alarm, options)
    write_rows(rows, output_format, output)


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
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bar() as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
