"""Figure 1 of the paper: Hamming distance to the reference as a function of the inner product with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import theory
from .._arrays import Float64
from ..codes import hamming
from ..projections import Projection, make_projection
from . import printed
from .measuring import Advance, Points, check_draws, unwatched

N_BITS, N_POOL = 800, 5000
N_FEATURES = 32
"""Number of features of the measured signals; the distribution of the distance depends only on their inner product."""

CORRELATIONS = np.array([-0.8, -0.5, -0.2, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
OTHER_POOLS = ((50, 5000), (800, 10000), (2500, 5000))
OTHER_CORRELATIONS = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
"""At higher correlations, codes of 50 out of 5000 hardly ever differ, so there is nothing to measure."""


@dataclass(frozen=True)
class OtherPool:
    """Curve for another number of bits and pool size."""

    n_bits: int
    n_pool: int
    exact: Float64
    points: Points


@dataclass(frozen=True)
class Curve:
    """Expected Hamming distance on a grid of inner products, exact and as printed, with measured points."""

    n_bits: int
    n_pool: int
    n_features: int
    n_draws: int
    correlation: Float64  # the grid; signals have unit norm
    exact: Float64
    sign: Float64
    printed: Float64  # Theorem 2, nan at +-1
    bound: Float64  # its replacement; nan below zero, because it is an upper bound only for correlations in [0, 1]
    adaptive: Points
    signs: Points
    others: list[OtherPool]


def curve(*, n_draws: int = 60, advance: Advance = unwatched) -> Curve:
    """Measure the curve; each draw has new signals and a new Gaussian matrix."""
    from ..embeddings import SignEmbedding  # scikit-learn takes long to import

    adaptive, signs = [], []
    others: list[list[Float64]] = [[] for _ in OTHER_POOLS]
    pool_sizes = {N_POOL} | {n_pool for _, n_pool in OTHER_POOLS}
    for draw in range(check_draws(n_draws)):
        rng = np.random.default_rng([1, draw])
        pools = {
            n_pool: make_projection("gaussian", n_features=N_FEATURES, n_pool=n_pool, random_state=draw)
            for n_pool in pool_sizes
        }
        reference, signals = _signals_at(rng, CORRELATIONS)
        adaptive.append(_distances(reference, signals, N_BITS, pools[N_POOL]))
        embedding = SignEmbedding(N_BITS, projection="gaussian", random_state=draw).fit(signals)
        signs.append(hamming(embedding.transform(signals), embedding.transform([reference]), n_bits=N_BITS))
        for found, (n_bits, n_pool) in zip(others, OTHER_POOLS, strict=True):
            reference, signals = _signals_at(rng, OTHER_CORRELATIONS)
            found.append(_distances(reference, signals, n_bits, pools[n_pool]))
        advance((draw + 1) / n_draws)

    grid = np.linspace(-1, 1, 201)
    inside, above = np.abs(grid) < 1, grid >= 0
    as_printed, bound = np.full((2, len(grid)), np.nan)
    as_printed[inside] = printed.expected_hamming_bound(grid[inside], n_bits=N_BITS, n_pool=N_POOL)
    bound[above] = theory.expected_hamming_bound(grid[above], n_bits=N_BITS, n_pool=N_POOL)

    def exact(x: Float64, n_bits: int, n_pool: int) -> Float64:
        return theory.expected_hamming(x, n_bits=n_bits, n_pool=n_pool)

    return Curve(
        n_bits=N_BITS,
        n_pool=N_POOL,
        n_features=N_FEATURES,
        n_draws=n_draws,
        correlation=grid,
        exact=exact(grid, N_BITS, N_POOL),
        sign=theory.sign_expected_hamming(grid),
        printed=as_printed,
        bound=bound,
        adaptive=Points.of(CORRELATIONS, adaptive, exact(CORRELATIONS, N_BITS, N_POOL)),
        signs=Points.of(CORRELATIONS, signs, theory.sign_expected_hamming(CORRELATIONS)),
        others=[
            OtherPool(*pool, exact(grid, *pool), Points.of(OTHER_CORRELATIONS, found, exact(OTHER_CORRELATIONS, *pool)))
            for pool, found in zip(OTHER_POOLS, others, strict=True)
        ],
    )


def _signals_at(rng: np.random.Generator, correlations: Float64) -> tuple[Float64, Float64]:
    """Return a unit reference, and unit signals with these inner products with it and orthogonal residuals."""
    reference, *noise = np.linalg.qr(rng.standard_normal((N_FEATURES, 1 + len(correlations))))[0].T
    return reference, np.outer(correlations, reference) + np.sqrt(1 - correlations**2)[:, np.newaxis] * np.array(noise)


def _distances(reference: Float64, signals: Float64, n_bits: int, pool: Projection) -> Float64:
    from ..embeddings import AdaptiveEmbedding

    embedding = AdaptiveEmbedding(n_bits, n_pool=pool.n_pool, projection=pool).fit(reference)
    return hamming(embedding.transform(signals), embedding.reference_code_, n_bits=n_bits)
