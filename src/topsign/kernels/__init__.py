"""Kernels: operations on raw arrays in C++, and the memory layouts of codes."""

from .choice import active, available, info, n_threads, use
from .layout import LAYOUTS, Layout
from .native import Kernels
from .ranges import CodeRange, TrellisRange
from .trellis import RoundedQueries, TrellisTables

__all__ = [
    "LAYOUTS",
    "CodeRange",
    "Kernels",
    "Layout",
    "RoundedQueries",
    "TrellisRange",
    "TrellisTables",
    "active",
    "available",
    "info",
    "n_threads",
    "use",
]
