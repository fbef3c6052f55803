"""Indexes: entries with ids, in memory or in a file, and exact search over them."""

from __future__ import annotations

from .adaptive import AdaptiveIndex
from .index import Index, open_index
from .results import Entries, Matches, Neighbors
from .sign import SignIndex

__all__ = ["AdaptiveIndex", "Entries", "Index", "Matches", "Neighbors", "SignIndex", "open_index"]
