"""Indexes: entries with ids, in memory or in a folder, with exact search."""

from __future__ import annotations

from .base import BaseIndex
from .constructors import CONSTRUCTORS, AdaptiveIndex, GroupedIndex, SignIndex, TrellisIndex
from .entries import Entries, Entry
from .index import Index
from .opening import index_for, open_index
from .results import Matches, Neighbors, Pairs
from .tables import Match

__all__ = [
    "CONSTRUCTORS",
    "AdaptiveIndex",
    "BaseIndex",
    "Entries",
    "Entry",
    "GroupedIndex",
    "Index",
    "Match",
    "Matches",
    "Neighbors",
    "Pairs",
    "SignIndex",
    "TrellisIndex",
    "index_for",
    "open_index",
]
