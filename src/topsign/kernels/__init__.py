"""Kernels: operations on raw arrays in C++, and the memory layouts of codes."""

from .choice import active, available, info, n_threads, use
from .layout import LAYOUTS, Layout
from .native import Kernels
from .products import Panels, Product
from .ranges import (
    CellPositions,
    CellTables,
    CodeRange,
    QueriedCells,
    RegionArrays,
    RegionCodes,
    RegionMeans,
    RegionRule,
    TrellisRange,
    VisitedCodes,
)
from .trellis import CellColumns, RoundedCells, RoundedQueries, TrellisSignals, TrellisTables

__all__ = [
    "LAYOUTS",
    "CellColumns",
    "CellPositions",
    "CellTables",
    "CodeRange",
    "Kernels",
    "Layout",
    "Panels",
    "Product",
    "QueriedCells",
    "RegionArrays",
    "RegionCodes",
    "RegionMeans",
    "RegionRule",
    "RoundedCells",
    "RoundedQueries",
    "TrellisRange",
    "TrellisSignals",
    "TrellisTables",
    "VisitedCodes",
    "active",
    "available",
    "info",
    "n_threads",
    "use",
]
