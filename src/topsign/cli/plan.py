"""The command ``plan``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from .._files import parse_json
from ..errors import install
from ..theory import (
    PLANNED_FAMILIES,
    PROJECTIONS,
    Plan,
    SearchCosts,
    TargetError,
    plan_cluster,
)
from ..theory import plan as make_plan
from .app import app, console, fail, in_options
from .output import named_values

COSTS_BYTES = 2**16  # maximum size of a file with constants


@app.command()
def plan(
    correlation: Annotated[float | None, typer.Option(help="Correlation of a match with its entry, in (0, 1).")] = None,
    false_alarm: Annotated[
        float | None, typer.Option(help="Probability that a search returns any false match.")
    ] = None,
    features: Annotated[int | None, typer.Option(help="Length of a signal.")] = None,
    detection: Annotated[float | None, typer.Option(help="Probability that a match is found, in (0, 1).")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Maximum bytes per entry.")] = None,
    entries: Annotated[float, typer.Option(help="Number of entries, e.g. 1e9.")] = 1,
    recall: Annotated[
        float | None, typer.Option(help="Plan machines for searches with this recall, instead of a code.")
    ] = None,
    queries_per_second: Annotated[float, typer.Option(help="With --recall: required queries per second.")] = 1.0,
    n_bytes: Annotated[int, typer.Option("--bytes", help="With --recall: bytes per code.")] = 24,
    costs: Annotated[
        Path | None,
        typer.Option(help="With --recall: JSON file with constants of the cost model, by name.", show_default=False),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help=f"Family of codes: {', '.join(PLANNED_FAMILIES)}. (default: compare all)")
    ] = None,
    projection: Annotated[str, typer.Option(help=f"Kind of projection: {', '.join(PROJECTIONS)}.")] = "hadamard",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan to this file (png, svg, pdf).")] = None,
) -> None:
    """Find the smallest code that meets a detection target, or the best code within a budget.

    [bold]Examples[/]

    topsign plan --correlation 0.1 --detection 0.99 --false-alarm 1e-3 --features 8192

    topsign plan --correlation 0.2 --detection 0.99 --false-alarm 1e-6 --features 8192 --entries 1000000 --plot plan.png

    topsign plan --correlation 0.1 --max-bytes 256 --false-alarm 1e-3 --features 8192 --json

    topsign plan --correlation 0.1 --detection 0.9 --false-alarm 1e-3 --features 8192 --family grouped

    topsign plan --entries 1e9 --recall 0.95 --queries-per-second 1000
    """
    if recall is not None:
        target = {"recall": recall, "queries_per_second": queries_per_second, "n_bytes": n_bytes}
        show_machines(entries, target | ({} if features is None else {"n_features": features}), costs, as_json)
        return
    if costs is not None:
        raise fail("--costs goes with --recall", code=2)
    if correlation is None or false_alarm is None or features is None:
        raise fail(
            "give --correlation, --false-alarm and --features to plan a code, or --recall to plan machines", code=2
        )
    code_target = {
        "correlation": correlation,
        "false_alarm": false_alarm,
        "n_features": features,
        "n_entries": int(entries),
    }
    plans: dict[str, Plan | None] = {}
    reasons: dict[str, str] = {}
    try:
        for name in PLANNED_FAMILIES if family is None else (family,):
            aim = next((one.detection for one in plans.values() if one is not None), None)
            options = {"detection": aim if detection is None else detection, "max_bytes": max_bytes}
            plans[name], reasons[name] = _reached(**code_target, **options, projection=projection, family=name)
    except ValueError as error:
        raise fail(in_options(str(error)), code=2) from None
    reached = [one for one in plans.values() if one is not None]
    missed = [f"{name} codes: {reason}" for name, reason in reasons.items() if reason]
    if not reached:
        raise fail("\n".join(missed), code=1)
    if plot is not None:
        drawn = plans.get(Plan.family)
        if drawn is None:
            raise fail("\n".join(["--plot supports only adaptive codes; omit it for other codes", *missed]), code=1)
        draw_plan(drawn, plot)
    if as_json:
        shown = {name: one.as_dict() if one is not None else {"missed": reasons[name]} for name, one in plans.items()}
        print(json.dumps(shown, indent=2))
        return
    show_plan(reached[0], only=len(reached) == 1 and missed != [])
    for other in reached[1:]:
        rule = "" if other.threshold is None else f" and a threshold of {other.threshold:.5f}"
        console.print(f"\n{other.family} codes reach it with {other.bytes_per_entry:,} bytes per entry{rule}")
    if len(reached) > 1:
        smallest = min(reached, key=lambda one: one.bytes_per_entry)
        console.print(f"\nthe smallest are {smallest.family} codes")
    for line in missed:
        console.print(f"\n{line}")
    if plot is not None:
        console.print(f"drawn: {plot}")


def show_machines(entries: float, target: dict[str, Any], costs: Path | None, as_json: bool) -> None:
    """Print the machines that searches with a given recall need."""
    known = None if costs is None else read_costs(costs)
    try:
        found = plan_cluster(entries, costs=known, **target)
    except TargetError as error:
        message = in_options(str(error)).replace("constants in costs", "constants in the file of --costs")
        raise fail(message.replace("n_entries=", "--entries ").replace("n_entries", "--entries"), code=2) from None
    origin = tuple(line.replace("given in costs", f"from {costs}") for line in found.assumptions)
    found = replace(found, assumptions=origin)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
        return
    shown = {
        "entries": f"{found.n_entries:,}",
        "regions": f"{found.n_regions:,}; a query visits {found.visited:.3%} of the entries",
        "memory": f"{found.memory_bytes / 2**30:,.1f} GiB",
        "disk, float16 originals included": f"{found.disk_bytes / 2**30:,.1f} GiB",
        "processor time of a query": f"{1e3 * found.seconds_per_query:,.2f} ms",
        "latency of a query": f"{1e3 * found.latency_seconds:,.2f} ms",
        "cores": f"{found.n_cores:,}",
        "workers of 16 cores and 64 GiB": f"{found.n_workers:,}",
    }
    show_assuming(named_values(shown, title="plan"), found.assumptions)


def read_costs(path: Path) -> SearchCosts:
    """Read constants of the cost model; those that the file does not contain keep their defaults."""
    try:
        with path.open("rb") as file:
            text = file.read(COSTS_BYTES + 1)
    except OSError as error:
        code = 2 if isinstance(error, FileNotFoundError) else 1
        raise fail(f"--costs: cannot read {path}: {error.strerror}", code=code) from None
    try:
        return parse_costs(text)
    except (ValueError, TypeError) as error:
        raise fail(f"--costs {path}: {error}", code=1) from None


def parse_costs(text: bytes) -> SearchCosts:
    """Return the constants in a JSON object; raise ValueError or TypeError for anything else."""
    if len(text) > COSTS_BYTES:
        raise ValueError(f"the file is larger than {COSTS_BYTES:,} bytes; give a JSON object with constants by name")
    try:
        record = parse_json(text)
    except ValueError as error:
        raise ValueError(f"the file is not JSON with finite numbers: {error}") from None
    if not isinstance(record, dict):
        raise TypeError("the file must contain a JSON object with constants by name")
    names = [field.name for field in fields(SearchCosts)]
    for name in record:
        if name not in names:
            raise ValueError(f"{name!r:.40} is no constant of the cost model; its constants are {', '.join(names)}")
    return SearchCosts(**record)


def _reached(**target: Any) -> tuple[Any, str]:
    """Return the plan of one family, or None and the reason."""
    try:
        return make_plan(**target), ""
    except TargetError as error:
        return None, in_options(str(error))


def show_plan(found: Plan, *, only: bool = False) -> None:
    """Print the plan as a table, then its assumptions; ``only`` means that no other family reaches the target."""
    title = f"plan: only {found.family} codes reach it" if only else "plan"
    show_assuming(named_values(dict(found.lines()), title=title), found.assumptions)


def show_assuming(table: Table, assumptions: Iterable[str]) -> None:
    """Print a plan and its assumptions."""
    console.print(table)
    console.print("\nassuming")
    for line in assumptions:
        console.print(f"  - {line}")


def draw_plan(found: Plan, path: Path) -> None:
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise fail(f"--plot must be a .png, .svg or .pdf file, got {path}", code=2)
    if not path.absolute().parent.is_dir():
        raise fail(f"--plot: the folder {path.absolute().parent} does not exist; create it first", code=2)
    try:
        from ..plots import plot_plan

        plot_plan(found, path)
    except ImportError:
        raise fail(f"--plot needs matplotlib: {install('plot')}", code=2) from None
