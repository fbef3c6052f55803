"""Grouped codes: location and sign of the largest of every eight projections.

A code of ``n_bytes`` bytes has two groups per byte, a pool of 16 projections per byte. For independent normal
projections the groups are independent and identically distributed, so counts are exactly binomial and nothing is
conditioned on, as the threshold of adaptive codes must be. T denotes the largest of eight half-normal variables.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import check_choice, check_count
from .distances import check_correlation
from .order_statistics import GROUP_SIZE, grouped_selection, legendre_rule, mean_kept_magnitude
from .tails import ORTHONORMAL, PROJECTIONS, blocks

# Scores


def grouped_energy(rate: npt.ArrayLike) -> Float64:
    """Fraction of a white signal's energy that its grouped code captures at ``rate`` bits per feature.

    It is the squared cosine of a long signal and its code, with an orthonormal pool. Exact in the limit of long
    signals: up to half a bit, where the pool has at most one row per feature, it is ``E[T]**2 / 4 = 0.795`` per bit.
    Larger pools are stacks of orthonormal blocks that capture the same energy several times, ``s / (1 + (1 - b) s)``,
    where s is 0.795 times the rate and b the probability that two projections are in the same block.

    >>> grouped_energy([0.25, 0.4, 0.5, 1.0]).round(4)
    array([0.1988, 0.318 , 0.3975, 0.5689])
    """
    rates = np.asarray(rate, dtype=np.float64)
    if not (np.isfinite(rates) & (rates >= 0)).all():
        raise ValueError(f"rate must be finite and not negative (in bits per feature), got {rate!r}")
    n_blocks = rates * GROUP_SIZE / 4  # a group takes four bits
    whole = np.floor(n_blocks)
    share = np.where(n_blocks > 1, (whole + (n_blocks - whole) ** 2) / np.maximum(n_blocks, 1) ** 2, 1.0)
    captured = mean_kept_magnitude(1, GROUP_SIZE) ** 2 / GROUP_SIZE * n_blocks
    return np.asarray(captured / (1 + (1 - share) * captured))


def grouped_score_moments(
    correlation: npt.ArrayLike, *, n_bytes: int, n_features: int, projection: str = "hadamard"
) -> tuple[Float64, Float64]:
    """Mean and standard deviation of the estimated correlation, for a population ``correlation`` of two signals.

    The signals have ``n_features`` and are normal; codes have ``n_bytes`` from a pool of kind ``projection``. Their
    score is the sum of the query's projections with the signs of the code, divided by ``n_groups E[T]``. Exact for
    Gaussian pools, and for orthonormal pools whose blocks contain whole groups. With an orthonormal pool the mean is
    larger than the mean sample correlation by the factor ``1 + 1 / (4 n_features)``.

    >>> mean, deviation = grouped_score_moments([0.0, 0.0735], n_bytes=448, n_features=8192)
    >>> mean.round(4), deviation.round(4)
    (array([0.    , 0.0735]), array([0.0187, 0.0187]))
    """
    kept = grouped_selection(n_bytes)
    n = check_count(n_features, "n_features", minimum=4)
    check_choice(projection, "projection", PROJECTIONS)
    rho = check_correlation(correlation)
    first, second = _sample_moments(rho, n)
    scale, spread = kept.mean_magnitude, kept.sum_variance / kept.n_groups
    if projection in ORTHONORMAL:
        groups = np.array(blocks(n, kept.n_pool)) / GROUP_SIZE  # of each block
        longer = np.sqrt(n / 2) * np.exp(scipy.special.gammaln(n / 2) - scipy.special.gammaln((n + 1) / 2))
        sums, squares = groups * scale * longer, groups * spread + (groups * scale) ** 2  # of kept magnitudes
        noise = float((n * groups - squares).sum()) / (n - 1)
    else:
        sums, squares = np.array([kept.n_groups * scale]), np.array([kept.sum_variance + (kept.n_groups * scale) ** 2])
        noise = float(kept.n_groups)
    total, square = sums.sum(), (squares - sums**2).sum() + sums.sum() ** 2
    norm = kept.n_groups * scale
    means = first * total / norm
    deviations = np.sqrt(np.maximum(0.0, (second * square + (1 - second) * noise) / norm**2 - means**2))
    return np.asarray(means), np.asarray(deviations)


def grouped_d_prime(
    correlation: npt.ArrayLike, *, n_bytes: int, n_features: int, projection: str = "hadamard"
) -> Float64:
    """Mean score of matches of this ``correlation`` in standard deviations of the scores of impostors.

    ``n_bytes``, ``n_features`` and ``projection`` are as for :func:`grouped_score_moments`, and it is as exact. With an
    orthonormal pool of at most n_features rows it is ``sqrt(n_features) * correlation * sqrt(grouped_energy)`` up to
    terms of order 1 / n_features.

    >>> float(grouped_d_prime(0.073458, n_bytes=448, n_features=8192).round(3))
    3.921
    """
    moments = partial(grouped_score_moments, n_bytes=n_bytes, n_features=n_features, projection=projection)
    return np.asarray(moments(correlation)[0] / moments(0.0)[1])


def _sample_moments(rho: Float64, n_features: int) -> tuple[Float64, Float64]:
    """Return mean and mean square of the sample correlation (about the origin) of normal signals (Hotelling 1953)."""
    n, square = n_features, rho**2
    ratio = np.exp(2 * (scipy.special.gammaln((n + 1) / 2) - scipy.special.gammaln(n / 2)))
    mean = 2 / n * ratio * rho * _hypergeometric(0.5, n / 2 + 1, square)
    return mean, np.asarray(1 - (n - 1) / n * (1 - square) * _hypergeometric(1.0, n / 2 + 1, square))


def _hypergeometric(a: float, c: float, x: Float64) -> Float64:
    """Return 2F1(a, a; c; x) for x in [0, 1] by its series; SciPy's function is undefined near 1 for large c."""
    k = np.arange(1000)
    terms = np.cumprod((a + k) ** 2 / ((c + k) * (k + 1)) * x[..., np.newaxis], axis=-1)
    return np.asarray(1 + terms.sum(axis=-1))


# Two grouped codes


def grouped_expected_agreement(correlation: npt.ArrayLike) -> Float64:
    """Expected agreement of two grouped codes of signals at this ``correlation`` as a fraction of the groups.

    The agreement of two codes is the number of groups with equal locations and equal signs minus the number of groups
    with equal locations and different signs. For a Gaussian pool its expectation is a two-dimensional normal integral;
    it is interpolated by a Chebyshev series that is within 1e-9 of the integral. For small correlations it is
    ``E[T]**2 / 8 = 0.398`` times the correlation.

    >>> grouped_expected_agreement([0.0, 0.1, 0.5, 1.0]).round(4)
    array([0.    , 0.04  , 0.2259, 1.    ])
    """
    rho = check_correlation(correlation)
    difference = _agreement_series()(np.arccos(np.abs(rho)))
    return np.asarray(np.sign(rho) * np.clip(difference, 0.0, 1.0))


def agreement_probabilities(correlation: float) -> tuple[float, float]:
    """Return the probabilities that a group of two codes has equal locations with equal, and with different, signs.

    Exact for a Gaussian pool, by quadrature over the projections y and z = rho y + q w that are kept:
    ``16 int phi(y) phi(w) P(|Y| < y, |Z| < |z|)**7``. The probability of the rectangle is a sum of four Owen functions.
    """
    rho, q = abs(correlation), np.sqrt((1 - abs(correlation)) * (1 + abs(correlation)))
    if q == 0:
        return (1.0, 0.0) if correlation > 0 else (0.0, 1.0)
    nodes, weights = legendre_rule(150)
    y, w = (4.5 * (nodes + 1))[:, np.newaxis], 9 * nodes
    z = rho * y + q * w
    z = np.where(z == 0, 1e-300, z)
    corners = np.sign(z) * (scipy.special.owens_t(y, w / y) + scipy.special.owens_t(y, (z + rho * y) / (y * q)))
    corners += scipy.special.owens_t(np.abs(z), (q * y - rho * w) / np.abs(z)) + scipy.special.owens_t(
        np.abs(z), (y + rho * z) / (q * np.abs(z))
    )
    others = np.clip(1 - 2 * corners, 0.0, 1.0) ** (GROUP_SIZE - 1)
    density = 4.5 * 9 * weights[:, np.newaxis] * weights * np.exp(-(y**2) / 2 - w**2 / 2) / (2 * np.pi)
    equal, different = (float(2 * GROUP_SIZE * (density * others)[side].sum()) for side in (z > 0, z < 0))
    return (equal, different) if correlation >= 0 else (different, equal)


@cache
def _agreement_series() -> np.polynomial.Chebyshev:
    """Return the expected agreement as a function of the angle between two signals, from 0 to pi / 2."""

    def at(angles: Float64) -> Float64:
        found = [agreement_probabilities(float(np.cos(angle))) for angle in angles]
        return np.array([equal - different for equal, different in found])

    return np.polynomial.Chebyshev.interpolate(at, 40, domain=[0, np.pi / 2])
