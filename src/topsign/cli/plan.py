"""``topsign plan``: how many bits a target needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

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
    target = {"correlation": correlation, "false_alarm": false_alarm, "n_features": features, "n_entries": entries}
    try:
        found, why = _reached(**target, detection=detection, max_bytes=max_bytes, projection=projection)
        wanted = found.detection if isinstance(found, Plan) and detection is None else detection
        trellis, why_not = _reached(**target, detection=wanted, max_bytes=max_bytes, codes="trellis")
    except ValueError as error:
        raise fail(str(error), code=2) from None
    if found is None and trellis is None:
        raise fail(f"adaptive codes: {why}\ntrellis codes: {why_not}", code=1)
    if plot is not None:
        if found is None:
            raise fail(f"--plot draws adaptive codes; leave it out for the plan of trellis codes. {why}", code=1)
        draw_plan(found, plot)
    if as_json:
        shown = {"adaptive": why} if found is None else found.as_dict()
        print(json.dumps(shown | {"trellis": trellis and trellis.as_dict()}, indent=2))
        return
    if found is None:
        show_plan(trellis)
        console.print(f"\nadaptive codes: {why}", highlight=False, soft_wrap=True)
        return
    show_plan(found)
    show_trellis(found, trellis, why_not)
    if plot is not None:
        console.print(f"drawn: {plot}", highlight=False)


def _reached(**target: Any) -> tuple[Any, str]:
    """The plan of one family, or None and why there is none."""
    try:
        return make_plan(**target), ""
    except TargetError as error:
        return None, str(error)


def show_plan(found: Plan | TrellisPlan) -> None:
    """The plan as a table, then what it assumes."""
    title = "plan" if isinstance(found, Plan) else "plan: trellis codes alone reach it"
    table = Table(show_header=False, title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for name, value in found.lines():
        table.add_row(name, value)
    console.print(table, highlight=False)
    console.print("\nassuming", highlight=False)
    for line in found.assumptions:
        console.print(f"  - {line}", highlight=False, soft_wrap=True)


def show_trellis(found: Plan, trellis: TrellisPlan | None, why_not: str) -> None:
    """The smaller of both families."""
    if trellis is None:
        console.print(f"\ntrellis codes: {why_not}", highlight=False, soft_wrap=True)
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
