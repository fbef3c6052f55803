"""The command ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ..index import TrellisIndex
from ..theory import correlation_interval, expected_hamming, hamming_variance
from .app import app, console, exit_on_error
from .options import Index, IndexPath, opened_index
from .output import show_null

LONG = ("mean", "trellis")
"""Parts of a recipe that are arrays."""


@app.command()
def inspect(
    index: IndexPath,
    correlation: Annotated[
        list[float] | None, typer.Option(help="Show the error at this; may be repeated. (default: 0.05 0.1 0.2 0.5)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what an index is: header, counts, sizes, and the error to expect.

    For a match at a correlation: the expected distance of its signs, their standard deviation, and the 95% interval
    of the correlation estimated from real-valued queries.

    [bold]Examples[/]

    topsign inspect cameras.topsign

    topsign inspect cameras.topsign --correlation 0.07 --json
    """
    opened = opened_index(index, readonly=True)
    with exit_on_error(2):
        trellis = isinstance(opened, TrellisIndex)
        expected = [] if trellis else [_expected(opened, rho) for rho in correlation or (0.05, 0.1, 0.2, 0.5)]
    header = {name: value for name, value in opened.header.items() if name not in LONG}
    header["options"] = {name: value for name, value in opened.projection.options.items() if name != "axes"}
    header |= {"center": opened.recipe.mean is not None, "calibrated": opened.calibration is not None}
    sizes = _sizes(opened, index) | _fit(opened)
    if as_json:
        print(json.dumps({"header": header, "sizes": sizes, "expected": expected}, indent=2))
        return
    lines = Table(show_header=False, title=str(index), title_justify="left", box=None, pad_edge=False)
    lines.add_column(justify="right", style="bold")
    lines.add_column()
    for name, value in (header | sizes).items():
        shown = f"{value:,}" if isinstance(value, int) and name in sizes else str(value)
        lines.add_row(name.replace("_", " ") if name in sizes else name, shown)
    console.print(lines, highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("correlation", "distance", "deviation", "estimate, 95%"):
        table.add_column(name, justify="right")
    for row in expected:
        low, high = row["interval"]
        table.add_row(
            f"{row['correlation']:g}", f"{row['distance']:.4f}", f"{row['deviation']:.4f}", f"{low:.3f} to {high:.3f}"
        )
    show_null(opened)
    if trellis:
        return
    console.print("\nexpected of a match", highlight=False)
    console.print(table, highlight=False)


def _sizes(index: Index, path: Path) -> dict[str, Any]:
    return {
        "entries": len(index),
        "removed": index.n_removed,
        "segments": index.n_segments,
        "file_bytes": path.stat().st_size,
        "bytes_in_use": index.nbytes,
        "code_bytes_per_entry": index.recipe.layout.code_bytes,
        "bits_per_dimension": round(8 * index.recipe.layout.code_bytes / index.n_features, 4),
    }


def _fit(index: Index) -> dict[str, float]:
    """Of trellis codes, how well the learned basis still fits."""
    return {"energy_of_recent_codes": round(index.drift(), 4)} if isinstance(index, TrellisIndex) else {}


def _expected(index: Index, correlation: float) -> dict[str, Any]:
    shape = {"n_bits": index.n_bits, "n_pool": index.n_pool}
    interval = correlation_interval(correlation, scoring="asymmetric", **shape)
    return {
        "correlation": correlation,
        "distance": float(expected_hamming(correlation, **shape)),
        "deviation": float(np.sqrt(hamming_variance(correlation, **shape))),
        "interval": [float(end) for end in interval],
    }
