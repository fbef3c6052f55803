"""Commands that compare entries: ``search``, ``dedupe``, ``regions`` and ``calibrate``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any

import typer

from .app import command, console, errors, fail, naming
from .entries import learn_regions
from .options import (
    CodeOptions,
    IndexPath,
    Json,
    Nearest,
    Output,
    QueryPath,
    Recall,
    Scheduler,
    SourceOptions,
    VectorColumn,
    Version,
    is_index,
    opened_index,
    option,
)
from .output import Row, as_json, bar, check_output, show_result, show_rows, write_rows

CHECK_QUERIES = 5000
MAX_IMPOSTORS = 20_000


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search: parameters of ``Index.search``, or of ``Index.within`` with a false-alarm rate."""

    k: Nearest = None
    false_alarm: Annotated[
        float | None, typer.Option(help="Return all matches at this false-alarm rate per query; instead of -k.")
    ] = None
    threshold: Annotated[
        float | None, typer.Option(help="Return all matches whose scores reach this; instead of -k.")
    ] = None
    recall: Recall = None
    rescore: Annotated[int | None, typer.Option(help="Rescore this many candidates with the kept originals.")] = None
    scoring: Annotated[str | None, typer.Option(help="asymmetric (default) or hamming.")] = None
    adaptive_bits: Annotated[int | None, typer.Option(help="Sign codes: number of signs chosen by each query.")] = None
    where: Annotated[str | None, typer.Option(help="Filter on metadata, e.g. \"year >= 2020 and lang == 'en'\".")] = (
        None
    )
    force: Annotated[
        bool | None, typer.Option("--force", help="Return --false-alarm matches even if they are implausibly many.")
    ] = None
    with_metadata: Annotated[bool | None, typer.Option("--with-metadata", help="Show the metadata of each entry.")] = (
        None
    )

    def given(self, index: Any) -> tuple[Any, dict[str, Any]]:
        """Return the method of the index, and its arguments; reject options that it does not have."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        limits = [name for name in ("false_alarm", "threshold") if name in given]
        if len(limits) == 2:
            raise fail("give --false-alarm or --threshold, not both", code=2)
        method = index.within if limits else index.search
        for name in given.keys() - signature(method).parameters.keys():
            where = f"has no effect with {option(limits[0])}; omit one of them" if limits else "goes with --false-alarm"
            raise fail(f"{option(name)} {where}", code=2)
        return method, given


@command()
def search(
    index: IndexPath,
    queries: QueryPath,
    options: SearchOptions,
    output: Output = None,
    vector_column: VectorColumn = None,
    version: Version = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Find the nearest entries of each query, or all significant ones.

    Queries are numbered consecutively over all files. p_value: chance that one entry unrelated to the query scores as
    high; e_value: how many such entries are expected among all that were searched.

    [bold]Examples[/]

    topsign search cameras.topsign queries.npy -k 5
    topsign search cameras.topsign queries.npy --false-alarm 1e-6 -o matches.csv
    topsign search cameras.topsign queries.npy --scoring hamming --json
    topsign search docs.topsign queries.npy -k 10 --recall 0.95
    topsign search docs.topsign queries.npy --where "year >= 2020 and lang in ('en', 'it')" --with-metadata
    topsign search s3://bucket/docs.topsign queries.npy --scheduler tcp://host:8786
    """
    from ..signals import open_files

    check_output(output)
    rows: list[Row] = []
    n_before = 0
    with opened_index(index, readonly=True, version=version, scheduler=scheduler) as opened:
        method, given = options.given(opened)
        files = open_files(queries, vector_column)
        for file in files:
            with naming(file.name) if len(files) > 1 else nullcontext():
                found = method(file.rows(), **given)
            rows += [dict(zip(found.columns, row, strict=True)) | {"query": row[0] + n_before} for row in found.rows()]
            n_before += file.n_signals
    names = list(found.columns)
    if output is None and not json:
        _show_matches(rows, names, index)
    else:
        show_rows(rows, names, output=output, json=json)


def _show_matches(rows: list[Row], names: list[str], index: str) -> None:
    """Print matches as a table; without p-values, say how to get them."""
    from ..significance import probability_text

    has_null = not rows or any(row["p_value"] == row["p_value"] for row in rows)  # NaN differs from itself
    hidden = ("log10_p_value",) if has_null else ("log10_p_value", "p_value", "e_value")
    forms: Any = {
        "score": ".4f",
        "distance": ".4f",
        "p_value": lambda row: probability_text(row["log10_p_value"]),
        "e_value": ".2g",
        "metadata": lambda row: as_json(row["metadata"], indent=None),
    }
    show_rows(rows, [name for name in names if name not in hidden], left=("metadata",), forms=forms)
    if not rows:
        console.print("no matches")
    if not has_null:
        errors.print(f"no p-values: calibrate first (topsign calibrate {index} IMPOSTORS)", label="note:")


@command()
def dedupe(
    signals: Annotated[
        str, typer.Argument(metavar="SIGNALS", help="Signals, or an index: a path or URL.", show_default=False)
    ],
    codes: CodeOptions,
    output: Output = None,
    false_alarm: Annotated[
        float | None, typer.Option(help="Probability of any false pair among all pairs. (default: 0.001)")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Minimum estimated correlation of a pair; instead of --false-alarm.")
    ] = None,
    vector_column: VectorColumn = None,
    id_column: Annotated[str | None, typer.Option(help="Table column that holds the ids.")] = None,
    version: Version = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Find groups of near-duplicates among signals, or among the entries of an index.

    Shows one row per entry that has a near-duplicate, with the number of its group and its id. Groups are connected
    components: each member is similar to at least one other.

    [bold]Examples[/]

    topsign dedupe docs.parquet --id-column doc_id --n-bytes 48 --threshold 0.8 -o groups.parquet
    topsign dedupe signals.parquet --family grouped -o groups.csv
    topsign dedupe cameras.topsign --false-alarm 0.001
    topsign dedupe s3://bucket/docs.topsign --threshold 0.9 -o groups.json --scheduler tcp://host:8786
    """
    check_output(output)
    if false_alarm is not None and threshold is not None:
        raise fail("give --false-alarm or --threshold, not both", code=2)
    with _index_of(signals, codes, SourceOptions(vector_column, id_column), version, scheduler) as (index, add):
        limit = {"false_alarm": 1e-3 if false_alarm is None else false_alarm}
        if threshold is not None:
            limit = {"threshold": threshold}
        elif index.calibration is None and not index.recipe.pairing().has_null:
            raise fail(
                f"{index.family} codes need --threshold, the least score of a pair, or a calibrated index: "
                "the null distribution of their pairs, which --false-alarm needs, is not known",
                code=2,
            )
        add()
        with bar("comparing") as progress:
            groups = index.groups(**limit, progress=progress)
        n_entries = len(index)
    rows = [{"group": number, "id": id} for number, group in enumerate(groups) for id in group]
    text = f"{len(rows):,} of {n_entries:,} entries in {len(groups):,} groups"
    record: dict[str, Any] = {"entries": n_entries, "grouped": len(rows), "n_groups": len(groups)}
    if output is not None:
        write_rows(rows, ("group", "id"), output)
        text, record = f"{output}: {text}", record | {"output": str(output)}
    elif json:
        record |= {"groups": groups}
    else:
        show_rows(rows, ("group", "id"))
    show_result(text, record, json)


@contextmanager
def _index_of(
    signals: str, codes: CodeOptions, source: SourceOptions, version: int | None, scheduler: str | None
) -> Iterator[Any]:
    """Yield the index at a path, or one in memory whose recipe is known; and a function that adds its signals."""
    from ..signals import FilesRows

    if is_index(signals):
        if codes != CodeOptions() or source != SourceOptions():
            raise fail(
                f"{signals} is an index, which already has codes and ids; these options apply only to signals", code=2
            )
        with opened_index(signals, readonly=True, version=version, scheduler=scheduler) as opened:
            yield opened, lambda: None
        return
    if version is not None or scheduler is not None:
        raise fail(f"{signals} is not an index; --version and --scheduler go with an index", code=2)
    files = source.open_files(signals)
    index = codes.new_index(files[0].n_features, FilesRows(files))

    def add() -> None:
        for file in files:
            with naming(file.name):
                index.add(file.rows(), **source.columns().read(file)(slice(0, file.n_signals)))

    yield index, add


@command()
def regions(
    index: IndexPath,
    n_regions: Annotated[
        int | None, typer.Option(help="Number of regions. (default: by the number of entries)")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(help="Learn nothing; compare searches for a recall with exhaustive ones, for these queries."),
    ] = None,
    recall: Recall = None,
    k: Nearest = None,
    vector_column: VectorColumn = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Divide the entries into regions, so that topsign search --recall visits a few of them.

    Regions are learned from the codes. Later additions are assigned to them; learn again when the index has grown
    fourfold, which topsign inspect shows.

    [bold]Examples[/]

    topsign regions docs.topsign
    topsign regions docs.topsign --check queries.npy --recall 0.95
    """
    from ..signals import FilesRows, open_files

    if check is not None and n_regions is not None:
        raise fail("--n-regions has no effect with --check", code=2)
    if check is None and (recall, k, vector_column) != (None, None, None):
        raise fail("--recall, -k and --vector-column go with --check; any recall can be asked for later", code=2)
    with opened_index(index, readonly=check is not None, scheduler=scheduler) as opened:
        if check is None:
            text, record = learn_regions(opened, n_regions)
        else:
            if opened.regions is None:
                raise fail(f"{index} has no regions to check; topsign regions {index} learns them", code=2)
            queries = FilesRows(open_files(check, vector_column))[:CHECK_QUERIES]
            found = opened.check(queries, k=k or 10, recall=0.95 if recall is None else recall)
            text, record = str(found), vars(found)
    show_result(text, {"index": index} | record, json)


@command()
def calibrate(
    index: IndexPath,
    impostors: Annotated[
        str | None, typer.Argument(help="Signals that match no entry. (default: the kept originals of the index)")
    ] = None,
    false_alarm: Annotated[
        float, typer.Option(help="Smallest false-alarm rate that will be asked for without a model of the tail.")
    ] = 0.01,
    vector_column: VectorColumn = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Learn the null distribution of scores from signals that match no entry, so that false-alarm rates hold.

    It takes about 1.5 / FALSE_ALARM signals of the kind that will be searched for. The result is stored in the index.

    [bold]Examples[/]

    topsign calibrate sentences.topsign other-sentences.npy
    """
    from ..signals import FilesRows, open_files

    if impostors is None and vector_column is not None:
        raise fail("--vector-column goes with IMPOSTORS", code=2)
    signals = None
    if impostors is not None:
        rows = FilesRows(open_files(impostors, vector_column))
        signals = rows[:: -(-len(rows) // MAX_IMPOSTORS) or 1]  # all, or evenly spaced ones
    with opened_index(index, scheduler=scheduler) as opened:
        learned = opened.calibrate(signals, false_alarm=false_alarm)
    searches = {"searches": learned.n_queries, "entries": learned.n_entries}
    show_result(
        f"{index}: calibrated by {learned.n_queries:,} searches for impostors among {learned.n_entries:,} entries; "
        f"false-alarm rates hold from {learned.level:.2g} up without a model, from {learned.floor:.2g} up with one",
        {"index": index} | searches | {"level": learned.level, "floor": learned.floor},
        json,
    )
