"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import numpy as np
import typer

from .._arrays import Array
from ..index import AdaptiveIndex, SignIndex, TrellisIndex, open_index
from ..index import Index as AnyIndex
from ..kernels import LAYOUTS
from ..projections import KINDS
from ..recipe import METRICS
from ..signals import SUFFIXES, TableColumns
from ..theory import SCORINGS
from .app import exit_on_error, fail

Index = AnyIndex[Any]

FORMATS = ("table", "json", "csv", "parquet")
SEED = 0
"""Seed of the projection when none is given: the same command makes the same codes."""

IndexPath = Annotated[Path, typer.Argument(help="The index, a file.", show_default=False)]
SignalPath = Annotated[
    str,
    typer.Argument(
        help=f"Signals: {', '.join(SUFFIXES)}, or a folder of such files; a path or URL.", show_default=False
    ),
]
QueryPath = Annotated[str, typer.Argument(help="Queries, in the forms that build takes.", show_default=False)]
ArrayName = Annotated[
    str | None,
    typer.Option("--array", "--vector-column", help="Which array or column of the file holds the signals."),
]
IdColumn = Annotated[str | None, typer.Option(help="Column of a table that holds the ids, texts or integers.")]
MetadataColumns = Annotated[
    str | None, typer.Option(help="Columns of a table that become the entries' metadata, separated by commas.")
]
Threads = Annotated[int | None, typer.Option(help="Threads; every core when not given.")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait for another writer; no limit when not given.")]

Kind = Annotated[str | None, typer.Option("--kind", "--codes", help="adaptive, sign or trellis. (default: adaptive)")]
Bytes = Annotated[int | None, typer.Option("--bytes", help="Of trellis codes: bytes of one code.")]
Local = Annotated[int | None, typer.Option("--local", help="Of trellis codes: cells with axes of their own, 16 say.")]
Bits = Annotated[int | None, typer.Option(help="Projections kept per signal. (default: an eighth of the pool)")]
Pool = Annotated[int | None, typer.Option(help="Projections computed. (default: the signal's length)")]
ProjectionKind = Annotated[
    str | None, typer.Option(help=f"{', '.join(KINDS)}; of trellis codes hadamard or principal, which they begin with.")
]
Metric = Annotated[str | None, typer.Option(help=f"{', '.join(METRICS)}. (default: correlation)")]
LayoutName = Annotated[str | None, typer.Option(help=f"{', '.join(LAYOUTS)}. (default: compact)")]
Norms = Annotated[bool | None, typer.Option("--norms/--no-norms", help="Keep norms. (default: norms)")]
Center = Annotated[bool, typer.Option("--center", help="Remove the mean of the signals from them and from queries.")]
Seed = Annotated[int | None, typer.Option(help=f"Seed of the projection. (default: {SEED})")]

Nearest = Annotated[int | None, typer.Option("-k", help="Nearest entries of each query. (default: 10)")]
FalseAlarm = Annotated[
    float | None, typer.Option(help="Instead of -k: every match that is significant at this level, per query.")
]
Scoring = Annotated[str, typer.Option(help=f"{' or '.join(SCORINGS)}.")]
AdaptiveBits = Annotated[int | None, typer.Option(help="Of sign codes: signs each query chooses.")]
WhereText = Annotated[
    str | None,
    typer.Option("--where", help="Only entries whose metadata fulfil this: \"year >= 2020 and lang == 'en'\"."),
]
Force = Annotated[bool, typer.Option("--force", help="Return even a flood of --false-alarm matches.")]
ShowMetadata = Annotated[bool, typer.Option("--metadata", help="Show what was noted with each entry.")]
Limit = Annotated[int | None, typer.Option(help="Print at most so many.")]
EntryIds = Annotated[list[str], typer.Argument(help="Ids of entries.", show_default=False)]
Format = Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write into this file.")]


def opened_index(path: Path, *, readonly: bool = False, timeout: float | None = None) -> Index:
    """The index in a file that a command names."""
    if not path.is_file():
        raise fail(f"{path} does not exist, or is not a file", code=2)
    with exit_on_error(2):
        return open_index(path, readonly=readonly, timeout=timeout)


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are dataclasses of options become one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = list[Parameter]()
    for name, parameter in signature(command).parameters.items():
        group = groups.get(name)
        inner = {name: parameter} if group is None else signature(group).parameters
        known = hints if group is None else get_type_hints(group, include_extras=True)
        parameters += [one.replace(annotation=known[one.name]) for one in inner.values()]

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    parameters.sort(key=lambda one: one.default is not Parameter.empty)  # as Python wants them
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@dataclass(frozen=True)
class CodeOptions:
    """How signals become codes: options of the commands that begin with signals."""

    kind: Kind = None
    bits: Bits = None
    n_bytes: Bytes = None
    n_local: Local = None
    pool: Pool = None
    projection: ProjectionKind = None
    metric: Metric = None
    layout: LayoutName = None
    norms: Norms = None
    center: Center = False
    seed: Seed = None

    def given(self) -> dict[str, Any]:
        """The options that were given, in the words of an index's constructor; not the kind, not the mean."""
        values = {"n_bits": self.bits, "n_pool": self.pool, "projection": self.projection, "metric": self.metric}
        values |= {"layout": self.layout, "norms": self.norms, "random_state": self.seed}
        values |= {"n_bytes": self.n_bytes, "n_local": self.n_local}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class SourceOptions:
    """What is read from files of signals."""

    array: ArrayName = None
    id_column: IdColumn = None
    metadata_columns: MetadataColumns = None

    def columns(self) -> TableColumns:
        """Columns of ids and metadata."""
        return TableColumns.of(self.id_column, self.metadata_columns)


def make_index(kind: str | None, n_features: int, options: dict[str, Any], path: Path | None = None) -> Index:
    """A new index; options of adaptive codes are refused for signs."""
    options = {"random_state": SEED} | options
    if kind not in (None, "adaptive", "sign", "trellis"):
        raise ValueError(f"--kind must be adaptive, sign or trellis, got {kind}")
    if kind == "trellis":
        return _make_trellis(n_features, options, path)
    if "n_bytes" in options or "n_local" in options:
        raise ValueError("--bytes and --local go with --kind trellis; adaptive codes take --bits")
    if kind != "sign":
        return AdaptiveIndex(n_features=n_features, path=path, **options)
    if "n_bits" in options or "layout" in options:
        raise ValueError(
            "--bits and --layout go with --kind adaptive; a sign index keeps the signs of the whole --pool"
        )
    return SignIndex(n_features=n_features, path=path, **options)


def _make_trellis(n_features: int, options: dict[str, Any], path: Path | None) -> Index:
    """A new index of trellis codes; principal axes come with the mean, a Hadamard basis learns nothing."""
    refused = {"n_bits": "--bits", "n_pool": "--pool", "layout": "--layout", "center": "--center"}.items()
    given = [flag for name, flag in refused if name in options]
    if given:
        raise ValueError(f"{' and '.join(given)} do not go with --kind trellis, which takes --bytes")
    if "n_bytes" not in options:
        raise ValueError("--kind trellis needs --bytes, the size of one code")
    basis = options.pop("projection", "principal")
    return TrellisIndex(n_features=n_features, path=path, basis=basis, center=basis == "principal", **options)


def check_output(output_format: str, output: Path | None) -> None:
    """A format that exists, and a file where it needs one."""
    if output_format not in FORMATS:
        raise fail(f"--format must be one of {', '.join(FORMATS)}, got {output_format}", code=2)
    if output_format == "parquet" and output is None:
        raise fail("--format parquet needs --output FILE", code=2)
    if output_format == "table" and output is not None:
        raise fail("--output goes with --format json, csv or parquet", code=2)


def as_ids(index: Any, given: list[str]) -> list[str] | list[int]:
    """Ids from the command line, of the kind that the entries of an index have."""
    if index.has_text_ids:
        return given
    wrong = [one for one in given if not one.isdecimal()]
    if wrong:
        raise TypeError(f"the ids of this index are integers, got {wrong[0]!r}")
    return [int(one) for one in given]


def read_ids(path: Path) -> Array:
    """Ids in a .npy file of integers, or one per line in any other."""
    try:
        if path.suffix != ".npy":
            return np.array(path.read_text().splitlines(), object)
        return cast(Array, np.load(path))
    except (OSError, ValueError) as error:
        raise fail(f"--ids: {path}: {error}", code=2) from None
