"""Figures of the reproduction. Needs matplotlib (``topsign[plot]``)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._page import PALETTE
from .curve import Curve
from .energy import Energy
from .measuring import Points
from .roc import AUTHORS_STORAGE, N_BITS, STORAGE, Detection, Roc
from .table import Table
from .three_party import ThreeParty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, BLUE, ORANGE, GREEN, PINK, GOLD, GREY = (light for light, _ in PALETTE.values())

Style = dict[str, Any]
STYLES: dict[str, Style] = {
    "uncompressed": {"color": GREY, "linestyle": (0, (1, 1.2)), "marker": "x"},
    "adaptive, entries adapt": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "adaptive, queries adapt": {"color": PINK, "linestyle": (0, (2, 2)), "marker": "+"},
    f"sign, {STORAGE} (equal storage)": {"color": ORANGE, "linestyle": "--", "marker": "s"},
    f"sign, {AUTHORS_STORAGE} (authors' demo)": {"color": GOLD, "linestyle": (0, (8, 2, 1, 2)), "marker": "d"},
    f"universal, {STORAGE} (equal storage)": {"color": GREEN, "linestyle": "-.", "marker": "^"},
    f"sign, {N_BITS} (equal computation)": {"color": ORANGE, "linestyle": (0, (1, 2)), "marker": "D"},
    f"universal, {N_BITS} (equal computation)": {"color": GREEN, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    "adaptive, real query": {"color": PINK, "linestyle": "--", "marker": "s"},
    "adaptive, Hadamard": {"color": GREEN, "linestyle": "-.", "marker": "^"},
    f"sign, {STORAGE}, Hadamard, real query": {"color": ORANGE, "linestyle": (0, (1, 2)), "marker": "D"},
    "adaptive, Hadamard, real query": {"color": GOLD, "linestyle": (0, (8, 2)), "marker": "v"},
    "grouped, Hadamard": {"color": GREEN, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "<"},
    "grouped, Hadamard, real query": {"color": INK, "linestyle": "-", "marker": "*"},
}
LEGEND_LINES = 4
"""Maximum number of lines in a legend with one column; longer legends have two columns."""

WHOLE_RANGE = (-1.0, -0.5, 0.0, 0.5, 1.0)

LIBRARY = ("uncompressed", "adaptive, entries adapt")
"""Detectors of the paper that are shown together with the library's own."""


def draw_curve(found: Curve) -> dict[str, Figure]:
    """Draw Figure 1: one panel for the paper's pool and one for other pools."""
    left, axes = _panel("inner product with the reference (unit norms)", "Hamming distance (fraction of bits)")
    axes.plot(found.correlation, found.exact, color=BLUE, label="adaptive, exact", linewidth=1.8)
    _points(axes, found.adaptive, "adaptive, measured ± 2 s.e.", color=BLUE, marker="o")
    axes.plot(found.correlation, found.sign, color=ORANGE, linestyle="--", label="sign, exact")
    _points(axes, found.signs, "sign, measured ± 2 s.e.", color=ORANGE, marker="s")
    axes.plot(found.correlation, found.printed, color=GREY, linestyle=":", label="Theorem 2 as printed", linewidth=2)
    axes.plot(found.correlation, found.bound, color=GREEN, linestyle="-.", label="corrected bound")
    axes.set_title(f"{found.n_bits} of {found.n_pool} projections")
    axes.set_xticks(WHOLE_RANGE)
    _finish(left, axes)

    right, axes = _panel("inner product with the reference (unit norms)", "Hamming distance (fraction of bits)")
    styles = [(PINK, (0, (8, 2)), "v"), (GOLD, "-.", "^"), (GREEN, ":", "D")]
    for other, (color, dashes, marker) in zip(found.others, styles, strict=True):
        label = f"{other.n_bits} of {other.n_pool}"
        axes.plot(found.correlation, other.exact, color=color, linestyle=dashes, label=f"{label}, exact")
        _points(axes, other.points, None, color=color, marker=marker)
    axes.plot(found.correlation, found.exact, color=BLUE, label=f"{found.n_bits} of {found.n_pool}, exact")
    axes.plot(found.correlation, found.sign, color=ORANGE, linestyle="--", label="all kept (sign)")
    axes.plot([], [], color=GREY, marker="o", linestyle="", label="measured ± 2 s.e.")
    axes.set(xlim=(0, 1), ylim=(-0.01, 0.52))
    axes.set_title("Other pools: keeping fewer is steeper")
    _finish(right, axes)
    return {"curve": left, "curve-pools": right}


def draw_three_party(found: ThreeParty) -> dict[str, Figure]:
    """Draw Figure 2: exact curves, measured points, and the printed formula."""
    figure, axes = _panel("inner product of the two signals (unit norms)", "Hamming distance (fraction of bits)")
    looks = [(BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "^"), (PINK, (0, (8, 2)), "v")]
    for pair, (color, dashes, marker) in zip(found.pairs, looks, strict=True):
        label = f"both at {pair.shared:g}, exact"  # inner product of both signals with the reference
        axes.plot(pair.inner_product, pair.exact, color=color, linestyle=dashes, label=label)
        _points(axes, pair.points, None, color=color, marker=marker)
        name = "Theorem 3 as printed" if pair is found.pairs[0] else None
        axes.plot(pair.inner_product, pair.printed, color=color, linestyle=":", linewidth=1.2, label=name)
    axes.plot([], [], color=GREY, marker="o", linestyle="", label="measured ± 2 s.e.")
    axes.set_xticks(WHOLE_RANGE)
    axes.set_title(f"Two other signals, {found.n_bits} of {found.n_pool}")
    _finish(figure, axes)
    return {"three-party": figure}


def draw_table(found: Table) -> dict[str, Figure]:
    """Draw Table I: accuracy lost against bits per class, ours with error bars and the paper's values."""
    figure, axes = _panel("bits per class (locations included)", "accuracy lost (percentage points)", height=5.6)
    looks = {
        "adaptive": (BLUE, "-", "o"),
        "sign, equal computation": (ORANGE, (0, (1, 2)), "D"),
        "sign, equal storage": (ORANGE, "--", "s"),
        "universal, equal computation": (GREEN, (0, (5, 1, 1, 1, 1, 1)), "v"),
        "universal, equal storage": (GREEN, "-.", "^"),
    }
    for method, (color, dashes, marker) in looks.items():
        cells = found.of(method).cells
        bits, lost = [one.storage for one in cells], [one.lost for one in cells]
        reach = [2 * one.standard_error for one in cells]
        axes.errorbar(bits, lost, reach, color=color, linestyle=dashes, marker=marker, label=method)
        printed = [one.published.lost for one in cells if one.published is not None]
        axes.plot(bits, printed, color=color, linestyle="", marker=marker, markersize=9, fillstyle="none")
    axes.plot(
        [], [], color=GREY, linestyle="", marker="o", markersize=9, fillstyle="none", label="printed in the paper"
    )
    cells = found.of("grouped, Hadamard pool, real inputs").cells
    axes.errorbar(
        [one.storage for one in cells],
        [one.lost for one in cells],
        [2 * one.standard_error for one in cells],
        color=INK,
        marker="*",
        label="grouped, real inputs (beyond the paper)",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=0.5)
    ticks = [0, 0.25, 0.5, 1, 2, 5, 10, 20]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(bottom=-0.1)
    sizes = [32, 64, 128, 256, 512, 1024]
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_title("Table I: ours and the paper's")
    _finish(figure, axes)
    return {"table": figure}


def draw_roc(found: Roc) -> dict[str, Figure]:
    """Draw Figure 3: the paper's detectors on linear and logarithmic axes, and the library's own detectors."""
    papers = [one for one in found.detections if not one.ours]
    own = [one for one in found.detections if one.ours or one.name in LIBRARY]
    panels = {}
    for name, shown, scale, title in (
        ("roc", papers, "linear", "The paper's detectors"),
        ("roc-log", papers, "log", "The paper's detectors, rare false alarms"),
        ("roc-library", own, "log", f"Beyond the paper, at most {STORAGE} bits"),
    ):
        panels[name], axes = _panel("false-alarm rate Pfa", "detection rate Pd", height=5.6)
        for one in shown:
            # On a linear axis the marks of smaller rates would overlap.
            _detection(axes, found, one, found.levels >= (0 if scale == "log" else 0.03))
        lowest = 1e-4 if scale == "log" else -0.01
        axes.set(xscale=scale, xlim=(lowest, 1.0 if scale == "log" else 1.01), ylim=(-0.02, 1.03))
        axes.set_title(title)
        _finish(panels[name], axes)
    return panels


def draw_energy(found: Energy) -> dict[str, Figure]:
    """Draw the captured fraction of the energy against the rate."""
    figure, axes = _panel("bits per dimension", "fraction of the energy captured")
    lines: list[tuple[str, Any, Style]] = [
        ("Shannon's limit", found.shannon, {"color": GREY, "linestyle": (0, (1, 1.2))}),
        ("adaptive codes (entropy)", found.adaptive, {"color": BLUE, "linewidth": 2.2}),
        ("grouped codes", found.grouped, {"color": INK, "linestyle": (0, (8, 2))}),
        ("ideal 1-bit vector quantiser on a subspace", found.ideal_subspace, {"color": GREEN, "linestyle": "-."}),
        ("signs of a subspace", found.signs, {"color": ORANGE, "linestyle": "--"}),
    ]
    for label, shares, style in lines:
        axes.plot(found.rate, shares, label=label, **style)
    axes.set(xlim=(0, 1), ylim=(0, 0.8))
    axes.set_title("White signals, best scale per code")
    _finish(figure, axes)
    return {"energy": figure}


def _detection(axes: Axes, found: Roc, one: Detection, marked: npt.NDArray[np.bool_]) -> None:
    """Draw theory as a wide pale line, the measured curve over it, and points with error bars."""
    style = STYLES[one.name]
    color, marker = style["color"], style["marker"]
    axes.plot(found.pfa, one.exact_pd, color=color, linewidth=5, alpha=0.25, solid_capstyle="butt")
    axes.plot(found.pfa, one.measured_pd, color=color, linestyle=style["linestyle"], linewidth=1.3)
    errors: Style = {"yerr": 2 * one.errors_at_levels[marked], "elinewidth": 1, "capsize": 2}
    points: Style = {"color": color, "marker": marker, "markersize": 4.5, "linestyle": ""}
    axes.errorbar(found.levels[marked], one.at_levels[marked], **errors, **points)
    axes.plot([], [], label=re.sub(r" \(.*\)", " bits", one.name), markersize=4.5, **style)


def _points(axes: Axes, points: Points, label: str | None, *, color: str, marker: str) -> None:
    look: Style = {"color": color, "marker": marker, "markersize": 4.5, "linestyle": "", "capsize": 2, "elinewidth": 1}
    axes.errorbar(points.x, points.measured, yerr=2 * points.standard_error, label=label, **look)


def _panel(x: str, y: str, *, height: float = 5.0) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.7, height), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _finish(figure: Figure, axes: Axes) -> None:
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    n_lines = len(axes.get_legend_handles_labels()[1])
    columns: Style = {"ncols": 1 if n_lines <= LEGEND_LINES else 2, "columnspacing": 1.2, "handlelength": 2.6}
    figure.legend(loc="outside lower center", frameon=False, **columns)


@contextmanager
def house_style() -> Iterator[None]:
    """Set the style that all figures share; create and save figures inside this context."""
    import matplotlib

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    sizes = {"font.size": 10, "axes.titlesize": 11, "legend.fontsize": 8, "axes.linewidth": 0.8}
    settings: dict[Any, Any] = dict.fromkeys(ink, INK) | sizes | {"svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        yield


def png(figure: Figure) -> bytes:
    """Return the figure as PNG with a white background."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return target.getvalue()


def svg(figure: Figure, *, name: str) -> str:
    """Return an SVG element that uses the page's colour variables, so it follows the light or dark theme."""
    import matplotlib

    target = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # ids are the same in every run and unique to this figure
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(target, format="svg", transparent=True, metadata=nothing)
    figure.set_layout_engine("none")  # the layout is done; the PNG then has the same size
    text = target.getvalue()
    text = text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
    for mark in ('id="', 'href="#', "url(#"):
        text = text.replace(mark, f"{mark}{name}-")
    for color, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--{color})")
    return text
