"""Reverse water-filling: optimal allocation of bits to coordinates with different variances."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._arrays import Float64


def water_filling(variances: npt.ArrayLike, n_bits: float) -> tuple[float, Float64]:
    """Return the water level and the bits per coordinate that minimise the distortion with ``n_bits`` bits in total.

    Exact for independent normal coordinates: coordinates with variance below the level get no bits, the others
    ``log2(variance / level) / 2``.

    >>> level, rates = water_filling([4.0, 1.0, 0.1], 1)
    >>> level, rates
    (1.0, array([1., 0., 0.]))
    """
    spread = np.asarray(variances, dtype=np.float64)
    order = np.sort(spread[spread > 0])[::-1]
    if not order.size:
        raise ValueError("at least one variance must be positive, but all are zero; the signals do not vary")
    # If the m largest are coded, log2(level) is their mean log2 minus 2 n_bits / m. Take the largest m whose smallest
    # variance is above its level.
    counts = np.arange(1, len(order) + 1)
    levels = np.cumsum(np.log2(order)) / counts - 2 * n_bits / counts
    n_coded = int(np.flatnonzero(np.log2(order) >= levels)[-1]) + 1
    level = float(2.0 ** levels[n_coded - 1])
    with np.errstate(divide="ignore"):
        rates = np.maximum(0.0, 0.5 * np.log2(spread / level))
    return level, rates
