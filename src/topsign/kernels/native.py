"""C++ kernels, called through ctypes, which releases the global interpreter lock."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from typing import Any

import numpy as np

from .._arrays import Array, Booleans, Bytes, Float32, Float64, Int32, Int64
from .layout import Layout
from .library import load_library, native_paths
from .products import Product
from .ranges import CodeRange, QueriedCells, RegionMeans, RegionRule, TrellisRange, VisitedCodes
from .structs import (
    CBest,
    CBytes,
    CContents,
    CFound,
    CRegionChoice,
    CRegionRule,
    CRegions,
    CRotation,
    CRun,
    CSelection,
    CSets,
    CSigns,
    CTrellisRounding,
    c_code_ranges,
    c_codes,
    c_layout,
    c_products,
    c_rows,
    c_trellis,
    c_trellis_cell,
    c_trellis_cells,
    c_trellis_codes,
    c_trellis_ranges,
    c_trellis_signals,
    c_visits,
)
from .trellis import CellColumns, Int8, RoundedCells, RoundedQueries, TrellisSignals, TrellisTables, address


class Kernels:
    """Operations on raw arrays, which they do not check; every path gives the same bits.

    Arrays are C-ordered; bits are packed little-endian, 1 standing for ``>= 0`` (or a sign of +1). Searches take at
    least one range; their results are rows, and of equal codes the lower id comes first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._library = load_library()
        self._path = native_paths()[name]

    def _call(self, function: str, n_threads: int, *arguments: Any) -> None:
        structs = [byref(value) if isinstance(value, ctypes.Structure) else value for value in arguments]
        if getattr(self._library, function)(byref(CRun(self._path, n_threads)), *structs):
            raise MemoryError(f"topsign's native kernel {function} ran out of memory")

    def rotate(
        self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None, n_threads: int = 1
    ) -> Float32:
        """Return sqrt(n_features) times the randomised Hadamard rotation of each row, or its transpose.

        ``signs`` is (n_rounds, ceil(n_features / 8)). A round multiplies by random signs and transforms by
        Walsh-Hadamard; ``native/kernels/transform.h`` describes the rotation if n_features is no power of two.
        """
        if out is None:
            out = np.empty_like(signals)
        rotation = CRotation(c_rows(signals), address(signs), len(signs), int(transpose), address(out))
        self._call("ts_rotate", n_threads, rotation)
        return out

    def multiply(
        self,
        signals: Float32,
        products: Sequence[Product],
        *,
        factors: Float32 | None = None,
        n_threads: int = 1,
    ) -> list[Float32]:
        """Return ``(signals * factors - minus) @ matrix`` of each product, (n_rows, n_columns).

        Terms are multiplied, then added in the order of features, in float32, so the products of a signal do not depend
        on the rest of the batch. ``factors`` has one value per signal.
        """
        counts = (len(signals) if one.rows is None else len(one.rows) for one in products)
        outputs = [
            np.empty((n, one.panels.n_columns), np.float32) if one.out is None else one.out
            for n, one in zip(counts, products, strict=True)
        ]
        self._call(
            "ts_multiply", n_threads, c_rows(signals), address(factors), c_products(products, outputs), len(products)
        )
        return outputs

    def square_norms(self, signals: Float32, *, n_threads: int = 1) -> Float64:
        """Return the sum of squares of each row: in float64, term i into lane i mod 16, lanes folded in half."""
        out = np.empty(len(signals))
        self._call("ts_square_norms", n_threads, c_rows(signals), address(out))
        return out

    def magnitude_sums(self, projected: Float32, *, n_threads: int = 1) -> Float64:
        """Return the sum of magnitudes of each row, in the order of ``square_norms``."""
        out = np.empty(len(projected))
        self._call("ts_magnitude_sums", n_threads, c_rows(projected), address(out))
        return out

    def inner_products(self, rows: Float32, vector: Float64, *, n_threads: int = 1) -> Float64:
        """Return the inner product of each row with a vector, in the order of ``square_norms``."""
        out = np.empty(len(rows))
        self._call("ts_inner_products", n_threads, c_rows(rows), address(vector), address(out))
        return out

    def select(self, projected: Float32, n_bits: int, *, n_threads: int = 1) -> tuple[Int32, Bytes, Float64]:
        """Select the ``n_bits`` largest magnitudes of each row; of equal ones the lower location wins.

        Returns ascending locations (n, n_bits), their packed signs, and the sums of their magnitudes.
        """
        n = len(projected)
        locations = np.empty((n, n_bits), np.int32)
        signs = np.empty((n, -(-n_bits // 8)), np.uint8)
        totals = np.empty(n)
        selection = CSelection(c_rows(projected), n_bits, address(locations), address(signs), address(totals))
        self._call("ts_select", n_threads, selection)
        return locations, signs, totals

    def pack_bits(self, projected: Float32, *, n_threads: int = 1) -> Bytes:
        """Return ``projected >= 0``, packed."""
        n, n_pool = projected.shape
        out = np.empty((n, -(-n_pool // 8)), np.uint8)
        self._call("ts_pack_bits", n_threads, c_rows(projected), address(out))
        return out

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes, *, n_threads: int = 1) -> Bytes:
        """Return codes (n_codes, layout.code_bytes) of locations and packed signs."""
        out = np.empty((len(locations), layout.code_bytes), np.uint8)
        contents = CContents(address(locations), address(signs))
        self._call("ts_pack_codes", n_threads, c_layout(layout), len(locations), contents, address(out))
        return out

    def unpack_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> tuple[Int32, Bytes]:
        """Return locations and packed signs of codes; arbitrary bytes give locations in the pool."""
        locations = np.empty((len(codes), layout.n_bits), np.int32)
        signs = np.empty((len(codes), layout.sign_bytes), np.uint8)
        contents = CContents(address(locations), address(signs))
        self._call("ts_unpack_codes", n_threads, c_codes(layout, codes), contents)
        return locations, signs

    def valid_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> Booleans:
        """Return whether ``pack_codes`` could have made each code of ascending locations."""
        out = np.empty(len(codes), np.bool_)
        self._call("ts_valid_codes", n_threads, c_codes(layout, codes), address(out))
        return out

    def mismatches(self, layout: Layout, codes: Bytes, query_bits: Bytes, *, n_threads: int = 1) -> Int32:
        """Count the signs in which each query differs from each code, (n_queries, n_codes)."""
        out = np.empty((len(query_bits), len(codes)), np.int32)
        queries = CSigns(address(query_bits), None, len(query_bits))
        self._call("ts_mismatches", n_threads, c_codes(layout, codes), queries, address(out))
        return out

    def score_sums(self, layout: Layout, codes: Bytes, queries: Float32, *, n_threads: int = 1) -> Float32:
        """Sum sign times projection of the query over the locations of each code, (n_queries, n_codes)."""
        out = np.empty((len(queries), len(codes)), np.float32)
        self._call("ts_score_sums", n_threads, c_codes(layout, codes), c_rows(queries), address(out))
        return out

    def rank_mismatches(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        """Return rows and mismatches, (n_queries, k), of the k codes with fewest mismatches to each query.

        Sorted by mismatches, then by id; -1 and -1 if there are fewer codes. With the layout "signs", ``masks``
        (packed, one per query) names the bits to compare.
        """
        rows = np.empty((len(query_bits), k), np.int64)
        mismatches = np.full((len(query_bits), k), -1, np.int32)
        queries = CSigns(address(query_bits), address(masks), len(query_bits))
        best = CBest(k, address(rows), address(mismatches))
        self._call("ts_rank_mismatches", n_threads, c_code_ranges(layout, ranges), queries, best)
        return rows, mismatches

    def rank_scores(
        self, layout: Layout, ranges: Sequence[CodeRange], queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """Return rows and scores of the k codes with the highest scores, then -1 and nan if there are fewer.

        Sorted by falling score, then by id. The score is that of ``score_sums``, times the weight of the code (in
        float32). Either all ranges have weights or none.
        """
        rows = np.empty((len(queries), k), np.int64)
        scores = np.full((len(queries), k), np.nan, np.float32)
        best = CBest(k, address(rows), address(scores))
        self._call("ts_rank_scores", n_threads, c_code_ranges(layout, ranges), c_rows(queries), best)
        return rows, scores

    def visit_mismatches(
        self,
        layout: Layout,
        visits: VisitedCodes,
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        """Return what ``rank_mismatches`` returns, of the codes in the regions that each query visits."""
        rows = np.empty((len(query_bits), k), np.int64)
        mismatches = np.full((len(query_bits), k), -1, np.int32)
        queries = CSigns(address(query_bits), address(masks), len(query_bits))
        best = CBest(k, address(rows), address(mismatches))
        self._call("ts_visit_mismatches", n_threads, c_layout(layout), c_visits(visits), queries, best)
        return rows, mismatches

    def visit_scores(
        self, layout: Layout, visits: VisitedCodes, queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """Return what ``rank_scores`` returns, of the codes in the regions that each query visits."""
        rows = np.empty((len(queries), k), np.int64)
        scores = np.full((len(queries), k), np.nan, np.float32)
        best = CBest(k, address(rows), address(scores))
        self._call("ts_visit_scores", n_threads, c_layout(layout), c_visits(visits), c_rows(queries), best)
        return rows, scores

    def visit_trellis(
        self, cells: QueriedCells, visits: VisitedCodes, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """Return what ``rank_trellis`` returns, of the codes in the regions that each query visits."""
        shape = len(visits.starts) - 1, k
        rows, scores = np.empty(shape, np.int64), np.full(shape, np.nan, np.float32)
        best = CBest(k, address(rows), address(scores))
        self._call("ts_visit_trellis", n_threads, c_trellis_cells(cells), c_visits(visits), best)
        return rows, scores

    def byte_products(self, queries: Int8, rows: Bytes, *, n_threads: int = 1) -> Int32:
        """Return sums of products, (n_queries, n_rows), with bytes of at most 127; the width is a multiple of 64."""
        out = np.empty((len(queries), len(rows)), np.int32)
        bytes_ = CBytes(address(queries), address(rows), *out.shape, rows.shape[1])
        self._call("ts_byte_products", n_threads, bytes_, address(out))
        return out

    def choose_regions(
        self, regions: RegionMeans, rule: RegionRule, units: Float32, *, n_threads: int = 1
    ) -> tuple[Float32, Int64, Int32]:
        """Return best scores, starts and regions of each unit query: its nearest regions, as the rule asks for.

        The regions of query q are ``regions[starts[q] : starts[q + 1]]``, nearest first, of equal scores the lower one.
        A query chooses none if its best score is below ``rule.least``, or if its stratum has none.
        """
        n_queries, capacity = len(units), 4 * int(rule.n_regions.max(initial=0)) * len(units) + 64
        best, starts = np.empty(n_queries, np.float32), np.empty(n_queries + 1, np.int64)
        arrays: list[Array] = [regions.means, regions.scales, regions.half_norms, regions.counts]
        means = CRegions(*map(address, arrays), *regions.means.shape)
        strata: list[Array] = [rule.edges, rule.n_regions, rule.n_entries]
        asked = CRegionRule(*map(address, strata), len(rule.n_regions), rule.least)
        while True:
            chosen = np.empty(capacity, np.int32)
            found = CRegionChoice(address(best), address(starts), address(chosen), capacity)
            self._call("ts_choose_regions", n_threads, means, asked, c_rows(units), found)
            if starts[-1] <= capacity:
                return best, starts, chosen[: starts[-1]]
            capacity = int(starts[-1])

    def within_mismatches(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        """Return starts (n_queries + 1,), ascending rows and mismatches of all codes within each radius."""
        queries = CSigns(address(query_bits), address(masks), len(query_bits))
        return self._within("ts_within_mismatches", n_threads, c_code_ranges(layout, ranges), queries, bounds=radii)

    def within_scores(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        queries: Float32,
        thresholds: Float32,
        *,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        """Return starts, ascending rows and scores of all codes that reach the threshold of each query."""
        inputs = c_code_ranges(layout, ranges), c_rows(queries)
        return self._within("ts_within_scores", n_threads, *inputs, bounds=thresholds)

    def _within(self, function: str, n_threads: int, *inputs: Any, bounds: Array) -> tuple[Int64, Int64, Any]:
        """Call with room for some results, and again with enough room if there are more."""
        n_queries = len(bounds)
        capacity = 1024 * max(1, n_queries)
        while True:
            rows, values = np.empty(capacity, np.int64), np.empty(capacity, bounds.dtype)
            counts = np.zeros(n_queries, np.int64)
            found = CFound(address(bounds), capacity, address(rows), address(values), address(counts))
            self._call(function, n_threads, *inputs, found)
            starts = np.append(0, np.cumsum(counts)).astype(np.int64)
            total = int(starts[-1])
            if total <= capacity:
                return starts, rows[:total].copy(), values[:total].copy()
            capacity = total

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int, *, n_threads: int = 1) -> tuple[Bytes, Int64]:
        """Code sets of locations arithmetically: return zero-padded rows of ``capacity`` bytes, and lengths."""
        out = np.empty((len(locations), capacity), np.uint8)
        lengths = np.empty(len(locations), np.int64)
        sets = CSets(*locations.shape, n_pool, capacity)
        self._call("ts_encode_sets", n_threads, sets, address(locations), address(out), address(lengths))
        return out, lengths

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int, *, n_threads: int = 1) -> Int32:
        """Return the sets of ``encode_sets``; arbitrary bytes give some valid set."""
        out = np.empty((len(coded), n_bits), np.int32)
        sets = CSets(len(coded), n_bits, n_pool, coded.shape[1])
        self._call("ts_decode_sets", n_threads, sets, address(coded), address(out))
        return out

    def trellis_round(
        self, projected: Float32, columns: CellColumns, constants: Float32, *, n_threads: int = 1
    ) -> RoundedCells:
        """Return queries rounded for each cell; ``constants`` is (n_cells, n_queries).

        The scale of a query is its largest magnitude, times the weights, over 127 * 2**fine_bits; quotients in float64
        are rounded to the nearest integer, ties to even.
        """
        n_queries, n_cells = len(projected), len(columns.sizes)
        size = n_queries * len(columns.numbers)
        values, scales = np.empty(size, np.int8), np.empty((n_cells, n_queries), np.float32)
        fine, ends = np.empty(size, np.int8) if columns.fine_bits.any() else None, np.cumsum(columns.sizes)
        read = c_rows(projected), address(columns.numbers), address(columns.weights), n_cells, address(ends)
        rounding = CTrellisRounding(*read, address(columns.fine_bits), address(values), address(fine), address(scales))
        self._call("ts_trellis_round", n_threads, rounding)
        return RoundedCells(values, scales, constants, fine, columns.sizes, columns.fine_bits)

    def trellis_encode(self, cells: Sequence[TrellisSignals], *, n_threads: int = 1) -> Bytes:
        """Return codes (n, code_bytes) of the signals of all cells: the cheapest closed paths through their trellises.

        A first pass over the events around the ring's beginning (``6 * window`` on either side, or all if there are
        fewer) finds the first state, which is that of the cheapest path through them, from any state to any. The
        second pass goes from that state to one that leads to it. Of equal costs the lower state wins. Bits that no
        window reads are zero.
        """
        out = np.empty((sum(len(cell.values) for cell in cells), cells[0].tables.code_bytes), np.uint8)
        self._call("ts_trellis_encode", n_threads, c_trellis_signals(cells), len(cells), address(out))
        return out

    def trellis_decode(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Int8:
        """Return levels, (n_codes, n_coded); any bytes are a code."""
        out = np.empty((len(codes), tables.n_coded), np.int8)
        self._call("ts_trellis_decode", n_threads, c_trellis(tables), c_trellis_codes(codes), address(out))
        return out

    def trellis_weights(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Float32:
        """Return one over the norm of each reconstruction, from an exact sum, in float32; 0 if the norm is 0."""
        out = np.empty(len(codes), np.float32)
        self._call("ts_trellis_weights", n_threads, c_trellis(tables), c_trellis_codes(codes), address(out))
        return out

    def trellis_sums(
        self, tables: TrellisTables, codes: Bytes, queries: RoundedQueries, *, n_threads: int = 1
    ) -> Int32:
        """Return exact sums of value times level, (n_queries, n_codes)."""
        out = np.empty((len(queries), len(codes)), np.int32)
        cell = c_trellis_cell(tables, queries)
        self._call("ts_trellis_sums", n_threads, cell, c_trellis_codes(codes), address(out))
        return out

    def rank_trellis(
        self, cells: QueriedCells, ranges: Sequence[TrellisRange], k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """Return rows and scores of the k codes with the highest scores, then -1 and nan if there are fewer.

        Sorted by falling score, then by id. The score is ``(sum * scale + constant) * weight``, each step in float32.
        The weight is that of ``trellis_weights``, times the norm if the cells have norms.
        """
        shape = cells.queries.n_queries, k
        rows, scores = np.empty(shape, np.int64), np.full(shape, np.nan, np.float32)
        best = CBest(k, address(rows), address(scores))
        self._call("ts_rank_trellis", n_threads, c_trellis_ranges(cells, ranges), best)
        return rows, scores

    def within_trellis(
        self, cells: QueriedCells, ranges: Sequence[TrellisRange], thresholds: Float32, *, n_threads: int = 1
    ) -> tuple[Int64, Int64, Float32]:
        """Return starts, ascending rows and scores of all codes that reach the threshold of each query."""
        return self._within("ts_within_trellis", n_threads, c_trellis_ranges(cells, ranges), bounds=thresholds)
