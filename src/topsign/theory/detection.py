"""Receiver operating characteristics: detection rate against false-alarm rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count, check_positive
from .distances import binomial_cdf, check_correlation, kappa_of, universal_undithered_hamming
from .order_statistics import Selection
from .rates import trellis_energy
from .tails import effective_features, mismatch_tail, sample_correlations, score_tail, tail_threshold

DETECTORS = ("uncompressed", "hamming", "asymmetric", "universal")


@dataclass(frozen=True)
class RocCurve:
    """Detection rate against false-alarm rate as the threshold is lowered.

    For detectors that count mismatches, the curve between two points is that of a randomised test.
    """

    pfa: Float64  #: false-alarm rates, ascending
    pd: Float64  #: detection rates
    auc: float  #: area under the curve
    missed_area: float  #: 1 - auc, without loss of precision
    _detection: Callable[[float], float] = field(repr=False, compare=False)

    @property
    def d_prime(self) -> float:
        """Distance between the means of two unit-variance normal distributions with the same area under the curve."""
        return float(-np.sqrt(2) * scipy.special.ndtri(self.missed_area))

    def detection_at(self, false_alarm: npt.ArrayLike) -> Float64:
        """Return the detection rate at rates ``false_alarm``, without loss of precision down to 1e-15."""
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
    n_bytes: int | None = None,
    scoring: str = "asymmetric",
    projection: str = "hadamard",
    step: float = 2.0,
) -> RocCurve:
    """ROC curve for detecting signals with a given population ``correlation`` among independent signals.

    A match is the reference plus independent normal noise. An impostor is independent of the reference. Both are
    isotropic, and their sample correlations vary from pair to pair, as in the paper's experiment.

    Parameters
    ----------
    n_bits, n_pool, n_bytes : int
        Size of adaptive codes, n_bits out of n_pool, which are equal for plain sign codes; or of grouped codes,
        n_bytes. The universal embedding has n_bits.
    scoring : str
        "uncompressed": the correlation of the signals themselves; "hamming" or "asymmetric": codes, compared with the
        signs or with the real values of the query; "universal": the universal embedding of unit-norm signals with
        this ``step`` and without dither.
    projection : "hadamard", "circulant", "gaussian", "rademacher" or "sparse"
        The first two have orthonormal rows, the others independent rows.

    Standing: exact for Gaussian pools and for orthonormal pools with n_pool <= ``n_features``, except that asymmetric
    scores treat the sum of kept magnitudes as normal. Stacked orthonormal blocks are approximated by matching their
    variance.

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
    if scoring == "universal":
        n_kept, width = check_count(n_bits, "n_bits"), check_positive(step, "step")
        return _discrete_roc(*_universal_flips(kappa, n_features, n_kept, projection, width))
    kept = Selection.of(n_bits, n_pool, n_bytes)
    if scoring == "hamming":
        counts = np.arange(kept.n_kept + 1.0)
        return _discrete_roc(*(mismatch_tail(counts, one, kept, n_features, projection) for one in (0.0, kappa)))
    tail = partial(score_tail, kept=kept, n_features=n_features, projection=projection)
    return _continuous_roc(partial(tail, kappa=0.0), partial(tail, kappa=kappa))


def _uncompressed(kappa: float, n_features: int) -> tuple[Callable[[Float64], Float64], Callable[[Float64], Float64]]:
    """Return the upper tails of the sample correlation for impostors and for matches."""
    freedom = n_features - 1

    def scaled(scores: Float64) -> Float64:
        inside = np.clip(scores, -1 + 1e-15, 1 - 1e-15)
        return np.asarray(inside / np.sqrt(1 - inside**2) * np.sqrt(freedom))

    return (
        lambda scores: scipy.stats.t.sf(scaled(scores), freedom),
        lambda scores: np.clip(scipy.stats.nct.sf(scaled(scores), freedom, np.sqrt(n_features) * kappa), 0, 1),
    )


def _universal_flips(
    kappa: float, n_features: int, n_bits: int, projection: str, step: float
) -> tuple[Float64, Float64]:
    """Return P(mismatches <= k) for impostors and for matches; the count is binomial given the sample correlation."""
    counts = np.arange(n_bits + 1.0)[:, np.newaxis]
    tails = []
    for population in (0.0, kappa):
        rho, weights = sample_correlations(population, effective_features(projection, n_features, n_bits))
        tails.append(binomial_cdf(counts, n_bits, universal_undithered_hamming(rho, step=step)) @ weights)
    return tails[0], tails[1]


def _discrete_roc(impostors: Float64, matches: Float64) -> RocCurve:
    """Return the curve of a detector that counts mismatches, from P(mismatches <= k) for k = 0, 1, ..."""
    pfa, pd = np.append(0.0, impostors), np.append(0.0, matches)
    missed = float(np.sum((1 - (pd[1:] + pd[:-1]) / 2) * np.diff(pfa)))

    def detection(false_alarm: float) -> float:
        return float(np.interp(false_alarm, pfa, pd))

    return RocCurve(pfa, pd, 1 - missed, missed, detection)


def _continuous_roc(impostors: Callable[[Float64], Float64], matches: Callable[[Float64], Float64]) -> RocCurve:
    """Return the curve of a detector with a continuous score, from the functions P(score >= s)."""
    spread = tail_threshold(impostors, 0.158655)  # about one standard deviation of the impostors' scores
    scores = np.linspace(-9 * spread, 9 * spread, 601)
    # In older versions of SciPy, tails near one decrease by a rounding error.
    pfa, pd = np.maximum.accumulate(impostors(scores)[::-1]), matches(scores)[::-1]
    missed = float(np.sum((1 - (pd[1:] + pd[:-1]) / 2) * np.diff(pfa)))

    def detection(false_alarm: float) -> float:
        return float(matches(np.array([tail_threshold(impostors, false_alarm)]))[0])

    return RocCurve(pfa, pd, 1 - missed, missed, detection)


def trellis_detection(
    n_bytes: npt.ArrayLike, *, correlation: float, false_alarm: npt.ArrayLike, n_features: int
) -> Float64:
    """Return the detection rate of trellis codes of ``n_bytes``; arguments broadcast.

    ``false_alarm`` is the rate per comparison, ``n_features`` the length of a signal, ``correlation`` that of a match.

    Approximation: scores of impostors have the exact distribution of a sample correlation. Scores of matches have
    Fisher's normal approximation for a population correlation of ``correlation * sqrt(trellis_energy)``.

    >>> float(trellis_detection(409, correlation=0.0735, false_alarm=1e-3, n_features=8192).round(2))
    0.85
    """
    energy = trellis_energy(8 * np.asarray(n_bytes) / n_features)
    means = np.arctanh(np.minimum(correlation * np.sqrt(energy), 1 - 1e-12))
    thresholds = np.arctanh(correlation_threshold(false_alarm, n_features))
    return np.asarray(scipy.special.ndtr((means - thresholds) * np.sqrt(n_features - 2)))


def correlation_threshold(false_alarm: npt.ArrayLike, n_features: int) -> Float64:
    """Return the sample correlation that an impostor exceeds with this probability."""
    deviates = scipy.stats.t.isf(false_alarm, n_features - 1)
    return np.asarray(deviates / np.sqrt(deviates**2 + n_features - 1))
