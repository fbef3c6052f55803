"""Structures and functions of the C interface (``native/topsign.h``), and their construction from arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_int32, c_int64, c_void_p
from typing import Any

from .._arrays import Array, Float32
from .arrays import FACTORS, KINDS, CodeRange, Layout, Product, Ring, RoundedQueries, Scoring, VisitedCodes, fractions


def address(array: Array | None) -> int | None:
    """Return where an array begins in memory."""
    return None if array is None else array.__array_interface__["data"][0]  # in half the time of ctypes.data


class CRun(ctypes.Structure):
    _fields_ = (("path", c_int32), ("n_threads", c_int32))


class CRows(ctypes.Structure):
    _fields_ = (("values", c_void_p), ("count", c_int64), ("width", c_int64))


class CLayout(ctypes.Structure):
    _fields_ = (("n_bits", c_int64), ("n_pool", c_int64), ("low_bits", c_int64))


class CCodes(ctypes.Structure):
    _fields_ = (
        ("planes", c_void_p),
        ("count", c_int64),
        ("alive", c_void_p),
        ("ids", c_void_p),
        ("first_row", c_int64),
    )


class CCodeRanges(ctypes.Structure):
    _fields_ = (("ranges", POINTER(CCodes)), ("count", c_int64))


class CRing(ctypes.Structure):
    _fields_ = (
        ("n_steps", c_int64),
        ("n_coded", c_int64),
        ("first", c_void_p),
        ("books", c_void_p),
        ("levels", c_void_p),
        ("columns", c_void_p),
        ("weights", c_void_p),
        ("scales", c_void_p),
        ("squares", c_void_p),
        ("constant", c_double),
    )


class CScoring(ctypes.Structure):
    _fields_ = (
        ("kind", c_int32),
        ("factor", c_int32),
        ("code_bytes", c_int64),
        ("width", c_int64),
        ("ring", POINTER(CRing)),
        ("layout", CLayout),
        ("fractions", c_void_p),
    )


class CQueries(ctypes.Structure):
    _fields_ = (("values", c_void_p), ("scales", c_void_p), ("constants", c_void_p), ("count", c_int64))


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


class CRegionSegment(ctypes.Structure):
    _fields_ = (("codes", CCodes), ("positions", c_void_p), ("starts", c_void_p))


class CVisits(ctypes.Structure):
    _fields_ = (
        ("segments", POINTER(CRegionSegment)),
        ("n_segments", c_int64),
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
    "ts_unpack_codes": (POINTER(CLayout), c_void_p, c_int64, POINTER(CContents)),
    "ts_valid_codes": (POINTER(CLayout), c_void_p, c_int64, c_void_p),
    "ts_encode_groups": (POINTER(CRows), c_void_p, c_void_p),
    "ts_ring_encode": (POINTER(CRing), POINTER(CRows), c_void_p),
    "ts_ring_norms": (POINTER(CRing), c_void_p, c_int64, c_int64, c_void_p),
    "ts_decode": (POINTER(CScoring), c_void_p, c_int64, c_void_p),
    "ts_round": (POINTER(CRows), c_int64, c_void_p, c_void_p),
    "ts_scores": (POINTER(CScoring), POINTER(CCodes), POINTER(CQueries), c_void_p),
    "ts_rank": (POINTER(CScoring), POINTER(CCodeRanges), POINTER(CQueries), POINTER(CBest)),
    "ts_within": (POINTER(CScoring), POINTER(CCodeRanges), POINTER(CQueries), POINTER(CFound)),
    "ts_visit": (POINTER(CScoring), POINTER(CVisits), POINTER(CQueries), POINTER(CBest)),
    "ts_encode_sets": (POINTER(CSets), c_void_p, c_void_p, c_void_p),
    "ts_decode_sets": (POINTER(CSets), c_void_p, c_void_p),
    "ts_byte_products": (POINTER(CBytes), c_void_p),
    "ts_choose_regions": (POINTER(CRegions), POINTER(CRegionRule), POINTER(CRows), POINTER(CRegionChoice)),
}


def c_rows(rows: Float32) -> CRows:
    return CRows(address(rows), *rows.shape)


def c_layout(layout: Layout) -> CLayout:
    return CLayout(layout.n_bits, layout.n_pool, layout.low_bits)


def c_products(products: Sequence[Product], outputs: Sequence[Float32]) -> Any:
    made = (CProduct * len(products))()
    for place, one, out in zip(made, products, outputs, strict=True):
        place.panels, place.n_columns = address(one.panels.values), one.panels.n_columns
        place.minus, place.rows, place.count, place.out = address(one.minus), address(one.rows), len(out), address(out)
    return made


def c_ring(ring: Ring) -> CRing:
    arrays: list[Array] = [ring.first, ring.starts, ring.levels, ring.columns, ring.weights, ring.scales, ring.squares]
    return CRing(ring.n_steps, ring.n_coded, *map(address, arrays), ring.constant)


def c_scoring(scoring: Scoring) -> CScoring:
    """Return the structure, which is kept with the scoring."""
    made = scoring.__dict__.get("structure")
    if made is None:
        layout = CLayout() if scoring.layout is None else c_layout(scoring.layout)
        ring = None if scoring.ring is None else ctypes.pointer(c_ring(scoring.ring))
        numbers = KINDS.index(scoring.kind), FACTORS.index(scoring.factor)
        made = CScoring(*numbers, scoring.code_bytes, scoring.width, ring, layout, address(fractions()))
        scoring.__dict__["structure"] = made  # complete, because other threads may search at the same time
    return made


def c_queries(queries: RoundedQueries) -> CQueries:
    return CQueries(address(queries.values), address(queries.scales), address(queries.constants), len(queries))


def c_codes(one: CodeRange) -> CCodes:
    return CCodes(address(one.codes.planes), len(one.codes), address(one.alive), address(one.ids), one.first_row)


def c_code_ranges(ranges: Sequence[CodeRange]) -> CCodeRanges:
    made = (CCodes * len(ranges))(*map(c_codes, ranges))
    return CCodeRanges(made, len(made))


def c_visits(visits: VisitedCodes) -> CVisits:
    arrays, held = visits.segments.arrays, visits.segments.held
    made = held.get("segments")
    if made is None:
        parts = [CRegionSegment(c_codes(one.range), address(one.positions), address(one.starts)) for one in arrays]
        made = held["segments"] = (CRegionSegment * len(arrays))(*parts)  # complete when others can see it
    return CVisits(made, len(made), address(visits.starts), address(visits.regions))
