"""Receiver operating characteristics: detection of matches against false alarms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used
from scipy.special import ndtri

from .._arrays import Float64
from .._checks import check_choice, check_count, check_pool, check_positive
from .distances import (
    binomial_cdf,
    check_correlation,
    kappa_of,
    universal_expected_hamming,
    universal_undithered_hamming,
)
from .inference import mismatch_tail, score_tail, tail_threshold
from .pools import effective_features, sample_correlations

DETECTORS = ("uncompressed", "hamming", "asymmetric", "sign_hamming", "sign_asymmetric", "universal")


@dataclass(frozen=True)
class RocCurve:
    """Detection against false alarm, as a match is accepted more and more easily.

    Between the points of a detector that counts mismatches, the curve is that of a test that tosses a coin.
    """

    pfa: Float64  # false alarm, ascending
    pd: Float64  # detection
    auc: float
    missed_area: float  # 1 - auc, without loss of precision
    _detection: Callable[[float], float] = field(repr=False, compare=False)

    @property
    def d_prime(self) -> float:
        """Distance of two unit normals with the same area under the curve."""
        return float(-np.sqrt(2) * ndtri(self.missed_area))

    def detection_at(self, false_alarm: npt.ArrayLike) -> Float64:
        """Detection at given false-alarm probabilities, down to 1e-15 without loss of precision."""
        pfa = np.asarray(false_alarm, dtype=np.float64)
        if not ((pfa > 0) & (pfa < 1)).all():
            raise ValueError(f"false_alarm must lie strictly between 0 and 1, got {false_alarm!r}")
        return np.array([self._detection(float(one)) for one in pfa.ravel()]).reshape(pfa.shape)


def roc(
    *,
    correlation: float,
    n_features: int,
    n_bits: int | None = None,
    n_pool: int | None = None,
    scoring: str = "asymmetric",
    projection: str = "hadamard",
    step: float = 2.0,
    dither: bool = False,
) -> RocCurve:
    """ROC of telling signals of a population correlation from independent ones.

    The match is a copy of the reference in independent normal noise, the impostor is independent, both isotropic;
    their sample correlations vary from pair to pair, as in the paper's experiment.

    Parameters
    ----------
    scoring : one of
        "uncompressed", the correlation of the signals themselves; "hamming" and "asymmetric", adaptive codes of
        n_bits out of n_pool; "sign_hamming" and "sign_asymmetric", n_bits plain sign projections; "universal", n_bits
        of the universal embedding of unit-norm signals, with its ``step`` and ``dither``.
    projection : "hadamard", "circulant", "gaussian", "rademacher" or "sparse"
        Orthonormal or independent rows; see :mod:`topsign.theory.pools`.

    Standing: exact for Gaussian pools and for orthonormal ones with n_pool <= n_features (the sum of kept magnitudes
    taken as normal in the asymmetric score); stacked orthonormal blocks by their variance.

    >>> shape = {"n_features": 8192, "n_bits": 512, "n_pool": 8192}
    >>> curve = roc(correlation=0.0735, scoring="hamming", projection="gaussian", **shape)
    >>> round(curve.auc, 3), round(curve.d_prime, 2)
    (0.973, 2.73)
    """
    check_choice(scoring, "scoring", DETECTORS)
    (rho,) = check_correlation(correlation).reshape(-1)
    n_features = check_count(n_features, "n_features", minimum=4)
    kappa = float(kappa_of(rho))
    if not 0 <= kappa < np.inf:
        raise ValueError(f"correlation must lie in [0, 1), got {correlation}")
    if scoring == "uncompressed":
        return _continuous_roc(*_uncompressed(kappa, n_features))
    if n_bits is None:
        raise ValueError(f'n_bits must be given for scoring="{scoring}"')
    if scoring in ("hamming", "asymmetric"):
        if n_pool is None:
            raise ValueError(f'n_pool must be given for scoring="{scoring}"')
        n_bits, n_pool = check_pool(n_bits, n_pool)
    elif n_pool not in (None, n_bits):
        raise ValueError(f'scoring="{scoring}" keeps every projection: leave n_pool out, or equal to n_bits')
    else:
        n_bits, n_pool = check_pool(n_bits, n_bits)  # plain signs are adaptive codes that keep everything
    if scoring == "universal":
        flips = _universal_flips(kappa, n_features, n_bits, projection, check_positive(step, "step"), dither)
        return _discrete_roc(*flips)
    if scoring.endswith("hamming"):
        counts = np.arange(n_bits + 1.0)
        tails = (mismatch_tail(counts, k, n_bits, n_pool, n_features, projection) for k in (0.0, kappa))
        return _discrete_roc(*tails)

    def tail(population: float) -> Callable[[Float64], Float64]:
        return lambda scores: score_tail(scores, population, n_bits, n_pool, n_features, projection, norms=True)

    return _continuous_roc(tail(0.0), tail(kappa))


def _uncompressed(kappa: float, n_features: int) -> tuple[Callable[[Float64], Float64], Callable[[Float64], Float64]]:
    """Tails of the sample correlation itself."""
    freedom = n_features - 1

    def scaled(scores: Float64) -> Float64:
        inside = np.clip(scores, -1 + 1e-15, 1 - 1e-15)
        return np.asarray(inside / np.sqrt(1 - inside**2) * np.sqrt(freedom))

    return (
        lambda scores: scipy.stats.t.sf(scaled(scores), freedom),
        lambda scores: np.clip(scipy.stats.nct.sf(scaled(scores), freedom, np.sqrt(n_features) * kappa), 0, 1),
    )


def _universal_flips(
    kappa: float, n_features: int, n_bits: int, projection: str, step: float, dither: bool
) -> tuple[Float64, Float64]:
    """P(mismatches <= k) of impostors and of matches: binomial given the sample correlation."""
    counts = np.arange(n_bits + 1.0)[:, np.newaxis]
    tails = []
    for population in (0.0, kappa):
        rho, weights = sample_correlations(population, effective_features(projection, n_features, n_bits))
        if dither:
            flips = universal_expected_hamming(np.sqrt(2 - 2 * rho), step=step)
        else:
            flips = universal_undithered_hamming(rho, step=step)
        tails.append(binomial_cdf(counts, n_bits, flips) @ weights)
    return tails[0], tails[1]


def _discrete_roc(impostors: Float64, matches: Float64) -> RocCurve:
    """From P(mismatches <= k) of both, k = 0, 1, ..."""
    pfa, pd = np.append(0.0, impostors), np.append(0.0, matches)
    missed = float(np.sum((1 - (pd[1:] + pd[:-1]) / 2) * np.diff(pfa)))

    def detection(false_alarm: float) -> float:
        return float(np.interp(false_alarm, pfa, pd))

    return RocCurve(pfa, pd, 1 - missed, missed, detection)


def _continuous_roc(impostors: Callable[[Float64], Float64], matches: Callable[[Float64], Float64]) -> RocCurve:
    """From P(score >= s) of both."""
    spread = tail_threshold(impostors, 0.158655)  # about one standard deviation of impostors
    scores = np.linspace(-9 * spread, 9 * spread, 601)
    # Older special functions step back by a rounding error where the tail is one.
    pfa, pd = np.maximum.accumulate(impostors(scores)[::-1]), matches(scores)[::-1]
    missed = float(np.sum((1 - (pd[1:] + pd[:-1]) / 2) * np.diff(pfa)))

    def detection(false_alarm: float) -> float:
        return float(matches(np.array([tail_threshold(impostors, false_alarm)]))[0])

    return RocCurve(pfa, pd, 1 - missed, missed, detection)
