"""What to expect before building: numbers in, numbers out."""

from __future__ import annotations

from .distances import storage_bits
from .order_statistics import mean_kept_magnitude

__all__ = ["mean_kept_magnitude", "storage_bits"]
