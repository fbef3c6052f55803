"""Nulls learned from scores of impostors: an empirical body, and a generalised Pareto tail with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from .._arrays import Float64
from .._checks import check_false_alarm
from .._lazy import lazy

N_KNOTS = 1025
TAIL_SCORES, TAIL_SHARES = 1000, (0.005, 0.05)
"""Excesses that the tail is fitted to, within these shares of the sample: few enough for the law to hold."""

MIN_SCORES = 1000
SUPPORT = 10
"""p-values are extrapolated at most this far beyond the rarest score that the sample holds."""

MAX_SHAPE = 0.5
FENCE = 0.1
"""Scores that the bulk of the sample expects less often than this among all of it are matches, not impostors."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)


@dataclass(frozen=True)
class LearnedNull:
    """Law of impostors' scores, larger being closer, learned from a sample.

    Up to a high quantile p-values interpolate the sample's. Beyond, excesses follow a generalised Pareto law, averaged
    over the uncertainty of its two parameters, so that few scores give heavy tails. A p-value is never below
    ``1 / (10 n_effective)``: the sample supports no smaller one.
    """

    knots: Float64  # scores, ascending
    survival: Float64  # share of the sample at or above each knot, descending
    tail_share: float  # share of the sample above the last knot
    scale: float  # of the excesses
    shape: float
    n_scores: int
    n_effective: float  # independent scores that the sample is worth: scores of one query are alike
    step: float = 0.0  # distance of neighbouring scores that are counts, 0 for real scores

    @classmethod
    def learn(
        cls, scores: npt.ArrayLike, *, groups: npt.ArrayLike | None = None, trim: bool = False, step: float = 0.0
    ) -> Self:
        """Learns from scores of impostors.

        ``groups`` numbers the query of each score; scores that share one are alike and count for less. ``trim`` drops
        outliers on the closer side, for pairs that were drawn at random and may match now and then. ``step`` is the
        distance of neighbouring scores where they are counts (1 for mismatches): each is spread evenly over it.
        """
        sample = np.asarray(scores, dtype=np.float64).ravel()
        if len(sample) < MIN_SCORES or not np.isfinite(sample).all():
            raise ValueError(f"a null takes at least {MIN_SCORES} finite scores of impostors, got {len(sample)}")
        if step:
            sample = sample + step * (np.random.default_rng(0).random(len(sample)) - 0.5)
        labels = None if groups is None else np.asarray(groups).ravel()
        if trim:
            kept = sample <= _fence(sample)
            sample, labels = sample[kept], None if labels is None else labels[kept]
        start = float(np.quantile(sample, 1 - np.clip(TAIL_SCORES / len(sample), *TAIL_SHARES)))
        above = sample > start
        excesses = sample[above] - start
        worth = len(sample) / (1.0 if labels is None else _design_effect(above, labels))
        ranked = np.sort(sample[~above])
        places = np.unique(np.linspace(0, len(ranked) - 1, N_KNOTS).astype(int))
        knots = np.unique(np.append(ranked[places], start))
        at_least = len(sample) - np.searchsorted(np.sort(sample), knots, side="left")
        survival = at_least / len(sample)
        share = len(excesses) / len(sample)
        survival[-1] = share  # the tail begins where the body ends
        scale, shape = _fit_tail(excesses)
        return cls(knots, survival, share, scale, shape, len(sample), float(worth), step)

    @property
    def floor(self) -> float:
        """Smallest p-value that the sample supports."""
        return 1 / (SUPPORT * self.n_effective)

    @lazy
    def _tails(self) -> tuple[Float64, Float64, Float64]:
        """Scales, shapes and weights of the laws that the excesses allow (asymptotic normal, Smith 1987)."""
        n = max(10.0, self.tail_share * self.n_effective)
        heavier = 1 + self.shape
        spread = math.sqrt(2 * heavier / n)  # of the logarithm of the scale
        slope = -(heavier / n) / spread  # covariance -(1 + shape) / n
        rest = math.sqrt(max(heavier**2 / n - slope**2, 0.0))
        first, second = (grid.ravel() for grid in np.meshgrid(_NODES, _NODES, indexing="ij"))
        weights = np.outer(_WEIGHTS, _WEIGHTS).ravel()
        shapes = np.clip(self.shape + slope * first + rest * second, -MAX_SHAPE, 2 * MAX_SHAPE)
        return self.scale * np.exp(spread * first), shapes, weights / weights.sum()

    def pvalue(self, observed: npt.ArrayLike) -> Float64:
        """Probability that an impostor scores at least as high as each observed score."""
        scores = np.asarray(observed, dtype=np.float64) - self.step / 2
        body = np.interp(scores, self.knots, self.survival, left=1.0)
        excess = np.maximum(scores - self.knots[-1], 0.0)[..., np.newaxis]
        scales, shapes, weights = self._tails
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            grown = np.log1p(np.maximum(shapes * excess / scales, -1.0))
            tails = np.where(np.abs(shapes) < 1e-6, np.exp(-excess / scales), np.exp(-grown / shapes))
        tail = self.tail_share * (tails @ weights)
        return np.asarray(np.maximum(np.where(scores > self.knots[-1], tail, body), self.floor))

    def threshold(self, false_alarm: float) -> float:
        """The smallest score whose p-value is at most this; infinite below what the sample supports.

        Real scores; of counts take the next whole one.
        """
        level = check_false_alarm(false_alarm)
        if level <= self.floor:
            return math.inf
        low, high = float(self.knots[0]), float(self.knots[-1]) + self.scale
        while float(self.pvalue(high)) > level:
            low, high = high, high + 2 * (high - self.knots[-1])
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if float(self.pvalue(middle)) <= level else (middle, high)
        return high

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal null."""
        return {
            "knots": self.knots.tolist(),
            "survival": self.survival.tolist(),
            "tail_share": self.tail_share,
            "scale": self.scale,
            "shape": self.shape,
            "n_scores": self.n_scores,
            "n_effective": self.n_effective,
            "step": self.step,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The null of a record; ValueError where it is none."""
        try:
            knots, survival = (np.array(record[name], dtype=np.float64) for name in ("knots", "survival"))
            share, scale, shape = (float(record[name]) for name in ("tail_share", "scale", "shape"))
            n_scores, worth, step = int(record["n_scores"]), float(record["n_effective"]), float(record["step"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a learned null: {error}") from None
        sound = knots.ndim == 1 and len(knots) >= 2 and knots.shape == survival.shape
        sound = sound and bool(np.isfinite(knots).all() and (np.diff(knots) > 0).all() and (survival >= 0).all())
        sound = sound and bool((np.diff(survival) <= 0).all() and survival[0] <= 1)
        sound = sound and 0 < share < 1 and 0 < scale < math.inf and abs(shape) <= MAX_SHAPE
        if not (sound and 1 <= worth <= n_scores and 0 <= step < math.inf):
            raise ValueError("not a learned null: its values are out of range")
        return cls(knots, survival, share, scale, shape, n_scores, worth, step)


def _fence(sample: Float64) -> float:
    """The largest score that belongs to the bulk, by a tail fitted between the 90% and the 98% quantile."""
    start, end = np.quantile(sample, [0.9, 0.98])
    excesses = sample[sample > start] - start
    scale, shape = _fit_tail(excesses, censored=float(end - start))
    if not len(excesses):
        return float(start)
    reach = math.log(len(excesses) / FENCE)
    return float(start + scale * (reach if abs(shape) < 1e-6 else math.expm1(shape * reach) / shape))


def _design_effect(above: npt.NDArray[np.bool_], labels: npt.NDArray[Any]) -> float:
    """Variance of the share above the threshold over groups, against that of independent scores."""
    _, group = np.unique(labels, return_inverse=True)
    sizes, counts = np.bincount(group), np.bincount(group, weights=above)
    if len(sizes) < 2:
        return 1.0
    share = above.mean()
    between = ((counts - share * sizes) ** 2).sum() / (share * (1 - share) * sizes.sum())
    return float(max(1.0, between))


def _fit_tail(excesses: Float64, *, censored: float = math.inf) -> tuple[float, float]:
    """Scale and shape of the generalised Pareto law by maximum likelihood, the shape within [-0.5, 0.5].

    Of excesses above ``censored`` only the number counts.
    """
    seen, n_beyond = excesses[excesses <= censored], int((excesses > censored).sum())
    mean = float(seen.mean()) if len(seen) else 0.0
    if not mean > 0:
        return 1e-12, 0.0  # all scores alike: nothing lies beyond

    def surprise(parameters: Float64) -> float:
        log_scale, shape = float(parameters[0]), float(parameters[1])
        if abs(shape) > MAX_SHAPE:
            return 1e300
        ratio, last = seen / (mean * math.exp(log_scale)), censored / (mean * math.exp(log_scale))
        if abs(shape) < 1e-6:
            return len(seen) * log_scale + float(ratio.sum()) + (n_beyond * last if n_beyond else 0.0)
        grown, final = 1 + shape * ratio, 1 + shape * (last if n_beyond else 0.0)
        if grown.min() <= 0 or final <= 0:
            return 1e300
        return len(seen) * log_scale + (1 + 1 / shape) * float(np.log(grown).sum()) + n_beyond * math.log(final) / shape

    options = {"xatol": 1e-5, "fatol": 1e-4, "maxiter": 500}
    starts = (np.array([0.0, 0.01]), np.array([0.1, -0.1]))
    fits = [scipy.optimize.minimize(surprise, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun))
    return mean * math.exp(float(best.x[0])), float(best.x[1])
