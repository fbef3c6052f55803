"""Search: entries that carry their own locations, or the signs of the whole pool."""

from __future__ import annotations

from .adaptive import AdaptiveIndex
from .neighbors import Matches, Neighbors
from .sign import SignIndex

__all__ = ["AdaptiveIndex", "Matches", "Neighbors", "SignIndex"]
