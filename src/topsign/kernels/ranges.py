"""Ranges of codes: a search takes a list of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .._arrays import Bytes, Float32, Float64, Int32, Int64
from .trellis import RoundedCells, RoundedQueries, TrellisTables


@dataclass(frozen=True, eq=False)
class CodeRange:
    """Codes of one array that are searched together with those of other ranges."""

    codes: Bytes  # (n_codes, code_bytes)
    first_row: int = 0  # row of the first code in the snapshot
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    weights: Float32 | None = None  # factors of the scores
    ids: Int64 | None = None  # ascending; None: rows


@dataclass(frozen=True, eq=False)
class CellTables:
    """Tables of the cells of trellis codes."""

    cells: tuple[TrellisTables, ...]


@dataclass(frozen=True, eq=False)
class QueriedCells:
    """Cells of trellis codes with the queries rounded for each."""

    tables: CellTables
    queries: RoundedCells
    norms: bool = False  # whether scores are multiplied by the norms in the last two bytes of codes
    cell_byte: int = 0  # position of the byte that holds a code's cell; visits read it if there are several cells

    @classmethod
    def one(cls, tables: TrellisTables, queries: RoundedQueries, *, norms: bool = False) -> QueriedCells:
        """Return a single cell."""
        return cls(CellTables((tables,)), RoundedCells.of([queries]), norms)


@dataclass(frozen=True, eq=False)
class CellPositions:
    """Positions of the codes of each cell in an array."""

    positions: Int64  # those of cell c are positions[starts[c] : starts[c + 1]], ascending
    starts: Int64  # (n_cells + 1,)


@dataclass(frozen=True, eq=False)
class TrellisRange:
    """Trellis codes of one array that are searched together with those of other ranges."""

    codes: Bytes  # (n_codes, code_bytes)
    first_row: int = 0  # row of the first code in the snapshot
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    cells: CellPositions | None = None  # None: all codes belong to the first cell
    ids: Int64 | None = None  # ascending; None: rows


@dataclass(frozen=True, eq=False)
class RegionCodes:
    """Codes of one array in the order of their regions."""

    codes: Bytes  # (n_codes, code_bytes)
    positions: Int32  # those of region r are positions[starts[r] : starts[r + 1]]
    starts: Int32  # (n_regions + 1,)
    first_row: int = 0
    alive: Bytes | None = None
    weights: Float32 | None = None
    ids: Int64 | None = None


@dataclass(frozen=True, eq=False)
class RegionArrays:
    """Arrays of codes that searches visit again and again."""

    arrays: list[RegionCodes]
    held: dict[str, Any] = field(default_factory=dict)  # what kernels made of them, kept for later searches


@dataclass(frozen=True, eq=False)
class VisitedCodes:
    """Arrays of codes, and the regions that each query visits, each once."""

    segments: RegionArrays
    starts: Int64  # (n_queries + 1,)
    regions: Int32  # those of query q are regions[starts[q] : starts[q + 1]]


@dataclass(frozen=True, eq=False)
class RegionMeans:
    """Means of regions as bytes, and how many living entries each region has."""

    means: Bytes  # (n_regions, width) values plus 64, at most 127; the width is a multiple of 64
    scales: Float32  # (n_regions,) by which values are multiplied
    half_norms: Float32  # (n_regions,) half of the square norm of each mean
    counts: Int64  # (n_regions,)


@dataclass(frozen=True, eq=False)
class RegionRule:
    """Numbers of regions and entries that queries visit, by stratum; 0 regions means all entries.

    The stratum of a query is the number of edges that its best score reaches.
    """

    edges: Float64  # (n_strata - 1,) ascending
    n_regions: Int64  # (n_strata,)
    n_entries: Int64  # (n_strata,)
    least: float  # best score below which a query chooses none
