"""Indexes: entries with ids, in memory or in a file, and exact search over them."""

from __future__ import annotations

from .adaptive import AdaptiveIndex
from .index import Index, open_index
from .pairs import Pairs
from .results import Entries, Entry, Matches, Neighbors
from .sign import SignIndex
from .tables import Match
from .trellis import TrellisIndex

__all__ = [
    "AdaptiveIndex",
    "Entries",
    "Entry",
    "Index",
    "Match",
    "Matches",
    "Neighbors",
    "Pairs",
    "SignIndex",
    "TrellisIndex",
    "open_index",
]
