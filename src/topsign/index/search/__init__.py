"""Search: prepared queries, scans of snapshots, merging, rescoring and significance."""

from __future__ import annotations

from .hits import Hits
from .reach import Reach
from .rescoring import Originals, Source, rank_exactly
from .scans import Scan, make_scans
from .significance import Significance, shared_significance

__all__ = [
    "Hits",
    "Originals",
    "Reach",
    "Scan",
    "Significance",
    "Source",
    "make_scans",
    "rank_exactly",
    "shared_significance",
]
