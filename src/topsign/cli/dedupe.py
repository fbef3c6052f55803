"""The command ``dedupe``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import write_file
from ..families import Recipe
from ..index import Index, open_index
from ..signals import TableColumns, open_files
from .app import app, console, exit_on_error, fail
from .options import (
    ArrayName,
    Bits,
    Bytes,
    CodeOptions,
    Family,
    IdColumn,
    Pool,
    Seed,
    SignalPath,
    fit_index,
    make_index,
    spread,
)
from .output import bar, encode_table

SUFFIXES = (".parquet", ".csv", ".json")


@dataclass(frozen=True)
class GroupOptions:
    """Options for the limit of pairs and the output file."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Output file for the groups: .parquet, .csv or .json.")]
    false_alarm: Annotated[
        float | None, typer.Option(help="Probability of any false pair among all pairs. (default: 0.001)")
    ] = None
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Minimum estimated correlation of a pair, or cosine for trellis codes; instead of --false-alarm."
        ),
    ] = None

    def check(self) -> None:
        """Reject incompatible options."""
        if self.output.suffix not in SUFFIXES:
            raise fail(f"--output must be one of {', '.join(SUFFIXES)}, got {self.output}", code=2)
        if self.false_alarm is not None and self.threshold is not None:
            raise fail("give --false-alarm or --threshold, not both", code=2)

    def limit(self, recipe: Recipe) -> dict[str, Any]:
        """Return the limit for codes of this recipe as arguments of ``pairs``."""
        if self.threshold is not None:
            return {"threshold": self.threshold}
        if not recipe.pairing().has_null:
            raise fail(
                f"{recipe.family} codes need --threshold, the least score of a pair: the null distribution of their "
                "pairs, which --false-alarm needs, is not known",
                code=2,
            )
        return {"false_alarm": 1e-3 if self.false_alarm is None else self.false_alarm}


@app.command()
@spread
def dedupe(
    signals: SignalPath,
    options: GroupOptions,
    family: Family = None,
    bits: Bits = None,
    n_bytes: Bytes = None,
    pool: Pool = None,
    seed: Seed = None,
    array: ArrayName = None,
    id_column: IdColumn = None,
) -> None:
    """Find groups of near-duplicates among signals, or among the entries of an index.

    Writes one row per entry that has a near-duplicate, with the number of its group and its id. Groups are connected
    components: each member is similar to at least one other.

    [bold]Examples[/]

    topsign dedupe signals.parquet -o groups.parquet

    topsign dedupe docs.parquet --id-column doc_id --threshold 0.9 -o groups.csv

    topsign dedupe docs.parquet --family trellis --bytes 48 --threshold 0.8 -o groups.parquet

    topsign dedupe cameras.topsign -o groups.json
    """
    options.check()
    codes = CodeOptions(family=family, bits=bits, n_bytes=n_bytes, pool=pool, seed=seed)
    if signals.endswith(".topsign"):
        if codes != CodeOptions() or array is not None or id_column is not None:
            raise fail(
                f"{signals} is an index, which already has codes and ids; these options apply only to signals", code=2
            )
        with exit_on_error(2):
            index = open_index(signals, readonly=True)
        limit = options.limit(index.recipe)
    else:
        index, limit = _index_of(signals, codes, options, array, id_column)
    write_groups(index, options.output, limit)


def write_groups(index: Any, output: Path, limit: dict[str, Any]) -> None:
    """Find the pairs of a local or cluster index, and write their groups."""
    with bar("comparing") as progress, exit_on_error(2):
        groups = index.groups(**limit, progress=progress)
    rows = [{"group": number, "id": id} for number, group in enumerate(groups) for id in group]
    with exit_on_error(1):
        content = encode_table(rows, ("group", "id"), output.suffix.removeprefix("."))
        write_file(output, lambda file: file.write(content))
    what = f"{len(rows):,} of {len(index):,} entries in {len(groups):,} groups"
    console.print(f"{output}: {what}")


def _index_of(
    signals: str,
    codes: CodeOptions,
    options: GroupOptions,
    array: str | None,
    id_column: str | None,
) -> tuple[Index, dict[str, Any]]:
    """Return an in-memory index of the signals, and the limit of its pairs."""
    with exit_on_error(2):
        columns = TableColumns.of(id_column, None)
        files = open_files(signals, array, columns.names)
        index = make_index(codes.family, files[0].n_features, codes.given())
        fit_index(index, files)
        limit = options.limit(index.recipe)  # raises before signals are encoded
    with exit_on_error(1):
        for file in files:
            index.add(file.rows(), **columns.read(file)(slice(0, file.n_signals)))
    return index, limit
