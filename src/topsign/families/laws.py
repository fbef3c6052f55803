"""Null distributions of isotropic signals, as tables of the laws in ``theory``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from .._arrays import Float64
from .._lazy import lazy
from ..theory import correlation_from_hamming, match_pvalue, mean_kept_magnitude
from ..theory.inference import tail_threshold

N_NODES = 600

SMALLEST = 1e-250
"""P-values are never smaller: tables of the laws end there."""


@dataclass(frozen=True)
class SignLaw:
    """Correlations and p-values for codes of ``n_bits`` out of ``n_pool``: see :func:`topsign.theory.match_pvalue`."""

    n_bits: int
    n_pool: int
    n_features: int
    projection: str  # kind of the pool
    norms: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, tuple(getattr(self, field.name) for field in fields(self))

    def correlations(self, mismatches: npt.NDArray[np.int32]) -> Float64:
        """The correlation whose expected distance was observed; each count is worked out once."""
        table = self._correlations
        missing = np.unique(mismatches[np.isnan(table[mismatches])])
        if missing.size:  # threads may work out the same count twice, and write the same number
            table[missing] = correlation_from_hamming(missing / self.n_bits, n_bits=self.n_bits, n_pool=self.n_pool)
        return table[mismatches]

    def score_pvalues(self, correlations: Float64) -> Float64:
        """Chance that an impostor's estimated correlation is so high.

        Approximation of ``match_pvalue``, which takes half a millisecond each: its normal deviate is interpolated
        monotonically. Measured down to 1e-30, relatively: within 2e-5 for 1,000 features and more. With 64 to 384
        features over an orthonormal pool the law, itself a finite mixture, has corners. Norms kept: within 2e-4 for
        n_bits up to a quarter of the features, 1% at half. Norms not kept: 2e-3 and 13% above 1e-8, and in the far
        tail off by factors up to six. Below 64 features, 5% at p-values near 0.01. Zero from 1e-250.
        Impostors are as often below zero as above it, so one half is tabulated.
        """
        spline, end = self._deviates
        magnitudes = np.abs(correlations)
        upper = np.where(magnitudes < end, np.exp(log_ndtr(-spline(np.minimum(magnitudes, end)))), 0.0)
        return np.where(correlations < 0, 1 - upper, upper)

    @lazy
    def expected_scale(self) -> np.float32:
        """Factor from a sum to a correlation (times the query's norm) where entries keep no scale."""
        return np.float32(1 / (self.n_bits * mean_kept_magnitude(n_bits=self.n_bits, n_pool=self.n_pool)))

    @lazy
    def _correlations(self) -> Float64:
        return np.full(self.n_bits + 1, np.nan)

    @lazy
    def mismatch_pvalues(self) -> Float64:
        """Chance that an impostor differs in so few signs, for 0 to ``n_bits`` mismatches."""
        return self._pvalues(np.arange(self.n_bits + 1), "hamming")

    @lazy
    def _deviates(self) -> tuple[scipy.interpolate.PchipInterpolator, float]:
        """Normal deviates of the upper tail against the estimate: nearly a straight line, and where it ends."""
        low, high = 0.0, 1.0
        while self._pvalues(np.array([high]), "asymmetric")[0] > 1e-250 and high < 1e3:
            low, high = high, 2 * high
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if self._pvalues(np.array([middle]), "asymmetric")[0] <= 1e-250 else (middle, high)
            )
        # Nodes crowd where a bounded estimate ends, and its deviate turns up.
        nodes = low * np.sin(np.linspace(0, np.pi / 2, N_NODES))
        tails = np.minimum(self._pvalues(nodes, "asymmetric"), 0.5)
        return scipy.interpolate.PchipInterpolator(nodes, -ndtri_exp(np.log(tails))), low

    def _pvalues(self, observed: npt.ArrayLike, scoring: str) -> Float64:
        return match_pvalue(
            observed,
            n_bits=self.n_bits,
            n_pool=self.n_pool,
            n_features=self.n_features,
            projection=self.projection,
            scoring=scoring,
            norms=self.norms,
        )


shared_law = lru_cache(maxsize=64)(SignLaw)
"""The same tables for all indexes of one shape."""


def _shared(*shape: Any) -> SignLaw:
    """Unpickling uses the tables that this process has already."""
    return shared_law(*shape)


class PairNull(ABC):
    """Null distribution of one comparison; entries are independent of an impostor, so levels of searches follow."""

    @abstractmethod
    def tail(self, statistics: Float64) -> Float64:
        """Return the probability that one impostor reaches each value."""

    @abstractmethod
    def threshold(self, level: float) -> float:
        """Return the smallest value whose p-value is at most ``level``."""

    def p_values(self, statistics: Float64) -> Float64:
        return np.maximum(self.tail(statistics), SMALLEST)

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        return self.threshold(entry_level(false_alarm, n_entries))

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> npt.NDArray[np.bool_]:
        return self.p_values(statistics) <= entry_level(false_alarm, n_entries)


def entry_level(false_alarm: float, n_entries: int) -> float:
    """Return the p-value at which independent entries together have this probability of a false alarm."""
    return float(-np.expm1(np.log1p(-false_alarm) / max(1, n_entries)))


@dataclass(frozen=True, eq=False)
class MismatchNull(PairNull):
    """Null distribution of mismatches, negated so that larger is closer."""

    table: Float64  # p-values of 0, 1, ... mismatches, ascending

    def tail(self, statistics: Float64) -> Float64:
        return self.table[(-statistics).astype(np.int64)]

    def threshold(self, level: float) -> float:
        """The negated largest number of mismatches whose p-value is at most ``level``; 1 if none has."""
        return 1.0 - int(np.searchsorted(self.table, level, side="right"))


@dataclass(frozen=True, eq=False)
class ScoreNull(PairNull):
    """Null distribution of estimated correlations of signs with real-valued queries."""

    law: SignLaw

    def tail(self, statistics: Float64) -> Float64:
        return self.law.score_pvalues(statistics)

    def threshold(self, level: float) -> float:
        return tail_threshold(self.law.score_pvalues, level)


class NormalNull(PairNull):
    """Standard normal null distribution."""

    def tail(self, statistics: Float64) -> Float64:
        return np.asarray(ndtr(-statistics))

    def threshold(self, level: float) -> float:
        return float(-ndtri(level))


@dataclass(frozen=True)
class SampleNull(PairNull):
    """Null distribution of the correlation of two independent isotropic signals."""

    n_features: int

    def tail(self, statistics: Float64) -> Float64:
        return sample_pvalues(statistics, self.n_features)

    def threshold(self, level: float) -> float:
        degrees = self.n_features - 1
        deviate = float(scipy.stats.t.isf(level, degrees))
        return float(deviate / np.sqrt(deviate**2 + degrees))


def sample_pvalues(correlations: Float64, n_features: int) -> Float64:
    """Chance that two independent isotropic signals have so high a correlation.

    Exact: ``r * sqrt(n - 1) / sqrt(1 - r**2)`` is Student's t with n - 1 degrees of freedom.
    """
    r = np.clip(correlations, -1, 1)
    with np.errstate(divide="ignore"):
        return np.asarray(scipy.stats.t.sf(r * np.sqrt((n_features - 1) / (1 - r**2)), n_features - 1))
