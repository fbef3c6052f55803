"""The largest of many normal projections, in magnitude."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri
from scipy.stats import beta

from .._checks import check_pool


def mean_kept_magnitude(*, n_bits: int, n_pool: int) -> float:
    """Mean magnitude of the ``n_bits`` largest of ``n_pool`` standard normal values.

    Exact, by quadrature over the threshold T, the largest magnitude not kept: given T the kept ones are
    independent half normals above it, of mean phi(T) / Q(T), and 2 Q(T) ~ Beta(n_bits + 1, n_pool - n_bits).

    >>> round(mean_kept_magnitude(n_bits=512, n_pool=8192), 4)
    2.2518
    """
    thresholds, weights = threshold_quadrature(*check_pool(n_bits, n_pool))
    log_hazard = -(thresholds**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(-thresholds)
    return float(weights @ np.exp(log_hazard))


@lru_cache(maxsize=256)
def threshold_quadrature(n_bits: int, n_pool: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Nodes and weights (of sum one) for a mean over the threshold T; T = 0 when everything is kept."""
    if n_bits == n_pool:
        return np.zeros(1), np.ones(1)
    tail = beta(n_bits + 1, n_pool - n_bits)
    low, high = (-ndtri(np.array([tail.isf(1e-20), tail.ppf(1e-20)]) / 2)).tolist()
    edges = np.linspace(low, high, 25)  # no panel is wider than one standard deviation of T
    nodes, node_weights = np.polynomial.legendre.leggauss(16)
    half = (edges[1] - edges[0]) / 2
    thresholds = ((edges[:-1] + half)[:, np.newaxis] + half * nodes).ravel()
    log_tail = log_ndtr(-thresholds) + np.log(2)
    log_density = n_bits * log_tail + (n_pool - n_bits - 1) * np.log(-np.expm1(log_tail)) - thresholds**2 / 2
    weights = np.tile(node_weights, len(edges) - 1) * np.exp(log_density - log_density.max())
    return thresholds, weights / weights.sum()
