"""Reverse water-filling: how a number of bits is best shared out among coordinates of unequal variances."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._arrays import Float64


def water_filling(variances: npt.ArrayLike, n_bits: float) -> tuple[float, Float64]:
    """Distortion and bits of each coordinate that keep most energy of independent normal ones in ``n_bits`` bits.

    Exact: reverse water-filling. Coordinates of less variance than the level get no bits, the others
    ``log2(variance / level) / 2``.

    >>> level, rates = water_filling([4.0, 1.0, 0.1], 1)
    >>> level, rates
    (1.0, array([1., 0., 0.]))
    """
    spread = np.asarray(variances, dtype=np.float64)
    order = np.sort(spread[spread > 0])[::-1]
    if not order.size:
        raise ValueError("variances must be positive somewhere; the signals do not vary")
    # With the m largest coded, log2(level) = mean log2 of those - 2 n_bits / m: take the most whose least is above it.
    counts = np.arange(1, len(order) + 1)
    levels = np.cumsum(np.log2(order)) / counts - 2 * n_bits / counts
    n_coded = int(np.flatnonzero(np.log2(order) >= levels)[-1]) + 1
    level = float(2.0 ** levels[n_coded - 1])
    with np.errstate(divide="ignore"):
        rates = np.maximum(0.0, 0.5 * np.log2(spread / level))
    return level, rates
