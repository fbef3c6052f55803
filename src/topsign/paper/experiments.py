"""Experiments on random signals: distances to a reference and between others, deviations, and captured energy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import theory
from .._arrays import Float64
from ..codes import hamming
from ..projections import Projection, make_projection
from ..theory.order_statistics import pool_grid
from . import printed
from .measuring import Advance, Points, check_draws, signs_of, unwatched

N_BITS, N_POOL = 800, 5000
CURVE_FEATURES = 32
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
            n_pool: make_projection("gaussian", n_features=CURVE_FEATURES, n_pool=n_pool, random_state=draw)
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
        n_features=CURVE_FEATURES,
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
    reference, *noise = np.linalg.qr(rng.standard_normal((CURVE_FEATURES, 1 + len(correlations))))[0].T
    return reference, np.outer(correlations, reference) + np.sqrt(1 - correlations**2)[:, np.newaxis] * np.array(noise)


def _distances(reference: Float64, signals: Float64, n_bits: int, pool: Projection) -> Float64:
    from ..embeddings import AdaptiveEmbedding

    embedding = AdaptiveEmbedding(n_bits, n_pool=pool.n_pool, projection=pool).fit(reference)
    return hamming(embedding.transform(signals), embedding.reference_code_, n_bits=n_bits)


PAIR_FEATURES = 48
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
        basis = iter(np.linalg.qr(rng.standard_normal((PAIR_FEATURES, 1 + 2 * len(SHARED) * len(PLACES))))[0].T)
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
    return ThreeParty(N_BITS, N_POOL, PAIR_FEATURES, n_draws, pairs)


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


N_POINTS, POINT_FEATURES = 100, 32
DISTORTION, FAILURE = 0.1, 0.05
SIZES = (10**2, 10**3, 10**4, 10**6)
DISTORTIONS = (0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Needed:
    """Sufficient bits for one distortion and several numbers of signals."""

    distortion: float
    n_signals: list[int]
    n_bits: list[int]
    hoeffding_bits: list[int]


@dataclass(frozen=True)
class Distortion:
    """Sufficient bits by the bound, and the number of simulated draws that exceed the distortion."""

    failure: float
    needed: list[Needed]
    distortion: float
    n_signals: int
    n_features: int
    n_bits: int
    n_draws: int
    n_failures: int  # draws in which at least one pair deviates by more than the distortion
    largest: float  # largest deviation over all pairs and draws


def distortion(*, n_draws: int = 400, advance: Advance = unwatched) -> Distortion:
    """Measure plain sign projections; each draw has new signals and a new Gaussian matrix."""
    n_bits = theory.bits_for_distortion(distortion=DISTORTION, n_signals=N_POINTS, failure=FAILURE)
    largest = []
    for draw in range(check_draws(n_draws)):
        signals = np.random.default_rng([4, draw]).standard_normal((N_POINTS, POINT_FEATURES))
        signals /= np.linalg.norm(signals, axis=1, keepdims=True)
        pool = make_projection("gaussian", n_features=POINT_FEATURES, n_pool=n_bits, random_state=draw)
        signs = signs_of(pool.apply(signals) >= 0)
        measured = (1 - signs @ signs.T / n_bits) / 2
        expected = theory.sign_expected_hamming(np.clip(signals @ signals.T, -1, 1))
        pairs = np.triu_indices(N_POINTS, 1)
        largest.append(float(np.abs(measured - expected)[pairs].max()))
        advance((draw + 1) / n_draws)
    return Distortion(
        failure=FAILURE,
        needed=[_needed(one) for one in DISTORTIONS],
        distortion=DISTORTION,
        n_signals=N_POINTS,
        n_features=POINT_FEATURES,
        n_bits=n_bits,
        n_draws=n_draws,
        n_failures=sum(one > DISTORTION for one in largest),
        largest=max(largest),
    )


def _needed(wanted: float) -> Needed:
    n_bits = [theory.bits_for_distortion(distortion=wanted, n_signals=n, failure=FAILURE) for n in SIZES]
    by_hoeffding = [int(np.ceil(np.log(n * (n - 1) / FAILURE) / (2 * wanted**2))) for n in SIZES]
    return Needed(wanted, list(SIZES), n_bits, by_hoeffding)


SHOWN = (0.1, 0.25, 0.4, 0.5, 1.0)


@dataclass(frozen=True)
class Energy:
    """Captured fraction of a white signal's energy as a function of the rate in bits per dimension."""

    rate: Float64
    shannon: Float64  # limit for every code
    adaptive: Float64  # adaptive codes; the best scalar quantiser up to about one bit
    grouped: Float64  # grouped codes, orthonormal pool
    ideal_subspace: Float64  # ideal vector quantiser with one bit per dimension, on a subset of the dimensions
    signs: Float64  # plain signs of a subset of the dimensions
    shown: Float64  # rates in the table
    by_levels: list[Float64]  # adaptive codes with one and with two levels, at these rates
    grouped_shown: Float64  # grouped codes at these rates


def energy(*, advance: Advance = unwatched) -> Energy:
    """Compute all curves from theory."""
    rate, shown = np.linspace(0, 1, 101), np.array(SHOWN)
    found = Energy(
        rate=rate,
        shannon=theory.rate_distortion_limit(rate),
        adaptive=theory.captured_energy(rate),
        grouped=theory.grouped_energy(rate),
        ideal_subspace=theory.rate_distortion_limit(1.0) * rate,
        signs=2 / np.pi * rate,
        shown=shown,
        by_levels=[theory.captured_energy(shown, levels=levels) for levels in (1, 2)],
        grouped_shown=theory.grouped_energy(shown),
    )
    advance(1.0)
    return found
