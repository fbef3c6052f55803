"""Extra columns of a segment in separate files: originals, which are large, and regions, which are derived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32

if TYPE_CHECKING:
    from ..families import Recipe

EXTRA_FILES = {"originals": ("originals", "original_scales"), "regions": ("regions",)}
"""Columns of each extra file of a segment."""

EXTRA_COLUMNS = {column: file for file, columns in EXTRA_FILES.items() for column in columns}
"""Extra file of each column."""

ORIGINAL_TYPES = ("float32", "float16", "int8")
"""Types of kept originals."""

EXTRA_TYPES = {"originals": ORIGINAL_TYPES, "original_scales": ("float32",), "regions": ("uint16",)}
"""Permitted types of each extra column."""

_HALF_RANGE = (2.0**-6, 2.0**15)  # range of a signal's largest magnitude for which float16 needs no scale


def pack_originals(signals: Float32, kind: str) -> dict[str, Array]:
    """Convert signals to values of type ``kind`` and a scale for each signal.

    A signal is its values times its scale. Scales are 1 for float32, powers of two for float16 (1 unless the largest
    magnitude is far from 1), and a 127th of the largest magnitude for int8.
    """
    peaks = np.abs(signals).max(axis=1, initial=0).astype(np.float64)
    scales: npt.NDArray[np.float64] = np.ones(len(signals))
    if kind == "float16":
        outside = (peaks > 0) & ((peaks < _HALF_RANGE[0]) | (peaks > _HALF_RANGE[1]))
        scales[outside] = np.exp2(np.floor(np.log2(peaks[outside])))
    elif kind == "int8":
        scales = np.where(peaks > 0, peaks / 127, 1.0)
    scaled = scales.astype(np.float32)
    values = signals / scaled[:, np.newaxis] if kind != "float32" else signals
    if kind == "int8":
        values = np.rint(values).clip(-127, 127)
    return {"originals": np.ascontiguousarray(values, dtype=kind), "original_scales": scaled}


def unpack_originals(values: Array, scales: Float32) -> Float32:
    """Reconstruct the signals of :func:`pack_originals`, within the precision of their type."""
    signals = values.astype(np.float32)
    return signals if values.dtype == np.float32 else signals * scales[:, np.newaxis].astype(np.float32)


def extra_shape(name: str, n_entries: int, recipe: Recipe) -> tuple[int, ...]:
    """Return the shape that an extra column of a segment must have."""
    return (n_entries, recipe.n_features) if name == "originals" else (n_entries,)
