"""Universal codes: the parity of each projection's quantisation cell."""

from __future__ import annotations

import numpy as np

from .._arrays import Bytes, Float32, Float64
from .._random import uniforms


def universal_dither(seed: int, n_bits: int, step: float) -> Float64:
    """Fixed uniform values in [0, 2 * step), one per projection, which the seed of the projection decides."""
    return uniforms(seed, "universal dither", 0, n_bits) * (2 * step)


def universal_bits(projected: Float32, dither: Float64, step: float) -> Bytes:
    """``floor((projected + dither) / step) mod 2``, packed."""
    cells = np.floor((projected + dither) / step)
    return np.packbits(cells % 2 == 1, axis=1, bitorder="little")
