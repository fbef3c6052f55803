"""The C++ kernels of trellis codes."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from ctypes import POINTER, c_float, c_int8, c_int32, c_int64, c_uint8, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Int32, Int64
from .tables import TrellisTables, norm_fractions, trellis_levels
from .trellis import Int8, RoundedQueries, TrellisEntries


class Trellis(ctypes.Structure):
    _fields_ = (
        ("n_bits", c_int64),
        ("window", c_int64),
        ("n_coded", c_int64),
        ("code_bytes", c_int64),
        ("offsets", c_void_p),
        ("multipliers", c_void_p),
        ("addends", c_void_p),
        ("levels", c_void_p),
    )


class Costs(ctypes.Structure):
    _fields_ = (
        ("scales", c_void_p),
        ("squares", c_void_p),
        ("square_shifts", c_void_p),
        ("shifts", c_void_p),
        ("limit", c_int32),
    )


class Norm(ctypes.Structure):
    _fields_ = (("linear", c_void_p), ("quadratic", c_void_p), ("unit", c_float), ("constant", c_float))


class TrellisCodes(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("count", c_int64),
        ("alive", c_void_p),
        ("fractions", c_void_p),
        ("places", c_void_p),
        ("norm", Norm),
    )


class Queries(ctypes.Structure):
    _fields_ = (
        ("values", c_void_p),
        ("fine", c_void_p),
        ("fine_bits", c_int64),
        ("scales", c_void_p),
        ("constants", c_void_p),
        ("count", c_int64),
    )


def trellis_functions(rows: Any, best: Any, found: Any) -> dict[str, tuple[Any, ...]]:
    """What each kernel takes after how it is run, given the structures of the other kernels."""
    trellis, codes, queries = POINTER(Trellis), POINTER(TrellisCodes), POINTER(Queries)
    return {
        "ts_trellis_encode": (trellis, POINTER(Costs), POINTER(rows), POINTER(c_uint8)),
        "ts_trellis_decode": (trellis, codes, POINTER(c_int8)),
        "ts_trellis_weights": (trellis, codes, POINTER(c_float)),
        "ts_trellis_sums": (trellis, codes, queries, POINTER(c_int32)),
        "ts_trellis_search": (trellis, codes, queries, POINTER(best)),
        "ts_trellis_within": (trellis, codes, queries, POINTER(found)),
    }


class NativeTrellis(ABC):
    """See :class:`topsign.kernels.trellis.TrellisKernels`; the class that calls the library derives from it."""

    @abstractmethod
    def _call(self, function: str, n_threads: int, *arguments: Any) -> None: ...

    @abstractmethod
    def _rows_of(self, values: Float32) -> ctypes.Structure: ...

    @abstractmethod
    def _best_of(self, k: int, positions: Int64, values: Float32) -> ctypes.Structure: ...

    @abstractmethod
    def _within(
        self, function: str, n_threads: int, *inputs: Any, bounds: npt.NDArray[Any]
    ) -> tuple[Int64, Int64, Any]: ...

    def trellis_encode(self, tables: TrellisTables, values: Float32, *, n_threads: int = 1) -> Bytes:
        out = np.empty((len(values), tables.code_bytes), np.uint8)
        parts = (tables.scales, tables.squares, tables.square_shifts, tables.shifts)
        costs = Costs(*map(_address, parts), tables.limit)
        rows = self._rows_of(values)
        self._call("ts_trellis_encode", n_threads, _trellis(tables), costs, rows, _pointer(out, c_uint8))
        return out

    def trellis_decode(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Int8:
        out = np.empty((len(codes), tables.n_coded), np.int8)
        self._call(
            "ts_trellis_decode",
            n_threads,
            _trellis(tables),
            _entries(TrellisEntries(tables, codes)),
            _pointer(out, c_int8),
        )
        return out

    def trellis_weights(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Float32:
        out = np.empty(len(codes), np.float32)
        self._call(
            "ts_trellis_weights",
            n_threads,
            _trellis(tables),
            _entries(TrellisEntries(tables, codes)),
            _pointer(out, c_float),
        )
        return out

    def trellis_sums(
        self, tables: TrellisTables, codes: Bytes, queries: RoundedQueries, *, n_threads: int = 1
    ) -> Int32:
        out = np.empty((len(queries), len(codes)), np.int32)
        inputs = _trellis(tables), _entries(TrellisEntries(tables, codes)), _queries(queries)
        self._call("ts_trellis_sums", n_threads, *inputs, _pointer(out, c_int32))
        return out

    def trellis_search(
        self, entries: TrellisEntries, queries: RoundedQueries, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        positions = np.empty((len(queries), k), np.int64)
        scores = np.full((len(queries), k), np.nan, np.float32)
        inputs = _trellis(entries.tables), _entries(entries), _queries(queries)
        self._call("ts_trellis_search", n_threads, *inputs, self._best_of(k, positions, scores))
        return positions, scores

    def trellis_within(
        self, entries: TrellisEntries, queries: RoundedQueries, thresholds: Float32, *, n_threads: int = 1
    ) -> tuple[Int64, Int64, Float32]:
        inputs = _trellis(entries.tables), _entries(entries), _queries(queries)
        return self._within("ts_trellis_within", n_threads, *inputs, bounds=thresholds)


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _pointer(array: npt.NDArray[Any], type_: Any) -> Any:
    return ctypes.cast(array.ctypes.data, POINTER(type_))


def _trellis(tables: TrellisTables) -> Trellis:
    sizes = tables.n_bits, tables.window, tables.n_coded, tables.code_bytes
    arrays: tuple[npt.NDArray[Any], ...] = (tables.offsets, *tables.sequences, trellis_levels())
    return Trellis(*sizes, *map(_address, arrays))


def _entries(entries: TrellisEntries) -> TrellisCodes:
    tables, places = entries.tables, entries.places
    norm = Norm(_address(tables.linear), _address(tables.quadratic), tables.unit, tables.constant)
    count = len(entries.codes) if places is None else len(places)
    parts: tuple[npt.NDArray[Any] | None, ...] = (entries.alive, norm_fractions() if entries.norms else None, places)
    return TrellisCodes(_address(entries.codes), count, *map(_address, parts), norm)


def _queries(queries: RoundedQueries) -> Queries:
    digits = _address(queries.values), _address(queries.fine), queries.fine_bits
    return Queries(*digits, _address(queries.scales), _address(queries.constants), len(queries))
