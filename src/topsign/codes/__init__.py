"""Codes: packed signs, and adaptive codes that keep their own locations."""

from __future__ import annotations

from .adaptive import AdaptiveCodes
from .bits import as_projected, hamming, query_bits
from .content import check_content
from .trellis import TrellisCodes, reconstruct
from .universal import universal_bits, universal_dither

__all__ = [
    "AdaptiveCodes",
    "TrellisCodes",
    "as_projected",
    "check_content",
    "hamming",
    "query_bits",
    "reconstruct",
    "universal_bits",
    "universal_dither",
]
