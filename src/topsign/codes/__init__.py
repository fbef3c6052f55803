"""Codes: packed signs, and adaptive codes that keep their own locations."""

from __future__ import annotations

from .adaptive import AdaptiveCodes
from .bits import as_projected, hamming, query_bits
from .content import check_content
from .universal import universal_bits, universal_dither

__all__ = [
    "AdaptiveCodes",
    "as_projected",
    "check_content",
    "hamming",
    "query_bits",
    "universal_bits",
    "universal_dither",
]
