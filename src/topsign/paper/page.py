"""Pages and figures of the reproduction."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._page import PALETTE, document, table_rows
from .experiments import Curve, Distortion, Energy, ThreeParty
from .heads import Table, TableCell
from .measuring import Points
from .printed import Erratum
from .roc import AUTHORS_STORAGE, N_BITS, STORAGE, Detection, Roc
from .verdicts import EXPERIMENTS, FORMULAS, RULE, Claim, summarize

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
        "grouped, Hadamard pool, real inputs": (INK, "-", "*"),
    }
    hollow: Style = {"linestyle": "", "markersize": 9, "fillstyle": "none"}
    for method, (color, dashes, marker) in looks.items():
        row = found.of(method)
        bits, lost = [one.storage for one in row.cells], [one.lost for one in row.cells]
        reach = [2 * one.standard_error for one in row.cells]
        axes.errorbar(bits, lost, reach, color=color, linestyle=dashes, marker=marker, label=method)
        printed = [(one.storage, one.published.lost) for one in row.cells if one.published is not None]
        axes.plot([at for at, _ in printed], [drop for _, drop in printed], color=color, marker=marker, **hollow)
    axes.plot([], [], color=GREY, marker="o", label="printed in the paper", **hollow)
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
        ("ideal quantiser of a subspace", found.ideal_subspace, {"color": GREEN, "linestyle": "-."}),
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


Figures = Mapping[str, str]

NOT_DIGITISED = "The paper's curves have no published values, so they are not drawn or compared point by point"


def render(
    parts: Mapping[str, Any],
    claims: Iterable[Claim],
    figures: Figures,
    conditions: Mapping[str, str],
    files: Iterable[str],
) -> str:
    """Return the page; parts that were not run are omitted."""
    sections: dict[str, tuple[str, Callable[[Any, Figures], Iterator[str]]]] = {
        "curve": ("Figure 1: distance to the reference", _curve),
        "three-party": ("Figure 2: distance between two other signals", _three_party),
        "roc": ("Figure 3: detection of weak matches", _roc),
        "table": ("Table I: compression of a network's head", _table),
        "distortion": ("Many signals: number of bits", _distortion),
        "energy": ("Beyond the paper: energy against rate", _energy),
        "errata": ("Errata", _errata),
    }
    shown = {name: section for name, section in sections.items() if name in parts}
    links = {"verdicts": "Verdicts", **{name: title.split(":")[0] for name, (title, _) in shown.items()}}
    links |= {"conditions": "Conditions", "files": "Files"}
    body = [
        "<h1>Binary adaptive embeddings, reproduced</h1>",
        "<p>The three figures and the table of “Binary adaptive embeddings from order statistics of random "
        "projections” (D. Valsesia and E. Magli, IEEE Signal Processing Letters 24(1), 2017; arXiv 1701.08511), "
        "computed with <strong>topsign</strong> and compared with exact theory, followed by the paper’s errata.</p>",
        "<nav>" + " ".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links.items()) + "</nav>",
        '<h2 id="verdicts">Verdicts</h2>',
        *_verdicts(claims),
    ]
    for name, (title, section) in shown.items():
        body += [f'<h2 id="{name}">{escape(title)}</h2>', *section(parts[name], figures)]
    measured = [[escape(name), escape(value)] for name, value in conditions.items()]
    body += ['<h2 id="conditions">Conditions</h2>', *table_rows("", ["", ""], measured)]
    body += ['<h2 id="files">Files</h2>', "<p>The data of all parts as JSON, and the figures as PNG.</p><ul>"]
    body += [f'<li><a href="{escape(file)}">{escape(file)}</a></li>' for file in files]
    return document("Binary adaptive embeddings, reproduced", [*body, "</ul>"])


MARKS = {
    "reproduced": '<span class="yes">✓ reproduced</span>',
    "differs": '<span class="no">✗ differs</span>',
    "open": '<span class="muted">? open</span>',
    "corrected": '<span class="muted">✎ corrected</span>',
    "inconsistent": '<span class="muted">≠ inconsistent</span>',
}


def _verdicts(claims: Iterable[Claim]) -> Iterator[str]:
    claims = list(claims)
    for line in summarize(claims).splitlines():
        title, colon, named = escape(line).partition(":")
        yield f"<p><strong>{title}{colon}</strong>{named}</p>"
    titles = ("Claims about experiments", EXPERIMENTS), ("Formulas and numbers that needed correction", FORMULAS)
    for title, outcomes in titles:
        rows = [
            [
                f"{escape(one.claim)} <span class='muted'>({escape(one.where)})</span>",
                MARKS[one.outcome],
                escape(one.ours),
                escape(one.theirs),
            ]
            for one in claims
            if one.outcome in outcomes
        ]
        if rows:
            yield f"<h3>{title}</h3>"
            yield from table_rows("cards", ["The paper", "Verdict", "Ours", "Theirs"], rows)
    yield f"<p class='muted'>± is one standard error. {escape(RULE)}</p>"


def _curve(found: Curve, figures: Figures) -> Iterator[str]:
    worst = max(
        np.abs(one.deviations).max() for one in (found.adaptive, found.signs, *(o.points for o in found.others))
    )
    yield (
        f"<p>Unit-norm signals of {found.n_features} features with a known inner product with the reference; "
        f"{found.n_draws} draws, each with new signals and a new Gaussian matrix. "
        f"{NOT_DIGITISED}. The printed bound is drawn.</p>"
    )
    yield from _panels(
        figures,
        {
            "curve": "Measured points lie on the exact curve. The adaptive curve is steeper than the curve of sign "
            "projections on both sides of zero. The printed bound lies below the exact distance for all negative "
            "inner products and far above it for positive ones. The corrected bound lies on the exact curve up to 0.7.",
            "curve-pools": "The curve is steeper if a smaller fraction of the pool is kept: 50 of 5000 is the "
            "steepest, followed by 800 of 10000 and 800 of 5000. Over both panels, the largest deviation of a measured "
            f"point from theory is {worst:.1f} standard errors.",
        },
    )


def _three_party(found: ThreeParty, figures: Figures) -> Iterator[str]:
    worst = max(np.abs(pair.points.deviations).max() for pair in found.pairs)
    yield (
        "<p>Hamming distances between the codes of two signals that have the same inner product with the reference; "
        f"{found.n_draws} draws. {NOT_DIGITISED}. The printed formula is drawn.</p>"
    )
    caption = (
        "The distance between two signals falls as their inner product grows, and falls more slowly if both are closer "
        "to the reference (the legend gives their inner product with it). The printed formula (dotted, same colours) "
        "lies far below the measured points; for an orthogonal reference it gives half the measured distance. The "
        f"largest deviation of a measured point from exact theory is {worst:.1f} standard errors."
    )
    yield from _panels(figures, {"three-party": caption})


def _roc(found: Roc, figures: Figures) -> Iterator[str]:
    impostors = found.n_matches * (found.n_references - 1)
    yield (
        f"<p>n = M = {found.n_features}, m = {found.n_bits}. A match is its reference u of unit norm plus noise, "
        f"u + {found.noise} N(0, I), with an expected correlation of {found.correlation:.4f}; impostors are "
        f"independent. There are {found.n_matches:,} matches and {impostors:,} impostor pairs, with a new random "
        f"matrix for every {found.n_references:,} matches, and all detectors use the same signals. The pool is "
        f"Gaussian, as in the paper. Universal codes have step 2 and no dither, as in the authors' demonstration. "
        f"{NOT_DIGITISED}; only their order is compared.</p>"
    )
    yield from _panels(
        figures,
        {
            "roc": "Adaptive codes detect more matches than all other codes, and fewer than uncompressed signals. "
            "Adapting to entries or to queries gives the same curve. Sign and universal codes are shown with "
            f"{STORAGE} bits (equal storage) and with {N_BITS} bits (equal computation). Wide pale lines are exact "
            "theory, thin lines are measured, and error bars are two standard errors.",
            "roc-log": "The same curves with a logarithmic axis, for small false-alarm rates. The authors' "
            f"demonstration uses {AUTHORS_STORAGE} sign projections as its baseline, fewer than equal storage allows.",
        },
    )
    caption = (
        "Beyond the paper. At equal storage, a real-valued query improves detection, and so does an orthonormal "
        "(Hadamard) pool. With both, adaptive codes also detect more than sign codes with a real-valued query. Grouped "
        "codes, which keep the largest of every eight projections, detect as much as adaptive codes whose locations "
        f"are counted with the bits of their entropy, {STORAGE}; as stored, adaptive codes take a tenth more bytes."
    )
    yield from _panels(figures, {"roc-library": caption})
    wanted = [int(np.flatnonzero(found.levels == level)[0]) for level in (0.1, 0.01, 0.001)]
    titles = ["Detector", "Bits per entry", "AUC", "Pd at Pfa 0.1", "Pd at 0.01", "Pd at 0.001"]

    def row(one: Detection) -> list[str]:
        low, high = one.interval_at_levels(found.n_matches)
        reach = 1.959964 * one.auc_error
        area = _measured(one.auc, one.auc - reach, min(1.0, one.auc + reach), one.exact_auc, 4)
        cells = [_measured(one.at_levels[i], low[i], high[i], one.exact_at_levels[i], 3) for i in wanted]
        return [escape(one.name), f"{one.stored_bits:,}", area, *cells]

    paper = [row(one) for one in found.detections if not one.ours]
    ours = [row(one) for one in found.detections if one.ours]
    yield (
        "<p>Measured values with 95% intervals, and exact values. The intervals account for the dependence between "
        "pairs that share a signal.</p>"
    )
    yield from table_rows("numbers", titles, ["in the paper", *paper, "beyond the paper", *ours])


def _measured(value: float, low: float, high: float, exact: float, digits: int) -> str:
    return (
        f"{value:.{digits}f}<span class='interval'>[{low:.{digits}f}, {high:.{digits}f}]</span>"
        f"<span class='interval'>exact {exact:.{digits}f}</span>"
    )


def _table(found: Table, figures: Figures) -> Iterator[str]:
    yield (
        f"<p>Percentage points of accuracy lost compared with the uncompressed head (accuracy {found.accuracy:.2f}% on "
        f"{found.n_images:,} CIFAR-10 test images): mean over {found.n_seeds} seeds of the projection ± its standard "
        f"error. The pool has {found.n_pool} Gaussian projections. Below each value are the paper’s drop, its accuracy "
        f"({found.published_accuracy:.2f}% uncompressed), and its number of bits if it differs from ours. "
        "<strong>The network and the copy of the data are ours, so drops can be compared with the paper’s, but "
        "accuracies cannot.</strong> The paper prints no standard errors; one image of 10,000 is 0.01 points. “Equal "
        "computation” means as many projections as the adaptive code keeps, and “equal storage” as many bits as the "
        "adaptive code takes including its locations. The universal embedding’s step is the best on every tenth image "
        "over at most five seeds (the paper’s step, 180, is for signals of another scale), and its loss is measured on "
        "the other images. It has no dither, as in the authors’ demonstration; with dither it lost 5.03 points at 128 "
        "bits, and the paper reports 0.54.</p>"
    )

    caption = (
        "Filled marks are our values with error bars of two standard errors, and open marks are the paper’s values. "
        "The vertical axis is linear below half a point. At equal computation both agree except for sign projections "
        "at 128 bits. At equal storage our losses are smaller than the paper’s, and all methods are close. Grouped "
        "codes are beyond the paper; they take at most the bits of the adaptive codes."
    )
    yield from _panels(figures, {"table": caption})

    def cell(one: TableCell) -> str:
        digits = 2 if one.lost < 10 else 1
        text = f"{round(one.lost, digits) + 0.0:.{digits}f} ± {one.standard_error:.{digits}f}"  # no minus zero
        if one.published is not None:
            size = "" if one.published.n_bits == one.n_bits else f" at {one.published.n_bits}"
            text += (
                f"<span class='interval'>paper {one.published.lost:.2f} ({one.published.accuracy:.2f}%){size}</span>"
            )
        return text + ("" if one.step is None else f"<span class='interval'>step {one.step:g}</span>")

    stored = [one.storage for one in found.of("adaptive").cells]
    titles = ["Projections kept (bits with locations)"]
    titles += [f"{kept} ({bits})" for kept, bits in zip(found.kept, stored, strict=True)]
    paper, ours = (
        [[escape(row.method), *map(cell, row.cells)] for row in found.rows if row.ours == is_ours]
        for is_ours in (False, True)
    )
    yield from table_rows("numbers", titles, ["in the paper", *paper, "beyond the paper", *ours])


def _distortion(found: Distortion, figures: Figures) -> Iterator[str]:
    yield (
        "<p>The paper states, without constants, that m = O(δ⁻² log N) bits keep all distances among N signals within "
        "δ of their expectations. <code>theory.bits_for_distortion</code> computes a sufficient number of bits by a "
        "union bound over the pairs, with the largest tail of a binomial count for each pair; the number by "
        "Hoeffding’s inequality is in brackets. All distances are within δ simultaneously with probability at least "
        f"{1 - found.failure:g}. In {found.n_draws} draws of {found.n_signals} signals with δ = {found.distortion:g} "
        f"and {found.n_bits} bits, {found.n_failures} draws had a pair that deviated by more than δ; the largest "
        f"deviation was {found.largest:.3f}.</p>"
    )
    titles = ["δ", *(f"N = {n:,}" for n in found.needed[0].n_signals)]
    rows = [
        [
            f"{one.distortion:g}",
            *(
                f"{bits:,} <span class='muted'>({hoeffding:,})</span>"
                for bits, hoeffding in zip(one.n_bits, one.hoeffding_bits, strict=True)
            ),
        ]
        for one in found.needed
    ]
    yield from table_rows("numbers", titles, rows)


def _energy(found: Energy, figures: Figures) -> Iterator[str]:
    yield (
        "<p>How good can a code with so few bits be? For white signals, the paper’s code (m signs and their locations, "
        "m + log₂ C(M, m) bits) is the best entropy-coded scalar quantiser up to about one bit per dimension: a second "
        "or third magnitude level captures no more energy below 0.8 bits, and 0.004% more at 1 bit. It is a "
        "permutation code of Berger’s second variant. The detectability index d′ of a real-valued query is the square "
        "root of the captured fraction times the index of uncompressed signals.</p>"
    )
    caption = (
        "Up to half a bit per dimension, adaptive codes capture more energy than an ideal vector quantiser that spends "
        "one bit per dimension on a subset of the dimensions. They capture more than plain signs at all rates. Only "
        "vector quantisers can come closer to Shannon’s limit; grouped codes, which quantise eight dimensions jointly, "
        "do so around half a bit, at which their pool has one projection per dimension."
    )
    yield from _panels(figures, {"energy": caption})
    titles = ["Bits per dimension", "Shannon", "Adaptive", "Two levels", "Grouped", "Signs of a subspace"]
    shannon, signs = (np.interp(found.shown, found.rate, line) for line in (found.shannon, found.signs))
    columns = [shannon, *found.by_levels, found.grouped_shown, signs]
    rows = [[f"{rate:g}", *(f"{column[i]:.4f}" for column in columns)] for i, rate in enumerate(found.shown)]
    yield from table_rows("numbers", titles, rows)


def _errata(found: list[Erratum], figures: Figures) -> Iterator[str]:
    yield "<p>The module <code>topsign.paper.printed</code> has the printed formulas; each test shows one failing.</p>"
    rows = [
        [
            escape(one.where),
            escape(one.printed),
            escape(one.correct),
            f"{escape(one.example)}: <strong>{one.printed_value:.4g}</strong> printed, "
            f"<strong>{one.correct_value:.4g}</strong> correct",
            f"<code>{escape(one.test)}</code>",
        ]
        for one in found
    ]
    yield from table_rows("cards", ["Where", "Printed", "Correct", "Example", "Test"], rows)


def _panels(figures: Figures, captions: Mapping[str, str]) -> Iterator[str]:
    yield '<div class="panels">'
    for name, caption in captions.items():
        yield f'<figure id="figure-{name}">{figures[name]}<figcaption>{escape(caption)}</figcaption></figure>'
    yield "</div>"
