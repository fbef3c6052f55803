"""``topsign plan``: how many bits a target needs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..errors import install
from ..theory import PROJECTIONS, Plan, TargetError, TrellisPlan
from ..theory import plan as make_plan
from .app import app, console, fail


@app.command()
def plan(
    correlation: Annotated[float, typer.Option(help="Correlation of a match with its entry, in (0, 1).")],
    false_alarm: Annotated[float, typer.Option(help="Chance that one search accepts any impostor.")],
    features: Annotated[int, typer.Option(help="Length of a signal.")],
    detection: Annotated[float | None, typer.Option(help="Chance that a match is found, in (0, 1).")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes an entry may take.")] = None,
    entries: Annotated[int, typer.Option(help="Entries per search.")] = 1,
    projection: Annotated[str, typer.Option(help=f"Kind of projection: {', '.join(PROJECTIONS)}.")] = "hadamard",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan into this file (png, svg, pdf).")] = None,
) -> None:
    """How many bits do I need? The cheapest code that meets a target, or the best within a budget.

    [bold]Examples[/]

    topsign plan --correlation 0.1 --detection 0.99 --false-alarm 1e-3 --features 8192

    topsign plan --correlation 0.2 --detection 0.99 --false-alarm 1e-6 --features 8192 --entries 1000000 --plot plan.png

    topsign plan --correlation 0.1 --max-bytes 256 --false-alarm 1e-3 --features 8192 --json
    """
    try:
        found = make_plan(
            correlation=correlation,
            detection=detection,
            false_alarm=false_alarm,
            n_features=features,
            n_entries=entries,
            max_bytes=max_bytes,
            projection=projection,
        )
    except ValueError as error:
        raise fail(str(error), code=1 if isinstance(error, TargetError) else 2) from None
    if plot is not None:
        draw_plan(found, plot)
    trellis = None
    with suppress(TargetError):
        trellis = make_plan(
            codes="trellis",
            correlation=correlation,
            detection=found.detection if detection is None else detection,
            false_alarm=false_alarm,
            n_features=features,
            n_entries=entries,
        )
    if as_json:
        print(json.dumps(found.as_dict() | {"trellis": trellis and trellis.as_dict()}, indent=2))
    else:
        show_plan(found)
        show_trellis(found, trellis)
        if plot is not None:
            console.print(f"drawn: {plot}", highlight=False)


def show_plan(found: Plan) -> None:
    """The plan as a table, then what it assumes."""
    table = Table(show_header=False, title="plan", title_justify="left", box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for name, value in found.lines():
        table.add_row(name, value)
    console.print(table, highlight=False)
    console.print("\nassuming", highlight=False)
    for line in found.assumptions:
        console.print(f"  - {line}", highlight=False, soft_wrap=True)


def show_trellis(found: Plan, trellis: TrellisPlan | None) -> None:
    """The smaller of both families."""
    if trellis is None:
        console.print("\ntrellis codes of up to 4 bits per feature do not reach this", highlight=False)
        return
    smaller = "trellis" if trellis.n_bytes < found.bytes_per_entry else "adaptive"
    console.print(
        f"\ntrellis codes reach it with {trellis.n_bytes:,} bytes per entry (threshold {trellis.threshold:.5f}, "
        f"encoded more slowly); the smaller family is {smaller}",
        highlight=False,
        soft_wrap=True,
    )


def draw_plan(found: Plan, path: Path) -> None:
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise fail(f"--plot takes a .png, .svg or .pdf file, got {path}", code=2)
    if not path.absolute().parent.is_dir():
        raise fail(f"--plot: the folder {path.absolute().parent} does not exist; make it first", code=2)
    try:
        from ..plots import plot_plan

        plot_plan(found, path)
    except ImportError:
        raise fail(f"--plot needs matplotlib: {install('plot')}", code=2) from None
