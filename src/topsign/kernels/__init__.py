"""Kernels: operations on raw arrays in C++, and the memory layout of codes."""

from .arrays import (
    BLOCK,
    FACTOR_BYTES,
    CodeBlocks,
    CodeRange,
    Layout,
    Panels,
    Product,
    RegionArrays,
    RegionCodes,
    RegionMeans,
    RegionRule,
    Ring,
    RoundedQueries,
    Scoring,
    VisitedCodes,
    pack_log_factors,
    unpack_factors,
)
from .choice import active, available, info, n_threads, use
from .native import Kernels

__all__ = [
    "BLOCK",
    "FACTOR_BYTES",
    "CodeBlocks",
    "CodeRange",
    "Kernels",
    "Layout",
    "Panels",
    "Product",
    "RegionArrays",
    "RegionCodes",
    "RegionMeans",
    "RegionRule",
    "Ring",
    "RoundedQueries",
    "Scoring",
    "VisitedCodes",
    "active",
    "available",
    "info",
    "n_threads",
    "pack_log_factors",
    "unpack_factors",
    "use",
]
