"""``topsign plan``: how many bits a target needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import install
from ..theory import PLANNED_FAMILIES, PROJECTIONS, Plan, TargetError, TrellisPlan
from ..theory import plan as make_plan
from .app import app, console, fail, in_options


@app.command()
def plan(
    correlation: Annotated[float, typer.Option(help="Correlation of a match with its entry, in (0, 1).")],
    false_alarm: Annotated[float, typer.Option(help="Chance that one search accepts any impostor.")],
    features: Annotated[int, typer.Option(help="Length of a signal.")],
    detection: Annotated[float | None, typer.Option(help="Chance that a match is found, in (0, 1).")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes an entry may take.")] = None,
    entries: Annotated[int, typer.Option(help="Entries per search.")] = 1,
    family: Annotated[
        str | None, typer.Option(help=f"Family of codes: {', '.join(PLANNED_FAMILIES)}. (default: both are compared)")
    ] = None,
    projection: Annotated[str, typer.Option(help=f"Kind of projection: {', '.join(PROJECTIONS)}.")] = "hadamard",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan into this file (png, svg, pdf).")] = None,
) -> None:
    """How many bits do I need? The cheapest code that meets a target, or the best within a budget.

    [bold]Examples[/]

    topsign plan --correlation 0.1 --detection 0.99 --false-alarm 1e-3 --features 8192

    topsign plan --correlation 0.2 --detection 0.99 --false-alarm 1e-6 --features 8192 --entries 1000000 --plot plan.png

    topsign plan --correlation 0.1 --max-bytes 256 --false-alarm 1e-3 --features 8192 --json

    topsign plan --correlation 0.1 --detection 0.9 --false-alarm 1e-3 --features 8192 --family trellis
    """
    target = {"correlation": correlation, "false_alarm": false_alarm, "n_features": features, "n_entries": entries}
    plans: dict[str, Plan | TrellisPlan | None] = {}
    reasons: dict[str, str] = {}
    try:
        for name in PLANNED_FAMILIES if family is None else (family,):
            aim = next((one.detection for one in plans.values() if one is not None), None)
            options = {"detection": aim if detection is None else detection, "max_bytes": max_bytes}
            plans[name], reasons[name] = _reached(**target, **options, projection=projection, family=name)
    except ValueError as error:
        raise fail(in_options(str(error)), code=2) from None
    reached = [one for one in plans.values() if one is not None]
    missed = [f"{name} codes: {reason}" for name, reason in reasons.items() if reason]
    if not reached:
        raise fail("\n".join(missed), code=1)
    if plot is not None:
        if not isinstance(reached[0], Plan):
            raise fail("\n".join(["--plot draws adaptive codes; leave it out for trellis codes", *missed]), code=1)
        draw_plan(reached[0], plot)
    if as_json:
        shown = {name: one.as_dict() if one is not None else {"missed": reasons[name]} for name, one in plans.items()}
        print(json.dumps(shown, indent=2))
        return
    show_plan(reached[0], only=missed != [] and plans[next(iter(plans))] is None)
    for other in reached[1:]:
        show_other(reached[0], other)
    for line in missed:
        console.print(f"\n{line}", highlight=False, soft_wrap=True)
    if plot is not None:
        console.print(f"drawn: {plot}", highlight=False)


def _reached(**target: Any) -> tuple[Any, str]:
    """Return the plan of one family, or None and why there is none."""
    try:
        return make_plan(**target), ""
    except TargetError as error:
        return None, in_options(str(error))


def show_plan(found: Plan | TrellisPlan, *, only: bool = False) -> None:
    """Print the plan as a table, then what it assumes; ``only`` says that other families do not reach the target."""
    title = f"plan: only {found.family} codes reach it" if only else "plan"
    table = Table(show_header=False, title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for name, value in found.lines():
        table.add_row(name, value)
    console.print(table, highlight=False)
    console.print("\nassuming", highlight=False)
    for line in found.assumptions:
        console.print(f"  - {line}", highlight=False, soft_wrap=True)


def show_other(found: Plan | TrellisPlan, other: Plan | TrellisPlan) -> None:
    """Print the size of another family's code for the same target, and which is smaller."""
    smaller = other if other.bytes_per_entry < found.bytes_per_entry else found
    rule = "" if other.threshold is None else f"threshold {other.threshold:.5f}, "
    console.print(
        f"\n{other.family} codes reach it with {other.bytes_per_entry:,} bytes per entry ({rule}encoded "
        f"more slowly); the smaller family is {smaller.family}",
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
