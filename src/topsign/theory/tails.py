"""Tail probabilities of mismatches and of estimated correlations, for matches and for impostors, and Pareto tails.

Two independent signals have a sample correlation of about 1/sqrt(n). With independent rows (Gaussian), every kept row
is correlated with the reference, so all bits depend on that sample correlation, and the mismatch count of an impostor
has a larger variance than a binomial count. With orthonormal rows (Hadamard, n_pool <= n_features) the projections of
an isotropic signal are independent, and the count is binomial. A stack of orthonormal blocks lies between the two.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count
from .distances import binomial_cdf, flip_mixture, kappa_of
from .order_statistics import Selection, gauss_rule, legendre_rule

ORTHONORMAL = ("hadamard", "circulant")
PROJECTIONS = (*ORTHONORMAL, "gaussian", "rademacher", "sparse")

_HERMITE = np.polynomial.hermite_e.hermegauss(7)


def blocks(n_features: int, n_pool: int) -> list[int]:
    """Return the number of rows in each orthonormal block of a pool."""
    whole, rest = divmod(n_pool, n_features)
    return [n_features] * whole + [rest] * bool(rest)


def shared_share(projection: str, n_features: int, n_pool: int) -> float:
    """Probability that two kept rows lie in the same orthonormal block: 1 for one block, 0 for independent rows."""
    check_choice(projection, "projection", PROJECTIONS)
    check_count(n_features, "n_features", minimum=2)
    if projection not in ORTHONORMAL:
        return 0.0
    return sum(rows**2 for rows in blocks(n_features, n_pool)) / n_pool**2


def effective_features(projection: str, n_features: int, n_pool: int) -> float:
    """Effective number of features for the sample correlation that all mismatches share; infinite if they share none.

    Exact for independent rows (n_features) and for one orthonormal block (infinite). For a stack of blocks it is an
    approximation, n / (1 - share), that gives the right variance.
    """
    share = shared_share(projection, n_features, n_pool)
    return np.inf if share == 1 else n_features / (1 - share)


@lru_cache(maxsize=256)
def sample_correlations(kappa: float, n_features: float) -> tuple[Float64, Float64]:
    """Quadrature nodes and weights for the sample correlation of signals with population value kappa.

    Exact: ``sqrt(n-1) kappa_hat`` is noncentral t with n-1 degrees of freedom and noncentrality sqrt(n) kappa.
    """
    if np.isinf(n_features):
        return np.array([kappa / np.hypot(1, kappa)]), np.ones(1)
    freedom, shift = n_features - 1, np.sqrt(n_features) * kappa
    spread = np.sqrt(1 + shift**2 / (2 * n_features))
    if n_features > 200:
        ends = (shift + np.array([-10.0, 10.0]) * spread) / np.sqrt(freedom)
        low, high = ends / np.hypot(1, ends)
    else:
        low, high = -1.0, 1.0  # with few features, all correlations have noticeable probability
    nodes, weights = legendre_rule(160)
    rho = (low + high) / 2 + (high - low) / 2 * nodes
    kappas = rho / np.sqrt(1 - rho**2) * np.sqrt(freedom)
    weights = weights * _noncentral_t_density(kappas, freedom, shift) * (1 - rho**2) ** -1.5
    return rho, weights / weights.sum()


def _noncentral_t_density(x: Float64, freedom: float, shift: float) -> Float64:
    """Return the density of (shift + normal) / S up to a constant, where S = sqrt(chi2 / freedom).

    SciPy's implementation overflows at thousands of degrees of freedom.
    """
    nodes, weights = legendre_rule(120)
    reach = 11 / np.sqrt(2 * freedom)
    low, high = max(0.0, 1 - reach), 1 + reach
    s = (low + high) / 2 + (high - low) / 2 * nodes
    log_density = freedom * np.log(s) - freedom * (s**2 - 1) / 2  # of S, times the Jacobian s
    return np.asarray(np.exp(log_density - (x[:, np.newaxis] * s - shift) ** 2 / 2) @ weights)


def mismatch_tail(mismatches: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return P(mismatches <= k) for signals with population value kappa (0 for an impostor)."""
    flips, weights = _count_mixture(kappa, kept, effective_features(projection, n_features, kept.n_pool))
    unique, where = np.unique(np.floor(mismatches), return_inverse=True)
    tails = binomial_cdf(unique[:, np.newaxis], kept.n_kept, flips) @ weights
    return np.asarray(tails[where].reshape(mismatches.shape))


def log_mismatch_tail(mismatches: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return the logarithm of :func:`mismatch_tail`, for tails that may be too small for a float."""
    flips, weights = _count_mixture(kappa, kept, effective_features(projection, n_features, kept.n_pool))
    logs = log_binomial_cdf(np.floor(mismatches), kept.n_kept, flips)
    return np.asarray(scipy.special.logsumexp(logs, b=weights, axis=1))


@lru_cache(maxsize=512)
def _count_mixture(kappa: float, kept: Selection, n_features: float) -> tuple[Float64, Float64]:
    """Return flip probabilities and weights; given sample correlation and threshold, the mismatch count is binomial."""
    if kappa == 0 and np.isinf(n_features):
        return np.array([0.5]), np.ones(1)
    rho, rho_weights = sample_correlations(kappa, n_features)
    flips, weights = flip_mixture(rho, kept)
    if len(rho) == 1:
        return flips[0], weights
    # The count depends only on the flip probability, so a Gauss rule with few nodes describes its distribution.
    return gauss_rule(flips.ravel(), np.outer(rho_weights, weights).ravel(), 40)


def score_tail(scores: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return P(estimated correlation >= score) for signals with population value kappa (0 for an impostor).

    Given the sample correlation r of query and entry and the sum S of the kept magnitudes, the estimate is S / E[S]
    times the sum of r and of sqrt((1 - r**2) (m/S**2 - share/n)) times a normal variable. For a single orthonormal
    block, a coordinate of a random unit vector in n - 1 dimensions replaces the normal variable; if kappa is zero, the
    estimate is then a coordinate of a random unit vector in n dimensions times sqrt(n m) / E[S], whatever S is.
    """
    unique, where = np.unique(scores, return_inverse=True)
    law = _score_mixture(kappa, kept, n_features, projection)
    needed = law.needed(unique)
    tails = scipy.special.ndtr(-needed) if law.dimensions is None else _coordinate_tail(needed, law.dimensions)
    tail = (tails @ law.rho_weights) @ law.weights
    return np.asarray(tail[where].reshape(scores.shape))


def log_score_tail(scores: Float64, kappa: float, kept: Selection, n_features: int, projection: str) -> Float64:
    """Return the logarithm of :func:`score_tail`, for tails that may be too small for a float."""
    law = _score_mixture(kappa, kept, n_features, projection)
    needed = law.needed(scores)
    logs = scipy.special.log_ndtr(-needed) if law.dimensions is None else log_coordinate_tail(needed, law.dimensions)
    return np.asarray(scipy.special.logsumexp(logs, b=law.weights[:, np.newaxis] * law.rho_weights, axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class _ScoreMixture:
    """Distribution of an estimated correlation as a mixture over sample correlations and sums of kept magnitudes."""

    rho: Float64
    rho_weights: Float64
    stretch: Float64  # for each sum of kept magnitudes, as are noise and weights
    noise: Float64
    weights: Float64
    dimensions: int | None  # of the random unit vector that supplies the noise; None for normal noise

    def needed(self, scores: Float64) -> Float64:
        """Return the standardised noise that each score requires, with shape (n_scores, n_sums, n_rho)."""
        reach = (scores[:, np.newaxis, np.newaxis] / self.stretch[:, np.newaxis] - self.rho) / np.sqrt(1 - self.rho**2)
        return np.asarray(reach / self.noise[:, np.newaxis])


def _score_mixture(kappa: float, kept: Selection, n_features: int, projection: str) -> _ScoreMixture:
    share = shared_share(projection, n_features, kept.n_pool)
    mean = kept.n_kept * kept.mean_magnitude
    if kappa == 0 and share == 1:
        one = np.ones(1)
        return _ScoreMixture(0 * one, one, one, one * np.sqrt(n_features * kept.n_kept) / mean, one, n_features)
    rho, rho_weights = sample_correlations(kappa, n_features)
    nodes, node_weights = _HERMITE
    # Within an orthonormal block the projections share the signal's norm, which reduces the variance of their sum.
    variance = kept.sum_variance - share * mean**2 / (2 * n_features)
    sums = mean + np.sqrt(max(variance, 0.0)) * nodes
    sums = np.clip(sums, mean / 4, 4 * mean)
    noise = np.sqrt(np.maximum(kept.n_kept / sums**2 - share / n_features, 1e-300))
    weights = node_weights / node_weights.sum()
    if share == 1:
        return _ScoreMixture(rho, rho_weights, sums / mean, noise * np.sqrt(n_features), weights, n_features - 1)
    if share > 0:  # each block contributes a coordinate of a unit vector orthogonal to the signal
        noise *= np.sqrt(n_features / (n_features - 1))
    return _ScoreMixture(rho, rho_weights, sums / mean, noise, weights, None)


def tail_threshold(tail: Callable[[Float64], Float64], probability: float) -> float:
    """Return the score that is reached with a given probability, for a nearly normal tail."""
    wanted = -scipy.special.ndtri(probability)
    low, high = 0.0, 1.0
    while float(tail(np.array([high]))[0]) > probability and high < 1e6:
        high *= 2
    while float(tail(np.array([low]))[0]) < probability and low > -1e6:
        low = 2 * low - 1

    def excess(score: float) -> float:
        # As a normal deviate, a nearly normal tail is nearly linear in the score, so few iterations are needed.
        return float(wanted + scipy.special.ndtri(np.clip(tail(np.array([score]))[0], 1e-300, 1 - 1e-16)))

    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-13))


def entry_level(false_alarm: float, n_entries: int) -> float:
    """Return the p-value below which any of ``n_entries`` entries falls with a probability of ``false_alarm``."""
    return float(-np.expm1(np.log1p(-false_alarm) / max(1, n_entries)))


def operating_point(
    level: float, correlation: float, kept: Selection, n_features: int, projection: str, scoring: str
) -> tuple[float, float]:
    """Return the threshold, a score or a number of mismatches, for a false-alarm rate, and the detection rate."""
    shape, kappa = (kept, n_features, projection), float(kappa_of(np.float64(correlation)))
    if scoring == "asymmetric":
        threshold = tail_threshold(lambda scores: score_tail(scores, 0.0, *shape), level)
        return threshold, float(score_tail(np.array([threshold]), kappa, *shape)[0])

    def is_exceeded(count: int) -> bool:
        return float(mismatch_tail(np.array([float(count)]), 0.0, *shape)[0]) > level

    most = bisect_left(range(kept.n_kept + 1), True, key=is_exceeded) - 1.0
    return most, float(mismatch_tail(np.array([most]), kappa, *shape)[0]) if most >= 0 else 0.0


def _coordinate_tail(x: Float64, dimensions: int) -> Float64:
    """Return P(first coordinate of a random unit vector >= x)."""
    inside = np.clip(x, -1, 1)
    beyond = scipy.special.betainc((dimensions - 1) / 2, 0.5, 1 - inside**2) / 2
    return np.asarray(np.where(inside < 0, 1 - beyond, beyond))


def log_binomial_cdf(k: Float64, n: int, p: Float64) -> Float64:
    """Return log P(Binomial(n, p) <= k) with shape (n_k, n_p); -inf for k < 0.

    Exact up to rounding: all terms are summed in logarithms.
    """
    last = int(np.clip(np.max(k, initial=0), 0, n))
    counts = np.arange(last + 1.0)[:, np.newaxis]
    choices = scipy.special.gammaln(n + 1) - scipy.special.gammaln(counts + 1) - scipy.special.gammaln(n - counts + 1)
    sums = np.logaddexp.accumulate(
        choices + scipy.special.xlogy(counts, p) + scipy.special.xlog1py(n - counts, -p), axis=0
    )
    found = sums[np.clip(k, 0, n).astype(np.int64)]
    return np.where(np.asarray(k)[:, np.newaxis] < 0, -np.inf, np.minimum(found, 0.0))


def log_coordinate_tail(x: Float64, dimensions: float) -> Float64:
    """Return log P(first coordinate of a random unit vector >= x) for x in (0, 1), and -inf for x >= 1.

    The tail is half the regularised incomplete beta function at ``1 - x**2``. Its continued fraction converges quickly
    if the tail is small.
    """
    inside = np.clip(x, 0.0, 1.0)
    z, a, b = (1 - inside) * (1 + inside), (dimensions - 1) / 2, 0.5
    with np.errstate(divide="ignore"):
        front = a * np.log(z) + b * np.log1p(-z) - np.log(a) - scipy.special.betaln(a, b) - np.log(2)
    return np.asarray(front + np.log(_beta_fraction(a, b, z)))


def log_student_tail(t: Float64, degrees: float) -> Float64:
    """Return log P(T >= t) for t > 0 and Student's t distribution."""
    return log_coordinate_tail(t / np.sqrt(degrees + t**2), degrees + 1)


def _beta_fraction(a: float, b: float, z: Float64) -> Float64:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = np.ones_like(z), 1 / (1 - (a + b) / (a + 1) * z)
    value = d.copy()
    for m in range(1, 200):
        for numerator in (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) * z,
            -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) * z,
        ):
            d = 1 / (1 + numerator * d)
            c = 1 + numerator / c
            value = value * c * d
        if np.all(np.abs(c * d - 1) < 1e-15):
            break
    return np.asarray(value)


def pareto_survival(excesses: Float64, scales: Float64, shapes: Float64) -> Float64:
    """Return the survival function of generalised Pareto distributions."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grown = np.log1p(np.maximum(shapes * excesses / scales, -1.0))
        tails = np.where(np.abs(shapes) < 1e-6, np.exp(-excesses / scales), np.exp(-grown / shapes))
    return np.asarray(tails)


def fit_pareto(excesses: Float64, max_shape: float) -> tuple[float, float]:
    """Return scale and shape of the generalised Pareto distribution by maximum likelihood, |shape| <= max_shape."""
    mean = float((excesses / len(excesses)).sum())  # a sum may overflow
    if not mean > 0:
        return 1e-12, 0.0  # all scores are equal, so the tail has no width

    def surprise(parameters: Float64) -> float:
        log_scale, shape = float(parameters[0]), float(parameters[1])
        if abs(shape) > max_shape or abs(log_scale) > 700:  # beyond, the scale under- or overflows
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
