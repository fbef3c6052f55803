"""Arguments and options shared by several commands, named like the parameters of the library."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import fail

if TYPE_CHECKING:
    from ..index import Index
    from ..signals import SignalFile, TableColumns

FAMILY = "trellis"
"""Default family of codes."""

LOCAL = "local"
"""Value of --scheduler that starts a cluster in this process."""

IndexPath = Annotated[
    str, typer.Argument(metavar="INDEX", help="The index: a folder, s3://, gs:// ...", show_default=False)
]
SignalPath = Annotated[
    str,
    typer.Argument(
        help="Signals: .npy, .npz, .parquet, .csv, .arrow, .feather, .safetensors, .fvecs, .bvecs, or a folder of such "
        "files; a path or URL.",
        show_default=False,
    ),
]
QueryPath = Annotated[str, typer.Argument(help="Queries: the same file formats as for build.", show_default=False)]
VectorColumn = Annotated[str | None, typer.Option(help="Column or array of the file that holds the signals.")]
IdColumn = Annotated[str | None, typer.Option(help="Table column that holds the ids, strings or integers.")]
MetadataColumns = Annotated[str | None, typer.Option(help="Table columns that become metadata, separated by commas.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds to wait for another writer. (default: no limit)")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run on the workers of a Dask cluster: the address of its scheduler, e.g. tcp://host:8786, or local for a "
        "cluster in this process."
    ),
]
Version = Annotated[
    int | None, typer.Option("--version", help="Version of the index, if it is kept. (default: the newest)")
]
Nearest = Annotated[int | None, typer.Option("-k", help="Number of nearest entries per query. (default: 10)")]
Recall = Annotated[float | None, typer.Option(help="Visit only as many regions as this recall needs, e.g. 0.95.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the results to this file: .parquet, .csv or .json.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class CodeOptions:
    """Options that determine how signals are encoded: parameters of :class:`topsign.Index`."""

    family: Annotated[
        str | None,
        typer.Option(
            help="Family of codes: adaptive, grouped, sign, trellis, or one that an installed package defines. "
            f"(default: {FAMILY})"
        ),
    ] = None
    n_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes per code of all families except adaptive. (default: a 16th of the signal's length for grouped "
            "codes, an eighth for sign codes)"
        ),
    ] = None
    n_bits: Annotated[
        int | None, typer.Option(help="Adaptive codes: projections kept per signal. (default: an eighth of the pool)")
    ] = None
    n_pool: Annotated[
        int | None, typer.Option(help="Adaptive codes: projections computed. (default: the signal's length)")
    ] = None
    basis: Annotated[
        str | None,
        typer.Option(
            help="Projections: principal (the default of trellis codes), hadamard (of all others), gaussian, "
            "rademacher, sparse or circulant."
        ),
    ] = None
    metric: Annotated[str | None, typer.Option(help="correlation (default) or inner_product.")] = None
    center: Annotated[
        bool | None,
        typer.Option(
            "--center/--no-center",
            help="Subtract the mean of the signals from signals and queries. (default: only for trellis codes)",
        ),
    ] = None
    random_state: Annotated[int | None, typer.Option(help="Seed of the projections. (default: 0)")] = None

    def given(self) -> dict[str, Any]:
        """Return the given options, except the family, as parameters of an index."""
        return {name: value for name, value in vars(self).items() if name != "family" and value is not None}

    def new_index(self, n_features: int, sample: Any = None, **place: Any) -> Index:
        """Return an index with these options; a family that learns does so from the sample, if there is one."""
        from ..index import Index, deferred_of

        index = Index(n_features, family=self.family or FAMILY, **self.given(), **place)
        return index if sample is None or deferred_of(index) is None else index.fit(sample)


@dataclass(frozen=True)
class SourceOptions:
    """Options that select the contents of signal files."""

    vector_column: VectorColumn = None
    id_column: IdColumn = None
    metadata_columns: MetadataColumns = None

    def __str__(self) -> str:
        """Return the given options as they are written on the command line."""
        given = {option(name): value for name, value in vars(self).items() if value is not None}
        return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items())

    def columns(self) -> TableColumns:
        """Return the names of the id and metadata columns."""
        from ..signals import TableColumns

        names = (self.metadata_columns or "").split(",")
        return TableColumns(self.id_column, tuple(name.strip() for name in names if name.strip()))

    def open_files(self, signals: str) -> list[SignalFile]:
        """Describe the files of the signals."""
        from ..signals import open_files

        return open_files(signals, self.vector_column, self.columns().names)


def option(name: str) -> str:
    """Return the option of a parameter."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


def is_index(place: str) -> bool:
    """Return whether there is an index at a path or URL."""
    from ..store import exists

    return exists(place) if "://" in place else Path(place, "versions").is_dir()


@contextmanager
def opened_index(
    place: str,
    *,
    readonly: bool = False,
    timeout: float | None = None,
    version: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Any]:
    """Open the index named on the command line, in this process or on a cluster."""
    from ..index import open_index

    if "://" not in place and not Path(place).is_dir():
        problem = "is not a topsign index, which is a folder" if Path(place).exists() else "does not exist"
        raise fail(f"{place} {problem}", code=2)
    if scheduler is None:
        with open_index(place, readonly=readonly, timeout=timeout, version=version) as index:
            yield index
        return
    if timeout is not None:
        raise fail("--timeout has no effect with --scheduler, whose writers do not wait for each other", code=2)
    from .. import distributed

    with (
        cluster_client(scheduler) as client,
        distributed.open(place, client=client, readonly=readonly, version=version) as index,
    ):
        yield index


@contextmanager
def cluster_client(scheduler: str) -> Iterator[Any]:
    """Yield a client of the scheduler, or None for a cluster in this process."""
    from .. import distributed  # noqa: F401  (names the extra if Dask is missing)

    if scheduler == LOCAL:
        yield None
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise fail(f"no scheduler answers at {scheduler}: {error}", code=1) from None
    with client:
        yield client


def as_ids(index: Any, given: list[str]) -> list[str] | list[int]:
    """Convert ids from the command line to the id type of the index."""
    if index.info["text_ids"]:
        return given
    for one in given:
        if not one.isdecimal() or int(one) >= 2**63:
            raise TypeError(f"the ids of this index are integers in [0, 2**63), got {one!r}")
    return [int(one) for one in given]


def read_ids(path: Path, index: Any) -> Any:
    """Read ids from a .npy file of integers, or from a text file with one id of the index's type per line.

    For an index without entries, lines are texts.
    """
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise fail(f"--ids: {path}: {error}", code=2) from None
    return as_ids(index, lines) if len(index) else np.array(lines, object)
