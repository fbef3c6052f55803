"""Kernels: operations on raw arrays in C++, and the memory layouts of codes."""

from .choice import active, available, info, n_threads, use
from .layout import LAYOUTS, Layout
from .native import Kernels
from .products import Panels, Product
from .ranges import (
    CodeRange,
    RegionArrays,
    RegionCodes,
    RegionMeans,
    RegionRule,
    TrellisRange,
    VisitedCells,
    VisitedCodes,
)
from .trellis import CellColumns, RoundedQueries, TrellisSignals, TrellisTables

__all__ = [
    "LAYOUTS",
    "CellColumns",
    "CodeRange",
    "Kernels",
    "Layout",
    "Panels",
    "Product",
    "RegionArrays",
    "RegionCodes",
    "RegionMeans",
    "RegionRule",
    "RoundedQueries",
    "TrellisRange",
    "TrellisSignals",
    "TrellisTables",
    "VisitedCells",
    "VisitedCodes",
    "active",
    "available",
    "info",
    "n_threads",
    "use",
]
