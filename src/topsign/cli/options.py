"""Arguments and options shared by several commands."""

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
from ..families import METRICS, SCORINGS, Recipe, family_type
from ..index import Index, open_index
from ..projections import KINDS
from ..signals import SUFFIXES, FilesRows, SignalFile, TableColumns
from .app import FLAGS, exit_on_error, fail

FAMILY = "adaptive"
"""Default family of codes."""

FORMATS = ("table", "json", "csv", "parquet")
SEED = 0
"""Default seed of the projection, so that the same command makes the same codes."""


def check_index_path(context: typer.Context, path: Path) -> Path:
    """Reject a file in place of an index and show the usage, because the arguments may be swapped."""
    if path.is_file():
        arguments = [one.name.upper() for one in context.command.params if one.param_type_name == "argument"]
        usage = " ".join(["topsign", str(context.info_name), *arguments])
        raise fail(f"{path} is not a topsign index (usage: {usage})", code=2)
    return path


IndexPath = Annotated[Path, typer.Argument(help="The index, a folder.", show_default=False, callback=check_index_path)]
SignalPath = Annotated[
    str,
    typer.Argument(
        help=f"Signals: {', '.join(SUFFIXES)}, or a folder of such files; a path or URL.", show_default=False
    ),
]
QueryPath = Annotated[str, typer.Argument(help="Queries: the same file formats as for build.", show_default=False)]
ArrayName = Annotated[
    str | None,
    typer.Option("--array", "--vector-column", help="Array or column of the file that holds the signals."),
]
IdColumn = Annotated[str | None, typer.Option(help="Table column that holds the ids, strings or integers.")]
MetadataColumns = Annotated[str | None, typer.Option(help="Table columns that become metadata, separated by commas.")]
Wait = Annotated[float | None, typer.Option(help="Seconds to wait for another writer. (default: no limit)")]

Family = Annotated[
    str | None,
    typer.Option("--family", help=f"Family of codes: {', '.join(sorted(Recipe.families))}. (default: {FAMILY})"),
]
Bytes = Annotated[
    int | None,
    typer.Option(
        "--bytes",
        help="Bytes per code of all families except adaptive. (default: a 16th of the signal's length for grouped "
        "codes, an eighth for sign codes)",
    ),
]
Bits = Annotated[
    int | None, typer.Option(help="Adaptive codes: projections kept per signal. (default: an eighth of the pool)")
]
Pool = Annotated[int | None, typer.Option(help="Adaptive codes: projections computed. (default: the signal's length)")]
ProjectionKind = Annotated[
    str | None, typer.Option(help=f"{', '.join(KINDS)}; for trellis codes: hadamard or principal (default).")
]
Metric = Annotated[str | None, typer.Option(help=f"{', '.join(METRICS)}. (default: correlation)")]
Center = Annotated[
    bool | None,
    typer.Option(
        "--center/--no-center",
        help="Subtract the mean of the signals from signals and queries. (default: only for trellis codes)",
    ),
]
Originals = Annotated[
    str | None, typer.Option(help="Keep the signals on disk for rescoring: float32, float16 or int8.")
]
Seed = Annotated[int | None, typer.Option(help=f"Seed of the projection. (default: {SEED})")]

Recall = Annotated[float | None, typer.Option(help="Visit only as many regions as this recall needs, e.g. 0.95.")]

Nearest = Annotated[int | None, typer.Option("-k", help="Number of nearest entries per query. (default: 10)")]
FalseAlarm = Annotated[
    float | None, typer.Option(help="Return all matches at this false-alarm rate per query; instead of -k.")
]
Rescore = Annotated[int | None, typer.Option(help="Rescore this many candidates with the kept originals.")]
Scoring = Annotated[str, typer.Option(help=f"{' or '.join(SCORINGS)}.")]
AdaptiveBits = Annotated[int | None, typer.Option(help="Sign codes: number of signs chosen by each query.")]
WhereText = Annotated[
    str | None,
    typer.Option("--where", help="Filter on metadata, e.g. \"year >= 2020 and lang == 'en'\"."),
]
Force = Annotated[bool, typer.Option("--force", help="Return --false-alarm matches even if they are implausibly many.")]
ShowMetadata = Annotated[bool, typer.Option("--metadata", help="Show the metadata of each entry.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number of lines to print.")]
EntryIds = Annotated[list[str], typer.Argument(help="Ids of entries.", show_default=False)]
Format = Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Output file.")]


def opened_index(path: Path, *, readonly: bool = False, timeout: float | None = None) -> Index:
    """Open the index named on the command line."""
    if not path.is_dir():
        problem = "is not a topsign index, which is a folder" if path.exists() else "does not exist"
        raise fail(f"{path} {problem}", code=2)
    with exit_on_error(2):
        return open_index(path, readonly=readonly, timeout=timeout)


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which each dataclass parameter is expanded to one option per field."""
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

    parameters.sort(key=lambda one: one.default is not Parameter.empty)  # parameters with defaults must come last
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@dataclass(frozen=True)
class CodeOptions:
    """Options that determine how signals are encoded."""

    family: Family = None
    n_bytes: Bytes = None
    bits: Bits = None
    pool: Pool = None
    projection: ProjectionKind = None
    metric: Metric = None
    center: Center = None
    seed: Seed = None

    def given(self) -> dict[str, Any]:
        """Return the given options, except the family, as arguments of an index constructor."""
        values: dict[str, Any] = {"n_bytes": self.n_bytes, "n_bits": self.bits, "n_pool": self.pool}
        values |= {"projection": self.projection, "metric": self.metric}
        values |= {"center": self.center, "random_state": self.seed}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class SourceOptions:
    """Options that select the contents of signal files."""

    array: ArrayName = None
    id_column: IdColumn = None
    metadata_columns: MetadataColumns = None

    def columns(self) -> TableColumns:
        """Return the names of the id and metadata columns."""
        return TableColumns.of(self.id_column, self.metadata_columns)


def parameters_for(family: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return options as parameters of the family; raise ValueError for options that it does not have."""
    family = FAMILY if family is None else family
    taken = family_type(family).parameter_names()
    given = {"basis" if name == "projection" else name: options[name] for name in options}
    refused = [FLAGS["projection" if name == "basis" else name] for name in given if name not in taken]
    if refused:
        known = ", ".join(flag for name, flag in FLAGS.items() if name in taken)
        raise ValueError(f"--family {family} does not take {' and '.join(refused)}; it takes {known}")
    return given


def make_index(family: str | None, n_features: int, options: dict[str, Any], path: Path | None = None) -> Index:
    """Return a new index of a family; raise ValueError for missing or unsupported options."""
    given = parameters_for(family, options)
    return Index(n_features, family=family or FAMILY, path=path, **given)


def fit_index(index: Index, files: list[SignalFile]) -> None:
    """Learn the recipe of an index from all files if it has not been learned."""
    if not index.is_fitted:
        index.fit(FilesRows(files))


def check_output(output_format: str, output: Path | None) -> None:
    """Reject unknown formats, and formats that need a file."""
    if output_format not in FORMATS:
        raise fail(f"--format must be one of {', '.join(FORMATS)}, got {output_format}", code=2)
    if output_format == "parquet" and output is None:
        raise fail("--format parquet needs --output FILE", code=2)
    if output_format == "table" and output is not None:
        raise fail("--output requires --format json, csv or parquet", code=2)


def as_ids(index: Any, given: list[str]) -> list[str] | list[int]:
    """Convert ids from the command line to the id type of the index."""
    if index.info["text_ids"]:
        return given
    wrong = [one for one in given if not one.isdecimal()]
    if wrong:
        raise TypeError(f"the ids of this index are integers, got {wrong[0]!r}")
    return [int(one) for one in given]


def read_ids(path: Path) -> Array:
    """Read ids from a .npy file of integers, or from a text file with one id per line."""
    try:
        if path.suffix != ".npy":
            return np.array(path.read_text().splitlines(), object)
        return cast(Array, np.load(path))
    except (OSError, ValueError) as error:
        raise fail(f"--ids: {path}: {error}", code=2) from None
