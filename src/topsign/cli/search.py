"""The command ``search``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..signals import Location, open_files
from .app import app, exit_on_error, fail, naming, printed_warnings
from .options import (
    AdaptiveBits,
    ArrayName,
    FalseAlarm,
    Force,
    Format,
    IndexPath,
    Nearest,
    Output,
    QueryPath,
    Recall,
    Rescore,
    Scoring,
    ShowMetadata,
    WhereText,
    check_output,
    opened_index,
    spread,
)
from .output import Row, result_rows, write_rows


@dataclass(frozen=True)
class SearchOptions:
    """Options for the kind of search and its output."""

    k: Nearest = None
    false_alarm: FalseAlarm = None
    scoring: Scoring = "asymmetric"
    adaptive_bits: AdaptiveBits = None
    rescore: Rescore = None
    recall: Recall = None
    where: WhereText = None
    force: Force = False
    metadata: ShowMetadata = False
    output_format: Format = "table"
    output: Output = None
    array: ArrayName = None


@app.command()
@spread
def search(index: IndexPath, queries: QueryPath, options: SearchOptions) -> None:
    """Find the nearest entries of each query, or all significant ones.

    [bold]Examples[/]

    topsign search cameras.topsign queries.npy -k 5

    topsign search cameras.topsign queries.npy --false-alarm 1e-6 --format csv -o matches.csv

    topsign search cameras.topsign queries.npy --scoring hamming --format json

    topsign search sentences.topsign queries.npy -k 10 --rescore 100

    topsign search docs.topsign queries.npy -k 10 --recall 0.95

    topsign search docs.topsign queries.npy --where "year >= 2020 and lang in ('en', 'it')" --metadata

    p_value: chance that one entry unrelated to the query scores as high; e_value: how many such entries are expected
    among all that were searched.
    """
    check_output(options.output_format, options.output)
    search_files(opened_index(index, readonly=True), queries, options)


def search_files(index: Any, queries: Location, options: SearchOptions, **others: Any) -> None:
    """Search a local or cluster index for the queries of all files, and write the results.

    Queries are numbered consecutively over all files.
    """
    if options.false_alarm is not None and options.rescore is not None:
        raise fail("--rescore goes with -k; --false-alarm decides by codes", code=2)
    if options.k is not None and options.false_alarm is not None:
        raise fail("give -k or --false-alarm, not both: a number of entries, or all significant ones", code=2)
    given = others | {"scoring": options.scoring, "adaptive_bits": options.adaptive_bits}
    given |= {"where": options.where, "with_metadata": options.metadata}
    if options.false_alarm is None:
        find = index.search
        given |= {"k": 10 if options.k is None else options.k, "recall": options.recall, "rescore": options.rescore}
    elif options.recall is not None:
        raise fail("--false-alarm compares all entries; --recall goes with -k", code=2)
    else:
        find, given = index.within, given | {"false_alarm": options.false_alarm, "force": options.force}
    with exit_on_error(2):
        find(np.empty((0, index.n_features)), **given)  # if no queries are refused, the options are wrong
        files = open_files(queries, options.array)
    rows: list[Row] = []
    n_before = 0
    for file in files:
        with exit_on_error(1), naming(file.name), printed_warnings():
            rows += result_rows(find(file.rows(), **given), n_before)
        n_before += file.n_signals
    write_rows(rows, options.output_format, options.output)
