"""Beyond the paper: share of a signal's energy that codes capture at a given rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import theory
from .._arrays import Float64
from .measuring import Advance, unwatched

SHOWN = (0.1, 0.25, 0.4, 0.5, 1.0)


@dataclass(frozen=True)
class Energy:
    """Shares of the energy of white signals against bits per dimension."""

    rate: Float64
    shannon: Float64  # the limit of every code
    adaptive: Float64  # this code; the best scalar quantiser up to about one bit
    ideal_subspace: Float64  # an ideal vector quantiser of one bit per dimension on a part of the dimensions
    signs: Float64  # plain signs of a part of the dimensions
    shown: Float64  # rates of the table, and this code with one and two levels at them
    by_levels: list[Float64]


def energy(*, advance: Advance = unwatched) -> Energy:
    """Compute all curves without drawing them."""
    rate, shown = np.linspace(0, 1, 101), np.array(SHOWN)
    found = Energy(
        rate=rate,
        shannon=theory.rate_distortion_limit(rate),
        adaptive=theory.captured_energy(rate),
        ideal_subspace=theory.rate_distortion_limit(1.0) * rate,
        signs=2 / np.pi * rate,
        shown=shown,
        by_levels=[theory.captured_energy(shown, levels=levels) for levels in (1, 2)],
    )
    advance(1.0)
    return found
