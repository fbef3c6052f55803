"""C++ kernels behind the C interface ``native/topsign.h``, called through ctypes without the interpreter lock."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .._arrays import Array, Booleans, Bytes, Float32, Float64, Int32, Int64
from .._checks import check_count
from .arrays import (
    FACTOR_BYTES,
    FACTORS,
    KINDS,
    CodeBlocks,
    CodeRange,
    Int8,
    Int16,
    Layout,
    Means,
    OriginalRows,
    Preparation,
    Product,
    RegionChoice,
    RegionCodes,
    RegionHits,
    RegionModel,
    RegionPlan,
    RegionRule,
    Ring,
    RoundedQueries,
    Scoring,
    Visits,
    fractions,
)

INTERFACE = 19
"""Must equal ts_interface() of the library, so that a stale build is refused."""

MUST_READ = 3  # status of a search that wants blocks of originals
ORIGINAL_TYPES = ("float32", "float16", "int8")


_threads: ContextVar[int | None] = ContextVar("threads", default=None)


@contextmanager
def threads(n_threads: int) -> Iterator[None]:
    """Run a block of code with ``n_threads`` threads: ``with ts.threads(4): ...``, in this thread or asynchronous task.

    Otherwise the environment variable ``TOPSIGN_NUM_THREADS`` decides, or all available cores are used. Results are the
    same bits with every number of threads.
    """
    before = _threads.set(check_count(n_threads, "n_threads"))
    try:
        yield
    finally:
        _threads.reset(before)


def n_threads() -> int:
    """Return the number of threads of a kernel call, by :func:`topsign.threads`, the environment, or the cores."""
    chosen = _threads.get()
    if chosen is not None:
        return chosen
    setting = os.environ.get("TOPSIGN_NUM_THREADS")
    if setting is None:
        return _n_cores()
    if not setting.isdecimal() or int(setting) < 1:
        raise ValueError(f"TOPSIGN_NUM_THREADS must be a positive integer, got {setting!r}")
    return int(setting)


def chosen_threads() -> int | None:
    """Return the number of threads that :func:`topsign.threads` sets here, or None."""
    return _threads.get()


@cache
def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The structures and functions of native/topsign.h without "ts_"; a test compares them. Members are 64-bit integers,
# addresses (*), or what follows the colon: another type, a structure, or the address of one (*).
STRUCTURES = {
    "run": "path:int32 n_threads:int32",
    "rows": "*values count width",
    "layout": "n_bits n_pool low_bits",
    "codes": "*planes count *alive *ids first_row ascending",
    "code_ranges": "*ranges:codes count",
    "ring": "n_steps n_coded *first *books *levels *columns *weights *scales *squares constant:double",
    "scoring": "kind:int32 factor:int32 code_bytes width *ring:ring layout:layout *fractions",
    "queries": "*values *scales *constants count",
    "preparation": "*panels n_columns *coded *weights n_coded limit *mean",
    "prepared": "*norms *units *values *scales *constants",
    "best": "k *rows *values",
    "found": "*bounds capacity *rows *values *counts",
    "rotation": "signals:rows *signs n_rounds transpose:int32 *out",
    "product": "*panels n_columns *minus *rows count *out",
    "selection": "projected:rows n_bits *locations *signs *totals",
    "contents": "*locations *signs",
    "sets": "n_sets n_bits n_pool capacity",
    "region_codes": "segments:code_ranges *starts *ranges",
    "visits": "*starts *regions",
    "means": "*values *scales *half_norms n_groups width",
    "regions": "coarse:means fine:means n_coarse *first *numbers *counts",
    "region_rule": "*edges *n_regions *n_entries *n_coarse *n_candidates n_strata base_coarse least:double",
    "region_choice": "*strata *best *contrasts *starts *regions capacity",
    "originals": "type:int32 is_inner:int32 *segments *minus queries:rows block_bytes",
    "neighbors": "k *rows *ids *values *inner *correlations *strata *visited",
    "region_plan": "*preparation *scoring *codes *regions *rule *originals",
    "bytes": "*queries *rows n_queries n_rows width",
}

# Arguments after the run: integers (n), addresses (*), or the address of a structure.
FUNCTIONS = {
    "rotate": "rotation",
    "multiply": "rows * product n",
    "square_norms": "rows *",
    "magnitude_sums": "rows *",
    "inner_products": "rows * *",
    "select": "selection",
    "pack_bits": "rows *",
    "pack_codes": "layout n contents *",
    "unpack_codes": "layout * n contents",
    "valid_codes": "layout * n *",
    "encode_groups": "rows * *",
    "ring_encode": "ring rows *",
    "ring_norms": "ring * n n *",
    "decode": "scoring * n *",
    "round": "rows n * *",
    "prepare": "preparation rows prepared",
    "scores": "scoring codes queries *",
    "rank": "scoring code_ranges queries best",
    "within": "scoring code_ranges queries found",
    "encode_sets": "sets * * *",
    "decode_sets": "sets * *",
    "byte_products": "bytes *",
    "choose_regions": "regions region_rule rows region_choice",
    "visit": "scoring region_codes visits queries best",
    "search_regions": "scoring region_codes regions region_rule rows queries originals neighbors",
    "search_plan": "region_plan rows neighbors",
    "compare_originals": "code_ranges originals * * * *",
}


def define_structures() -> Any:
    """Return the structures as types of ctypes, by name."""
    types = SimpleNamespace(int32=c_int32, double=c_double)
    for name, members in STRUCTURES.items():
        fields: list[tuple[str, Any]] = []
        for member in members.split():
            own, _, of = member.lstrip("*").partition(":")
            is_address = member.startswith("*")
            if of:
                fields.append((own, POINTER(getattr(types, of)) if is_address else getattr(types, of)))
            else:
                fields.append((own, c_void_p if is_address else c_int64))
        setattr(types, name, type(name, (ctypes.Structure,), {"_fields_": fields}))
    return types


struct = define_structures()


def kept(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorate a function that makes a structure, which is then kept with its object, unless that is a list."""

    def found(one: Any) -> Any:
        known: dict[str, Any] = getattr(one, "__dict__", {})
        made = known.get("structure")
        if made is None:
            made = known["structure"] = make(one)  # complete, because other threads may search at the same time
        return made

    return found


def c_rows(rows: Float32) -> Any:
    return struct.rows(data_pointer(rows), *rows.shape)


def c_layout(layout: Layout) -> Any:
    return struct.layout(layout.n_bits, layout.n_pool, layout.low_bits)


def c_products(products: Sequence[Product], outputs: Sequence[Float32]) -> Any:
    rows = [
        (
            data_pointer(one.panels.values),
            one.panels.n_columns,
            data_pointer(one.minus),
            data_pointer(one.rows),
            len(out),
            data_pointer(out),
        )
        for one, out in zip(products, outputs, strict=True)
    ]
    return (struct.product * len(rows))(*rows)


def c_ring(ring: Ring) -> Any:
    arrays: list[Array] = [ring.first, ring.starts, ring.levels, ring.columns, ring.weights, ring.scales, ring.squares]
    return struct.ring(ring.n_steps, ring.n_coded, *map(data_pointer, arrays), ring.constant)


@kept
def c_scoring(scoring: Scoring) -> Any:
    layout = struct.layout() if scoring.layout is None else c_layout(scoring.layout)
    ring = None if scoring.ring is None else ctypes.pointer(c_ring(scoring.ring))
    numbers = KINDS.index(scoring.kind), FACTORS.index(scoring.factor)
    return struct.scoring(*numbers, scoring.code_bytes, scoring.width, ring, layout, data_pointer(fractions()))


def c_queries(queries: RoundedQueries) -> Any:
    return struct.queries(
        data_pointer(queries.values), data_pointer(queries.scales), data_pointer(queries.constants), len(queries.scales)
    )


@kept
def c_preparation(asked: Preparation) -> Any:
    panels, columns = (data_pointer(asked.panels.values), asked.panels.n_columns), (asked.coded, asked.weights)
    return struct.preparation(
        *panels, *map(data_pointer, columns), len(asked.coded), asked.limit, data_pointer(asked.mean)
    )


def c_codes(one: CodeRange) -> Any:
    arrays = data_pointer(one.alive), data_pointer(one.ids)
    return struct.codes(data_pointer(one.codes.planes), len(one.codes), *arrays, one.first_row, one.is_ascending)


@kept
def c_code_ranges(ranges: Sequence[CodeRange]) -> Any:
    return struct.code_ranges((struct.codes * len(ranges))(*map(c_codes, ranges)), len(ranges))


@kept
def c_region_codes(codes: RegionCodes) -> Any:
    return struct.region_codes(c_code_ranges(codes.segments), data_pointer(codes.starts), data_pointer(codes.ranges))


def c_means(means: Means) -> Any:
    n_groups, quarter = means.values.shape[:2]
    return struct.means(
        data_pointer(means.values), data_pointer(means.scales), data_pointer(means.half_norms), n_groups, 4 * quarter
    )


def c_regions(model: RegionModel, counts: Int64) -> Any:
    arrays: list[Array] = [model.first, model.numbers, counts]
    return struct.regions(c_means(model.coarse), c_means(model.fine), model.n_coarse, *map(data_pointer, arrays))


@kept
def c_rule(rule: RegionRule) -> Any:
    arrays: list[Array] = [rule.edges, rule.n_regions, rule.n_entries, rule.n_coarse, rule.n_candidates]
    return struct.region_rule(*map(data_pointer, arrays), len(rule.edges) + 1, rule.base_coarse, rule.least)


@kept
def c_segments(originals: OriginalRows) -> tuple[int, Any]:
    """Return the type of the originals, and the addresses of the arrays of all segments."""
    blocks = originals.blocks or [None] * len(originals.segments)
    found = [
        data_pointer(array)
        for segment, lazily in zip(originals.segments, blocks, strict=True)
        for array in (*segment, *((None, None) if lazily is None else (lazily.verified, lazily.wanted)))
    ]
    kind = ORIGINAL_TYPES.index(str(originals.segments[0][0].dtype)) if found else 0
    return kind, (c_void_p * len(found))(*found)


def c_originals(originals: OriginalRows, queries: Float32) -> Any:
    kind, segments = c_segments(originals)
    n_bytes = next((one.n_bytes for one in originals.blocks if one is not None), 1)
    places = ctypes.addressof(segments), data_pointer(originals.minus)
    made = struct.originals(kind, originals.is_inner, *places, c_rows(queries), n_bytes)
    made.addresses = segments  # alive as long as the structure, which other threads may replace
    return made


@kept
def c_region_plan(plan: RegionPlan) -> Any:
    parts = [
        c_preparation(plan.preparation),
        c_scoring(plan.scoring),
        c_region_codes(plan.codes),
        c_regions(plan.model, plan.counts),
        c_rule(plan.rule),
    ]
    if plan.originals is not None:
        parts.append(c_originals(plan.originals, np.empty((0, 0), np.float32)))
    made = struct.region_plan(*map(ctypes.addressof, parts))
    made.parts = parts  # alive as long as the structure, which other threads may replace
    return made


def data_pointer(array: Array | None) -> int | None:
    """Return where an array begins in memory."""
    if array is None:
        return None
    try:
        buffer: Any = array
        return ctypes.addressof(c_char.from_buffer(buffer))  # in a quarter of the time of ctypes.data
    except (TypeError, ValueError):  # read-only, empty, or not contiguous
        found: int = array.__array_interface__["data"][0]
        return found


def library_file() -> Path:
    """Return the compiled library in the folder of this module; raise OSError if there is none."""
    from . import __path__ as folders  # an editable installation has the library in a folder of its own

    for folder in folders:
        for file in sorted(Path(folder).glob("topsign_core.*")):
            if file.suffix in {".so", ".dll", ".dylib"}:
                return file
    raise OSError("there is no compiled library in topsign/kernels")


@cache
def load_library() -> ctypes.CDLL:
    """Load the compiled library; raise OSError with the reason if this fails."""
    file = library_file()
    library = ctypes.CDLL(str(file))
    if library.ts_interface() != INTERFACE:
        raise OSError(f"{file} was built from other sources")
    library.ts_path_name.argtypes, library.ts_path_name.restype = (c_int32,), c_char_p
    library.ts_path_runs_here.argtypes, library.ts_path_runs_here.restype = (c_int32,), c_int32
    library.ts_set_grain.argtypes, library.ts_set_grain.restype = (c_double,), None
    plain: dict[str, Any] = {"n": c_int64, "*": c_void_p}
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, f"ts_{name}")
        types = [plain[one] if one in plain else POINTER(getattr(struct, one)) for one in arguments.split()]
        function.argtypes, function.restype = (POINTER(struct.run), *types), c_int32
    return library


def all_native_paths() -> dict[str, int]:
    """Return the numbers of the paths in the library by name, from the slowest to the fastest."""
    library = load_library()
    paths: dict[str, int] = {}
    while (name := library.ts_path_name(len(paths))) is not None:
        paths[name.decode()] = len(paths)
    return paths


def native_paths() -> dict[str, int]:
    """Return those of them that this processor can run."""
    library = load_library()
    return {name: number for name, number in all_native_paths().items() if library.ts_path_runs_here(number)}


class Kernels:
    """Operations on raw arrays, which they do not check; every path gives the same bits.

    Arrays are C-ordered; bits are packed little-endian, 1 standing for ``>= 0`` (or a sign of +1). Searches take at
    least one range; their results are rows, and of equal codes the lower id comes first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        library = load_library()
        self._functions = {function: getattr(library, f"ts_{function}") for function in FUNCTIONS}
        self._path = native_paths()[name]

    def _call(self, function: str, *arguments: Any) -> int:
        structs = [byref(value) if isinstance(value, ctypes.Structure) else value for value in arguments]
        status: int = self._functions[function](byref(struct.run(self._path, n_threads())), *structs)
        if status == 1:
            raise MemoryError(f"topsign's native kernel {function} ran out of memory")
        return status

    def rotate(self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None) -> Float32:
        """Return sqrt(n_features) times the randomised Hadamard rotation of each row, or its transpose.

        ``signs`` is (n_rounds, ceil(n_features / 8)). A round multiplies by random signs and transforms by
        Walsh-Hadamard; ``native/kernels/transform.h`` describes the rotation if n_features is no power of two.
        """
        if out is None:
            out = np.empty_like(signals)
        rotation = struct.rotation(c_rows(signals), data_pointer(signs), len(signs), int(transpose), data_pointer(out))
        self._call("rotate", rotation)
        return out

    def multiply(
        self,
        signals: Float32,
        products: Sequence[Product],
        *,
        factors: Float32 | None = None,
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
        self._call("multiply", c_rows(signals), data_pointer(factors), c_products(products, outputs), len(products))
        return outputs

    def square_norms(self, signals: Float32) -> Float64:
        """Return the sum of squares of each row: in float64, term i into lane i mod 16, lanes folded in half."""
        out = np.empty(len(signals))
        self._call("square_norms", c_rows(signals), data_pointer(out))
        return out

    def magnitude_sums(self, projected: Float32) -> Float64:
        """Return the sum of magnitudes of each row, in the order of ``square_norms``."""
        out = np.empty(len(projected))
        self._call("magnitude_sums", c_rows(projected), data_pointer(out))
        return out

    def inner_products(self, rows: Float32, vector: Float64) -> Float64:
        """Return the inner product of each row with a vector, in the order of ``square_norms``."""
        out = np.empty(len(rows))
        self._call("inner_products", c_rows(rows), data_pointer(vector), data_pointer(out))
        return out

    def select(self, projected: Float32, n_bits: int) -> tuple[Int32, Bytes, Float64]:
        """Select the ``n_bits`` largest magnitudes of each row; of equal ones the lower location wins.

        Returns ascending locations (n, n_bits), their packed signs, and the sums of their magnitudes.
        """
        n = len(projected)
        locations = np.empty((n, n_bits), np.int32)
        signs = np.empty((n, -(-n_bits // 8)), np.uint8)
        totals = np.empty(n)
        selection = struct.selection(
            c_rows(projected), n_bits, data_pointer(locations), data_pointer(signs), data_pointer(totals)
        )
        self._call("select", selection)
        return locations, signs, totals

    def pack_bits(self, projected: Float32) -> Bytes:
        """Return ``projected >= 0``, packed."""
        n, n_pool = projected.shape
        out = np.empty((n, -(-n_pool // 8)), np.uint8)
        self._call("pack_bits", c_rows(projected), data_pointer(out))
        return out

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes) -> Bytes:
        """Return adaptive codes (n_codes, layout.code_bytes) of locations and packed signs."""
        out = np.empty((len(locations), layout.code_bytes), np.uint8)
        contents = struct.contents(data_pointer(locations), data_pointer(signs))
        self._call("pack_codes", c_layout(layout), len(locations), contents, data_pointer(out))
        return out

    def unpack_codes(self, layout: Layout, codes: Bytes) -> tuple[Int32, Bytes]:
        """Return locations and packed signs of adaptive codes; arbitrary bytes give locations in the pool."""
        locations = np.empty((len(codes), layout.n_bits), np.int32)
        signs = np.empty((len(codes), layout.sign_bytes), np.uint8)
        contents = struct.contents(data_pointer(locations), data_pointer(signs))
        self._call("unpack_codes", c_layout(layout), data_pointer(codes), len(codes), contents)
        return locations, signs

    def valid_codes(self, layout: Layout, codes: Bytes) -> Booleans:
        """Return whether ``pack_codes`` could have made each code of ascending locations."""
        out = np.empty(len(codes), np.bool_)
        self._call("valid_codes", c_layout(layout), data_pointer(codes), len(codes), data_pointer(out))
        return out

    def encode_groups(self, projected: Float32) -> tuple[Bytes, Float64]:
        """Return nibbles of groups of eight projections, two per byte, and the sums of the largest magnitudes.

        A nibble is the location of the largest magnitude (of equal ones the lower), plus 8 if it is not negative.
        """
        n, n_pool = projected.shape
        out, totals = np.empty((n, n_pool // 16), np.uint8), np.empty(n)
        self._call("encode_groups", c_rows(projected), data_pointer(out), data_pointer(totals))
        return out, totals

    def ring_encode(self, ring: Ring, coordinates: Float32) -> Bytes:
        """Return trellis codes of coordinates, (n, n_steps / 2 + 2): the cheapest closed paths, and cosine factors.

        A first pass from the middle of the ring finds the state at its beginning, where the second begins and ends. Of
        equal costs the lower state wins.
        """
        out = np.empty((len(coordinates), ring.n_steps // 2 + FACTOR_BYTES), np.uint8)
        self._call("ring_encode", c_ring(ring), c_rows(coordinates), data_pointer(out))
        return out

    def ring_norms(self, ring: Ring, codes: Bytes) -> Float64:
        """Return the norms of mean plus reconstruction of trellis codes, which may be followed by other bytes."""
        out = np.empty(len(codes))
        self._call("ring_norms", c_ring(ring), data_pointer(codes), *codes.shape, data_pointer(out))
        return out

    def decode(self, scoring: Scoring, codes: Bytes) -> Int8:
        """Return the levels of codes, (n_codes, width); arbitrary bytes are safe."""
        out = np.empty((len(codes), scoring.width), np.int8)
        self._call("decode", c_scoring(scoring), data_pointer(codes), len(codes), data_pointer(out))
        return out

    def round(self, values: Float32, limit: int) -> tuple[Int16, Float32]:
        """Return rows rounded to multiples of a step, and the steps.

        The step of a row is its largest magnitude over ``limit``, in float32, or 1 if that is 0; quotients in float64
        are rounded to the nearest integer, ties to even.
        """
        out, steps = np.empty(values.shape, np.int16), np.empty(len(values), np.float32)
        self._call("round", c_rows(values), limit, data_pointer(out), data_pointer(steps))
        return out, steps

    def prepare(self, preparation: Preparation, signals: Float32) -> tuple[Float64, Float32, RoundedQueries]:
        """Return norms, unit vectors and rounded queries for trellis codes."""
        n, n_coded = len(signals), len(preparation.coded)
        norms, units, values = np.empty(n), np.empty_like(signals), np.empty((n, n_coded), np.int16)
        scales, constants = np.empty((2, n), np.float32)
        arrays: list[Array] = [norms, units, values, scales, constants]
        prepared = struct.prepared(*map(data_pointer, arrays))
        self._call("prepare", c_preparation(preparation), c_rows(signals), prepared)
        return norms, units, RoundedQueries(values, scales, constants)

    def scores(self, scoring: Scoring, codes: CodeBlocks, queries: RoundedQueries) -> Float32:
        """Return all scores, (n_queries, n_codes): ``(sum * scale + constant) * factor``, each step in float32."""
        out = np.empty((len(queries.scales), len(codes)), np.float32)
        arguments = c_scoring(scoring), c_codes(CodeRange(codes)), c_queries(queries), data_pointer(out)
        self._call("scores", *arguments)
        return out

    def rank(
        self, scoring: Scoring, ranges: Sequence[CodeRange], queries: RoundedQueries, k: int
    ) -> tuple[Int64, Float32]:
        """Return rows and scores, (n_queries, k), of the k codes with the highest scores, then -1 and nan.

        Sorted by falling score, then by id. Scores are those of :meth:`scores`.
        """
        rows, values, best = _best(len(queries.scales), k)
        self._call("rank", c_scoring(scoring), c_code_ranges(ranges), c_queries(queries), best)
        return rows, values

    def within(
        self,
        scoring: Scoring,
        ranges: Sequence[CodeRange],
        queries: RoundedQueries,
        bounds: Float32,
    ) -> tuple[Int64, Int64, Float32]:
        """Return starts (n_queries + 1,), ascending rows and scores of all codes that reach the bound of each query."""
        arguments, n_queries = (c_scoring(scoring), c_code_ranges(ranges), c_queries(queries)), len(queries.scales)
        capacity = 1024 * max(1, n_queries)
        while True:
            rows, values = np.empty(capacity, np.int64), np.empty(capacity, np.float32)
            counts = np.zeros(n_queries, np.int64)
            found = struct.found(
                data_pointer(bounds), capacity, data_pointer(rows), data_pointer(values), data_pointer(counts)
            )
            self._call("within", *arguments, found)
            starts = np.append(0, np.cumsum(counts)).astype(np.int64)
            total = int(starts[-1])
            if total <= capacity:
                return starts, rows[:total].copy(), values[:total].copy()
            capacity = total

    def byte_products(self, queries: Int8, rows: Bytes) -> Int32:
        """Return sums of products, (n_queries, n_rows), with bytes of at most 127; the width is a multiple of 64."""
        out = np.empty((len(queries), len(rows)), np.int32)
        bytes_ = struct.bytes(data_pointer(queries), data_pointer(rows), *out.shape, rows.shape[1])
        self._call("byte_products", bytes_, data_pointer(out))
        return out

    def choose_regions(self, model: RegionModel, counts: Int64, rule: RegionRule, units: Float32) -> RegionChoice:
        """Return the regions that unit queries choose; ``counts`` are the living entries of each region."""
        n_queries, capacity = len(units), 4 * int(rule.n_regions.max(initial=0)) * len(units) + 64
        strata, starts = np.empty(n_queries, np.int32), np.empty(n_queries + 1, np.int64)
        best, contrasts = np.empty((2, n_queries), np.float32)
        while True:
            chosen = np.empty(capacity, np.int32)
            arrays: list[Array] = [strata, best, contrasts, starts, chosen]
            found = struct.region_choice(*map(data_pointer, arrays), capacity)
            self._call("choose_regions", c_regions(model, counts), c_rule(rule), c_rows(units), found)
            if starts[-1] <= capacity:
                return RegionChoice(strata, best, contrasts, Visits(starts, chosen[: starts[-1]]))
            capacity = int(starts[-1])

    def visit(
        self, scoring: Scoring, codes: RegionCodes, visits: Visits, queries: RoundedQueries, k: int
    ) -> tuple[Int64, Float32]:
        """Return what :meth:`rank` returns, of the codes in the regions that each query visits."""
        rows, values, best = _best(len(queries.scales), k)
        places = struct.visits(data_pointer(visits.starts), data_pointer(visits.regions))
        self._call("visit", c_scoring(scoring), c_region_codes(codes), places, c_queries(queries), best)
        return rows, values

    def search_regions(
        self,
        scoring: Scoring,
        codes: RegionCodes,
        model: RegionModel,
        counts: Int64,
        rule: RegionRule,
        units: Float32,
        queries: RoundedQueries,
        k: int,
        *,
        originals: OriginalRows | None = None,
        signals: Float32 | None = None,
    ) -> RegionHits:
        """Choose regions, compare the codes there, and compare candidates by originals with the ``signals``.

        ``units`` are the same queries as unit vectors.
        """
        found, hits = _region_hits(len(units), k)
        exact = None if originals is None or signals is None else c_originals(originals, signals)
        arguments = c_region_codes(codes), c_regions(model, counts), c_rule(rule), c_rows(units), c_queries(queries)
        while self._call("search_regions", c_scoring(scoring), *arguments, exact, found) == MUST_READ:
            assert originals is not None
            originals.read()
        return hits

    def search_plan(self, plan: RegionPlan, signals: Float32, k: int) -> RegionHits | None:
        """Prepare signals as queries and search regions as planned.

        None if a norm is not in [1e-18, 1e18], or if fewer than k entries are found.
        """
        found, hits = _region_hits(len(signals), k)
        arguments = c_region_plan(plan), c_rows(signals), found
        while (status := self._call("search_plan", *arguments)) == MUST_READ:
            assert plan.originals is not None
            plan.originals.read()
        return None if status else hits

    def compare_originals(
        self, ranges: Sequence[CodeRange], originals: OriginalRows, signals: Float32, starts: Int64, rows: Int64
    ) -> tuple[Float64, Float64]:
        """Return exact inner products and correlations of queries with entries.

        Those of query q are in the rows ``rows[starts[q] : starts[q + 1]]``.
        """
        inner, correlations = np.empty((2, len(rows)))
        arrays: list[Array] = [starts, rows, inner, correlations]
        exact = c_originals(originals, signals)
        self._call("compare_originals", c_code_ranges(ranges), exact, *map(data_pointer, arrays))
        return inner, correlations

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int) -> tuple[Bytes, Int64]:
        """Code sets of locations arithmetically: return zero-padded rows of ``capacity`` bytes, and lengths."""
        out = np.empty((len(locations), capacity), np.uint8)
        lengths = np.empty(len(locations), np.int64)
        sets = struct.sets(*locations.shape, n_pool, capacity)
        self._call("encode_sets", sets, data_pointer(locations), data_pointer(out), data_pointer(lengths))
        return out, lengths

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int) -> Int32:
        """Return the sets of ``encode_sets``; arbitrary bytes give some valid set."""
        out = np.empty((len(coded), n_bits), np.int32)
        sets = struct.sets(len(coded), n_bits, n_pool, coded.shape[1])
        self._call("decode_sets", sets, data_pointer(coded), data_pointer(out))
        return out


def _best(n_queries: int, k: int) -> tuple[Int64, Float32, Any]:
    """Return rows and values of the k best codes, to be filled in, and both as kernels take them."""
    rows, values = np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), np.nan, np.float32)
    return rows, values, struct.best(k, data_pointer(rows), data_pointer(values))


def _region_hits(n_queries: int, k: int) -> tuple[Any, RegionHits]:
    """Return the structure of what a search of regions finds, and hits, which it fills in."""
    hits = RegionHits.empty(n_queries, k)
    start, n = data_pointer(hits.words), 8 * n_queries * k
    assert start is not None
    values = start + 4 * n + 8 * n_queries
    places = start, start + n, values, start + 2 * n, start + 3 * n, values + n // 2, start + 4 * n
    return struct.neighbors(k, *places), hits
