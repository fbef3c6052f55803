"""Type aliases for arrays, and arrays as text."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Booleans = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def pack_array(values: Array) -> str:
    """Encode an array as base64 of its little-endian bytes, uncompressed because fingerprints cover it."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def unpack_array(text: object, dtype: str, length: int | None, name: str) -> Array:
    """Decode an array of this or any length from base64; raise ValueError if it is invalid."""
    if not isinstance(text, str):
        raise ValueError(f"{name} must be text, got {type(text).__name__}")
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), np.dtype(dtype).newbyteorder("<"))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    if length not in (None, len(values)):
        raise ValueError(f"{name} must have {length} values of {dtype}, got {len(values)}")
    return values.astype(dtype)
