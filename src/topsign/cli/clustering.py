"""Commands on a Dask cluster: ``cluster encode``, ``cluster search``, ``cluster verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..index import AdaptiveIndex, SignIndex
from ..kernels import LAYOUTS
from ..projections import KINDS
from ..recipe import METRICS
from ..theory.inference import SCORINGS
from .app import app, console, fail, told
from .changing import ArrayName, progress_bar
from .searching import FORMATS, _match_rows, _neighbor_rows, _write_rows
from .sources import open_sources

cluster = typer.Typer(
    name="cluster", help="The same on a Dask cluster: codes in shards, on a shared folder or in an object store."
)
app.add_typer(cluster)

Shards = Annotated[str, typer.Argument(help="Where the shards are: a folder, s3://, gs:// ...", show_default=False)]
Scheduler = Annotated[
    str | None, typer.Option(help="Of the cluster, say tcp://host:8786; this process alone when not given.")
]
Version = Annotated[int | None, typer.Option("--manifest", help="Version of the manifest; the newest when not given.")]


@cluster.command()
def encode(
    signals: Annotated[
        str, typer.Argument(help="Signals: a folder or prefix of .npy or .parquet, or one file.", show_default=False)
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write shards: a folder, s3://, gs:// ...")],
    seed: Annotated[int, typer.Option(help="Of the projection.")] = 0,
    kind: Annotated[str, typer.Option(help="adaptive or sign.")] = "adaptive",
    bits: Annotated[int | None, typer.Option(help="Projections kept per signal.  [default: 512]")] = None,
    pool: Annotated[int | None, typer.Option(help="Projections computed.  [default: the signal's length]")] = None,
    projection: Annotated[str, typer.Option(help=f"{', '.join(KINDS)}.")] = "hadamard",
    metric: Annotated[str, typer.Option(help=f"{', '.join(METRICS)}.")] = "correlation",
    layout: Annotated[str | None, typer.Option(help=f"{', '.join(LAYOUTS)}.  [default: compact]")] = None,
    norms: Annotated[bool, typer.Option("--norms/--no-norms", help="Keep norms.")] = True,
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
    options: dict[str, Any] = {"n_pool": pool, "projection": projection, "metric": metric, "norms": norms}
    adaptive: dict[str, Any] = {
        name: value for name, value in (("n_bits", bits), ("layout", layout)) if value is not None
    }
    if kind not in ("adaptive", "sign"):
        raise fail(f"--kind must be adaptive or sign, got {kind}", code=2)
    if kind == "sign" and adaptive:
        raise fail(
            "--bits and --layout go with --kind adaptive; a sign index keeps the signs of the whole --pool", code=2
        )
    with _told():
        n_features = _distributed().sources.describe(_distributed().sources.list_sources(signals)[0], array).n_features
    options |= {"n_features": n_features, "random_state": seed}
    with told(2):
        index = SignIndex(**options) if kind == "sign" else AdaptiveIndex(**options, **adaptive)
    with _client(scheduler) as client, _bar("encoding") as progress, _told():
        encoded = _distributed().encode(
            signals, output, index, client=client, column=array, shard_entries=shard_entries, progress=progress
        )
    what = f"{encoded.entries:,} entries in {encoded.shards:,} shards, {encoded.written:,} of them written now"
    console.print(f"{output}: manifest {encoded.version}: {what}", highlight=False, soft_wrap=True)


@cluster.command()
def search(
    shards: Shards,
    queries: Annotated[Path, typer.Argument(help="Queries, in the forms that build takes.", show_default=False)],
    k: Annotated[int | None, typer.Option("-k", help="Nearest entries of each query.  [default: 10]")] = None,
    false_alarm: Annotated[
        float | None, typer.Option(help="Instead of -k: every match that is significant at this level, per query.")
    ] = None,
    scoring: Annotated[str, typer.Option(help=f"{' or '.join(SCORINGS)}.")] = "asymmetric",
    adaptive_bits: Annotated[int | None, typer.Option(help="Of sign codes: signs each query chooses.")] = None,
    output_format: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write into this file.")] = None,
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
    if output_format not in FORMATS:
        raise fail(f"--format must be one of {', '.join(FORMATS)}, got {output_format}", code=2)
    if k is not None and false_alarm is not None:
        raise fail("give -k or --false-alarm, not both: a number of entries, or all significant ones", code=2)
    if output_format == "parquet" and output is None:
        raise fail("--format parquet needs --output FILE", code=2)
    with _client(scheduler) as client, open_sources(queries, array) as sources, _told():
        signals = np.concatenate([source.signals for source in sources])
        with _distributed().open(shards, client=client, version=version) as index:
            options: dict[str, Any] = {"scoring": scoring, "adaptive_bits": adaptive_bits}
            if false_alarm is None:
                rows = _neighbor_rows(index.search(signals, k=10 if k is None else k, **options))
            else:
                rows = _match_rows(index.within(signals, false_alarm=false_alarm, **options))
    _write_rows(rows, output_format, output)


@cluster.command()
def verify(shards: Shards, version: Version = None, scheduler: Scheduler = None) -> None:
    """Read all shards: every checksum, every id.

    [bold]Examples[/]

    topsign cluster verify codes
    """
    with _client(scheduler) as client, _bar("verifying") as progress, _told():
        entries = _distributed().verify(shards, client=client, version=version, progress=progress)
    console.print(f"{shards}: sound: {entries:,} entries", highlight=False, soft_wrap=True)


def _distributed() -> Any:
    try:
        from .. import distributed
    except ImportError as error:
        raise fail(str(error), code=2) from None
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
def _told() -> Iterator[None]:
    """Refusals as messages; what a cluster lacks is code 1, as is what files hold."""
    try:
        with told(1):
            yield
    except typer.Exit:  # a RuntimeError too
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        raise fail(str(error), code=1) from None


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    with progress_bar() as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
