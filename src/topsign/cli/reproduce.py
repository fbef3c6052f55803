"""``topsign reproduce``: every figure and table of the paper, on one page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ..errors import install
from ..paper.measuring import check_draws, plain
from ..paper.report import FULL, PARTS, QUICK, QUICK_LEAVES_OPEN, Report
from ..paper.report import reproduce as make_report
from ..paper.verdicts import count_outcomes
from .app import app, console, errors, exit_on_error, fail
from .output import stage_bar

STYLES = {"reproduced": "green", "not reproduced": "red"}


@app.command()
def reproduce(
    part: Annotated[str, typer.Argument(help=f"{', '.join(PARTS)} or all.")] = "all",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, its data and its pictures.")
    ] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws: under a minute, with larger errors.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of the projection in Table I. (default: 20, with --quick 6)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts and data as JSON.")] = False,
) -> None:
    """Reproduce the figures and the table of the paper, compare them with exact theory, and judge each claim.

    Writes index.html, a self-contained page, and the data as JSON and the figures as PNG to the same folder.

    [bold]Examples[/]

    topsign reproduce

    topsign reproduce roc --quick --output roc/
    """
    with exit_on_error(2):
        if part not in (*PARTS, "all"):
            raise ValueError(f"part must be one of {', '.join(map(repr, (*PARTS, 'all')))}, got {part!r}")
        effort = QUICK if quick else FULL
        if seeds is not None:
            effort = replace(effort, table_seeds=check_draws(seeds, "--seeds"))
    if quick and part in ("all", "roc"):
        errors.print(QUICK_LEAVES_OPEN)
    with stage_bar() as progress:
        try:
            parts = PARTS if part == "all" else (part,)
            report = make_report(output, parts=parts, effort=effort, progress=progress)
        except ImportError:
            raise fail(f"figures need matplotlib: {install('plot')}", code=2) from None
        except OSError as error:
            raise fail(f"{output} cannot be written: {error}", code=1) from None
        progress("done", 1.0)
    if as_json:
        whole = {"page": str(report.page), "verdicts": report.claims, "conditions": report.conditions}
        print(json.dumps(plain(whole | {"parts": report.parts}), indent=1, allow_nan=False))
    else:
        show_verdicts(report)


def show_verdicts(report: Report) -> None:
    """Print claims, verdicts and both numbers with a rule between claims, then the path of the page."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in count_outcomes(report.claims).items())
    console.print(f"{len(report.claims)} claims: {counts}")
    table = Table(box=box.HORIZONTALS, show_lines=True, pad_edge=False)
    for title in ("claim", "verdict", "ours", "theirs"):
        table.add_column(title)
    for one in report.claims:
        table.add_row(
            Text(one.claim), Text(one.outcome, STYLES.get(one.outcome, "dim")), Text(one.ours), Text(one.theirs)
        )
    console.print(table)
    console.print(f"\nthe page: {report.page.absolute()}")
