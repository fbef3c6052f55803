"""Null distribution of the best score of a search, learned from searches for impostors.

A search for an impostor is a false alarm if its best score reaches the threshold. The threshold is an order statistic
of the best scores of other impostors (split conformal prediction), so its false-alarm rate holds for any distribution
of scores and any dependence between entries. Only rates below :attr:`SearchNull.level` depend on a model of the tail.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count, check_false_alarm
from .._lazy import lazy
from ..errors import StorageError
from ..theory.tails import log_student_tail
from .likelihood_ratios import CLOSER, LikelihoodRatio, LikelihoodRatioModel, check_scores
from .p_values import log10_tail, probabilities

EXCESS, CONFIDENCE = 1.5, 0.9
"""Given one calibration, the false-alarm rate is at most EXCESS times nominal with probability CONFIDENCE."""

SUPPORT = 10
"""The tail model supports rates down to 1 / SUPPORT of the smallest rate that the sample reaches."""

MAX_SCORES = 20_000
"""Maximum number of best scores in a null distribution."""

FORMAT = 1

N_KNOTS, MAX_KNOTS = 256, 4096
TAIL_SHARE, MIN_TAIL = 0.1, 20
MAX_SHAPE = 0.5
MIN_SHAPE, TAIL_CONFIDENCE = -0.1, 0.95
"""Smallest shape of a fitted tail, and confidence of its quantiles.

With these values false-alarm rates hold down to the floor for Gumbel, Student, normal and bounded tails
(tests/test_nulls.py)."""

N_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class SearchNull:
    """Null distributions of the best score of a search and of the score of one comparison; larger scores are closer.

    The best scores of ``m`` impostors determine the threshold of a search. P-values of single comparisons are derived
    from them: if F is the distribution function of the best of N scores, the p-value of a score s is
    ``-log F(s) / N``. P-values of scores below the median of the best scores come from random pairs.
    """

    best: Float64  # best score of each search for an impostor, ascending
    n_entries: int  # entries compared in each search
    knots: Float64  # scores of random pairs, ascending
    survival: Float64  # fraction of random pairs that score at least each knot
    step: float = 0.0  # distance between neighbouring scores if they are counts, 0 for real scores

    @classmethod
    def learn(cls, best: npt.ArrayLike, *, n_entries: int, pairs: npt.ArrayLike, step: float = 0.0) -> Self:
        """Learn the null from the best scores of impostors and from scores of random (impostor, entry) pairs."""
        ranked = np.sort(np.asarray(best, dtype=np.float64).ravel())
        bulk = np.sort(np.asarray(pairs, dtype=np.float64).ravel())
        if not (len(ranked) and len(bulk) and np.isfinite(ranked).all() and np.isfinite(bulk).all()):
            raise ValueError(
                "a null distribution needs at least one best score and one score of a pair, all of them finite; got "
                f"{len(ranked)} best scores and {len(bulk)} scores of pairs"
            )
        shares = np.concatenate([np.linspace(1, 0.02, N_KNOTS), np.geomspace(0.02, 1 / len(bulk), N_KNOTS)])
        positions = np.clip(np.round((1 - shares) * len(bulk)).astype(int), 0, len(bulk) - 1)
        knots = np.unique(bulk[positions])
        survival = (len(bulk) - np.searchsorted(bulk, knots, side="left")) / len(bulk)
        return cls(ranked, check_count(n_entries, "n_entries"), knots, survival, float(step))

    @property
    def n_searches(self) -> int:
        """Number of searches for impostors from which the null was learned."""
        return len(self.best)

    @property
    def level(self) -> float:
        """Smallest false-alarm rate that needs no model of the tail."""
        return max(1 / (self.n_searches + 1), -math.expm1(math.log(1 - CONFIDENCE) / self.n_searches) / EXCESS)

    @property
    def floor(self) -> float:
        """Smallest false-alarm rate of a search, and smallest E-value, that the sample supports."""
        return 1 / (SUPPORT * (self.n_searches + 1))

    def order_statistic(self, false_alarm: float) -> int:
        """Return the rank r of the threshold for this false-alarm rate among the best scores, the largest being 1.

        Exact: over calibrations, the rate of searches that exceed the r-th largest best score has the distribution
        Beta(r, m + 1 - r). Its mean is at most ``false_alarm``, and it exceeds 1.5 times ``false_alarm`` in at most one
        calibration in ten. The result is 0 if no rank satisfies both.
        """
        m = self.n_searches
        ranks = np.arange(1, math.floor(false_alarm * (m + 1) * (1 + 1e-12)) + 1)
        exceeds = 1 - scipy.special.betainc(ranks, m + 1 - ranks, min(1.0, EXCESS * false_alarm))
        return int(np.searchsorted(exceeds, 1 - CONFIDENCE, side="right"))  # exceeds ascends

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        """Return the smallest threshold at which a search for an impostor has a match with at most this probability.

        Searches over fewer entries than in the calibration have no more false alarms. For searches over more entries,
        the rate is divided by the ratio of the numbers of entries. The threshold is infinite for rates below
        :attr:`floor`.
        """
        level = check_false_alarm(false_alarm) * min(1.0, self.n_entries / max(1, n_entries))
        if level < self.floor:
            return math.inf
        rank = self.order_statistic(level)
        beaten = float(self.best[-rank]) if rank else self._tail_quantile(level)
        return beaten + self.step if self.step else math.nextafter(beaten, math.inf)

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the scores that are matches at this false-alarm rate."""
        return np.asarray(statistics >= self.search_threshold(false_alarm, n_entries))

    def log10_p_values(self, statistics: npt.ArrayLike) -> Float64:
        """Return decimal logarithms of :meth:`p_values`; the smallest is ``log10(floor / n_entries)``."""
        return np.asarray(np.log10(self.p_values(statistics)))

    def p_values(self, statistics: npt.ArrayLike) -> Float64:
        """Return the probability that one comparison with an impostor scores at least as high; never 0.

        It is derived from the probability that a search reaches the score: ``(r + 1) / (m + 1)`` if r of m searches
        did, and for scores beyond the sample the fitted tail, down to :attr:`floor`.
        """
        scores = np.asarray(statistics, dtype=np.float64)
        middle = self.best[len(self.best) // 2]
        body = np.interp(scores, self.knots, self.survival, left=1.0, right=float(self.survival[-1]))
        body = np.maximum(body, self._tail_pvalues(middle))
        return np.where(scores < middle, body, self._tail_pvalues(np.maximum(scores, middle)))

    def _tail_pvalues(self, scores: npt.ArrayLike) -> Float64:
        """P-values from the best scores, for scores at or above their median."""
        values = np.asarray(scores, dtype=np.float64)
        m = self.n_searches
        reached = (m - np.searchsorted(self.best, values, side="left") + 1) / (m + 1)
        searches = np.where(values > self.best[-1], np.interp(values, *self._beyond), reached)
        return np.minimum(-np.log1p(-np.minimum(searches, 1 - 1e-9)) / self.n_entries, 1.0)

    @lazy
    def _beyond(self) -> tuple[Float64, Float64]:
        """Scores beyond the sample, and the fraction of searches that reach them in the tail model."""
        start, share, scales, shapes = self._tail
        last, reach = float(self.best[-1]), float(scales.mean())

        def reached(excesses: Float64) -> Float64:
            return np.asarray(share * _survival(excesses[:, np.newaxis], scales, shapes).mean(axis=1))

        while reached(np.array([last - start + reach]))[0] > self.floor and reach < 1e6 * (1 + abs(last)):
            reach *= 2
        scores = last + np.linspace(0, reach, N_KNOTS)
        return scores, np.clip(reached(scores - start), self.floor, 1 / (self.n_searches + 1))

    def _tail_quantile(self, level: float) -> float:
        """Upper confidence limit of a quantile of best scores in the tail model; at least the largest of the sample."""
        start, share, scales, shapes = self._tail
        growth = math.log(share / level)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            reach = np.where(np.abs(shapes) < 1e-6, growth, np.expm1(shapes * growth) / shapes)
        return max(float(self.best[-1]), start + float(np.quantile(scales * reach, TAIL_CONFIDENCE)))

    @lazy
    def _tail(self) -> tuple[float, float, Float64, Float64]:
        """Generalised Pareto model of the largest tenth: start, fraction, and draws of scale and shape.

        Draws follow the asymptotic distribution of the maximum-likelihood estimates (Smith 1987), so small samples
        give heavy tails.
        """
        m = self.n_searches
        n_tail = min(m - 1, max(MIN_TAIL, round(TAIL_SHARE * m))) or 1
        start = float(self.best[-n_tail - 1]) if m > n_tail else float(self.best[0])
        scale, shape = _fit_tail(self.best[-n_tail:] - start)
        heavier = 1 + shape
        spread = math.sqrt(2 * heavier / n_tail)  # of the logarithm of the scale
        slope = -(heavier / n_tail) / spread  # covariance -(1 + shape) / n
        rest = math.sqrt(max(heavier**2 / n_tail - slope**2, 0.0))
        first, second = np.random.default_rng(0).standard_normal((2, N_DRAWS))
        shapes = np.clip(shape + slope * first + rest * second, MIN_SHAPE, 2 * MAX_SHAPE)
        return start, n_tail / m, scale * np.exp(spread * first), shapes

    def to_json(self) -> dict[str, Any]:
        """Return the null as plain values; :meth:`from_json` restores it."""
        return {
            "best": self.best.tolist(),
            "n_entries": self.n_entries,
            "knots": self.knots.tolist(),
            "survival": self.survival.tolist(),
            "step": self.step,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Restore a null from a record; raise ValueError if the record is invalid."""
        try:
            best, knots, survival = (np.array(record[name], np.float64) for name in ("best", "knots", "survival"))
            n_entries, step = record["n_entries"], float(record["step"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a learned null: {error}") from None
        sound = all(one.ndim == 1 and len(one) and bool(np.isfinite(one).all()) for one in (best, knots, survival))
        sound = sound and len(best) <= MAX_SCORES and len(knots) == len(survival) <= MAX_KNOTS
        sound = sound and bool((np.diff(best) >= 0).all() and (np.diff(knots) > 0).all())
        sound = sound and bool((np.diff(survival) <= 0).all() and survival[0] <= 1 and survival[-1] > 0)
        if not (sound and type(n_entries) is int and 1 <= n_entries < 2**62 and step in (0.0, 1.0)):
            raise ValueError("not a learned null: its values are out of range")
        return cls(best, n_entries, knots, survival, step)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Null distributions of an index, by scoring, and the bulk of scores that drift is judged by."""

    nulls: Mapping[str, SearchNull]  # of negated mismatches, and of estimated correlations
    bulk: Float64  # (n,) ascending: a high quantile of each impostor's scores with random entries
    own: bool = False  # whether the index's own signals were searched for

    @property
    def n_queries(self) -> int:
        """Searches for impostors."""
        return self.nulls["asymmetric"].n_searches

    @property
    def n_entries(self) -> int:
        """Entries of the index at the time."""
        return self.nulls["asymmetric"].n_entries

    @property
    def level(self) -> float:
        """Smallest false-alarm rate of a search that needs no model of the tail."""
        return max(null.level for null in self.nulls.values())

    @property
    def floor(self) -> float:
        """Smallest false-alarm rate, and smallest E-value, that is supported at all."""
        return max(null.floor for null in self.nulls.values())

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values."""
        nulls = {scoring: null.to_json() for scoring, null in self.nulls.items()}
        return {"format": FORMAT, "nulls": nulls, "bulk": self.bulk.tolist(), "own": self.own}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Calibration:
        """Return the calibration in a record that was read from ``path``; StorageError if it is not one."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            nulls = {scoring: SearchNull.from_json(one) for scoring, one in record["nulls"].items()}
            bulk = np.array(record["bulk"], np.float64)
            if "asymmetric" not in nulls or bulk.ndim != 1 or not (np.diff(bulk) >= 0).all() or len(bulk) > MAX_SCORES:
                raise ValueError("it has no null of real-valued scores")
            return cls(nulls, bulk, bool(record["own"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; calibrate the index again") from None


@dataclass(frozen=True)
class EmpiricalNull:
    """Null distribution of scores, learned from known impostors.

    Parameters
    ----------
    impostors : array
        Scores (or mismatches) of pairs known not to match.
    method : "rank" or "normal"
        ``rank`` counts the impostors that are at least as close; the p-value is ``(1 + count) / (1 + n)``, never below
        1 / (1 + n). It is valid for any null distribution, provided that impostors and new scores are exchangeable.
        ``normal`` fits a normal distribution and reports the predictive (Student) tail; its p-values can be smaller but
        are valid only if the null distribution is normal.
    closer : "larger" or "smaller"
        Whether larger scores (correlations) or smaller scores (mismatches) mean a closer match.

    Examples
    --------
    >>> null = EmpiricalNull(np.arange(99), method="rank")
    >>> null.pvalue([98.5, 50]).round(12).tolist()
    [0.01, 0.5]
    """

    impostors: npt.ArrayLike
    method: str = "rank"
    closer: str = "larger"

    def __post_init__(self) -> None:
        check_choice(self.method, "method", ("rank", "normal"))
        check_choice(self.closer, "closer", CLOSER)
        scores = check_scores(self.impostors, "impostors")
        object.__setattr__(self, "impostors", np.sort(scores if self.closer == "larger" else -scores))

    def pvalue(self, observed: npt.ArrayLike) -> Float64:
        """Return the probability that an impostor is at least as close as each observed score; never 0."""
        return probabilities(self.log10_pvalue(observed))

    def log10_pvalue(self, observed: npt.ArrayLike) -> Float64:
        """Return the decimal logarithm of :meth:`pvalue`, for p-values that may be too small for a float.

        With ``method="rank"`` and n impostors it is at least ``-log10(1 + n)``.
        """
        impostors = np.asarray(self.impostors)
        score = np.asarray(observed, dtype=np.float64) * (1 if self.closer == "larger" else -1)
        n = len(impostors)
        if self.method == "rank":
            return np.asarray(np.log10(1 + n - np.searchsorted(impostors, score, side="left")) - np.log10(1 + n))
        spread = impostors.std(ddof=1) * np.sqrt(1 + 1 / n)
        return log10_tail(
            np.asarray((score - impostors.mean()) / spread),
            lambda t: np.asarray(scipy.stats.t.sf(t, n - 1)),
            lambda t: log_student_tail(t, n - 1),
        )

    def threshold(self, false_alarm: npt.ArrayLike) -> Float64:
        """Return the least close score whose p-value is at most ``false_alarm``; infinite if there is none.

        With ``method="rank"`` the threshold is the floating-point number next to an impostor's score.
        """
        levels = np.asarray(false_alarm, dtype=np.float64)
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"false_alarm must lie strictly between 0 and 1, got {false_alarm!r}")
        impostors = np.asarray(self.impostors)
        n = len(impostors)
        if self.method == "normal":
            spread = impostors.std(ddof=1) * np.sqrt(1 + 1 / n)
            found = impostors.mean() + spread * scipy.stats.t.isf(levels, n - 1)
        else:
            n_above = np.floor(levels * (1 + n) * (1 + 1e-12)).astype(int) - 1  # impostors that may score as close
            below = impostors[np.clip(n - 1 - n_above, 0, n - 1)]
            found = np.where(n_above < 0, np.inf, np.nextafter(below, np.inf))
        return np.asarray(found if self.closer == "larger" else -found)

    def likelihood_ratio(
        self, observed: npt.ArrayLike, *, matches: npt.ArrayLike, confidence: float = 0.95
    ) -> LikelihoodRatio:
        """Return likelihood ratios of match to impostor; ``matches`` are scores of known matches.

        Ratios are smooth and monotone in the score, have confidence limits, and are bounded by the sample sizes; see
        :class:`LikelihoodRatioModel`, which can be stored. Raises ValueError if matches are not closer than impostors.
        """
        impostors = np.asarray(self.impostors) * (1 if self.closer == "larger" else -1)
        model = LikelihoodRatioModel.fit(matches, impostors=impostors, closer=self.closer, confidence=confidence)
        return model.ratio(observed)


def searches_needed(false_alarm: float) -> int:
    """Return the number of searches for impostors that a false-alarm rate needs without a model of the tail.

    >>> searches_needed(0.01)
    153
    """
    level = check_false_alarm(false_alarm)
    by_confidence = math.log(1 - CONFIDENCE) / math.log1p(-min(EXCESS * level, 1 - 1e-12))
    return max(math.ceil(by_confidence), math.ceil(1 / level) - 1, 1)


def _survival(excesses: Float64, scales: Float64, shapes: Float64) -> Float64:
    """Return the survival function of generalised Pareto distributions."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grown = np.log1p(np.maximum(shapes * excesses / scales, -1.0))
        tails = np.where(np.abs(shapes) < 1e-6, np.exp(-excesses / scales), np.exp(-grown / shapes))
    return np.asarray(tails)


def _fit_tail(excesses: Float64) -> tuple[float, float]:
    """Return scale and shape of the generalised Pareto distribution by maximum likelihood, |shape| <= 0.5."""
    mean = float(excesses.mean()) if len(excesses) else 0.0
    if not mean > 0:
        return 1e-12, 0.0  # all scores are equal, so the tail has no width

    def surprise(parameters: Float64) -> float:
        log_scale, shape = float(parameters[0]), float(parameters[1])
        if abs(shape) > MAX_SHAPE:
            return 1e300
        ratio = excesses / (mean * math.exp(log_scale))
        if abs(shape) < 1e-6:
            return len(excesses) * log_scale + float(ratio.sum())
        grown = 1 + shape * ratio
        if grown.min() <= 0:
            return 1e300
        return len(excesses) * log_scale + (1 + 1 / shape) * float(np.log(grown).sum())

    options = {"xatol": 1e-5, "fatol": 1e-4, "maxiter": 500}
    starts = (np.array([0.0, 0.01]), np.array([0.1, -0.1]))
    fits = [scipy.optimize.minimize(surprise, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(fits, key=lambda fit: float(fit.fun))
    return mean * math.exp(float(best.x[0])), float(best.x[1])
