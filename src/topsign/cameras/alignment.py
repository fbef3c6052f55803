"""Peak to correlation energy of a residual and an uncompressed fingerprint."""

from __future__ import annotations

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Array

NEIGHBORHOOD = 5
"""The energy excludes shifts of up to this many pixels in each direction, a square of 11 x 11."""

CUSTOMARY = 60.0
"""Threshold of Goljan, Fridrich and Filler 2009."""


def peak_to_correlation_energy(noise: Array, pattern: Array) -> float:
    """Return the PCE of a residual W and the expected pattern I K, both (height, width), at shift zero.

    The PCE is the signed squared correlation at shift zero, divided by the mean square of the correlations at all
    circular shifts outside a neighbourhood of 11 x 11 (Goljan, Fridrich and Filler 2009, Equation 7). Its magnitude is
    about 1 for impostors, and 60 is a customary threshold. The PCE is 0 if one of the two is constant.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pattern = rng.standard_normal((64, 64))
    >>> peak_to_correlation_energy(pattern + 3 * rng.standard_normal((64, 64)), pattern) > 60
    True
    """
    first, second = (np.asarray(one, np.float64) - np.mean(one, dtype=np.float64) for one in (noise, pattern))
    if first.shape != second.shape or first.ndim != 2 or min(first.shape) <= 2 * NEIGHBORHOOD + 1:
        raise ValueError(
            f"noise and pattern must have one shape, more than {2 * NEIGHBORHOOD + 1} pixels a side, "
            f"got {first.shape} and {second.shape}"
        )
    spectrum = scipy.fft.rfft2(first) * np.conj(scipy.fft.rfft2(second))
    correlations = scipy.fft.irfft2(spectrum, first.shape)
    peak = float(correlations[0, 0])
    near = np.arange(-NEIGHBORHOOD, NEIGHBORHOOD + 1)
    correlations[np.ix_(near, near)] = 0
    energy = float((correlations**2).sum()) / (correlations.size - len(near) ** 2)
    return float(np.sign(peak)) * peak**2 / energy if energy > 0 else 0.0
