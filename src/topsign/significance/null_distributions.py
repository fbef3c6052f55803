"""Null distributions of isotropic signals, as tables of the laws in ``theory``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from .._arrays import Float64
from .._lazy import lazy
from ..theory import correlation_from_hamming, expected_hamming, hamming_variance
from ..theory.detection import correlation_threshold
from ..theory.distances import selection_interval
from ..theory.order_statistics import Selection
from ..theory.tails import entry_level, log_coordinate_tail, tail_threshold
from .p_values import LN10, log10_tail, probabilities, selection_log10_pvalue

N_NODES, N_FAR_NODES = 600, 100
FAR, FARTHEST = -250.0, -1000.0
"""Decimal logarithms of p-values: below the first, nodes of the table are sparser; the second is its end, the floor of
p-values of estimated correlations."""


class MonotoneCubic:
    """Monotone cubic interpolation, as ``scipy.interpolate.PchipInterpolator``, whose import takes 0.2 s."""

    def __init__(self, nodes: Float64, values: Float64) -> None:
        widths = np.diff(nodes)
        slopes = np.diff(values) / widths
        before, after = 2 * widths[1:] + widths[:-1], widths[1:] + 2 * widths[:-1]
        with np.errstate(divide="ignore", invalid="ignore"):  # weighted harmonic means; 0 at extremes
            inner = (before + after) / (before / slopes[:-1] + after / slopes[1:])
        inner = np.where(slopes[:-1] * slopes[1:] > 0, inner, 0.0)
        self._nodes, self._values, self._widths, self._slopes = nodes, values, widths, slopes
        self._tangents = np.concatenate([slopes[:1], inner, slopes[-1:]])

    def __call__(self, places: Float64) -> Float64:
        """Return the values at places between the first and the last node."""
        at = np.clip(np.searchsorted(self._nodes, places, side="right") - 1, 0, len(self._widths) - 1)
        first, last, slope = self._tangents[at], self._tangents[at + 1], self._slopes[at]
        x = places - self._nodes[at]
        t = x / self._widths[at]
        return np.asarray(
            self._values[at] + x * (first + t * (3 * slope - 2 * first - last + t * (first + last - 2 * slope)))
        )


@dataclass(frozen=True)
class IsotropicNull:
    """Correlations and p-values of isotropic signals for codes that keep signs of projections."""

    kept: Selection  # rule by which codes select projections
    n_features: int
    projection: str  # kind of the pool

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_null, (self.kept, self.n_features, self.projection)  # the tables of this process

    @lazy
    def expected_scale(self) -> np.float32:
        """Factor from the sum of a unit query's projections with the signs of a code to a correlation."""
        return np.float32(1 / (self.kept.n_kept * self.kept.mean_magnitude))

    def correlations(self, mismatches: npt.NDArray[np.int64]) -> Float64:
        """Return the correlations at which these mismatches are expected; each count is computed once."""
        table = self._correlations
        missing = np.unique(mismatches[np.isnan(table[mismatches])])
        if missing.size:  # threads may compute the same count twice, and write the same number
            table[missing] = correlation_from_hamming(missing / self.kept.n_kept, **self._group)
        return table[mismatches]

    def expected_match(self, correlation: float) -> dict[str, Any]:
        """Return mean and deviation of the distance of a match, and the 95% confidence interval of its estimate."""
        interval = selection_interval(correlation, self.kept, 0.95, "asymmetric")
        return {
            "distance": float(expected_hamming(correlation, **self._group)),
            "deviation": float(np.sqrt(hamming_variance(correlation, **self._group) / self.kept.n_groups)),
            "interval": [float(end) for end in interval],
        }

    @property
    def _group(self) -> dict[str, int]:
        return {"n_bits": self.kept.n_largest, "n_pool": self.kept.group_size}

    def score_pvalues(self, correlations: Float64) -> Float64:
        """Return the probability that an impostor's estimated correlation is at least this high.

        Approximation of ``match_pvalue``, which takes half a millisecond each: its normal deviate is interpolated
        monotonically. The floor is 1e-1000. Impostors are as often below zero as above it, so one half is tabulated.
        """
        upper = np.exp(self._log_upper(correlations))
        return np.where(correlations < 0, 1 - upper, upper)

    def score_log10_pvalues(self, correlations: Float64) -> Float64:
        """Return decimal logarithms of :meth:`score_pvalues`."""
        logs = self._log_upper(correlations)
        return np.where(correlations < 0, np.log1p(-np.exp(logs)), logs) / LN10

    def _log_upper(self, correlations: Float64) -> Float64:
        """Return logarithms of the probability that an impostor reaches the magnitudes of correlations."""
        spline, end = self._deviates
        magnitudes = np.abs(correlations)
        return np.where(magnitudes < end, scipy.special.log_ndtr(-spline(np.minimum(magnitudes, end))), FARTHEST * LN10)

    @lazy
    def _correlations(self) -> Float64:
        return np.full(self.kept.n_kept + 1, np.nan)

    @lazy
    def mismatch_log10_pvalues(self) -> Float64:
        """Log10 of the probability that an impostor has at most so many mismatches, for 0 to all."""
        return self._log10_pvalues(np.arange(self.kept.n_kept + 1), "hamming")

    @lazy
    def _deviates(self) -> tuple[MonotoneCubic, float]:
        """Spline of the normal deviates of the upper tail over the estimate, nearly a straight line, and its end."""
        far, end = self._score_of(FAR), self._score_of(FARTHEST)
        # Nodes are dense near the end of a bounded estimate, where the deviate rises steeply.
        nodes = far * np.sin(np.linspace(0, np.pi / 2, N_NODES))
        if end > far:
            nodes = np.append(nodes, far + (end - far) * np.sin(np.linspace(0, np.pi / 2, N_FAR_NODES))[1:])
        logs = np.minimum(self._log10_pvalues(nodes, "asymmetric") * LN10, np.log(0.5))
        return MonotoneCubic(nodes, -scipy.special.ndtri_exp(logs)), end

    def _score_of(self, log10: float) -> float:
        """Return the largest estimate whose p-value is above a limit, within the precision of a bisection."""
        low, high = 0.0, 1.0
        while self._log10_pvalues(np.array([high]), "asymmetric")[0] > log10 and high < 1e3:
            low, high = high, 2 * high
        for _ in range(30):
            middle = (low + high) / 2
            within = self._log10_pvalues(np.array([middle]), "asymmetric")[0] > log10
            low, high = (middle, high) if within else (low, middle)
        return low

    def _log10_pvalues(self, observed: npt.ArrayLike, scoring: str) -> Float64:
        return selection_log10_pvalue(observed, self.kept, self.n_features, self.projection, scoring)


@lru_cache(maxsize=64)
def shared_null(kept: Selection, n_features: int, projection: str) -> IsotropicNull:
    """Return the same tables for all indexes of one shape."""
    return IsotropicNull(kept, n_features, projection)


class PairNull(ABC):
    """Null distribution of one comparison; entries are independent of an impostor, so levels of searches follow."""

    @abstractmethod
    def log10_p_values(self, statistics: Float64) -> Float64:
        """Return decimal logarithms of the probability that one impostor reaches each value."""

    @abstractmethod
    def threshold(self, level: float) -> float:
        """Return the smallest value whose p-value is at most ``level``."""

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        return self.threshold(entry_level(false_alarm, n_entries))

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> npt.NDArray[np.bool_]:
        return np.asarray(probabilities(self.log10_p_values(statistics)) <= entry_level(false_alarm, n_entries))


@dataclass(frozen=True, eq=False)
class MismatchNull(PairNull):
    """Null distribution of mismatches, negated so that larger is closer."""

    table: Float64  # decimal logarithms of p-values of 0, 1, ... mismatches, ascending

    def log10_p_values(self, statistics: Float64) -> Float64:
        return self.table[(-statistics).astype(np.int64)]

    def threshold(self, level: float) -> float:
        """Return minus the largest number of mismatches with a p-value of at most ``level``, or 1."""
        return 1.0 - int(np.searchsorted(probabilities(self.table), level, side="right"))


@dataclass(frozen=True, eq=False)
class ScoreNull(PairNull):
    """Null distribution of estimated correlations of signs with real-valued queries."""

    tables: IsotropicNull

    def log10_p_values(self, statistics: Float64) -> Float64:
        return self.tables.score_log10_pvalues(statistics)

    def threshold(self, level: float) -> float:
        return tail_threshold(self.tables.score_pvalues, level)


class NormalNull(PairNull):
    """Standard normal null distribution."""

    def log10_p_values(self, statistics: Float64) -> Float64:
        return np.asarray(scipy.special.log_ndtr(-statistics) / LN10)

    def threshold(self, level: float) -> float:
        return float(-scipy.special.ndtri(level))


@dataclass(frozen=True)
class SampleNull(PairNull):
    """Null distribution of the correlation of two independent isotropic signals.

    Exact: ``r * sqrt(n - 1) / sqrt(1 - r**2)`` is Student's t with n - 1 degrees of freedom. A correlation of 1 counts
    as the next smaller float, which is the floor.
    """

    n_features: int

    def log10_p_values(self, statistics: Float64) -> Float64:
        degrees = self.n_features - 1

        def tail(inside: Float64) -> Float64:
            with np.errstate(divide="ignore"):
                deviates = inside * np.sqrt(degrees / (1 - inside**2))
            return np.asarray(scipy.stats.t.sf(deviates, degrees))

        r = np.clip(statistics, -1, np.nextafter(1, 0))
        return log10_tail(r, tail, lambda inside: log_coordinate_tail(inside, self.n_features))

    def threshold(self, level: float) -> float:
        return float(correlation_threshold(level, self.n_features))
