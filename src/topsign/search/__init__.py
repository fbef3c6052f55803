"""Search: engines that execute comparisons over snapshots, significance, calibration, rescoring and pairs."""

from __future__ import annotations

from .calibration import Calibration, Population, Progress, bulk_of_queries, learn_calibration
from .engine import ENGINE, Engine, KernelEngine, living_ranges
from .hits import Hits
from .limits import RangeLimit
from .pairs import PairLimit, compare_entries
from .rescoring import KeptOriginals, Originals, Source, rank_exactly
from .sample import SampleDraw, first_excluded, own_signals, pruned
from .scan import Scan, make_scans

__all__ = [
    "ENGINE",
    "Calibration",
    "Engine",
    "Hits",
    "KeptOriginals",
    "KernelEngine",
    "Originals",
    "PairLimit",
    "Population",
    "Progress",
    "RangeLimit",
    "SampleDraw",
    "Scan",
    "Source",
    "bulk_of_queries",
    "compare_entries",
    "first_excluded",
    "learn_calibration",
    "living_ranges",
    "make_scans",
    "own_signals",
    "pruned",
    "rank_exactly",
]
