"""The command ``dedupe``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import write_file
from ..index import TrellisIndex, open_index
from ..signals import FilesRows, TableColumns, open_files
from .app import app, console, exit_on_error, fail
from .options import (
    ArrayName,
    Bits,
    Bytes,
    CodeOptions,
    IdColumn,
    Index,
    Kind,
    Local,
    Pool,
    Seed,
    SignalPath,
    Threads,
    make_index,
    spread,
)
from .output import bar, encode_table

SUFFIXES = (".parquet", ".csv", ".json")


@dataclass(frozen=True)
class GroupOptions:
    """Which pairs count, and where groups are written."""

    output: Annotated[Path, typer.Option("--output", "-o", help="The .parquet, .csv or .json of groups to write.")]
    false_alarm: Annotated[float | None, typer.Option(help="Chance of any wrong pair among all. (default: 0.001)")] = (
        None
    )
    threshold: Annotated[
        float | None,
        typer.Option(help="Instead: the least estimated correlation of a pair; of trellis codes the least cosine."),
    ] = None

    def limit(self, family: str) -> dict[str, Any]:
        """The limit in the words of ``pairs``; options that do not go together are refused."""
        if self.output.suffix not in SUFFIXES:
            raise fail(f"--output must be one of {', '.join(SUFFIXES)}, got {self.output}", code=2)
        if self.false_alarm is not None and self.threshold is not None:
            raise fail("give --false-alarm or --threshold, not both", code=2)
        if self.threshold is not None:
            return {"threshold": self.threshold}
        if family == "trellis":
            raise fail(
                "trellis codes need --threshold, the least cosine of the reconstructions of a pair: two of them do not "
                "follow the law that --false-alarm takes",
                code=2,
            )
        return {"false_alarm": 1e-3 if self.false_alarm is None else self.false_alarm}


@app.command()
@spread
def dedupe(
    signals: SignalPath,
    options: GroupOptions,
    kind: Kind = None,
    bits: Bits = None,
    n_bytes: Bytes = None,
    n_local: Local = None,
    pool: Pool = None,
    seed: Seed = None,
    array: ArrayName = None,
    id_column: IdColumn = None,
    threads: Threads = None,
) -> None:
    """Find groups of near-duplicates among signals, or among the entries of an index.

    Writes one row per entry that has a near-duplicate: its group, a number, and its id. Groups are connected: each
    member resembles at least one other.

    [bold]Examples[/]

    topsign dedupe signals.parquet -o groups.parquet

    topsign dedupe docs.parquet --id-column doc_id --threshold 0.9 -o groups.csv

    topsign dedupe docs.parquet --codes trellis --bytes 48 --threshold 0.8 -o groups.parquet

    topsign dedupe cameras.topsign -o groups.json
    """
    codes = CodeOptions(kind=kind, bits=bits, n_bytes=n_bytes, n_local=n_local, pool=pool, seed=seed)
    if signals.endswith(".topsign"):
        if codes != CodeOptions() or array is not None or id_column is not None:
            raise fail(f"{signals} has its codes and ids already; options of these go with signals", code=2)
        with exit_on_error(2):
            index = open_index(signals, readonly=True)
        limit = options.limit(index.family)
    else:
        limit = options.limit(kind or "adaptive")
        index = _index_of(signals, codes, array, id_column, threads)
    write_groups(index, options.output, limit, threads)


def write_groups(index: Any, output: Path, limit: dict[str, Any], threads: int | None = None) -> None:
    """Finds the pairs of an index, here or on a cluster, and writes their groups."""
    with bar("comparing") as progress, exit_on_error(2):
        pairs = index.pairs(**limit, n_threads=threads, progress=progress)
    groups = pairs.groups()
    rows = [{"group": number, "id": id} for number, group in enumerate(groups) for id in group]
    with exit_on_error(1):
        content = encode_table(rows, ("group", "id"), output.suffix.removeprefix("."))
        write_file(output, lambda file: file.write(content))
    what = f"{len(rows):,} of {len(index):,} entries in {len(groups):,} groups, by {len(pairs):,} pairs"
    console.print(f"{output}: {what}", highlight=False)


def _index_of(signals: str, codes: CodeOptions, array: str | None, id_column: str | None, threads: int | None) -> Index:
    """An index in memory of the signals of files."""
    with exit_on_error(2):
        columns = TableColumns.of(id_column, None)
        files = open_files(signals, array, columns.names)
        index = make_index(codes.kind, files[0].n_features, codes.given())
        if isinstance(index, TrellisIndex) and not index.is_fitted:
            index.fit(FilesRows(files))
    with exit_on_error(1):
        for file in files:
            index.add(file.rows(), n_threads=threads, **columns.read(file)(slice(0, file.n_signals)))
    return index
