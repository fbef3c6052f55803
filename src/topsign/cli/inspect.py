"""The command ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..index import Index
from .app import app, console, exit_on_error
from .options import IndexPath, opened_index
from .output import named_values, plain_table, show_null

CORRELATIONS = (0.05, 0.1, 0.2, 0.5)


@app.command()
def inspect(
    index: IndexPath,
    correlation: Annotated[
        list[float] | None, typer.Option(help="Show the error at this; may be repeated. (default: 0.05 0.1 0.2 0.5)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the recipe, counts and sizes of an index, and the expected error of its scores.

    For a match at a correlation: the expected distance of its signs, their standard deviation, and the 95% interval
    of the correlation estimated from real-valued queries. Only for codes whose errors follow a known law.

    [bold]Examples[/]

    topsign inspect cameras.topsign

    topsign inspect cameras.topsign --correlation 0.07 --json
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(2):
        expected = [_expected(opened, rho) for rho in correlation or CORRELATIONS]
    expected = [row for row in expected if row]
    header = opened.info["header"] | opened.recipe.described() | {"calibration": _calibration(opened)}
    sizes = _sizes(opened, index) | _regions(opened) | _fit(opened)
    if as_json:
        print(json.dumps({"header": header, "sizes": sizes, "expected": expected}, indent=2))
        return
    shown = {name: _shown(value) for name, value in header.items()}
    for name, value in sizes.items():
        shown[name.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
    console.print(named_values(shown, title=str(index)))
    show_null(opened)
    if expected:
        _show_expected(expected)


def _shown(value: object) -> str:
    """Return a value of the header as text; numbers of a stored model with their names."""
    if not isinstance(value, dict):
        return str(value)
    texts = {name: f"{one:.4g}" if isinstance(one, float) else str(one) for name, one in value.items()}
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in texts.items())


def _show_expected(rows: list[dict[str, Any]]) -> None:
    table = plain_table(("correlation", "distance", "deviation", "estimate, 95%"))
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            f"{row['correlation']:g}", f"{row['distance']:.4f}", f"{row['deviation']:.4f}", f"{low:.3f} to {high:.3f}"
        )
    console.print("\nexpected of a match")
    console.print(table)


def _sizes(index: Index, path: Path) -> dict[str, Any]:
    return {
        "entries": len(index),
        "removed": index.info["removed"],
        "segments": index.info["segments"],
        "file_bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        "bytes_in_use": index.nbytes,
        **{f"{name}_bytes": n_bytes for name, n_bytes in index.info["bytes"].items()},
        "code_bytes_per_entry": index.recipe.code_bytes,
        "bits_per_dimension": round(8 * index.recipe.code_bytes / index.n_features, 4),
    }


def _calibration(index: Index) -> dict[str, Any] | None:
    """Return the stored null distribution in numbers; None without calibration."""
    found = index.calibration
    if found is None:
        return None
    source = "own signals" if found.own else "impostors"
    return {"searches": found.n_queries, "from": source, "entries": found.n_entries, "level": found.level}


def _regions(index: Index) -> dict[str, Any]:
    """Return the properties of the regions; an empty dict without regions."""
    found = index.regions
    if found is None:
        return {}
    growth = f"{found.growth:.2f}" + (
        " (topsign regions is due: searches visit more than needed)" if found.is_due else ""
    )
    return {"regions": found.n_regions, "growth_since_learning": growth, "recall_of": found.recall_of}


def _fit(index: Index) -> dict[str, float]:
    """Return how well a learned basis still fits; nothing for codes that learn none."""
    drift = index.check(recall=None).drift
    return {} if drift is None else {"energy_of_recent_codes": round(drift, 4)}


def _expected(index: Index, correlation: float) -> dict[str, Any]:
    found = index.recipe.expected_match(correlation)
    return {} if found is None else {"correlation": correlation} | found
