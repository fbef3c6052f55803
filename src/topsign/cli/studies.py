"""Commands that need no index: ``plan``, ``evaluate``, ``explore`` and ``reproduce``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import command, console, errors, fail
from .options import IdColumn, Json, SignalPath, VectorColumn, opened_index, option
from .output import PLOT_SUFFIXES, check_output, show_json, show_table, show_values, stage_bar

if TYPE_CHECKING:
    from ..evaluation import Evaluation
    from ..paper.report import Report
    from ..theory import Plan, SearchCosts

COSTS_BYTES = 2**16  # maximum size of a file with constants
MAX_VALUES = 2**28  # numbers that an evaluation reads


# plan


@command()
def plan(
    correlation: Annotated[float | None, typer.Option(help="Correlation of a match with its entry, in (0, 1).")] = None,
    false_alarm: Annotated[
        float | None, typer.Option(help="Probability that a search returns any false match.")
    ] = None,
    n_features: Annotated[int | None, typer.Option(help="Length of a signal.")] = None,
    detection: Annotated[float | None, typer.Option(help="Probability that a match is found, in (0, 1).")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Maximum bytes per entry.")] = None,
    n_entries: Annotated[float, typer.Option(help="Number of entries, e.g. 1e9.")] = 1,
    family: Annotated[
        str | None, typer.Option(help="Family of codes: adaptive, grouped or trellis. (default: compare all)")
    ] = None,
    projection: Annotated[
        str | None,
        typer.Option(help="Kind of projection of adaptive and grouped codes, e.g. gaussian. (default: hadamard)"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan to this file (png, svg, pdf).")] = None,
    recall: Annotated[
        float | None, typer.Option(help="Plan machines for searches with this recall, instead of a code.")
    ] = None,
    queries_per_second: Annotated[
        float | None, typer.Option(help="With --recall: required queries per second. (default: 1)")
    ] = None,
    n_bytes: Annotated[int | None, typer.Option(help="With --recall: bytes per code. (default: 24)")] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="With --recall: JSON file with constants of the cost model, by name.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Find the smallest code that meets a detection target, or the best code within a budget.

    [bold]Examples[/]

    topsign plan --correlation 0.1 --detection 0.99 --false-alarm 1e-3 --n-features 8192
    topsign plan --correlation 0.2 --detection 0.99 --false-alarm 1e-6 --n-features 8192 --n-entries 1e6 --plot plan.png
    topsign plan --correlation 0.1 --max-bytes 256 --false-alarm 1e-3 --n-features 8192 --json
    topsign plan --n-entries 1e9 --recall 0.95 --queries-per-second 1000
    """
    from ..theory import PLANNED_FAMILIES

    check_output(plot, "--plot", suffixes=PLOT_SUFFIXES)
    of_code: dict[str, Any] = {
        "correlation": correlation,
        "false_alarm": false_alarm,
        "detection": detection,
        "max_bytes": max_bytes,
    }
    of_code |= {"family": family, "projection": projection, "plot": plot}
    of_machines = {"queries_per_second": queries_per_second, "n_bytes": n_bytes, "costs": costs}
    for name, value in (of_machines if recall is None else of_code).items():
        if value is not None:
            raise fail(f"{option(name)} {'goes' if recall is None else 'has no effect'} with --recall", code=2)
    if recall is not None:
        given = {"n_features": n_features, "n_bytes": n_bytes, "queries_per_second": queries_per_second}
        _plan_machines(n_entries, recall, {name: one for name, one in given.items() if one is not None}, costs, json)
        return
    if correlation is None or false_alarm is None or n_features is None:
        raise fail(
            "give --correlation, --false-alarm and --n-features to plan a code, or --recall to plan machines", code=2
        )
    if not n_entries.is_integer():
        raise fail(f"--n-entries must be a whole number, got {n_entries:g}", code=2)
    target: dict[str, Any] = {"correlation": correlation, "false_alarm": false_alarm, "n_features": n_features}
    target |= {"n_entries": int(n_entries), "max_bytes": max_bytes, "projection": projection or "hadamard"}
    planned = PLANNED_FAMILIES if projection in (None, "hadamard") else ("adaptive", "grouped")
    plans, reasons = _plans(planned if family is None else (family,), detection, target)
    missed = [f"{name} codes: {reason}" for name, reason in reasons.items()]
    if not plans:
        raise fail("\n".join(missed), code=1)
    if plot is not None:
        _draw_plan(plans, missed, plot)
    if json:
        show_json(
            {name: asdict(one) for name, one in plans.items()} | {name: {"missed": reasons[name]} for name in reasons}
        )
        return
    first, *others = plans.values()
    only = f": only {first.family} codes reach it" if missed and not others else ""
    show_values(dict(first.lines()), title=f"plan{only}")
    _show_assumptions(first.assumptions)
    for other in others:
        rule = "" if other.threshold is None else f" and a threshold of {other.threshold:.5f}"
        console.print(f"\n{other.family} codes reach it with {other.bytes_per_entry:,} bytes per entry{rule}")
    if others:
        smallest = min(plans.values(), key=lambda one: one.bytes_per_entry)
        console.print(f"\nthe smallest are {smallest.family} codes")
    for line in missed:
        console.print(f"\n{line}")
    if plot is not None:
        console.print(f"drawn: {plot}")


def _plans(
    families: tuple[str, ...], detection: float | None, target: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the plans of the families that reach the target, and the reasons of those that miss it.

    Within a budget, the detection of the first family that has a plan is the target of the others.
    """
    from ..theory import TargetError, plan

    plans: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in families:
        try:
            plans[name] = plan(**target, detection=detection, family=name)
            detection = plans[name].detection if detection is None else detection
        except TargetError as error:
            reasons[name] = str(error)
    return plans, reasons


def _draw_plan(plans: dict[str, Any], missed: list[str], path: Path) -> None:
    from ..errors import install
    from ..theory import Plan

    drawn: Plan | None = plans.get(Plan.family)
    if drawn is None:
        raise fail("\n".join(["--plot supports only adaptive codes; omit it for other codes", *missed]), code=1)
    try:
        from ..plots import plot_plan

        plot_plan(drawn, path)
    except ImportError:
        raise fail(f"--plot needs matplotlib: {install('plot')}", code=2) from None


def _plan_machines(n_entries: float, recall: float, target: dict[str, Any], costs: Path | None, json: bool) -> None:
    """Print the machines that searches with a given recall need."""
    from ..theory import plan_cluster

    found = plan_cluster(n_entries, recall=recall, costs=None if costs is None else _read_costs(costs), **target)
    origin = tuple(line.replace("given in costs", f"from {costs}") for line in found.assumptions)
    if json:
        show_json(asdict(replace(found, assumptions=origin)))
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
    show_values(shown, title="plan")
    _show_assumptions(origin)


def _read_costs(path: Path) -> SearchCosts:
    """Read constants of the cost model; those that the file does not contain keep their defaults."""
    from .._files import parse_json
    from ..theory import SearchCosts

    try:
        with path.open("rb") as file:
            text = file.read(COSTS_BYTES + 1)
    except OSError as error:
        code = 2 if isinstance(error, FileNotFoundError) else 1
        raise fail(f"--costs: cannot read {path}: {error.strerror}", code=code) from None
    names = [field.name for field in fields(SearchCosts)]
    try:
        if len(text) > COSTS_BYTES:
            raise ValueError(
                f"the file is larger than {COSTS_BYTES:,} bytes; give a JSON object with constants by name"
            )
        try:
            record = parse_json(text)
        except ValueError as error:
            raise ValueError(f"the file is not JSON with finite numbers: {error}") from None
        if not isinstance(record, dict):
            raise TypeError("the file must contain a JSON object with constants by name")
        for name in record.keys() - set(names):
            raise ValueError(f"{name!r:.40} is no constant of the cost model; its constants are {', '.join(names)}")
        return SearchCosts(**record)
    except (ValueError, TypeError) as error:
        raise fail(f"--costs {path}: {error}", code=1) from None


def _show_assumptions(lines: Iterable[str]) -> None:
    console.print("\nassuming")
    for line in lines:
        console.print(f"  - {line}")


# evaluate


@command()
def evaluate(
    signals: SignalPath,
    queries: Annotated[str | None, typer.Option(help="Signals to search for; held out when not given.")] = None,
    target_recall: Annotated[float, typer.Option(help="Share of the true 10 nearest that a search shall find.")] = 0.95,
    metric: Annotated[
        str, typer.Option(help="Score of true neighbours: correlation or inner_product, of the signals as given.")
    ] = "correlation",
    center: Annotated[
        bool, typer.Option("--center", help="Subtract the mean of the signals before true correlations are computed.")
    ] = False,
    n_signals: Annotated[
        int | None, typer.Option(help="Entries of the index to come. (default: the number of signals)")
    ] = None,
    n_bits: Annotated[list[int] | None, typer.Option(help="A size of adaptive codes; may be repeated.")] = None,
    n_entries: Annotated[int, typer.Option(help="Signals in the sample, at most.")] = 50_000,
    page: Annotated[Path | None, typer.Option(help="Write a page into this folder: index.html.")] = None,
    random_state: Annotated[int, typer.Option(help="Seed of the sample and of the projections.")] = 0,
    vector_column: VectorColumn = None,
    id_column: IdColumn = None,
    json: Json = False,
) -> None:
    """Measure recall, bytes, time and false alarms on a sample of signals, before an index is built.

    Recommends the index of the fewest resident bytes that meets --target-recall, with the commands that build and
    search it.

    [bold]Examples[/]

    topsign evaluate embeddings.npy --target-recall 0.98
    topsign evaluate docs.parquet --vector-column embedding --id-column id --queries queries.npy --page evaluation/
    """
    from ..evaluation import SignalSource, render
    from ..evaluation import evaluate as run_evaluation

    if page is not None:
        try:
            page.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail(f"--page: {page} cannot be made: {error.strerror}", code=2) from None
    given, total = _read_sample(signals, vector_column, id_column)
    asked = None if queries is None else _read_sample(queries, vector_column, None)[0]
    with stage_bar() as progress:
        found = run_evaluation(
            given,
            queries=asked,
            target_recall=target_recall,
            metric=metric,
            center=center,
            n_signals=total if n_signals is None else n_signals,
            n_bits=n_bits,
            n_entries=n_entries,
            random_state=random_state,
            progress=progress,
        )
    found = replace(found, source=SignalSource(signals, queries, vector_column, id_column))
    if page is not None:
        (page / "index.html").write_text(render(found), encoding="utf-8")
    if json:
        texts: dict[str, Any] = {"command": found.command(), "python": found.python(), "met": found.met}
        texts |= {"sentence": found.recommendation(), "alternative": found.alternative()}
        show_json({field.name: getattr(found, field.name) for field in fields(found)} | texts)
        return
    _show_evaluation(found)
    if page is not None:
        console.print(f"\nthe page: {(page / 'index.html').absolute()}")


def _read_sample(location: str, vector_column: str | None, id_column: str | None) -> tuple[Any, int]:
    """Return the rows of all files, or a sample if there are many, and the total number of rows."""
    from ..signals import FilesRows, open_files

    rows = FilesRows(open_files(location, vector_column, () if id_column is None else (id_column,)))
    step = max(1, -(-len(rows) * rows.shape[1] // MAX_VALUES))
    return rows[::step], len(rows)


def _show_evaluation(found: Evaluation) -> None:
    from ..evaluation import tables

    console.print(found.isotropy.sentence(found.n_features))
    for note in found.notes:
        console.print(f"note: {note}")
    for words, titles, rows in tables(found):
        console.print(f"\n{words}\n")
        show_table([[text.split("\n")[0] for text in row] for row in rows], titles, left=titles[:1])
    console.print(f"\nasked: {found.target_recall:.0%} of the true 10 nearest")
    console.print(f"recommended: {found.recommendation()}")
    for more in (found.alternative(), found.false_alarm_advice()):
        if more is not None:
            console.print(more)
    console.print(f"\n{found.command()}\n")
    console.print(found.python())


# explore


@command()
def explore(
    index: Annotated[str | None, typer.Argument(help="Index to browse.", show_default=False)] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 chooses a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Explore detection performance by code size, and the contents of an index, in the browser.

    The page is served only on 127.0.0.1, under an address with a secret token; no data leave the machine. Stop the
    server with Ctrl-C. Needs the extra explore.

    [bold]Examples[/]

    topsign explore
    topsign explore cameras.topsign --no-open-browser
    """
    from ..explore import serve

    with nullcontext() if index is None else opened_index(index, readonly=True) as opened:
        serve(opened, port=port, open_browser=open_browser, announce=console.print)


# reproduce

STYLES = {"reproduced": "green", "differs": "red"}


@command()
def reproduce(
    part: Annotated[str, typer.Argument(help="A figure or the table of the paper, by name, or all.")] = "all",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, its data and its pictures.")
    ] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws: under a minute, with larger errors.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of the projection in Table I. (default: 20, with --quick 6)")
    ] = None,
    json: Json = False,
) -> None:
    """Reproduce the figures and the table of the paper, compare them with exact theory, and judge each claim.

    Writes index.html, a self-contained page, and the data as JSON and the figures as PNG to the same folder.

    [bold]Examples[/]

    topsign reproduce
    topsign reproduce roc --quick --output roc/
    """
    from ..errors import install
    from ..paper.measuring import check_draws
    from ..paper.report import FULL, PARTS, QUICK, QUICK_LEAVES_OPEN
    from ..paper.report import reproduce as make_report

    if part not in (*PARTS, "all"):
        raise ValueError(f"part must be one of {', '.join(map(repr, (*PARTS, 'all')))}, got {part!r}")
    if quick and part not in (*QUICK, "all"):
        raise fail(f"--quick has no effect on {part}, which draws nothing", code=2)
    effort = QUICK if quick else FULL
    if seeds is not None:
        if part not in ("table", "all"):
            raise fail(f"--seeds has no effect on {part}; it applies to the table", code=2)
        effort = effort | {"table": {"n_seeds": check_draws(seeds, "--seeds")}}
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
    if json:
        whole = {"page": str(report.page), "verdicts": report.claims, "conditions": report.conditions}
        show_json(whole | {"parts": report.parts})
    else:
        _show_verdicts(report)


def _show_verdicts(report: Report) -> None:
    """Print claims, verdicts and both numbers with a rule between claims, then the path of the page."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from ..paper.verdicts import summarize

    console.print(summarize(report.claims))
    table = Table(box=box.HORIZONTALS, show_lines=True, pad_edge=False)
    for title in ("claim", "verdict", "ours", "theirs"):
        table.add_column(title)
    for one in report.claims:
        table.add_row(
            Text(one.claim), Text(one.outcome, STYLES.get(one.outcome, "dim")), Text(one.ours), Text(one.theirs)
        )
    console.print(table)
    console.print(f"\nthe page: {report.page.absolute()}")
