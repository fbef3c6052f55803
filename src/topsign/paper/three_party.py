"""Figure 2 of the paper: distance between two signals that are not the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import theory
from .._arrays import Float64
from ..codes import hamming
from ..theory.order_statistics import pool_grid
from . import printed
from .measuring import Advance, Points, check_draws, unwatched

N_BITS, N_POOL = 800, 5000
N_FEATURES = 48
"""Number of features of the measured signals; the distribution of the distance depends only on their inner products."""

SHARED = (0.0, 0.3, 0.5, 0.7)
PLACES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
"""Positions of the measured points, as fractions of the way from the smallest possible inner product to one."""


@dataclass(frozen=True)
class Pair:
    """Curve for two signals with the same inner product with the reference, on a grid of their own inner products."""

    shared: float
    inner_product: Float64
    exact: Float64
    printed: Float64  # Theorem 3
    points: Points


@dataclass(frozen=True)
class ThreeParty:
    """Expected Hamming distances between the codes of two signals that are not the reference."""

    n_bits: int
    n_pool: int
    n_features: int
    n_draws: int
    pairs: list[Pair]


def three_party(*, n_draws: int = 60, advance: Advance = unwatched) -> ThreeParty:
    """Measure the distances; each draw has new signals and a new Gaussian matrix."""
    from ..embeddings import AdaptiveEmbedding  # scikit-learn takes long to import

    grids = {shared: np.linspace(_least(shared), 1, 101) for shared in SHARED}
    at = {shared: _least(shared) + (1 - _least(shared)) * PLACES for shared in SHARED}
    samples = []
    for draw in range(check_draws(n_draws)):
        rng = np.random.default_rng([2, draw])
        basis = iter(np.linalg.qr(rng.standard_normal((N_FEATURES, 1 + 2 * len(SHARED) * len(PLACES))))[0].T)
        reference = next(basis)
        signals = [one for shared in SHARED for vw in at[shared] for one in _pair(reference, basis, shared, vw)]
        embedding = AdaptiveEmbedding(N_BITS, n_pool=N_POOL, projection="gaussian", random_state=draw).fit(reference)
        codes = embedding.transform(signals)
        samples.append(hamming(codes[::2], codes[1::2], n_bits=N_BITS).reshape(len(SHARED), len(PLACES)))
        advance((draw + 1) / n_draws)

    pairs = []
    for i, shared in enumerate(SHARED):
        found = [sample[i] for sample in samples]
        points = Points.of(at[shared], found, _exact(shared, at[shared]))
        pairs.append(
            Pair(shared, grids[shared], _exact(shared, grids[shared]), _printed(shared, grids[shared]), points)
        )
    return ThreeParty(N_BITS, N_POOL, N_FEATURES, n_draws, pairs)


def _least(shared: float) -> float:
    """Return the smallest inner product of two unit signals that have the same inner product with a third."""
    return 2 * shared**2 - 1


def _pair(reference: Float64, basis: Iterator[Float64], shared: float, vw: float) -> list[Float64]:
    """Return two unit signals with these inner products, in two new directions."""
    first, second = next(basis), next(basis)
    within = (vw - shared**2) / (1 - shared**2)
    other = within * first + np.sqrt(1 - within**2) * second
    return [shared * reference + np.sqrt(1 - shared**2) * one for one in (first, other)]


def _exact(shared: float, vw: Float64) -> Float64:
    return theory.expected_pair_hamming(uv=shared, uw=shared, vw=vw, n_bits=N_BITS, n_pool=N_POOL)


def _printed(shared: float, vw: Float64) -> Float64:
    """Return Theorem 3's flip probability averaged over the kept magnitudes."""
    grid = pool_grid(N_BITS, N_POOL)
    flips = printed.pair_flip_probability(grid.magnitudes, uv=shared, uw=shared, vw=vw[:, np.newaxis])
    return np.asarray(flips @ grid.kept)
