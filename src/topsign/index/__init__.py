"""Search: entries that carry their own locations, or the signs of the whole pool."""

from __future__ import annotations

from .adaptive import AdaptiveIndex
from .neighbors import Entries, Matches, Neighbors
from .opening import open_index
from .sign import SignIndex

__all__ = ["AdaptiveIndex", "Entries", "Matches", "Neighbors", "SignIndex", "open_index"]
