"""Calibration of a camera database: null distributions of the scores, and bounded likelihood ratios."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Float64
from ..errors import StorageError
from ..significance import ScoreCalibration
from .photographs import CONDITIONS

FORMAT = 1
MIN_IMPOSTORS, MIN_MATCHES = 30, 10
MAX_SCORES = 10_000
"""Greatest number of scores of each kind that are stored; of more, evenly spaced order statistics."""

REJECTED = 0.01
"""The normal law is not used if the p-value of the test of fit is below this."""

STEPS = 100
"""Thresholds per decade at which the bounds of likelihood ratios are determined."""


@dataclass(frozen=True, eq=False)
class LikelihoodRatios:
    """Likelihood ratio as a step function of the score, bounded by what the known scores support.

    The steps are those of monotone calibration (pool-adjacent-violators, Zadrozny and Elkan 2002), with one known
    match below all scores and one known impostor above all scores added, so that every ratio is finite. The bounds are
    the empirical lower and upper bounds of Vergeer, van Es, de Jongh, Alberink and Stoel (2016): the range of ratios
    for which decisions by these ratios are better than decisions without them, again with one misleading score of each
    kind. No ratio is stated between the highest impostor and the lowest match, where no known score lies.
    """

    starts: Float64  #: least score of each step, ascending; the first is -inf
    log10: Float64  #: decimal logarithm of the ratio of each step
    gap: tuple[float, float] | None  #: the open interval of scores without a ratio
    extremes: tuple[float, float]  #: lowest impostor and highest match

    @classmethod
    def fit(cls, matches: Float64, impostors: Float64) -> Self | None:
        """Fit the ratios to known scores; None if there are too few, or if ``matches`` are not above ``impostors``."""
        matches, impostors = np.sort(matches), np.sort(impostors)
        if len(matches) < MIN_MATCHES or np.median(matches) <= np.median(impostors):
            return None
        gap = (float(impostors[-1]), float(matches[0]))
        extremes = (float(impostors[0]), float(matches[-1]))
        return cls(*bounded_steps(matches, impostors), gap if gap[0] < gap[1] else None, extremes)

    @property
    def bounds(self) -> tuple[float, float]:
        """Decimal logarithms of the least and the greatest ratio."""
        return float(self.log10[0]), float(self.log10[-1])

    def ratio(self, score: float) -> float | None:
        """Return the decimal logarithm of the ratio of a ``score``; None in the gap."""
        if self.gap is not None and self.gap[0] < score < self.gap[1]:
            return None
        return float(self.log10[np.searchsorted(self.starts, score, side="right") - 1])

    def note(self, score: float) -> str:
        """Return why no ratio is stated for a ``score``, or that it is a bound; empty if known scores lie around it."""
        if self.gap is not None and self.gap[0] < score < self.gap[1]:
            return (
                "No likelihood ratio is stated, because no known match or impostor scored between "
                f"{self.gap[0]:.4f} and {self.gap[1]:.4f}."
            )
        if score > self.extremes[1]:
            return "No known match scored as high, so the likelihood ratio is its upper bound."
        if score < self.extremes[0]:
            return "No known impostor scored as low, so the likelihood ratio is its lower bound."
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values; the first step starts at None."""
        starts = [None, *self.starts[1:].tolist()]
        return {"starts": starts, "log10": self.log10.tolist(), "gap": self.gap, "extremes": self.extremes}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the ratios of a ``record``; ValueError, KeyError or TypeError if it is damaged."""
        starts, log10 = (np.array(record[name], np.float64) for name in ("starts", "log10"))
        starts[:1] = -np.inf  # None became nan
        ascending = all(bool((np.diff(one) > 0).all()) for one in (starts, log10))
        if starts.shape != log10.shape or log10.ndim != 1 or not log10.size or not ascending:
            raise ValueError("steps of likelihood ratios are not ascending numbers")
        gap, extremes = (
            None if record[name] is None else tuple(map(float, record[name])) for name in ("gap", "extremes")
        )
        if not np.isfinite(log10).all() or extremes is None or len(extremes) != 2 or len(gap or (0, 0)) != 2:
            raise ValueError("likelihood ratios or their ranges are not finite pairs of numbers")
        return cls(starts, log10, gap, extremes)  # type: ignore[arg-type]


def bounded_steps(matches: Float64, impostors: Float64) -> tuple[Float64, Float64]:
    """Return the starts and the bounded decimal logarithms of the steps of sorted known scores."""
    scores, places = np.unique(np.concatenate([matches, impostors]), return_inverse=True)
    parts = places[: len(matches)], places[len(matches) :]
    counts = np.stack([np.bincount(one, minlength=len(scores)) for one in parts])
    counts = np.column_stack([[1, 0], counts, [0, 1]])  # a match below and an impostor above all scores
    totals = counts.sum(axis=0)
    shares = scipy.optimize.isotonic_regression(counts[0] / totals, weights=totals).x
    prior = math.log10((len(matches) + 1) / (len(impostors) + 1))
    log10 = np.log10(shares / (1 - shares))[1:-1] - prior
    known = [np.repeat(log10, one[1:-1]) for one in counts]
    log10 = np.clip(log10, *empirical_bounds(*known))
    first = np.flatnonzero(np.diff(log10, prepend=-np.inf) > 0)
    starts = scores[first]
    starts[0] = -np.inf
    return starts, log10[first]


def empirical_bounds(matches: Float64, impostors: Float64) -> tuple[float, float]:
    """Return the empirical lower and upper bound of ratios (decimal logarithms) of known matches and impostors.

    Vergeer et al. 2016, with one misleading ratio of each kind. At a threshold t, decisions by the ratios cost the
    share of matches at most t, plus t times the share of impostors above t. Without the ratios they cost 1 if t is at
    least 1, and otherwise t. The bounds are the ends of the range around 1 in which the ratios cost no more.
    """
    n, m = len(matches) + 1, len(impostors) + 1
    least = min(0, math.floor(max(-math.log10(n), min(matches[0], impostors[0])) * STEPS))
    most = max(0, math.ceil(min(math.log10(m), max(matches[-1], impostors[-1])) * STEPS))
    thresholds = np.arange(least, most + 1) / STEPS
    missed = (np.searchsorted(matches, thresholds, side="right") + 1) / n
    accepted = (m - np.searchsorted(impostors, thresholds, side="right")) / m
    worse = np.minimum(1, 10**thresholds) < missed + 10**thresholds * accepted
    lower = np.max(thresholds[worse & (thresholds <= 0)] + 1 / STEPS, initial=thresholds[0])
    upper = np.min(thresholds[worse & (thresholds >= 0)] - 1 / STEPS, initial=thresholds[-1])
    return min(float(lower), 0.0), max(float(upper), 0.0)


@dataclass(frozen=True, eq=False)
class CameraCalibration:
    """Scores of known impostors and known matches, and the distributions fitted to them.

    The null distribution is a normal law with the measured mean and deviation. Its p-values are those of a new score
    (Student's law), so they are larger if there are few impostors. If a test of fit rejects the normal law, p-values
    are ranks among the impostors, which are never below ``1 / (n_impostors + 1)``. At least 30 impostor scores are
    needed, and at least 10 match scores for likelihood ratios. Dark and overexposed photographs have null
    distributions of their own if there are at least 30 impostor scores of such photographs.
    """

    by_condition: dict[str, Float64]  #: stored impostor scores by the condition of the photograph
    matches: Float64  #: scores of pairs that are known to match
    ratios: LikelihoodRatios | None  #: None if there are too few match scores, or if they are not above impostors'
    source: str  #: origin of the impostor photographs, in words
    n_photographs: int  #: impostor photographs
    n_cameras: int  #: cameras that they were compared with
    date: str  #: date of creation, as YYYY-MM-DD
    models: list[str]  #: models of the cameras of the impostors; empty if they are not known
    photographs: list[dict[str, Any]] = field(default_factory=list)  #: records of photographs given as impostors

    def __post_init__(self) -> None:
        n_impostors = len(self.impostors)
        if n_impostors < MIN_IMPOSTORS:
            raise ValueError(
                f"calibration needs at least {MIN_IMPOSTORS} impostor scores, got {n_impostors}; add photographs of "
                "other cameras as impostors, or enroll more cameras"
            )
        if not float(np.std(self.impostors)) > 0:
            raise ValueError("all impostor scores are equal; use photographs of different scenes as impostors")

    @cached_property
    def impostors(self) -> Float64:
        """Impostor scores of all photographs."""
        return np.concatenate([np.empty(0), *self.by_condition.values()])

    def null(self, condition: str) -> ConditionNull:
        """Return the null distribution for photographs of a ``condition``: their own if it is known, or that of all."""
        return self._nulls[condition if condition in self._nulls else ""]

    @cached_property
    def _nulls(self) -> dict[str, ConditionNull]:
        n, scores = len(self.impostors), self.by_condition.items()
        own = {name: one for name, one in scores if MIN_IMPOSTORS <= len(one) < n and np.std(one) > 0}
        return {"": ConditionNull(self.impostors, "")} | {name: ConditionNull(one, name) for name, one in own.items()}

    def statement(self, condition: str = "") -> str:
        """Return a description of the null distribution for photographs of a ``condition``; of all by default."""
        null = self.null(condition)
        return (
            f"The null distribution was estimated on {self.date} from {null.words} of known impostors ({self.source}; "
            f"{self.n_photographs:,} photographs, {self.n_cameras:,} cameras): {null.statement()}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values."""
        plain = ("source", "n_photographs", "n_cameras", "date", "models", "photographs")
        return {
            "format": FORMAT,
            "impostors": {name: one.tolist() for name, one in self.by_condition.items()},
            "matches": self.matches.tolist(),
            "ratios": None if self.ratios is None else self.ratios.to_json(),
            **{name: getattr(self, name) for name in plain},
        }

    @classmethod
    def from_json(cls, record: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """Return the calibration of a ``record`` read from ``path``; StorageError if it is damaged."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            by_condition = {name: np.array(one, np.float64) for name, one in record["impostors"].items()}
            matches = np.array(record["matches"], np.float64)
            all_scores = [matches, *by_condition.values()]
            if any(one.ndim != 1 or len(one) > MAX_SCORES or not np.isfinite(one).all() for one in all_scores):
                raise ValueError("scores are not lists of finite numbers")
            if not set(by_condition) <= set(CONDITIONS):
                raise ValueError(f"conditions are {sorted(by_condition)}")
            ratios = None if record["ratios"] is None else LikelihoodRatios.from_json(record["ratios"])
            counts = [int(record[name]) for name in ("n_photographs", "n_cameras")]
            source, date = (str(record[name]) for name in ("source", "date"))
            models, photographs = record["models"], record["photographs"]
            if not all(isinstance(one, dict) for one in photographs) or not all(isinstance(one, str) for one in models):
                raise ValueError("photographs are not a list of records")
            return cls(by_condition, matches, ratios, source, counts[0], counts[1], date, [*models], [*photographs])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(path, "camera calibration", f"cannot be read: {error}; calibrate again") from None


class ConditionNull:
    """Null distribution of the score of one comparison: a normal law if it fits, otherwise ranks."""

    def __init__(self, impostors: Float64, condition: str) -> None:
        self.impostors, self.condition = impostors, condition
        self.fit_p_value = normality_p_value(impostors)
        self.tail_fits = self.fit_p_value >= REJECTED
        self._null = ScoreCalibration.fit(impostors, n_entries=1, tail="normal" if self.tail_fits else "none")

    def log10_p_value(self, score: float) -> float:
        """Return the decimal logarithm of the probability that one comparison with an impostor scores as high."""
        return float(self._null.log10_p_value(score))

    def threshold(self, level: float) -> float:
        """Return the lowest significant score of one comparison at a level; infinite if there is none."""
        return float(self._null.threshold(level)) if level >= self._null.floor else math.inf

    @property
    def words(self) -> str:
        """Number of scores, with the condition of their photographs."""
        return f"{len(self.impostors):,} scores" + (f" of {self.condition} photographs" if self.condition else "")

    def statement(self) -> str:
        """Return the law with its parameters, and the result of the test of fit."""
        n = len(self.impostors)
        law = f"mean {np.mean(self.impostors):.2g}, standard deviation {np.std(self.impostors, ddof=1):.2g}."
        if self.tail_fits:
            return (
                f"{law} P-values below {1 / (n + 1):.2g} lie beyond this sample and rest on a tail model, a normal law "
                f"with the measured deviation. The Anderson-Darling test does not reject the normal law "
                f"(p = {self.fit_p_value:.2g})."
            )
        return (
            f"{law} The Anderson-Darling test rejects a normal law (p = {self.fit_p_value:.2g}), so no tail model is "
            f"used: p-values are ranks among these impostors and never below {1 / (n + 1):.2g}."
        )


def normality_p_value(scores: Float64) -> float:
    """Return the p-value of the Anderson-Darling test of a normal law with unknown mean and deviation.

    Approximation of the distribution of the statistic by D'Agostino and Stephens 1986, Table 4.9.
    """
    values = np.sort(np.asarray(scores, np.float64))
    n = len(values)
    standardised = (values - values.mean()) / values.std(ddof=1)
    below, above = scipy.special.log_ndtr(standardised), scipy.special.log_ndtr(-standardised[::-1])
    statistic = -n - float(np.sum((2 * np.arange(1, n + 1) - 1) * (below + above))) / n
    a = statistic * (1 + 0.75 / n + 2.25 / n**2)
    if a >= 0.6:
        return math.exp(min(0.0, 1.2937 - 5.709 * min(a, 30.0) + 0.0186 * min(a, 30.0) ** 2))
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return 1 - math.exp(-8.318 + 42.796 * a - 59.938 * a**2)
    return 1 - math.exp(-13.436 + 101.14 * a - 223.73 * a**2)


def stored_scores(scores: Float64) -> Float64:
    """Return scores as they are stored: ascending, with seven digits, and at most ``MAX_SCORES`` of them."""
    ranked = np.sort(scores)
    if len(ranked) > MAX_SCORES:
        ranked = ranked[np.linspace(0, len(ranked) - 1, MAX_SCORES).round().astype(int)]
    return np.array(rounded(ranked), np.float64)


def rounded(scores: Float64) -> list[float]:
    """Return scores with seven digits."""
    return [float(f"{one:.7g}") for one in scores.tolist()]
