"""Search: engines that execute comparisons over snapshots, significance, calibration, rescoring and pairs."""

from __future__ import annotations

from .calibration import Calibration, Population, Progress, bulk_of_queries, learn_calibration
from .engine import ENGINE, Engine, KernelEngine, living_ranges
from .equal_codes import EqualCodes
from .hits import Hits
from .limits import RangeLimit
from .pairs import PairLimit, compare_entries
from .recall import MIN_QUERIES as MIN_RECALL_QUERIES
from .recall import RecallCalibration
from .recall_learning import calibrate_recall, n_calibration, queries_of, sample_rows
from .region_order import RegionOrder, RegionVisits
from .regions import MAX_REGIONS, Regions, automatic_regions, decoded_rows, learn_regions
from .regions import MIN_ENTRIES as MIN_REGION_ENTRIES
from .rescoring import ExactSignals, KeptOriginals, Originals, Source, rank_exactly
from .sample import SampleDraw, first_excluded, keep_signals, likely_excluded, own_signals, pruned, sampled_rows
from .scan import SMALL_QUERY_BYTES, Scan, make_scans
from .visiting import NOT_ASKED, RegionEntries, RegionSearch, Visited

__all__ = [
    "ENGINE",
    "MAX_REGIONS",
    "MIN_RECALL_QUERIES",
    "MIN_REGION_ENTRIES",
    "NOT_ASKED",
    "SMALL_QUERY_BYTES",
    "Calibration",
    "Engine",
    "EqualCodes",
    "ExactSignals",
    "Hits",
    "KeptOriginals",
    "KernelEngine",
    "Originals",
    "PairLimit",
    "Population",
    "Progress",
    "RangeLimit",
    "RecallCalibration",
    "RegionEntries",
    "RegionOrder",
    "RegionSearch",
    "RegionVisits",
    "Regions",
    "SampleDraw",
    "Scan",
    "Source",
    "Visited",
    "automatic_regions",
    "bulk_of_queries",
    "calibrate_recall",
    "compare_entries",
    "decoded_rows",
    "first_excluded",
    "keep_signals",
    "learn_calibration",
    "learn_regions",
    "likely_excluded",
    "living_ranges",
    "make_scans",
    "n_calibration",
    "own_signals",
    "pruned",
    "queries_of",
    "rank_exactly",
    "sample_rows",
    "sampled_rows",
]
