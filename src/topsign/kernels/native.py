"""The C++ kernels, called through ctypes (which releases the interpreter lock)."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import Booleans, Bytes, Float32, Float64, Int32, Int64
from .layout import Layout

PATHS = {"scalar": 0, "avx2": 1}

INTERFACE = 3
"""Must equal ts_interface() of the library: a stale build is refused, not called."""


@cache
def load_library() -> ctypes.CDLL:
    """The compiled core beside this module; OSError says why it cannot be had."""
    from . import __path__ as folders  # an editable installation has the library in a folder of its own

    found = [
        file
        for folder in folders
        for file in sorted(Path(folder).glob("topsign_core.*"))
        if file.suffix in {".so", ".dll", ".dylib"}
    ]
    if not found:
        raise OSError("no compiled library lies beside topsign.kernels")
    library = ctypes.CDLL(str(found[0]))
    if library.ts_interface() != INTERFACE:
        raise OSError(f"{found[0]} was built from other sources; install topsign again")
    return library


class NativeKernels:
    """See :class:`topsign.kernels.interface.Kernels`."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self._library = library
        self._path = PATHS[name]

    def _call(self, function: str, n_threads: int, *arguments: Any) -> None:
        converted = [
            ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_void_p(_address(value)) for value in arguments
        ]
        status = getattr(self._library, function)(ctypes.c_int(self._path), ctypes.c_int(n_threads), *converted)
        if status:
            raise MemoryError(f"topsign's native kernel {function} ran out of memory")

    def rotate(
        self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None, n_threads: int = 1
    ) -> Float32:
        if out is None:
            out = np.empty_like(signals)
        self._call("ts_rotate", n_threads, signals, *signals.shape, signs, len(signs), int(transpose), out)
        return out

    def square_norms(self, signals: Float32, *, n_threads: int = 1) -> Float64:
        out = np.empty(len(signals))
        self._call("ts_square_norms", n_threads, signals, *signals.shape, out)
        return out

    def select(self, projected: Float32, n_bits: int, *, n_threads: int = 1) -> tuple[Int32, Bytes, Float64]:
        n = len(projected)
        locations = np.empty((n, n_bits), np.int32)
        signs = np.empty((n, -(-n_bits // 8)), np.uint8)
        totals = np.empty(n)
        self._call("ts_select", n_threads, projected, *projected.shape, n_bits, locations, signs, totals)
        return locations, signs, totals

    def magnitude_sums(self, projected: Float32, *, n_threads: int = 1) -> Float64:
        out = np.empty(len(projected))
        self._call("ts_magnitude_sums", n_threads, projected, *projected.shape, out)
        return out

    def pack_bits(self, projected: Float32, *, n_threads: int = 1) -> Bytes:
        n, n_pool = projected.shape
        out = np.empty((n, -(-n_pool // 8)), np.uint8)
        self._call("ts_pack_bits", n_threads, projected, n, n_pool, out)
        return out

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes, *, n_threads: int = 1) -> Bytes:
        out = np.empty((len(locations), layout.code_bytes), np.uint8)
        self._call("ts_pack_codes", n_threads, locations, signs, len(locations), *_sizes(layout), out)
        return out

    def unpack_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> tuple[Int32, Bytes]:
        locations = np.empty((len(codes), layout.n_bits), np.int32)
        signs = np.empty((len(codes), layout.sign_bytes), np.uint8)
        self._call("ts_unpack_codes", n_threads, codes, len(codes), *_sizes(layout), locations, signs)
        return locations, signs

    def valid_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> Booleans:
        out = np.empty(len(codes), np.bool_)
        self._call("ts_valid_codes", n_threads, codes, len(codes), *_sizes(layout), out)
        return out

    def mismatches(self, layout: Layout, codes: Bytes, query_bits: Bytes, *, n_threads: int = 1) -> Int32:
        out = np.empty((len(query_bits), len(codes)), np.int32)
        self._call("ts_mismatches", n_threads, codes, len(codes), *_sizes(layout), query_bits, len(query_bits), out)
        return out

    def score_sums(self, layout: Layout, codes: Bytes, queries: Float32, *, n_threads: int = 1) -> Float32:
        out = np.empty((len(queries), len(codes)), np.float32)
        self._call("ts_score_sums", n_threads, codes, len(codes), *_sizes(layout), queries, len(queries), out)
        return out

    def search_mismatches(
        self,
        layout: Layout,
        codes: Bytes,
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        positions = np.empty((len(query_bits), k), np.int64)
        mismatches = np.full((len(query_bits), k), -1, np.int32)
        sizes = (len(codes), *_sizes(layout))
        queries = (query_bits, masks, len(query_bits), k)
        self._call("ts_search_mismatches", n_threads, codes, *sizes, alive, *queries, positions, mismatches)
        return positions, mismatches

    def search_scores(
        self,
        layout: Layout,
        codes: Bytes,
        queries: Float32,
        k: int,
        *,
        weights: Float32 | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Float32]:
        positions = np.empty((len(queries), k), np.int64)
        scores = np.full((len(queries), k), np.nan, np.float32)
        sizes = (len(codes), *_sizes(layout))
        self._call(
            "ts_search_scores", n_threads, codes, *sizes, alive, weights, queries, len(queries), k, positions, scores
        )
        return positions, scores

    def within_mismatches(
        self,
        layout: Layout,
        codes: Bytes,
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        inputs = (codes, len(codes), *_sizes(layout), alive, query_bits, masks, len(query_bits), radii)
        return self._within("ts_within_mismatches", n_threads, inputs, len(query_bits), np.int32)

    def within_scores(
        self,
        layout: Layout,
        codes: Bytes,
        queries: Float32,
        thresholds: Float32,
        *,
        weights: Float32 | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        inputs = (codes, len(codes), *_sizes(layout), alive, weights, queries, len(queries), thresholds)
        return self._within("ts_within_scores", n_threads, inputs, len(queries), np.float32)

    def _within(
        self, function: str, n_threads: int, inputs: tuple[Any, ...], n_queries: int, dtype: Any
    ) -> tuple[Int64, Int64, Any]:
        """Calls with some room for the answer, and again with enough where there was more."""
        capacity = 1024 * max(1, n_queries)
        while True:
            positions, values = np.empty(capacity, np.int64), np.empty(capacity, dtype)
            counts = np.zeros(n_queries, np.int64)
            self._call(function, n_threads, *inputs, capacity, positions, values, counts)
            starts = np.append(0, np.cumsum(counts)).astype(np.int64)
            total = int(starts[-1])
            if total <= capacity:
                return starts, positions[:total].copy(), values[:total].copy()
            capacity = total

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int, *, n_threads: int = 1) -> tuple[Bytes, Int64]:
        out = np.empty((len(locations), capacity), np.uint8)
        lengths = np.empty(len(locations), np.int64)
        self._call("ts_encode_sets", n_threads, locations, *locations.shape, n_pool, capacity, out, lengths)
        return out, lengths

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int, *, n_threads: int = 1) -> Int32:
        out = np.empty((len(coded), n_bits), np.int32)
        self._call("ts_decode_sets", n_threads, coded, len(coded), n_bits, n_pool, coded.shape[1], out)
        return out


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _sizes(layout: Layout) -> tuple[int, int, int]:
    return layout.n_bits, layout.n_pool, layout.low_bits
