"""Likelihood ratios of scores, calibrated on known matches and known impostors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice

ENFSI = (
    (2.0, "no support either way"),
    (10.0, "weak support"),
    (100.0, "moderate support"),
    (1_000.0, "moderately strong support"),
    (10_000.0, "strong support"),
    (1_000_000.0, "very strong support"),
)
"""Upper limits of likelihood ratios with their verbal equivalents (ENFSI guideline for evaluative reporting, 2015)."""

CLOSER = ("larger", "smaller")
N_EXTREMES, N_BINS = 40, 160
"""Larger samples are condensed: the N_EXTREMES scores at each end are kept, the others are averaged in N_BINS bins."""

N_DIRECTIONS = 128
MOST_DOUBLINGS = 24
UNBOUNDED = 300.0
"""Interval limits whose decimal logarithm exceeds this in magnitude are reported as infinite."""


@dataclass(frozen=True)
class LikelihoodRatio:
    """Decimal logarithms of likelihood ratios, with their confidence limits."""

    log10: Float64  #: logarithm to base 10 of the ratio
    low: Float64  #: lower end of its interval
    high: Float64  #: a limit is infinite if the known scores do not bound the ratio on that side

    @property
    def words(self) -> list[str]:
        """Verbal equivalent of each ratio, in order."""
        return [verbal_equivalent(one) for one in self.log10.ravel().tolist()]


@dataclass(frozen=True, eq=False)
class LikelihoodRatioModel:
    """Likelihood ratio as a function of the score: logistic calibration with a confidence region for its line.

    The log-likelihood ratio is modelled as a straight line in the score. The line is fitted by logistic regression with
    the log-odds of the sample as an offset and with Platt's targets, ``(n + 1) / (n + 2)``, which keep it finite if
    matches and impostors do not overlap. Ratios are limited to the range from ``1 / (n_matches + 1)`` to
    ``n_impostors + 1``, because samples of these sizes do not support stronger evidence.

    Intervals are the extremes over all lines whose log-likelihood is within ``-log(1 - confidence)`` of the maximum.
    They hold for all scores simultaneously and are therefore wider than intervals for a single score. Standing:
    asymptotic, and valid only if the log-likelihood ratio is linear in the score. In simulations
    (``make test-statistics``) with at least 10 known matches and 30 known impostors, overlapping or not, nominal 95%
    intervals cover at least 93%.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = LikelihoodRatioModel.fit(2.5 + rng.standard_normal(200), impostors=rng.standard_normal(1000))
    >>> found = model.ratio([0.0, 2.5])
    >>> found.words
    ['moderate support for different sources', 'moderate support for the same source']
    """

    center: float  #: scores are standardised with center and spread
    spread: float  #: standard deviation of the scores that the model was learned from
    line: Float64  #: intercept and slope of the natural logarithm of the ratio
    region: Float64  #: (n, 2) lines on the boundary of the confidence region
    confidence: float  #: confidence level of the interval
    n_matches: int  #: number of known matches
    n_impostors: int  #: number of scores of known impostors
    closer: str  #: whether larger or smaller scores indicate a match: "larger" or "smaller"

    @classmethod
    def fit(
        cls, matches: npt.ArrayLike, *, impostors: npt.ArrayLike, closer: str = "larger", confidence: float = 0.95
    ) -> Self:
        """Fit the model to scores of known ``matches`` and known ``impostors``, with intervals of this ``confidence``.

        Raises ValueError if matches are not ``closer`` than impostors, for example because the two were swapped.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
        sign = _sign(closer)
        known, others = check_scores(matches, "matches"), check_scores(impostors, "impostors")
        check_order(known, others, closer=closer)
        values = sign * np.concatenate([known, others])
        center, spread = float(values.mean()), float(values.std()) or 1.0
        (x, n), (z, m) = (_condensed((sign * one - center) / spread) for one in (known, others))
        data = _Scores(np.concatenate([x, z]), np.concatenate([n, m]), np.arange(len(x) + len(z)) < len(x))
        line, information = data.fit(platt=True)
        region = data.region(line, information, drop=-float(np.log1p(-confidence)))
        return cls(center, spread, line, region, confidence, len(known), len(others), closer)

    def ratio(self, scores: npt.ArrayLike) -> LikelihoodRatio:
        """Return the likelihood ratio of match to impostor for each of ``scores``."""
        observed = np.asarray(scores, dtype=np.float64)
        if not np.isfinite(observed).all():
            raise ValueError("scores must be finite")
        at = (_sign(self.closer) * observed.ravel() - self.center) / self.spread
        middle = (self.line[0] + max(self.line[1], 0.0) * at) / np.log(10)  # never decreases as scores get closer
        middle = np.clip(middle, -np.log10(self.n_matches + 1), np.log10(self.n_impostors + 1))
        ends = (self.region[:, :1] + self.region[:, 1:] * at) / np.log(10)
        low, high = np.minimum(ends.min(axis=0), middle), np.maximum(ends.max(axis=0), middle)
        low, high = np.where(low < -UNBOUNDED, -np.inf, low), np.where(high > UNBOUNDED, np.inf, high)
        return LikelihoodRatio(*(one.reshape(observed.shape) for one in (middle, low, high)))


def check_scores(scores: npt.ArrayLike, name: str) -> Float64:
    """Return scores as a vector; raise ValueError unless there are at least two and all are finite."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be at least two finite scores, got {len(values)}")
    return values


def check_order(matches: Float64, impostors: Float64, *, closer: str = "larger") -> None:
    """Raise ValueError if, in most pairs of a known match and a known impostor, the impostor is closer."""
    sign = _sign(closer)
    ranked = np.sort(sign * impostors)
    below = sum(np.searchsorted(ranked, sign * matches, side=side).mean() for side in ("left", "right"))
    share = float(below) / (2 * len(ranked))
    if share < 0.5:
        other = "smaller" if closer == "larger" else "larger"
        raise ValueError(
            f"known matches must be closer than known impostors, but only {share:.0%} of the pairs of a match and an "
            f"impostor are in that order; if matches and impostors are swapped, swap them back, and if {other} scores "
            f'are closer, pass closer="{other}"'
        )


@dataclass(frozen=True, eq=False)
class _Scores:
    """Standardised scores with multiplicities: the data of a logistic regression."""

    values: Float64
    counts: Float64
    is_match: npt.NDArray[np.bool_]

    @property
    def design(self) -> Float64:
        return np.stack([np.ones(len(self.values)), self.values], axis=1)

    @property
    def offset(self) -> float:
        """Log-odds of a match in the sample; they are not part of the likelihood ratio."""
        return float(np.log(self.counts[self.is_match].sum() / self.counts[~self.is_match].sum()))

    def fit(self, *, platt: bool, start: Float64 | None = None) -> tuple[Float64, Float64]:
        """Return the maximum-likelihood line and its Fisher information, by Newton's method.

        Without Platt's targets the line is infinitely steep if matches and impostors do not overlap, so the iteration
        stops early.
        """
        n, m = (self.counts[one].sum() for one in (self.is_match, ~self.is_match))
        high, low = ((n + 1) / (n + 2), 1 / (m + 2)) if platt else (1.0, 0.0)
        targets = np.where(self.is_match, high, low)
        x, line = self.design, np.zeros(2) if start is None else start

        def objective(at: Float64) -> float:
            logits = x @ at + self.offset
            return float(self.counts @ (targets * logits - np.logaddexp(0, logits)))

        reached = objective(line)
        for _ in range(100):
            chances = scipy.special.expit(x @ line + self.offset)
            gradient = x.T @ (self.counts * (targets - chances))
            information = x.T @ (x * (self.counts * chances * (1 - chances))[:, np.newaxis]) + 1e-9 * np.eye(2)
            step = np.linalg.solve(information, gradient)
            step *= min(1.0, 4 / max(1e-300, float(np.abs(step).max())))
            while (now := objective(line + step)) < reached and np.abs(step).max() > 1e-12:
                step /= 2
            line, reached = line + step, max(now, reached)
            if np.abs(step).max() < 1e-10 or (not platt and np.abs(line).max() > 100):
                break
        return line, information

    def log_likelihood(self, lines: Float64) -> Float64:
        """Return the log-likelihood of each line."""
        margins = np.where(self.is_match, -1.0, 1.0) * (lines @ self.design.T + self.offset)
        return np.asarray(-(np.logaddexp(0, margins) @ self.counts))

    def region(self, line: Float64, information: Float64, *, drop: float) -> Float64:
        """Return lines on the boundary of the confidence region.

        On the boundary the log-likelihood is ``drop`` below its maximum, or slightly less. The log-likelihood is
        concave, so the region is convex, and the interval at a score is the range of these lines there. In directions
        in which the region is unbounded, the returned line lies very far away.
        """
        best, _ = self.fit(platt=False, start=line)
        top = float(self.log_likelihood(best[np.newaxis])[0])
        inside = line if self.log_likelihood(line[np.newaxis])[0] >= top - 0.9 * drop else (line + best) / 2
        angles = 2 * np.pi * np.arange(N_DIRECTIONS) / N_DIRECTIONS
        axes = np.linalg.cholesky(np.linalg.inv(information))
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ axes.T
        near, far, open_ends = np.zeros(N_DIRECTIONS), np.ones(N_DIRECTIONS), np.ones(N_DIRECTIONS, bool)
        for _ in range(MOST_DOUBLINGS):
            lines = inside + far[open_ends, np.newaxis] * directions[open_ends]
            open_ends[open_ends] = self.log_likelihood(lines) >= top - drop
            if not open_ends.any():
                break
            near, far = np.where(open_ends, far, near), np.where(open_ends, 2 * far, far)
        for _ in range(12):
            middle = (near + far) / 2
            within = self.log_likelihood(inside + middle[:, np.newaxis] * directions) >= top - drop
            near = np.where(within & ~open_ends, middle, near)
            far = np.where(within | open_ends, far, middle)
        return np.asarray(inside + far[:, np.newaxis] * directions)


def _condensed(values: Float64) -> tuple[Float64, Float64]:
    """Return at most a few hundred ascending scores that represent ``values``, with their multiplicities."""
    values = np.sort(values)
    if len(values) <= 2 * N_EXTREMES + N_BINS:
        return values, np.ones(len(values))
    bins = np.array_split(values[N_EXTREMES:-N_EXTREMES], N_BINS)
    ends = np.ones(N_EXTREMES)
    means, counts = np.array([one.mean() for one in bins]), np.array([float(len(one)) for one in bins])
    return np.concatenate([values[:N_EXTREMES], means, values[-N_EXTREMES:]]), np.concatenate([ends, counts, ends])


def _sign(closer: str) -> int:
    return 1 if check_choice(closer, "closer", CLOSER) == "larger" else -1


def verbal_equivalent(log10: float) -> str:
    """Return the words of the ENFSI guideline for a likelihood ratio, given by its decimal logarithm."""
    ratio = 10 ** abs(log10)
    named = next((words for end, words in ENFSI if ratio <= end), "extremely strong support")
    if named == ENFSI[0][1]:
        return named
    return f"{named} for {'the same source' if log10 > 0 else 'different sources'}"
