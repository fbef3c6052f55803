"""Plots of plans and evidence. Needs matplotlib (the extra ``plot``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .significance.likelihood_ratios import check_order, check_scores
from .theory import Plan, roc
from .theory.planning import bytes_against_detection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, for readers with colour vision deficiency; lines also differ in their dashes.
STYLES: dict[str, dict[str, Any]] = {
    "adaptive, asymmetric": {"color": "#0072B2", "linestyle": "-", "linewidth": 2.2},
    "adaptive, Hamming": {"color": "#CC79A7", "linestyle": (0, (6, 1, 1, 1, 1, 1)), "linewidth": 2.0},
    "sign codes, real query": {"color": "#D55E00", "linestyle": "--", "linewidth": 1.8},
    "sign codes, Hamming": {"color": "#009E73", "linestyle": "-.", "linewidth": 1.8},
    "grouped codes, real query": {"color": "#000000", "linestyle": (0, (8, 2)), "linewidth": 1.8},
    "uncompressed": {"color": "#555555", "linestyle": ":", "linewidth": 1.8},
}


def plot_plan(plan: Plan, path: str | Path) -> None:
    """Draw a ``plan`` in ``path``: ROC curves of its code and of sign codes of equal size, and detection by bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_roc(left, plan)
    _draw_trade_off(right, plan)
    figure.suptitle(
        f"correlation {plan.correlation:g}, {plan.n_features} features, {plan.n_entries:,} entries, {plan.projection}",
        fontsize=12,
    )
    figure.savefig(path, dpi=150)


def _draw_roc(axes: Axes, plan: Plan) -> None:
    common: dict[str, Any] = {
        "correlation": plan.correlation,
        "n_features": plan.n_features,
        "projection": plan.projection,
    }
    n_signs = 8 * plan.bytes_per_entry
    signs: dict[str, Any] = {"n_bits": n_signs, "n_pool": n_signs}
    adaptive = f"adaptive, {'Hamming' if plan.scoring == 'hamming' else plan.scoring}"
    curves = {
        adaptive: (
            f"{plan.n_bits} of {plan.n_pool}",
            roc(n_bits=plan.n_bits, n_pool=plan.n_pool, scoring=plan.scoring, **common),
        ),
        "sign codes, real query": (f"{n_signs} bits", roc(**signs, scoring="asymmetric", **common)),
        "sign codes, Hamming": (f"{n_signs} bits", roc(**signs, scoring="hamming", **common)),
        "uncompressed": (f"{32 * plan.n_features} bits", roc(scoring="uncompressed", **common)),
    }
    lowest = min(1e-6, plan.false_alarm_per_entry / 100)
    for name, (size, curve) in curves.items():
        shown = curve.pfa >= lowest
        axes.plot(curve.pfa[shown], curve.pd[shown], label=f"{name} ({size})", **STYLES[name])
    axes.plot(plan.false_alarm_per_entry, plan.detection, "o", color="black", zorder=5, label="the plan's threshold")
    axes.set(xscale="log", xlabel="false alarm per entry", ylabel="detection", ylim=(-0.02, 1.02))
    axes.set_title("Receiver operating characteristic")
    axes.legend(fontsize=8, loc="best")
    axes.grid(alpha=0.3)


def _draw_trade_off(axes: Axes, plan: Plan) -> None:
    for name, points in bytes_against_detection(plan).items():
        axes.plot(*points, label=name, **STYLES[name])
    axes.plot(plan.bytes_per_entry, plan.detection, "o", color="black", zorder=5, label="the plan")
    axes.set(xscale="log", xlabel="bytes per entry", ylabel="detection", ylim=(-0.02, 1.02))
    axes.set_title(f"At a false alarm of {plan.false_alarm:g} per search")
    axes.legend(fontsize=8, loc="best")
    axes.grid(alpha=0.3, which="both")


def plot_tippett(matches: npt.ArrayLike, impostors: npt.ArrayLike, path: str | Path) -> None:
    """Draw a Tippett plot in ``path``: fractions of known ``matches`` and ``impostors`` at or above log10 ratios.

    With good evidence, most ratios of matches are above zero and most ratios of impostors below.
    """
    known, others = check_scores(matches, "matches"), check_scores(impostors, "impostors")
    check_order(known, others)
    figure, axes = _figure("Tippett plot", "log10 likelihood ratio", "fraction with at least this ratio")
    names = {"known matches": (known, "adaptive, asymmetric"), "known impostors": (others, "sign codes, real query")}
    for name, (ratios, style) in names.items():
        values = np.sort(ratios)
        shares = 1 - np.arange(len(values)) / len(values)
        axes.step(values, shares, where="pre", label=f"{name} ({len(values):,})", **STYLES[style])
    axes.axvline(0, color="#555555", linewidth=0.8)
    _save(figure, axes, path)


def plot_det(matches: npt.ArrayLike, impostors: npt.ArrayLike, path: str | Path, *, closer: str = "larger") -> None:
    """Draw a detection error trade-off (DET) curve in ``path``: miss rate against false-alarm rate, as normal deviates.

    ``matches`` and ``impostors`` are scores of known pairs; ``closer`` says whether matches are "larger" or
    "smaller".
    """
    from scipy.special import ndtri

    scores = check_scores(matches, "matches"), check_scores(impostors, "impostors")
    check_order(*scores, closer=closer)
    known, others = (np.sort(one if closer == "larger" else -one) for one in scores)
    thresholds = np.unique(np.concatenate([known, others]))
    missed = np.searchsorted(known, thresholds, side="left") / len(known)
    alarms = 1 - np.searchsorted(others, thresholds, side="left") / len(others)
    inside = (missed > 0) & (missed < 1) & (alarms > 0) & (alarms < 1)
    figure, axes = _figure("Detection error trade-off", "false alarms", "misses")
    axes.plot(ndtri(alarms[inside]), ndtri(missed[inside]), **STYLES["adaptive, asymmetric"])
    ticks = np.array([1e-3, 0.01, 0.05, 0.2, 0.5, 0.8])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ndtri(ticks), [f"{100 * tick:g}%" for tick in ticks])
    if not inside.any():
        axes.text(0.5, 0.5, "no errors at any threshold", transform=axes.transAxes, ha="center")
    _save(figure, axes, path)


def _figure(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Figure, axes: Axes, path: str | Path) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9, loc="best")
    figure.savefig(path, dpi=150)
