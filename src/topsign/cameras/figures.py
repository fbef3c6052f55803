"""SVG figures of reports: histograms of scores, and the Tippett plot."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .._arrays import Float64
from .calibration import CameraCalibration
from .identification import Identification

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 46, 26
N_BINS = 60


class _Axes:
    """Linear axes with lines and labels."""

    def __init__(self, low: float, high: float, top: float, label: str, title: str) -> None:
        self.low, self.high, self.top = low, high if high > low else low + 1, top if top > 0 else 1.0
        self.parts = [f'<svg role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">']
        for value in _ticks(self.low, self.high):
            x = self.x(value)
            self.parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--faint)"/>'
            )
            self.text(x, HEIGHT - BOTTOM + 16, f"{value:.3g}")
        self.text(WIDTH / 2, HEIGHT - 6, label)

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - 2 * LEFT) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / self.top

    def text(self, x: float, y: float, words: str, color: str = "ink") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="var(--{color})">{words}</text>')

    def steps(self, edges: Float64, heights: Float64, color: str, dashes: str) -> None:
        points = [(edges[0], 0.0)]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            points += [(left, height), (right, height)]
        self.line([*points, (edges[-1], 0.0)], color, dashes)

    def line(self, points: list[tuple[float, float]], color: str, dashes: str = "none") -> None:
        shown = " ".join(f"{self.x(float(x)):.1f},{self.y(float(y)):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{shown}" fill="none" stroke="var(--{color})" stroke-width="2" '
            f'stroke-dasharray="{dashes}"/>'
        )

    def svg(self) -> str:
        return "".join(self.parts) + "</svg>"


def score_figure(found: Identification) -> str:
    """Return histograms of the scores of impostors and matches, with the best score and the threshold."""
    impostors, matches = found.calibration.impostors, found.calibration.matches
    best = found.candidates[0].score
    shown = [*impostors, *matches, best, *([found.threshold] if math.isfinite(found.threshold) else [])]
    margin = 0.04 * (max(shown) - min(shown))
    edges = np.linspace(min(shown) - margin, max(shown) + margin, N_BINS + 1)
    shares = [np.histogram(one, edges)[0] / max(1, len(one)) for one in (impostors, matches)]
    top = 1.1 * max(float(one.max()) for one in shares)
    axes = _Axes(float(edges[0]), float(edges[-1]), top, "score", "scores of impostors and matches, and the best score")
    axes.steps(edges, shares[0], "orange", "none")
    if len(matches):
        axes.steps(edges, shares[1], "blue", "6 3")
    if math.isfinite(found.threshold):
        axes.line([(found.threshold, 0), (found.threshold, top)], "grey", "2 4")
    axes.line([(best, 0), (best, top)], "ink")
    axes.text(WIDTH / 2 - 90, 16, f"impostors ({len(impostors):,})", "orange")
    axes.text(WIDTH / 2 + 90, 16, f"matches ({len(matches):,}), dashed", "blue")
    return axes.svg()


def tippett_figure(calibration: CameraCalibration) -> str:
    """Return the Tippett plot of the calibration's own scores: fraction of ratios at least as large."""
    assert calibration.evidence is not None
    ratios = [np.sort(calibration.evidence.ratio(one).log10) for one in (calibration.matches, calibration.impostors)]
    low, high = (float(end) for end in (min(one[0] for one in ratios), max(one[-1] for one in ratios)))
    margin = 0.05 * (high - low)
    axes = _Axes(low - margin, high + margin, 1.05, "log10 likelihood ratio", "Tippett plot")
    for values, color, dashes in zip(ratios, ("blue", "orange"), ("6 3", "none"), strict=True):
        axes.line([*_at_least(values, low - margin)], color, dashes)
    for share in (0.5, 1.0):
        axes.text(LEFT - 18, axes.y(share) + 4, f"{share:.0%}")
    axes.text(WIDTH / 2 - 90, 16, "matches, dashed", "blue")
    axes.text(WIDTH / 2 + 90, 16, "impostors", "orange")
    return axes.svg()


def _at_least(values: Float64, left: float) -> Iterator[tuple[float, float]]:
    """Yield the corners of the step function that gives the fraction of values at least as large."""
    thinned = values if len(values) <= 400 else values[np.linspace(0, len(values) - 1, 400).astype(int)]
    yield left, 1.0
    for at, value in enumerate(thinned.tolist()):
        yield value, 1 - at / len(thinned)
        yield value, 1 - (at + 1) / len(thinned)


def _ticks(low: float, high: float) -> Iterator[float]:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 8)
    at = math.ceil(low / step)
    while at * step <= high:
        yield at * step
        at += 1
