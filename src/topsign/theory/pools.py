"""Dependence between mismatches: pools with independent rows and pools with orthonormal rows.

Two independent signals have a sample correlation of about 1/sqrt(n). With independent rows (Gaussian), every kept row
is correlated with the reference, so all bits depend on that sample correlation, and the mismatch count of an impostor
has a larger variance than a binomial count. With orthonormal rows (Hadamard, n_pool <= n_features) the projections of
an isotropic signal are independent, and the count is binomial. A stack of orthonormal blocks lies between the two.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .._arrays import Float64
from .._checks import check_choice, check_count
from .order_statistics import legendre_rule

ORTHONORMAL = ("hadamard", "circulant")
PROJECTIONS = (*ORTHONORMAL, "gaussian", "rademacher", "sparse")


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
