"""The C++ kernels, called through ctypes (which releases the interpreter lock)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_uint8, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Booleans, Bytes, Float32, Float64, Int32, Int64
from .layout import Layout
from .native_trellis import NativeTrellis, trellis_functions
from .searches import CodeSegment, Searches

INTERFACE = 9
"""Must equal ts_interface() of the library: a stale build is refused, not called."""


class Run(ctypes.Structure):
    _fields_ = (("path", c_int32), ("n_threads", c_int32))


class Rows(ctypes.Structure):
    _fields_ = (("values", c_void_p), ("count", c_int64), ("width", c_int64))


class Sizes(ctypes.Structure):
    _fields_ = (("n_bits", c_int64), ("n_pool", c_int64), ("low_bits", c_int64))


class Codes(ctypes.Structure):
    _fields_ = (
        ("layout", Sizes),
        ("data", c_void_p),
        ("count", c_int64),
        ("alive", c_void_p),
        ("weights", c_void_p),
        ("ids", c_void_p),
    )


class Segments(ctypes.Structure):
    _fields_ = (("codes", POINTER(Codes)), ("count", c_int64))


class Signs(ctypes.Structure):
    _fields_ = (("bits", c_void_p), ("masks", c_void_p), ("count", c_int64))


class Best(ctypes.Structure):
    _fields_ = (("k", c_int64), ("positions", c_void_p), ("values", c_void_p))


class Found(ctypes.Structure):
    _fields_ = (
        ("bounds", c_void_p),
        ("capacity", c_int64),
        ("positions", c_void_p),
        ("values", c_void_p),
        ("counts", c_void_p),
    )


class Rotation(ctypes.Structure):
    _fields_ = (
        ("signals", Rows),
        ("signs", c_void_p),
        ("n_rounds", c_int64),
        ("transpose", c_int32),
        ("out", c_void_p),
    )


class Selection(ctypes.Structure):
    _fields_ = (
        ("projected", Rows),
        ("n_bits", c_int64),
        ("locations", c_void_p),
        ("signs", c_void_p),
        ("totals", c_void_p),
    )


class Contents(ctypes.Structure):
    _fields_ = (("locations", c_void_p), ("signs", c_void_p))


class Sets(ctypes.Structure):
    _fields_ = (("n_sets", c_int64), ("n_bits", c_int64), ("n_pool", c_int64), ("capacity", c_int64))


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ts_rotate": (POINTER(Rotation),),
    "ts_square_norms": (POINTER(Rows), POINTER(c_double)),
    "ts_magnitude_sums": (POINTER(Rows), POINTER(c_double)),
    "ts_select": (POINTER(Selection),),
    "ts_pack_bits": (POINTER(Rows), POINTER(c_uint8)),
    "ts_pack_codes": (POINTER(Sizes), c_int64, POINTER(Contents), POINTER(c_uint8)),
    "ts_unpack_codes": (POINTER(Codes), POINTER(Contents)),
    "ts_valid_codes": (POINTER(Codes), POINTER(c_uint8)),
    "ts_mismatches": (POINTER(Codes), POINTER(Signs), POINTER(c_int32)),
    "ts_score_sums": (POINTER(Codes), POINTER(Rows), POINTER(c_float)),
    "ts_search_mismatches": (POINTER(Segments), POINTER(Signs), POINTER(Best)),
    "ts_within_mismatches": (POINTER(Segments), POINTER(Signs), POINTER(Found)),
    "ts_search_scores": (POINTER(Segments), POINTER(Rows), POINTER(Best)),
    "ts_within_scores": (POINTER(Segments), POINTER(Rows), POINTER(Found)),
    "ts_encode_sets": (POINTER(Sets), POINTER(c_int32), POINTER(c_uint8), POINTER(c_int64)),
    "ts_decode_sets": (POINTER(Sets), POINTER(c_uint8), POINTER(c_int32)),
    **trellis_functions(Rows, Best, Found),
}
"""What each kernel takes after how it is run; all return 0, or 1 when memory ran out."""


def _pointer(array: npt.NDArray[Any], type_: Any) -> Any:
    return ctypes.cast(array.ctypes.data, POINTER(type_))


def library_file() -> Path:
    """The compiled core beside this module; OSError where there is none."""
    from . import __path__ as folders  # an editable installation has the library in a folder of its own

    for folder in folders:
        for file in sorted(Path(folder).glob("topsign_core.*")):
            if file.suffix in {".so", ".dll", ".dylib"}:
                return file
    raise OSError("no compiled library lies beside topsign.kernels")


@cache
def load_library() -> ctypes.CDLL:
    """The compiled core; OSError says why it cannot be had."""
    file = library_file()
    library = ctypes.CDLL(str(file))
    if library.ts_interface() != INTERFACE:
        raise OSError(f"{file} was built from other sources; install topsign again")
    library.ts_path_name.argtypes, library.ts_path_name.restype = (c_int32,), c_char_p
    library.ts_path_runs_here.argtypes, library.ts_path_runs_here.restype = (c_int32,), c_int32
    library.ts_set_grain.argtypes, library.ts_set_grain.restype = (c_double,), None
    for name, types in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = (POINTER(Run), *types), c_int32
    return library


def all_native_paths() -> dict[str, int]:
    """Numbers of the paths that the library was built with, by name, from the slowest to the fastest."""
    library = load_library()
    paths: dict[str, int] = {}
    while (name := library.ts_path_name(len(paths))) is not None:
        paths[name.decode()] = len(paths)
    return paths


def native_paths() -> dict[str, int]:
    """Those of them that this processor can run."""
    library = load_library()
    return {name: number for name, number in all_native_paths().items() if library.ts_path_runs_here(number)}


class NativeKernels(Searches, NativeTrellis):
    """See :class:`topsign.kernels.interface.Kernels`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._library = load_library()
        self._path = native_paths()[name]

    def _call(self, function: str, n_threads: int, *arguments: Any) -> None:
        structs = [byref(value) if isinstance(value, ctypes.Structure) else value for value in arguments]
        if getattr(self._library, function)(byref(Run(self._path, n_threads)), *structs):
            raise MemoryError(f"topsign's native kernel {function} ran out of memory")

    def rotate(
        self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None, n_threads: int = 1
    ) -> Float32:
        if out is None:
            out = np.empty_like(signals)
        rotation = Rotation(_rows(signals), _address(signs), len(signs), int(transpose), _address(out))
        self._call("ts_rotate", n_threads, rotation)
        return out

    def square_norms(self, signals: Float32, *, n_threads: int = 1) -> Float64:
        out = np.empty(len(signals))
        self._call("ts_square_norms", n_threads, _rows(signals), _pointer(out, c_double))
        return out

    def magnitude_sums(self, projected: Float32, *, n_threads: int = 1) -> Float64:
        out = np.empty(len(projected))
        self._call("ts_magnitude_sums", n_threads, _rows(projected), _pointer(out, c_double))
        return out

    def select(self, projected: Float32, n_bits: int, *, n_threads: int = 1) -> tuple[Int32, Bytes, Float64]:
        n = len(projected)
        locations = np.empty((n, n_bits), np.int32)
        signs = np.empty((n, -(-n_bits // 8)), np.uint8)
        totals = np.empty(n)
        selection = Selection(_rows(projected), n_bits, _address(locations), _address(signs), _address(totals))
        self._call("ts_select", n_threads, selection)
        return locations, signs, totals

    def pack_bits(self, projected: Float32, *, n_threads: int = 1) -> Bytes:
        n, n_pool = projected.shape
        out = np.empty((n, -(-n_pool // 8)), np.uint8)
        self._call("ts_pack_bits", n_threads, _rows(projected), _pointer(out, c_uint8))
        return out

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes, *, n_threads: int = 1) -> Bytes:
        out = np.empty((len(locations), layout.code_bytes), np.uint8)
        contents = Contents(_address(locations), _address(signs))
        self._call("ts_pack_codes", n_threads, _sizes(layout), len(locations), contents, _pointer(out, c_uint8))
        return out

    def unpack_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> tuple[Int32, Bytes]:
        locations = np.empty((len(codes), layout.n_bits), np.int32)
        signs = np.empty((len(codes), layout.sign_bytes), np.uint8)
        contents = Contents(_address(locations), _address(signs))
        self._call("ts_unpack_codes", n_threads, _codes(layout, codes), contents)
        return locations, signs

    def valid_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> Booleans:
        out = np.empty(len(codes), np.bool_)
        self._call("ts_valid_codes", n_threads, _codes(layout, codes), _pointer(out, c_uint8))
        return out

    def mismatches(self, layout: Layout, codes: Bytes, query_bits: Bytes, *, n_threads: int = 1) -> Int32:
        out = np.empty((len(query_bits), len(codes)), np.int32)
        queries = Signs(_address(query_bits), None, len(query_bits))
        self._call("ts_mismatches", n_threads, _codes(layout, codes), queries, _pointer(out, c_int32))
        return out

    def score_sums(self, layout: Layout, codes: Bytes, queries: Float32, *, n_threads: int = 1) -> Float32:
        out = np.empty((len(queries), len(codes)), np.float32)
        self._call("ts_score_sums", n_threads, _codes(layout, codes), _rows(queries), _pointer(out, c_float))
        return out

    def rank_mismatches(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        places = np.empty((len(query_bits), k), np.int64)
        mismatches = np.full((len(query_bits), k), -1, np.int32)
        queries = Signs(_address(query_bits), _address(masks), len(query_bits))
        best = Best(k, _address(places), _address(mismatches))
        self._call("ts_search_mismatches", n_threads, _segments(layout, segments), queries, best)
        return places, mismatches

    def rank_scores(
        self, layout: Layout, segments: Sequence[CodeSegment], queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        places = np.empty((len(queries), k), np.int64)
        scores = np.full((len(queries), k), np.nan, np.float32)
        best = Best(k, _address(places), _address(scores))
        self._call("ts_search_scores", n_threads, _segments(layout, segments), _rows(queries), best)
        return places, scores

    def collect_mismatches(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        queries = Signs(_address(query_bits), _address(masks), len(query_bits))
        return self._within("ts_within_mismatches", n_threads, _segments(layout, segments), queries, bounds=radii)

    def collect_scores(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        queries: Float32,
        thresholds: Float32,
        *,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        inputs = _segments(layout, segments), _rows(queries)
        return self._within("ts_within_scores", n_threads, *inputs, bounds=thresholds)

    def _within(
        self, function: str, n_threads: int, *inputs: Any, bounds: npt.NDArray[Any]
    ) -> tuple[Int64, Int64, Any]:
        """Calls with some room for the answer, and again with enough where there was more."""
        n_queries = len(bounds)
        capacity = 1024 * max(1, n_queries)
        while True:
            positions, values = np.empty(capacity, np.int64), np.empty(capacity, bounds.dtype)
            counts = np.zeros(n_queries, np.int64)
            found = Found(_address(bounds), capacity, _address(positions), _address(values), _address(counts))
            self._call(function, n_threads, *inputs, found)
            starts = np.append(0, np.cumsum(counts)).astype(np.int64)
            total = int(starts[-1])
            if total <= capacity:
                return starts, positions[:total].copy(), values[:total].copy()
            capacity = total

    def _rows_of(self, values: Float32) -> Rows:
        return _rows(values)

    def _best_of(self, k: int, positions: Int64, values: Float32) -> Best:
        return Best(k, _address(positions), _address(values))

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int, *, n_threads: int = 1) -> tuple[Bytes, Int64]:
        out = np.empty((len(locations), capacity), np.uint8)
        lengths = np.empty(len(locations), np.int64)
        sets = Sets(*locations.shape, n_pool, capacity)
        pointers = _pointer(locations, c_int32), _pointer(out, c_uint8), _pointer(lengths, c_int64)
        self._call("ts_encode_sets", n_threads, sets, *pointers)
        return out, lengths

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int, *, n_threads: int = 1) -> Int32:
        out = np.empty((len(coded), n_bits), np.int32)
        sets = Sets(len(coded), n_bits, n_pool, coded.shape[1])
        self._call("ts_decode_sets", n_threads, sets, _pointer(coded, c_uint8), _pointer(out, c_int32))
        return out


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _rows(values: Float32) -> Rows:
    return Rows(_address(values), *values.shape)


def _sizes(layout: Layout) -> Sizes:
    return Sizes(layout.n_bits, layout.n_pool, layout.low_bits)


def _codes(layout: Layout, codes: Bytes) -> Codes:
    return Codes(_sizes(layout), _address(codes), len(codes), None, None, None)


def _segments(layout: Layout, segments: Sequence[CodeSegment]) -> Segments:
    sizes = _sizes(layout)
    parts = (Codes * len(segments))()
    for part, one in zip(parts, segments, strict=True):
        part.layout, part.data, part.count = sizes, _address(one.codes), len(one.codes)
        part.alive, part.weights, part.ids = map(_address, (one.alive, one.weights, one.ids))
    return Segments(parts, len(segments))
