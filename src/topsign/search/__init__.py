"""Search: engines that execute comparisons over snapshots, rescoring and pairs."""

from __future__ import annotations

from .engine import ENGINE, Engine, Hits, KernelEngine, living_ranges, rank_ranges
from .originals import ExactSignals, KeptOriginals, Originals, Source, rank_exactly
from .pairs import EqualCodes, PairedEntries, PairLimit, Reduced, compare_entries, find_groups, find_pairs
from .query_block import SMALL_QUERY_BYTES, QueryBlock, RangeLimit, query_blocks
from .recall import MIN_QUERIES as MIN_RECALL_QUERIES
from .recall import (
    NOT_ASKED,
    LocalRegions,
    RecallCalibration,
    RegionEntries,
    RegionSearch,
    SearchPlan,
    VisitReport,
    calibrate_recall,
    n_calibration,
    queries_of,
    sample_rows,
)
from .regions import (
    MAX_REGIONS,
    Progress,
    RegionOrder,
    Regions,
    RegionVisits,
    automatic_regions,
    decoded_rows,
    learn_regions,
)
from .regions import MIN_ENTRIES as MIN_REGION_ENTRIES

__all__ = [
    "ENGINE",
    "MAX_REGIONS",
    "MIN_RECALL_QUERIES",
    "MIN_REGION_ENTRIES",
    "NOT_ASKED",
    "SMALL_QUERY_BYTES",
    "Engine",
    "EqualCodes",
    "ExactSignals",
    "Hits",
    "KeptOriginals",
    "KernelEngine",
    "LocalRegions",
    "Originals",
    "PairLimit",
    "PairedEntries",
    "Progress",
    "QueryBlock",
    "RangeLimit",
    "RecallCalibration",
    "Reduced",
    "RegionEntries",
    "RegionOrder",
    "RegionSearch",
    "RegionVisits",
    "Regions",
    "SearchPlan",
    "Source",
    "VisitReport",
    "automatic_regions",
    "calibrate_recall",
    "compare_entries",
    "decoded_rows",
    "find_groups",
    "find_pairs",
    "learn_regions",
    "living_ranges",
    "n_calibration",
    "queries_of",
    "query_blocks",
    "rank_exactly",
    "rank_ranges",
    "sample_rows",
]
