"""Beyond the paper: fraction of a signal's energy that codes capture at a given rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import theory
from .._arrays import Float64
from .measuring import Advance, unwatched

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
