"""The command ``search``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..index import SignIndex
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
    Scoring,
    ShowMetadata,
    Threads,
    WhereText,
    check_output,
    opened_index,
)
from .output import Row, result_rows, write_rows


@app.command()
def search(
    index: IndexPath,
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
    threads: Threads = None,
) -> None:
    """Find the nearest entries of each query, or all significant ones.

    [bold]Examples[/]

    topsign search cameras.topsign queries.npy -k 5

    topsign search cameras.topsign queries.npy --false-alarm 1e-6 --format csv -o matches.csv

    topsign search cameras.topsign queries.npy --scoring hamming --format json

    topsign search docs.topsign queries.npy --where "year >= 2020 and lang in ('en', 'it')" --metadata

    p_value: chance that one entry unrelated to the query scores as high; e_value: how many such entries are expected
    among all that were searched.
    """
    check_output(output_format, output)
    opened = opened_index(index, readonly=True)
    options: dict[str, Any] = {"scoring": scoring, "n_threads": threads}
    if adaptive_bits is not None:
        if not isinstance(opened, SignIndex):
            raise fail("--adaptive-bits goes with a sign index; each entry of this one chose its own", code=2)
        options["adaptive_bits"] = adaptive_bits
    if false_alarm is not None and force:
        options["force"] = True
    rows = search_files(opened, queries, array, k, false_alarm, options | {"where": where, "with_metadata": metadata})
    write_rows(rows, output_format, output)


def search_files(
    index: Any, queries: Location, array: str | None, k: int | None, false_alarm: float | None, options: dict[str, Any]
) -> list[Row]:
    """What is found for the queries of all files, which are numbered through."""
    if k is not None and false_alarm is not None:
        raise fail("give -k or --false-alarm, not both: a number of entries, or all significant ones", code=2)
    if false_alarm is None:
        find, options = index.search, options | {"k": 10 if k is None else k}
    else:
        find, options = index.within, options | {"false_alarm": false_alarm}
    with exit_on_error(2):
        find(np.empty((0, index.n_features)), **options)  # what is refused of no queries is the options' fault
        files = open_files(queries, array)
    rows: list[Row] = []
    n_before = 0
    for file in files:
        with exit_on_error(1), naming(file.name), printed_warnings():
            rows += result_rows(find(file.rows(), **options), n_before)
        n_before += file.n_signals
    return rows
