"""Search: prepared queries, scans of snapshots, merging, rescoring and significance."""

from __future__ import annotations

from .calibration import Calibration, LearnedSignificance, Population, SignalSample, learn_calibration
from .engine import Engine, KernelEngine, column_of
from .hits import Hits
from .queries import Queries
from .reach import Reach
from .rescoring import Originals, Source, rank_exactly
from .scans import Scan, isotropic_law, make_scans
from .significance import Significance, shared_significance
from .trellis_engine import TrellisEngine, TrellisKernelEngine

__all__ = [
    "Calibration",
    "Engine",
    "Hits",
    "KernelEngine",
    "LearnedSignificance",
    "Originals",
    "Population",
    "Queries",
    "Reach",
    "Scan",
    "SignalSample",
    "Significance",
    "Source",
    "TrellisEngine",
    "TrellisKernelEngine",
    "column_of",
    "isotropic_law",
    "learn_calibration",
    "make_scans",
    "rank_exactly",
    "shared_significance",
]
