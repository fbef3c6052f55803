"""Structures and functions of the C interface (``native/topsign.h``), and their construction from arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._arrays import Array, Bytes, Float32, Int64
from .layout import Layout
from .products import Product
from .ranges import CellPositions, CellTables, CodeRange, QueriedCells, TrellisRange, VisitedCodes
from .trellis import (
    RoundedCells,
    RoundedQueries,
    TrellisSignals,
    TrellisTables,
    address,
    norm_fractions,
    trellis_levels,
)


class CRun(ctypes.Structure):
    _fields_ = (("path", c_int32), ("n_threads", c_int32))


class CRows(ctypes.Structure):
    _fields_ = (("values", c_void_p), ("count", c_int64), ("width", c_int64))


class CLayout(ctypes.Structure):
    _fields_ = (("n_bits", c_int64), ("n_pool", c_int64), ("low_bits", c_int64))


class CCodes(ctypes.Structure):
    _fields_ = (
        ("layout", CLayout),
        ("data", c_void_p),
        ("count", c_int64),
        ("alive", c_void_p),
        ("weights", c_void_p),
        ("ids", c_void_p),
        ("first_row", c_int64),
    )


class CCodeRanges(ctypes.Structure):
    _fields_ = (("ranges", POINTER(CCodes)), ("count", c_int64))


class CSigns(ctypes.Structure):
    _fields_ = (("bits", c_void_p), ("masks", c_void_p), ("count", c_int64))


class CBest(ctypes.Structure):
    _fields_ = (("k", c_int64), ("rows", c_void_p), ("values", c_void_p))


class CFound(ctypes.Structure):
    _fields_ = (
        ("bounds", c_void_p),
        ("capacity", c_int64),
        ("rows", c_void_p),
        ("values", c_void_p),
        ("counts", c_void_p),
    )


class CRotation(ctypes.Structure):
    _fields_ = (
        ("signals", CRows),
        ("signs", c_void_p),
        ("n_rounds", c_int64),
        ("transpose", c_int32),
        ("out", c_void_p),
    )


class CProduct(ctypes.Structure):
    _fields_ = (
        ("panels", c_void_p),
        ("n_columns", c_int64),
        ("minus", c_void_p),
        ("rows", c_void_p),
        ("count", c_int64),
        ("out", c_void_p),
    )


class CSelection(ctypes.Structure):
    _fields_ = (
        ("projected", CRows),
        ("n_bits", c_int64),
        ("locations", c_void_p),
        ("signs", c_void_p),
        ("totals", c_void_p),
    )


class CContents(ctypes.Structure):
    _fields_ = (("locations", c_void_p), ("signs", c_void_p))


class CSets(ctypes.Structure):
    _fields_ = (("n_sets", c_int64), ("n_bits", c_int64), ("n_pool", c_int64), ("capacity", c_int64))


class CTrellisNorm(ctypes.Structure):
    _fields_ = (("linear", c_void_p), ("quadratic", c_void_p), ("unit", c_float), ("constant", c_float))


class CTrellis(ctypes.Structure):
    _fields_ = (
        ("n_bits", c_int64),
        ("window", c_int64),
        ("n_coded", c_int64),
        ("code_bytes", c_int64),
        ("offsets", c_void_p),
        ("multipliers", c_void_p),
        ("addends", c_void_p),
        ("levels", c_void_p),
        ("norm", CTrellisNorm),
    )


class CTrellisCosts(ctypes.Structure):
    _fields_ = (
        ("scales", c_void_p),
        ("squares", c_void_p),
        ("square_shifts", c_void_p),
        ("shifts", c_void_p),
        ("limit", c_int32),
    )


class CTrellisSignals(ctypes.Structure):
    _fields_ = (
        ("trellis", CTrellis),
        ("costs", CTrellisCosts),
        ("values", c_void_p),
        ("count", c_int64),
        ("rows", c_void_p),
        ("mark", c_int64),
    )


class CTrellisCodes(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("count", c_int64))


class CTrellisQueries(ctypes.Structure):
    _fields_ = (
        ("values", c_void_p),
        ("fine", c_void_p),
        ("fine_bits", c_int64),
        ("scales", c_void_p),
        ("constants", c_void_p),
        ("count", c_int64),
    )


class CTrellisRounding(ctypes.Structure):
    _fields_ = (
        ("projected", CRows),
        ("columns", c_void_p),
        ("weights", c_void_p),
        ("n_cells", c_int64),
        ("ends", c_void_p),
        ("fine_bits", c_void_p),
        ("values", c_void_p),
        ("fine", c_void_p),
        ("scales", c_void_p),
    )


class CTrellisCell(ctypes.Structure):
    _fields_ = (("trellis", CTrellis), ("queries", CTrellisQueries))


class CTrellisRanges(ctypes.Structure):
    _fields_ = (("cells", c_void_p), ("n_cells", c_int64), ("ranges", c_void_p), ("n_ranges", c_int64))
    held: tuple[Int64, Int64]  # memory of both: rows of the fields of ts_trellis_cell and ts_trellis_range


class CRegionSegment(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("alive", c_void_p),
        ("weights", c_void_p),
        ("ids", c_void_p),
        ("first_row", c_int64),
        ("positions", c_void_p),
        ("starts", c_void_p),
    )


class CVisits(ctypes.Structure):
    _fields_ = (
        ("segments", POINTER(CRegionSegment)),
        ("n_segments", c_int64),
        ("n_regions", c_int64),
        ("code_bytes", c_int64),
        ("n_queries", c_int64),
        ("starts", c_void_p),
        ("regions", c_void_p),
    )


class CRegions(ctypes.Structure):
    _fields_ = (
        ("means", c_void_p),
        ("scales", c_void_p),
        ("half_norms", c_void_p),
        ("counts", c_void_p),
        ("n_regions", c_int64),
        ("width", c_int64),
    )


class CRegionRule(ctypes.Structure):
    _fields_ = (
        ("edges", c_void_p),
        ("n_regions", c_void_p),
        ("n_entries", c_void_p),
        ("n_strata", c_int64),
        ("least", c_double),
    )


class CRegionChoice(ctypes.Structure):
    _fields_ = (("best", c_void_p), ("starts", c_void_p), ("regions", c_void_p), ("capacity", c_int64))


class CTrellisCells(ctypes.Structure):
    _fields_ = (
        ("cells", c_void_p),
        ("n_cells", c_int64),
        ("cell_byte", c_int64),
        ("cell_mask", c_int32),
        ("fractions", c_void_p),
    )
    held: Int64  # memory of the cells


class CBytes(ctypes.Structure):
    _fields_ = (
        ("queries", c_void_p),
        ("rows", c_void_p),
        ("n_queries", c_int64),
        ("n_rows", c_int64),
        ("width", c_int64),
    )


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ts_rotate": (POINTER(CRotation),),
    "ts_multiply": (POINTER(CRows), c_void_p, POINTER(CProduct), c_int64),
    "ts_square_norms": (POINTER(CRows), c_void_p),
    "ts_magnitude_sums": (POINTER(CRows), c_void_p),
    "ts_inner_products": (POINTER(CRows), c_void_p, c_void_p),
    "ts_select": (POINTER(CSelection),),
    "ts_pack_bits": (POINTER(CRows), c_void_p),
    "ts_pack_codes": (POINTER(CLayout), c_int64, POINTER(CContents), c_void_p),
    "ts_unpack_codes": (POINTER(CCodes), POINTER(CContents)),
    "ts_valid_codes": (POINTER(CCodes), c_void_p),
    "ts_mismatches": (POINTER(CCodes), POINTER(CSigns), c_void_p),
    "ts_score_sums": (POINTER(CCodes), POINTER(CRows), c_void_p),
    "ts_rank_mismatches": (POINTER(CCodeRanges), POINTER(CSigns), POINTER(CBest)),
    "ts_within_mismatches": (POINTER(CCodeRanges), POINTER(CSigns), POINTER(CFound)),
    "ts_rank_scores": (POINTER(CCodeRanges), POINTER(CRows), POINTER(CBest)),
    "ts_within_scores": (POINTER(CCodeRanges), POINTER(CRows), POINTER(CFound)),
    "ts_encode_sets": (POINTER(CSets), c_void_p, c_void_p, c_void_p),
    "ts_decode_sets": (POINTER(CSets), c_void_p, c_void_p),
    "ts_trellis_round": (POINTER(CTrellisRounding),),
    "ts_trellis_encode": (POINTER(CTrellisSignals), c_int64, c_void_p),
    "ts_trellis_decode": (POINTER(CTrellis), POINTER(CTrellisCodes), c_void_p),
    "ts_trellis_weights": (POINTER(CTrellis), POINTER(CTrellisCodes), c_void_p),
    "ts_trellis_sums": (POINTER(CTrellisCell), POINTER(CTrellisCodes), c_void_p),
    "ts_rank_trellis": (POINTER(CTrellisRanges), POINTER(CBest)),
    "ts_within_trellis": (POINTER(CTrellisRanges), POINTER(CFound)),
    "ts_visit_mismatches": (POINTER(CLayout), POINTER(CVisits), POINTER(CSigns), POINTER(CBest)),
    "ts_visit_scores": (POINTER(CLayout), POINTER(CVisits), POINTER(CRows), POINTER(CBest)),
    "ts_visit_trellis": (POINTER(CTrellisCells), POINTER(CVisits), POINTER(CBest)),
    "ts_byte_products": (POINTER(CBytes), c_void_p),
    "ts_choose_regions": (POINTER(CRegions), POINTER(CRegionRule), POINTER(CRows), POINTER(CRegionChoice)),
}
"""Arguments of each kernel after the CRun; all return 0, or 1 if memory runs out."""


def c_rows(values: Float32) -> CRows:
    return CRows(address(values), *values.shape)


def c_products(products: Sequence[Product], outputs: Sequence[Float32]) -> Any:
    made = (CProduct * len(products))()
    for place, one, out in zip(made, products, outputs, strict=True):
        place.panels, place.n_columns, place.minus = (
            address(one.panels.values),
            one.panels.n_columns,
            address(one.minus),
        )
        place.rows, place.count, place.out = address(one.rows), len(out), address(out)
    return made


def c_layout(layout: Layout) -> CLayout:
    return CLayout(layout.n_bits, layout.n_pool, layout.low_bits)


def c_codes(layout: Layout, codes: Bytes) -> CCodes:
    return CCodes(c_layout(layout), address(codes), len(codes), None, None, None, 0)


def c_code_ranges(layout: Layout, ranges: Sequence[CodeRange]) -> CCodeRanges:
    made, parts = c_layout(layout), (CCodes * len(ranges))()
    for part, one in zip(parts, ranges, strict=True):
        part.layout, part.data, part.count, part.first_row = made, address(one.codes), len(one.codes), one.first_row
        part.alive, part.weights, part.ids = map(address, (one.alive, one.weights, one.ids))
    return CCodeRanges(parts, len(ranges))


_TRELLISES = WeakKeyDictionary[TrellisTables, CTrellis]()


def c_trellis(tables: TrellisTables) -> CTrellis:
    made = _TRELLISES.get(tables)  # a search of many cells takes nearly as long to make them as to use them
    if made is None:
        made = _TRELLISES[tables] = _made_trellis(tables)
    return made


def _made_trellis(tables: TrellisTables) -> CTrellis:
    sizes = tables.n_bits, tables.window, tables.n_coded, tables.code_bytes
    arrays: tuple[Array, ...] = (tables.offsets, *tables.sequences, trellis_levels())
    norm = CTrellisNorm(address(tables.linear), address(tables.quadratic), tables.unit, tables.constant)
    return CTrellis(*sizes, *map(address, arrays), norm)


def c_trellis_codes(codes: Bytes) -> CTrellisCodes:
    return CTrellisCodes(address(codes), len(codes))


def c_trellis_costs(tables: TrellisTables) -> CTrellisCosts:
    arrays = tables.scales, tables.squares, tables.square_shifts, tables.shifts
    return CTrellisCosts(*map(address, arrays), tables.limit)


def c_trellis_signals(cells: Sequence[TrellisSignals]) -> Any:
    made = (CTrellisSignals * len(cells))()
    for place, cell in zip(made, cells, strict=True):
        place.trellis, place.costs = c_trellis(cell.tables), c_trellis_costs(cell.tables)
        place.values, place.count = address(cell.values), len(cell.values)
        place.rows, place.mark = address(cell.rows), cell.mark
    return made


def c_trellis_cell(tables: TrellisTables, queries: RoundedQueries) -> CTrellisCell:
    digits = address(queries.values), address(queries.fine), queries.fine_bits
    factors = address(queries.scales), address(queries.constants)
    return CTrellisCell(c_trellis(tables), CTrellisQueries(*digits, *factors, len(queries)))


# There may be hundreds of cells and thousands of ranges. Rows of integers of 64 bits, the fields of a structure, take
# less time than ctypes structures, and rows that do not depend on the queries are kept for later searches.
_TABLE_ROWS = WeakKeyDictionary[CellTables, Int64]()
_POSITION_ROWS = WeakKeyDictionary[CellPositions, Int64]()


def _begin(array: Array | None) -> int:
    return address(array) or 0


def _cell_rows(cells: QueriedCells) -> Int64:
    """Return the fields of a ts_trellis_cell for each cell."""
    tables = _TABLE_ROWS.get(cells.tables)
    if tables is None:
        fields = b"".join(bytes(c_trellis(one)) for one in cells.tables.cells)
        tables = _TABLE_ROWS[cells.tables] = np.frombuffer(fields, np.int64).reshape(len(cells.tables.cells), -1)
    return np.concatenate([tables, _query_rows(cells.queries)], axis=1)


def _query_rows(queries: RoundedCells) -> Int64:
    """Return the fields of a ts_trellis_queries for each cell; addresses hold in this process only."""
    values, fine, scales, constants = map(_begin, (queries.values, queries.fine, queries.scales, queries.constants))
    rows, n_queries = list[tuple[int, ...]](), queries.n_queries
    for size, bits in zip(queries.sizes.tolist(), queries.fine_bits.tolist(), strict=True):
        rows.append((values, fine if bits else 0, bits, scales, constants, n_queries))
        values, fine = values + size * n_queries, fine + size * n_queries
        scales, constants = scales + 4 * n_queries, constants + 4 * n_queries
    return np.array(rows, np.int64)


def _range_rows(ranges: Sequence[TrellisRange], fractions: int) -> Int64:
    """Return the fields of a ts_trellis_range for each cell of each range."""
    of_one, parts = [], []
    for one in ranges:
        shared = one.first_row, _begin(one.codes), _begin(one.alive), _begin(one.ids), fractions
        if one.cells is None:
            of_one.append((0, *shared, len(one.codes), 0))
        else:
            parts.append(_position_rows(one.cells).copy())
            parts[-1][:, 1:6] = shared
    return np.concatenate([np.array(of_one, np.int64).reshape(-1, 8), *parts])


def _position_rows(cells: CellPositions) -> Int64:
    """Return the fields of a ts_trellis_range for each cell that do not depend on the search; others are 0."""
    rows = _POSITION_ROWS.get(cells)
    if rows is None:
        rows = np.zeros((len(cells.starts) - 1, 8), np.int64)
        rows[:, 0], rows[:, 6] = np.arange(len(rows)), np.diff(cells.starts)
        rows[:, 7] = _begin(cells.positions) + 8 * cells.starts[:-1]
        _POSITION_ROWS[cells] = rows  # complete, because other threads may search at the same time
    return rows


def c_trellis_ranges(cells: QueriedCells, ranges: Sequence[TrellisRange]) -> CTrellisRanges:
    fractions = _begin(norm_fractions() if cells.norms else None)
    held = _cell_rows(cells), _range_rows(ranges, fractions)
    made = CTrellisRanges(address(held[0]), len(held[0]), address(held[1]), len(held[1]))
    made.held = held
    return made


def c_visits(visits: VisitedCodes) -> CVisits:
    arrays, held = visits.segments.arrays, visits.segments.held
    parts = held.get("segments")
    if parts is None:
        parts = held["segments"] = (CRegionSegment * len(arrays))()
        for part, one in zip(parts, arrays, strict=True):
            part.data, part.alive, part.weights, part.ids = map(address, (one.codes, one.alive, one.weights, one.ids))
            part.first_row, part.positions, part.starts = one.first_row, address(one.positions), address(one.starts)
    sizes = len(parts), len(arrays[0].starts) - 1, arrays[0].codes.shape[1], len(visits.starts) - 1
    return CVisits(parts, *sizes, address(visits.starts), address(visits.regions))


def c_trellis_cells(cells: QueriedCells) -> CTrellisCells:
    held = _cell_rows(cells)
    fractions = address(norm_fractions()) if cells.norms else None
    made = CTrellisCells(address(held), len(held), cells.cell_byte, len(held) - 1, fractions)
    made.held = held
    return made
