"""Indexes: entries with ids, in memory or in a folder, with exact search."""

from __future__ import annotations

from .base import BaseIndex as BaseIndex
from .base import LearnedIndex as LearnedIndex
from .entries import Entries as Entries
from .entries import Entry as Entry
from .index import Index as Index
from .index import deferred_of as deferred_of
from .index import index_of as index_of
from .index import nulls_of as nulls_of
from .index import open_index as open_index
from .index import store_of as store_of
from .results import Match as Match
from .results import Matches as Matches
from .results import Neighbors as Neighbors
from .results import Pairs as Pairs
