"""Commands of ``topsign significance``: fit and apply, for scores of any engine in CSV files."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import app, command
from .options import Json, Output
from .output import PLOT_SUFFIXES, check_output, show_result, show_rows

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


@dataclass(frozen=True)
class ScoreColumns:
    """Options that name the columns of a CSV file of scores."""

    group_column: Annotated[str | None, typer.Option(help="Column with the kind of each query.")] = None
    covariate_column: Annotated[str | None, typer.Option(help="Column with a number that predicts the best score.")] = (
        None
    )
    skip: Annotated[str | None, typer.Option(help="Columns that are no scores, separated by commas.")] = None

    def read(self, path: Path) -> tuple[Float64, dict[str, Any]]:
        """Return the scores of a file, and its groups and covariates by name.

        A first row that is no numbers names the columns.
        """
        import numpy as np

        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows = [row for row in csv.reader(file) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path} is not a CSV file: {error}") from None
        names = rows.pop(0) if rows and None in map(_number, rows[0]) else []
        others = [*(self.skip or "").split(","), self.group_column, self.covariate_column]
        aside = [name for name in others if name]
        for name in aside:
            if name not in names:
                raise ValueError(f"{path} has no column {name}; its columns are {', '.join(names) or 'not named'}")
        if not rows:
            raise ValueError(f"{path} has no scores")
        width = len(names or rows[0])
        for number, row in enumerate(rows, 1 + bool(names)):
            if len(row) != width:
                raise ValueError(f"{path}, row {number} has {len(row)} columns, others have {width}")
        columns = list(zip(*rows, strict=True))

        def numbers(at: int) -> list[float | None]:
            values = [_number(cell) for cell in columns[at]]
            if None in values:
                raise ValueError(
                    f"{path}: {columns[at][values.index(None)]!r} is not a number; separate scores by commas, and name "
                    "columns that are no scores with --skip"
                )
            return values

        kept = [at for at in range(width) if not names or names[at] not in aside]
        given: dict[str, Any] = {}
        if self.group_column is not None:
            given["groups"] = list(columns[names.index(self.group_column)])
        if self.covariate_column is not None:
            given["covariates"] = np.array(numbers(names.index(self.covariate_column)))
        return np.array([numbers(at) for at in kept], np.float64).T, given


@command(significance)
def fit(
    scores: Scores,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the calibration.", show_default=False)],
    n_entries: Annotated[int, typer.Option(help="Number of entries that were searched.", show_default=False)],
    columns: ScoreColumns,
    closer: Annotated[str, typer.Option(help='"larger" for similarities, "smaller" for distances.')] = "larger",
    tail: Annotated[str, typer.Option(help='Rates beyond the sample: "none", "pareto", "far" or "normal".')] = "none",
    false_alarm: FalseAlarm = 0.01,
    related: Annotated[Path | None, typer.Option(help="Scores of queries that do have a match.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the calibration to this file (png, svg, pdf).")] = None,
    json: Json = False,
) -> None:
    """Learn the threshold of matches from the scores of queries that have no match.

    Lists of 10 to 100 scores of each query also give the growth of the threshold with the number of entries.

    [bold]Examples[/]

    topsign significance fit scores.csv -o model.json --n-entries 10000
    topsign significance fit distances.csv -o model.json --n-entries 10000 --closer smaller --plot model.png
    """
    from ..significance import ScoreCalibration  # SciPy takes long to import

    check_output(output, suffixes=(".json",))
    check_output(plot, "--plot", suffixes=PLOT_SUFFIXES)
    lists, given = columns.read(scores)
    options: Any = given
    learned = ScoreCalibration.fit(lists, n_entries=n_entries, closer=closer, tail=tail, **options)
    shown: Any = {"false_alarm": false_alarm}
    if related is not None:
        matched, given_too = columns.read(related)
        shown |= {"related": matched, **given_too}
    text = learned.report(plot, **shown)
    learned.save(output)
    record = {"n_queries": learned.n_queries, "n_entries": learned.n_entries, "level": learned.level}
    if not given:
        record["threshold"] = learned.threshold(false_alarm)
    show_result(text, record | {"floor": learned.floor, "extrapolates": learned.is_straight}, json)


@command(significance)
def apply(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="File written by significance fit.", show_default=False)
    ],
    scores: Scores,
    columns: ScoreColumns,
    false_alarm: FalseAlarm = 0.01,
    n_entries: Annotated[
        int | None, typer.Option(help="Number of entries that are searched now. (default: that of the calibration)")
    ] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Print the best score of each query with its p-value, its E-value, and the number of its hits that are real.

    Queries without any score have no match.

    [bold]Examples[/]

    topsign significance apply model.json answers.csv --false-alarm 0.01
    topsign significance apply model.json answers.csv --n-entries 50000 --json
    """
    import numpy as np

    from ..significance import ScoreCalibration

    check_output(output)
    learned = ScoreCalibration.load(model)
    lists, given = columns.read(scores)
    columns_of = {"groups": bool(learned.groups), "covariates": learned.covariate != (0.0, 0.0)}
    for name, was_given in columns_of.items():
        if was_given != (name in given):
            option = f"--{name.removesuffix('s')}-column"
            raise ValueError(
                f"{model} was fitted with{'' if was_given else 'out'} {option}; "
                + ("give it too" if was_given else "omit it")
            )
    options: Any = {"n_entries": n_entries, **given}
    matches = learned.matches(lists, false_alarm, **options).sum(axis=1)
    best = (np.fmax if learned.closer == "larger" else np.fmin).reduce(lists, axis=1)  # nan if all are missing
    values = best, learned.p_value(best, **options), learned.e_value(best, **options), matches
    names = ("query", "score", "p_value", "e_value", "n_matches")
    rows = zip(range(len(best)), *(column.tolist() for column in values), strict=True)
    records = [dict(zip(names, row, strict=True)) for row in rows]
    forms = dict.fromkeys(("score", "p_value", "e_value"), ".6g")
    show_rows(records, names, output=output, json=json, forms=forms)


def _number(cell: str) -> float | None:
    """Return the value of a cell, nan if it is empty, or None if it is not a number."""
    try:
        return float(cell) if cell.strip() else math.nan
    except ValueError:
        return None
