"""Indexes: entries with ids, in memory or in a folder, with exact search."""

from __future__ import annotations

from .base import BaseIndex, LearnedIndex
from .entries import Entries, Entry
from .index import Index, deferred_of, index_of, nulls_of, open_index, store_of
from .results import Match, Matches, Neighbors, Pairs

__all__ = [
    "BaseIndex",
    "Entries",
    "Entry",
    "Index",
    "LearnedIndex",
    "Match",
    "Matches",
    "Neighbors",
    "Pairs",
    "deferred_of",
    "index_of",
    "nulls_of",
    "open_index",
    "store_of",
]
