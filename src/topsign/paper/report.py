"""Reproduction of the paper: run the parts, draw the figures and write the page with its data."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__, kernels
from .._checks import check_choice
from . import page
from .experiments import curve, distortion, energy, three_party
from .heads import table
from .measuring import plain
from .printed import errata
from .roc import roc
from .verdicts import (
    Claim,
    judge_curve,
    judge_distortion,
    judge_errata,
    judge_roc,
    judge_table,
    judge_three_party,
    load_long_run,
)

Progress = Callable[[str, float], None]
"""Progress callback; its arguments are the current part and the completed fraction of the whole."""


Effort = dict[str, dict[str, int]]
"""Numbers of draws by part and parameter; more draws take longer and reduce the standard errors."""

FULL: Effort = {
    "curve": {"n_draws": 60},
    "three-party": {"n_draws": 60},
    "roc": {"n_matrices": 8, "n_references": 1000},
    "table": {"n_seeds": 20},
    "distortion": {"n_draws": 400},
}
QUICK: Effort = {
    "curve": {"n_draws": 12},
    "three-party": {"n_draws": 20},
    "roc": {"n_matrices": 1, "n_references": 350},
    "table": {"n_seeds": 6},
    "distortion": {"n_draws": 100},
}


class ReportPart(NamedTuple):
    """One part of the reproduction."""

    run: Callable[..., Any]
    seconds: float  # approximate time of the full effort on two cores, which weights the progress bar
    judge: Callable[[Any], Iterable[Claim]] = lambda found: ()
    draw: Callable[[Any], dict[str, Any]] = lambda found: {}


PARTS = {
    "curve": ReportPart(curve, 7, judge_curve, page.draw_curve),
    "three-party": ReportPart(three_party, 3, judge_three_party, page.draw_three_party),
    "roc": ReportPart(roc, 100, judge_roc, page.draw_roc),
    "table": ReportPart(table, 34, lambda found: judge_table(found, load_long_run()), page.draw_table),
    "distortion": ReportPart(distortion, 3, judge_distortion),
    "energy": ReportPart(energy, 3, draw=page.draw_energy),
    "errata": ReportPart(errata, 0.1, judge_errata),
}
"""All parts, in the order of the page."""

QUICK_LEAVES_OPEN = (
    "--quick makes too few draws for several verdicts, which stay open: the full run decides more of them."
)


@dataclass(frozen=True)
class Report:
    """Results of a run, and the path of its page."""

    page: Path
    parts: dict[str, Any]
    claims: list[Claim]
    conditions: dict[str, str]


def reproduce(
    output: str | os.PathLike[str],
    *,
    parts: Iterable[str] = PARTS,
    effort: Effort = FULL,
    progress: Progress = lambda part, fraction: None,
) -> Report:
    """Run the parts and write ``index.html``, a JSON file per part and a PNG file per figure to a folder.

    Seeds are fixed, so the results depend only on the effort. Needs matplotlib (the extra ``plot``).
    """
    chosen = [check_choice(part, "parts", tuple(PARTS)) for part in parts]
    with page.house_style():  # a missing matplotlib raises here, before anything is computed
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        part: math.prod(count / FULL[part][name] for name, count in effort.get(part, {}).items()) for part in chosen
    }
    expected = [PARTS[part].seconds * size for part, size in sizes.items()]
    found: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for i, part in enumerate(chosen):

        def advance(fraction: float, i: int = i, part: str = part) -> None:
            progress(part, (sum(expected[:i]) + fraction * expected[i]) / sum(expected))

        start = time.perf_counter()
        advance(0.0)
        found[part] = PARTS[part].run(**effort.get(part, {}), advance=advance)
        seconds[part] = time.perf_counter() - start
    return _write(folder, found, effort, seconds)


def _write(folder: Path, found: dict[str, Any], effort: Effort, seconds: dict[str, float]) -> Report:
    claims = [claim for part, data in found.items() for claim in PARTS[part].judge(data)]
    files, drawn = [], {}
    for part, data in found.items():
        (folder / f"{part}.json").write_text(json.dumps(plain(data), indent=1, allow_nan=False))
        files.append(f"{part}.json")
        with page.house_style():
            for name, figure in PARTS[part].draw(data).items():
                drawn[name] = page.svg(figure, name=name)
                (folder / f"{name}.png").write_bytes(page.png(figure))
                files.append(f"{name}.png")
    (folder / "verdicts.json").write_text(json.dumps(plain(claims), indent=1))
    files.append("verdicts.json")
    conditions = _conditions(effort, seconds)
    index = folder / "index.html"
    index.write_text(page.render(found, claims, drawn, conditions, files), encoding="utf-8")
    return Report(index, found, claims, conditions)


def _conditions(effort: Effort, seconds: dict[str, float]) -> dict[str, str]:
    packages = [f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "matplotlib")]
    took = ", ".join(f"{part} {taken:.0f} s" for part, taken in seconds.items())
    draws = {
        part: ", ".join(f"{count:,} {name.removeprefix('n_')}" for name, count in counts.items())
        for part, counts in effort.items()
    }
    return {
        "Made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by topsign {__version__}",
        "Time": f"{sum(seconds.values()):.0f} s ({took})",
        "Machine": "{processor}, {n_cores} cores, {system}; kernels: {kernels}".format(**kernels.info()),
        "Versions": f"Python {platform.python_version()}, " + ", ".join(packages),
        "Effort": "; ".join(f"{part}: {counts}" for part, counts in draws.items()),
        "Seeds": "fixed: draw i of a part uses seed i, so another run gives the same results",
        "Held equal": "all detectors use the same signals and the same matrix (plain signs use the first rows of the "
        "pool); all classifiers use the same images and seeds; equal storage is m + log2 C(M, m) bits, the information "
        "in signs and locations, as in the paper",
    }
