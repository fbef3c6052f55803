"""Commands of ``topsign significance``: fit and apply, for scores of any engine in CSV files."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._files import write_file
from .app import app, console, exit_on_error, fail, printed_warnings

if TYPE_CHECKING:
    from .._arrays import Float64

significance = typer.Typer(name="significance", help="Decide which hits of any search engine are real.")
app.add_typer(significance)

Scores = Annotated[
    Path,
    typer.Argument(
        metavar="SCORES", help="CSV file: one row per query, its best scores in columns.", show_default=False
    ),
]
FalseAlarm = Annotated[
    float, typer.Option("--false-alarm", help="Probability that a query without a match has any match.")
]
GroupColumn = Annotated[str | None, typer.Option(help="Column with the kind of each query.")]
CovariateColumn = Annotated[str | None, typer.Option(help="Column with a number that predicts the best score.")]
Skip = Annotated[str | None, typer.Option(help="Columns that are no scores, separated by commas.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@significance.command()
def fit(
    scores: Scores,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the calibration.", show_default=False)],
    n_entries: Annotated[int, typer.Option(help="Number of entries that were searched.", show_default=False)],
    closer: Annotated[str, typer.Option(help='"larger" for similarities, "smaller" for distances.')] = "larger",
    tail: Annotated[str, typer.Option(help='Rates beyond the sample: "none", "pareto" or "normal".')] = "none",
    false_alarm: FalseAlarm = 0.01,
    group_column: GroupColumn = None,
    covariate_column: CovariateColumn = None,
    skip: Skip = None,
    related: Annotated[Path | None, typer.Option(help="Scores of queries that do have a match.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the calibration to this file (png, svg, pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Learn the threshold of matches from the scores of queries that have no match.

    Lists of 10 to 100 scores of each query also give the growth of the threshold with the number of entries.

    [bold]Examples[/]

    topsign significance fit scores.csv -o model.json --n-entries 10000

    topsign significance fit distances.csv -o model.json --n-entries 10000 --closer smaller --plot model.png
    """
    from ..significance import ScoreCalibration  # SciPy takes long to import

    with printed_warnings(), exit_on_error(1):
        lists, groups, covariates = _read(scores, group_column, covariate_column, skip)
        options: Any = {"groups": groups, "covariates": covariates}
        learned = ScoreCalibration.fit(lists, n_entries=n_entries, closer=closer, tail=tail, **options)
        matched = None if related is None else _read(related, group_column, covariate_column, skip)[0]
        report = learned.report(plot, false_alarm=false_alarm, related=matched)
        learned.save(output)
    if as_json:
        known = {"n_queries": learned.n_queries, "n_entries": learned.n_entries, "level": learned.level}
        if groups is None and covariates is None:
            known["threshold"] = learned.threshold(false_alarm)
        console.print(json.dumps(known | {"floor": learned.floor, "extrapolates": learned.is_straight}, indent=1))
    else:
        console.print(report)


@significance.command()
def apply(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="File written by significance fit.", show_default=False)
    ],
    scores: Scores,
    false_alarm: FalseAlarm = 0.01,
    n_entries: Annotated[
        int | None, typer.Option(help="Number of entries that are searched now. (default: that of the calibration)")
    ] = None,
    group_column: GroupColumn = None,
    covariate_column: CovariateColumn = None,
    skip: Skip = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file instead of the screen.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the best score of each query with its p-value, its E-value, and the number of its hits that are real.

    [bold]Examples[/]

    topsign significance apply model.json answers.csv --false-alarm 0.01

    topsign significance apply model.json answers.csv --n-entries 50000 --json
    """
    import numpy as np

    from ..significance import ScoreCalibration

    with printed_warnings(), exit_on_error(1):
        learned = ScoreCalibration.load(model)
        lists, groups, covariates = _read(scores, group_column, covariate_column, skip)
        options: Any = {"n_entries": n_entries, "groups": groups, "covariates": covariates}
        matches = learned.matches(lists, false_alarm, **options).sum(axis=1)
        if np.isnan(lists).all(axis=1).any():
            row = int(np.argmax(np.isnan(lists).all(axis=1)))
            raise ValueError(f"{scores}: query {row} has no score; give it the worst score that a hit can have")
        best = (np.nanmax if learned.closer == "larger" else np.nanmin)(lists, axis=1)
        p_values, e_values = learned.p_value(best, **options), learned.e_value(best, **options)
    names = ("query", "score", "p_value", "e_value", "n_matches")
    columns = range(len(best)), best.tolist(), p_values.tolist(), e_values.tolist(), matches.tolist()
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if as_json:
        content = json.dumps(rows, indent=1, allow_nan=False) + "\n"
    else:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(
            [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()] for row in rows
        )
        content = buffer.getvalue()
    if output is None:
        console.print(content.removesuffix("\n"))
        return
    with exit_on_error(1):
        write_file(output, lambda file: file.write(content.encode()))


def _read(
    path: Path, group_column: str | None, covariate_column: str | None, skip: str | None
) -> tuple[Float64, list[str] | None, Float64 | None]:
    """Return the scores of a CSV file, and its groups and covariates; a first row that is no numbers names columns."""
    import numpy as np

    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    names = rows.pop(0) if rows and not all(_is_number(cell) for cell in rows[0]) else []
    left_out = skip.split(",") if skip else []
    for name in [*left_out, *(one for one in (group_column, covariate_column) if one is not None)]:
        if name not in names:
            raise fail(f"{path} has no column {name}; its columns are {', '.join(names) or 'not named'}", code=2)
    if not rows:
        raise ValueError(f"{path} has no scores")
    width = len(names or rows[0])
    for number, row in enumerate(rows, 1 + bool(names)):
        if len(row) != width:
            raise ValueError(f"{path}, row {number} has {len(row)} columns, others have {width}")
    others = {names.index(name) for name in (*left_out, group_column, covariate_column) if name is not None}
    kept = [column for column in range(width) if column not in others]

    def column(name: str) -> list[str]:
        return [row[names.index(name)] for row in rows]

    lists = np.array([[_number(path, row[at]) for at in kept] for row in rows], np.float64)
    covariates = None
    if covariate_column is not None:
        covariates = np.array([_number(path, cell) for cell in column(covariate_column)], np.float64)
    return lists, None if group_column is None else column(group_column), covariates


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _number(path: Path, cell: str) -> float:
    """Return the value of a cell, nan if it is empty."""
    try:
        return float(cell) if cell.strip() else math.nan
    except ValueError:
        raise ValueError(f"{path}: {cell!r} is not a number; name columns that are no scores with --skip") from None
