"""Order statistics of normal magnitudes: kept projections, and the threshold between kept and discarded ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # submodules are imported at their first use

from .._arrays import Float64
from .._checks import MAX_POOL, check_count, check_pool

GROUP_SIZE, GROUPS_PER_BYTE = 8, 2
"""Projections in a group of a grouped code, and groups in a byte of it."""


def order_statistic_mean(rank: npt.ArrayLike, n: int, *, half: bool = True) -> Float64:
    """Mean of an order statistic of ``n`` standard normal values.

    With ``half=True`` it is the ``rank``-th largest magnitude, with ``half=False`` the ``rank``-th smallest value (the
    paper's numbering). Exact, by quadrature.

    >>> float(order_statistic_mean(1, n=2).round(6)), float(order_statistic_mean(2, n=2, half=False).round(6))
    (1.128379, 0.56419)
    """
    n = check_count(n, "n")
    ranks = _check_ranks(rank, n)
    from_above = ranks if half else n + 1 - ranks
    means = [_half_normal_mean(r, n) if half else _normal_mean(r, n) for r in from_above.ravel().tolist()]
    return np.array(means).reshape(ranks.shape)


def harter_approximation(rank: npt.ArrayLike, n: int) -> Float64:
    """Harter's approximation to the mean of the ``rank``-th smallest of ``n`` standard normal values.

    Approximation: ``Phi^-1((rank - 0.375) / (n + 0.25))``, with an error below 0.01 for n <= 20 and of 0.001 for rank
    32 of 2048. The i-th largest of M magnitudes is close to the value of rank 2M - i + 1 among 2M.

    >>> round(float(harter_approximation(2017, n=2048)), 4)
    2.1586
    """
    n = check_count(n, "n")
    return np.asarray(scipy.special.ndtri((_check_ranks(rank, n) - 0.375) / (n + 0.25)))


def mean_kept_magnitude(n_bits: int, n_pool: int) -> float:
    """Mean magnitude of the ``n_bits`` largest of ``n_pool`` standard normal values.

    Exact, by quadrature.

    >>> round(mean_kept_magnitude(n_bits=512, n_pool=8192), 4)
    2.2518
    """
    grid = pool_grid(*check_pool(n_bits, n_pool))
    return float(grid.kept @ grid.magnitudes)


def kept_sum_variance(n_bits: int, n_pool: int) -> float:
    """Variance of the sum of the ``n_bits`` largest magnitudes.

    Exact: given the threshold T, the magnitudes are independent half-normal variables truncated to values above T, with
    mean h = phi(T)/Q(T) and variance 1 + T h - h**2.
    """
    grid = pool_grid(n_bits, n_pool)
    log_density = -(grid.thresholds**2) / 2 - np.log(2 * np.pi) / 2
    means = np.exp(log_density - scipy.special.log_ndtr(-grid.thresholds))
    mean = grid.threshold_weights @ means
    within = grid.threshold_weights @ (1 + grid.thresholds * means - means**2)
    return float(n_bits * within + n_bits**2 * (grid.threshold_weights @ (means - mean) ** 2))


@dataclass(frozen=True)
class Selection:
    """Rule by which a code selects projections: the ``n_largest`` in magnitude of each of ``n_groups`` groups.

    Adaptive codes have a single group, the whole pool, and sign codes keep all of it. Grouped codes keep one projection
    of each group of eight.
    """

    n_largest: int
    group_size: int
    n_groups: int = 1

    @classmethod
    def of(cls, n_bits: int | None, n_pool: int | None, n_bytes: int | None) -> Selection:
        """Return the rule of an adaptive code of ``n_bits`` out of ``n_pool``, or of a grouped code of ``n_bytes``."""
        if n_bytes is None and n_bits is not None and n_pool is not None:
            return cls(*check_pool(n_bits, n_pool))
        if n_bytes is None or n_bits is not None or n_pool is not None:
            raise ValueError(
                "give n_bits and n_pool of an adaptive code, or n_bytes of a grouped code; got "
                f"n_bits={n_bits}, n_pool={n_pool} and n_bytes={n_bytes}"
            )
        return grouped_selection(n_bytes)

    @property
    def n_kept(self) -> int:
        return self.n_groups * self.n_largest

    @property
    def n_pool(self) -> int:
        return self.n_groups * self.group_size

    @property
    def mean_magnitude(self) -> float:
        """Mean of a kept magnitude."""
        return mean_kept_magnitude(n_bits=self.n_largest, n_pool=self.group_size)

    @property
    def sum_variance(self) -> float:
        """Variance of the sum of all kept magnitudes, for independent normal projections."""
        return self.n_groups * kept_sum_variance(self.n_largest, self.group_size)


def grouped_selection(n_bytes: int) -> Selection:
    """Return the rule by which a grouped code of ``n_bytes`` selects projections."""
    most = MAX_POOL // (GROUP_SIZE * GROUPS_PER_BYTE)
    return Selection(1, GROUP_SIZE, GROUPS_PER_BYTE * check_count(n_bytes, "n_bytes", maximum=most))


@lru_cache(maxsize=16)
def legendre_rule(size: int) -> tuple[Float64, Float64]:
    """Gauss-Legendre nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(size)


class PoolGrid(NamedTuple):
    """Quadrature rules for the kept magnitudes and for the threshold of a pool."""

    magnitudes: Float64
    kept: Float64  # weights of the kept magnitudes; their sum is one
    thresholds: Float64
    threshold_weights: Float64  # weights of T, the largest magnitude that is not kept; their sum is one


@lru_cache(maxsize=512)
def pool_grid(n_bits: int, n_pool: int) -> PoolGrid:
    """Return Gauss-Legendre panels that resolve the threshold, the tail above it, and magnitudes down to zero.

    A kept magnitude has density (M/m) f(s) P(Binomial(M-1, 2Q(s)) < m), and 2Q(T) ~ Beta(m+1, M-m). The
    geometric panels near zero are needed for correlations near one, at which only the smallest magnitudes flip.
    """
    if n_bits == n_pool:
        low = high = 0.5
    else:
        shape = n_bits + 1, n_pool - n_bits
        low, high = (
            -scipy.special.ndtri(
                np.array([scipy.special.betainccinv(*shape, 1e-20), scipy.special.betaincinv(*shape, 1e-20)]) / 2
            )
        ).tolist()
    finest = max(low, (high - low) / 24)
    n_geometric = max(2, int(np.log(finest / 1e-10) / np.log(1.3)))
    bulk = [np.linspace(low, high, 25), np.arange(high, 39, 0.5)]
    edges = np.unique(np.concatenate([[0], np.geomspace(1e-10, finest, n_geometric), *bulk]))
    nodes, node_weights = legendre_rule(16)
    half = np.diff(edges)[:, np.newaxis] / 2
    s = (edges[:-1, np.newaxis] + half * (1 + nodes)).ravel()
    width = (half * node_weights).ravel()
    density = width * np.exp(-(s**2) / 2)
    below = 1 - 2 * scipy.special.ndtr(-s)
    kept = density * (scipy.special.betainc(n_pool - n_bits, n_bits, below) if n_bits < n_pool else 1.0)
    kept /= kept.sum()
    keep = (kept > 1e-300) & ((s < high) | (kept > 1e-25))
    if n_bits == n_pool:
        return PoolGrid(s[keep], kept[keep], np.zeros(1), np.ones(1))
    log_tail = scipy.special.log_ndtr(-s) + np.log(2)
    with np.errstate(divide="ignore"):
        log_weight = n_bits * log_tail + (n_pool - n_bits - 1) * np.log(-np.expm1(log_tail)) - s**2 / 2
    log_weight += np.log(width)
    threshold = np.exp(log_weight - log_weight.max())
    threshold /= threshold.sum()
    near = threshold > 1e-300
    return PoolGrid(s[keep], kept[keep], s[near], threshold[near])


@lru_cache(maxsize=512)
def threshold_rule(n_bits: int, n_pool: int) -> tuple[Float64, Float64]:
    """Return a Gauss rule with few nodes for means over the threshold, by the Stieltjes procedure."""
    grid = pool_grid(n_bits, n_pool)
    return gauss_rule(grid.thresholds, grid.threshold_weights, 24)


def gauss_rule(nodes: Float64, weights: Float64, size: int) -> tuple[Float64, Float64]:
    """Return the Gauss rule of a discrete measure; it is exact for polynomials up to degree 2 * size - 1."""
    important = weights > 1e-35 * weights.max()
    nodes, weights = nodes[important], weights[important]
    if len(nodes) <= size:
        return nodes, weights / weights.sum()
    center, spread = weights @ nodes, np.ptp(nodes)
    x = (nodes - center) / spread
    diagonal, ratios = np.zeros(size), np.zeros(size)
    before, current = np.zeros_like(x), np.ones_like(x)
    norm = float(weights.sum())
    for i in range(size):
        next_norm = float(weights @ current**2)
        diagonal[i] = (weights @ (x * current**2)) / next_norm
        ratios[i] = next_norm / norm
        norm = next_norm
        before, current = current, (x - diagonal[i]) * current - (ratios[i] if i else 0.0) * before
    off_diagonal = np.sqrt(ratios[1:])
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    rule = vectors[0] ** 2
    return center + spread * values, rule / rule.sum()


def _check_ranks(rank: npt.ArrayLike, n: int) -> npt.NDArray[np.int64]:
    ranks = np.asarray(rank)
    if ranks.dtype.kind not in "iu" or (ranks.size and (ranks.min() < 1 or ranks.max() > n)):
        raise ValueError(f"rank must be integers in [1, n], got {rank!r} with n={n}")
    return ranks.astype(np.int64)


def _half_normal_mean(rank: int, n: int) -> float:
    """Mean of the rank-th largest magnitude: the threshold of a pool that keeps rank - 1 of n values."""
    if rank == 1:
        grid = pool_grid(1, n)
        return float(grid.kept @ grid.magnitudes)
    grid = pool_grid(rank - 1, n)
    return float(grid.threshold_weights @ grid.thresholds)


def _normal_mean(rank: int, n: int) -> float:
    """Mean of the rank-th largest value, whose upper tail probability Q is Beta(rank, n - rank + 1)."""
    if 2 * rank > n + 1:
        return -_normal_mean(n + 1 - rank, n)
    shape = rank, n - rank + 1
    low, high = (
        -scipy.special.ndtri(
            np.array([scipy.special.betainccinv(*shape, 1e-22), scipy.special.betaincinv(*shape, 1e-22)])
        )
    ).tolist()
    nodes, node_weights = legendre_rule(400)
    x = low + (high - low) * (1 + nodes) / 2
    log_density = (rank - 1) * scipy.special.log_ndtr(-x) + (n - rank) * scipy.special.log_ndtr(x) - x**2 / 2
    density = node_weights * np.exp(log_density - log_density.max())
    return float(density @ x / density.sum())
