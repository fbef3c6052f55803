"""Indexes: entries with ids, in memory or in a folder, with exact search."""

from __future__ import annotations

from .base import BaseIndex
from .constructors import CONSTRUCTORS, AdaptiveIndex, GroupedIndex, SignIndex, TrellisIndex
from .entries import Entries, Entry
from .index import Index, index_for, open_index
from .results import Match, Matches, Neighbors, Pairs

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
