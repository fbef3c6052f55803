"""Scene signatures: 128 bits that recognise two photographs of one scene."""

from __future__ import annotations

import numpy as np
import scipy  # loads its modules on first use

from .._arrays import Array
from .residual import luminance

N_BLOCKS = 16
"""Blocks a side over which luminance is averaged."""

N_BITS = 128
MAX_DIFFERENT = 28
"""Bits in which signatures of one scene differ at most. Independent signatures do so with probability 5e-11."""

EVEN = 0.02
"""Scenes whose blocks vary by less than this share of their mean have no signature."""

_SUMS = np.add.outer(np.arange(N_BLOCKS), np.arange(N_BLOCKS))
_ORDER = np.argsort(_SUMS, axis=None, kind="stable")
_CHOSEN = _ORDER[_SUMS.ravel()[_ORDER] >= 3][:N_BITS]  # vignetting is in the orders below


def scene_signature(pixels: Array) -> bytes | None:
    """Return the signature of a scene, 16 bytes, from pixels of shape (size, size, 1 or 3); None for an even scene.

    Denoising leaves some detail of the scene in the residual. Two photographs that show the same scene at the same
    place (a copy, or a series from a tripod) therefore have correlated residuals, whichever cameras took them.

    The bits are signs of low-frequency cosine coefficients of the luminance. They hardly depend on exposure, noise,
    compression, or shifts of a few pixels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = (np.kron(rng.uniform(0, 255, (16, 16, 1)), np.ones((8, 8, 1))) for _ in range(2))
    >>> same_scene(scene_signature(first), scene_signature(0.8 * first + rng.standard_normal(first.shape)))
    True
    >>> same_scene(scene_signature(first), scene_signature(second))
    False
    """
    values = luminance(pixels)
    side = len(values) // N_BLOCKS
    blocks = values.reshape(N_BLOCKS, side, N_BLOCKS, side).mean(axis=(1, 3), dtype=np.float64)
    chosen = scipy.fft.dctn(blocks, norm="ortho").ravel()[_CHOSEN]
    deviation = float(np.sqrt(np.mean(chosen**2)))
    if deviation < EVEN * float(blocks.mean()) or deviation == 0:
        return None
    return np.packbits(chosen >= 0).tobytes()


def same_scene(first: bytes | None, second: bytes | None) -> bool:
    """Return whether two signatures are those of one scene; False if one is None."""
    if first is None or second is None:
        return False
    return (int.from_bytes(first) ^ int.from_bytes(second)).bit_count() <= MAX_DIFFERENT
