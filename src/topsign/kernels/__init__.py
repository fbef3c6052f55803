"""Kernels: operations on raw arrays, and the memory layouts of codes.

:class:`Kernels` states what a set of kernels does; the C++ core and its NumPy twin do it, with the same bits.
"""

from .choice import active, available, info, n_threads, use
from .interface import Kernels
from .layout import LAYOUTS, Layout
from .searches import CodeSegment
from .tables import TrellisTables
from .trellis import RoundedQueries, TrellisEntries

__all__ = [
    "LAYOUTS",
    "CodeSegment",
    "Kernels",
    "Layout",
    "RoundedQueries",
    "TrellisEntries",
    "TrellisTables",
    "active",
    "available",
    "info",
    "n_threads",
    "use",
]
