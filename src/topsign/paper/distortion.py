"""The paper's remark on many signals: number of bits that keeps all pairwise distances near their expectations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import theory
from ..projections import make_projection
from .measuring import Advance, check_draws, unwatched

N_SIGNALS, N_FEATURES = 100, 32
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
    n_bits = theory.bits_for_distortion(distortion=DISTORTION, n_signals=N_SIGNALS, failure=FAILURE)
    largest = []
    for draw in range(check_draws(n_draws)):
        signals = np.random.default_rng([4, draw]).standard_normal((N_SIGNALS, N_FEATURES))
        signals /= np.linalg.norm(signals, axis=1, keepdims=True)
        pool = make_projection("gaussian", n_features=N_FEATURES, n_pool=n_bits, random_state=draw)
        signs = np.where(pool.apply(signals) >= 0, np.float32(1), np.float32(-1))
        measured = (1 - signs @ signs.T / n_bits) / 2
        expected = theory.sign_expected_hamming(np.clip(signals @ signals.T, -1, 1))
        pairs = np.triu_indices(N_SIGNALS, 1)
        largest.append(float(np.abs(measured - expected)[pairs].max()))
        advance((draw + 1) / n_draws)
    return Distortion(
        failure=FAILURE,
        needed=[_needed(one) for one in DISTORTIONS],
        distortion=DISTORTION,
        n_signals=N_SIGNALS,
        n_features=N_FEATURES,
        n_bits=n_bits,
        n_draws=n_draws,
        n_failures=sum(one > DISTORTION for one in largest),
        largest=max(largest),
    )


def _needed(wanted: float) -> Needed:
    n_bits = [theory.bits_for_distortion(distortion=wanted, n_signals=n, failure=FAILURE) for n in SIZES]
    by_hoeffding = [int(np.ceil(np.log(n * (n - 1) / FAILURE) / (2 * wanted**2))) for n in SIZES]
    return Needed(wanted, list(SIZES), n_bits, by_hoeffding)
