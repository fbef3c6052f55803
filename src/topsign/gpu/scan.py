"""Codes on a device, and their scans and searches: the k best codes of each query, or all that reach a bound.

Codes are blocks of 32 in byte planes, as in memory and in segments. Values are those of the CPU: sums are exact
integers, so the value of a code is final at once. A scan collects the codes whose values exceed the bar
of a query, the k-th best value so far; they are then merged with the best so far, which raises the bar. A scan takes at
most as many codes as the buffer of candidates holds, or is repeated in smaller parts after an overflow, so no candidate
is lost.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Float32, Int64
from ..kernels import BLOCK, CodeBlocks, Ring, RoundedQueries, Scoring, unpack_factors
from .device import Array, Device, Module, empty_like

TILE = 128  # codes per tile of a product, and coordinates per slice
MAX_K = 2048  # entries per query that one thread block sorts; more are merged on the host
BATCHES = (1, 2, 4, 8)  # queries that a thread compares with a code while it reads it
TILES = (8, 16, 32, 64, 128)  # queries per tile of a product
STATIC_SHARED = 1024  # bytes left for static shared memory
DECODED_BYTES = 2**28  # of adaptive codes that are decoded at a time
MAX_INPUTS = 1024  # per scan
PLANS = 8  # shapes of inputs whose buffers are cached
KINDS = {"signs": 0, "groups": 1, "ring": 2, "kept": 3}  # of Scoring, in cuda/codes.cuh

# Sizes that change speed and memory, never results.
FEW_QUERIES = 8  # up to which tables are used
FIRST_SCAN = 16384  # codes of the first scan
GROWTH = 512  # maximum ratio of the codes of a scan to those scanned before it
CANDIDATE_BYTES = 2**27
LARGEST_SCAN = 2**22  # maximum number of codes per scan
TABLE_THREADS = 512  # of a thread block that looks up tables

UInt32 = npt.NDArray[np.uint32]


class CodeFormat:
    """Codes of one scoring: compile-time constants of the kernels, factors, and codebooks of rings."""

    def __init__(self, device: Device, scoring: Scoring) -> None:
        self.device, self.scoring, self.width = device, scoring, scoring.width
        self.constants = code_constants(scoring)
        self.n_bytes = self.constants["DATA_BYTES"]  # of a code without its factor
        self.factors = None
        if scoring.factor is not None:
            numbers = np.arange(2**16, dtype="<u2").view(np.uint8).reshape(-1, 2)
            self.factors = device.put(unpack_factors(numbers, scoring.factor))
        self.steps = self.coordinates = self.levels = None
        if scoring.ring is not None:
            self.steps = device.put(step_places(scoring.ring))
            self.coordinates = device.put(coordinate_places(scoring.ring))
            self.levels = device.put(scoring.ring.levels)

    def module(self, *files: str, **constants: int) -> Module:
        """Return the kernels of these files, compiled for these codes."""
        return self.device.module(("codes.cuh", *files), {**self.constants, **constants})


def code_constants(scoring: Scoring) -> dict[str, int]:
    """Return the constants of ``cuda/codes.cuh``."""
    constants = {"KIND": KINDS[scoring.kind], "CODE_BYTES": scoring.code_bytes, "WIDTH": scoring.width}
    if scoring.layout is None:
        n_steps = 0 if scoring.ring is None else scoring.ring.n_steps
        sizes = {"signs": scoring.width // 8, "groups": scoring.width // 16, "ring": n_steps // 2}
        return constants | {"DATA_BYTES": sizes[scoring.kind]}
    layout, low = scoring.layout, -(-scoring.layout.n_bits * scoring.layout.low_bits // 8)
    constants |= {"DATA_BYTES": layout.code_bytes, "N_BITS": layout.n_bits, "LOW_BITS": layout.low_bits}
    high = layout.code_bytes - layout.sign_bytes - low
    return constants | {"SIGN_BYTES": layout.sign_bytes, "LOW_BYTES": low, "HIGH_BYTES": high}


def step_places(ring: Ring) -> UInt32:
    """Return the first level, the first coordinate and the number of coordinates of each step, (n_steps, 4)."""
    first = ring.first.astype(np.uint32)
    columns = ring.starts, first[:-1], np.diff(first), np.zeros(ring.n_steps)
    return np.stack([column.astype(np.uint32) for column in columns], axis=1)


def coordinate_places(ring: Ring) -> UInt32:
    """Return the step, the first level and the number of coordinates of the step of each coordinate, (n_coded, 4)."""
    steps = step_places(ring)
    numbers = np.repeat(np.arange(len(steps), dtype=np.uint32), steps[:, 2])
    levels, first, dims, nothing = steps[numbers].T
    inside = np.arange(len(numbers), dtype=np.uint32) - first
    return np.ascontiguousarray(np.stack([numbers, levels + inside, dims, nothing], axis=1))


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive codes on a device."""

    planes: Array  # (n_blocks, code_bytes, 32) uint8
    count: int
    biases: Array | None = None  # (count,) float32, added to values
    alive: Array | None = None  # packed bitmap in uint32; None: all
    base: int = 0  # position of the first code

    def __len__(self) -> int:
        return self.count


def put_rows(device: Device, codes: Any) -> Array:
    """Return the planes of rows of bytes, (n_codes, code_bytes), a NumPy array or an array on the device."""
    if isinstance(codes, np.ndarray):
        return device.put(CodeBlocks.of(np.ascontiguousarray(codes)).planes)
    count, code_bytes = codes.shape
    planes = device.zeros((-(-count // BLOCK), code_bytes, BLOCK), np.uint8)
    sizes = np.uint32(count), np.uint32(code_bytes)
    device.module(("topk.cu",), {}).launch("to_planes", -(-count * code_bytes // 256), 256, codes, *sizes, planes)
    return planes


@dataclass(frozen=True, eq=False)
class DeviceQueries:
    """Rounded queries on a device, see :class:`topsign.kernels.RoundedQueries`."""

    values: Array  # (n_queries, width) int16
    scales: Array  # (n_queries,) float32
    constants: Array

    @classmethod
    def put(cls, device: Device, queries: RoundedQueries, rows: slice = slice(None)) -> DeviceQueries:
        """Copy rounded queries to the device."""
        arrays = queries.values, queries.scales, queries.constants
        return cls(*(device.put(np.ascontiguousarray(array[rows])) for array in arrays))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> DeviceQueries:
        return DeviceQueries(self.values[rows], self.scales[rows], self.constants[rows])


@dataclass(frozen=True, eq=False)
class Candidates:
    """Output arrays of scans: the codes whose values exceed the bar of each query."""

    bars: Array
    counts: Array
    positions: Array  # (n_queries, capacity)
    values: Array

    @classmethod
    def of(cls, device: Device, n_queries: int, n_codes: int) -> Candidates:
        """Return empty arrays for scans of at most ``n_codes`` codes."""
        room = max(FIRST_SCAN, min(LARGEST_SCAN, CANDIDATE_BYTES // (8 * max(1, n_queries))))
        capacity = -(-min(room, max(1, n_codes)) // TILE) * TILE
        bars, counts = device.empty((n_queries,), np.float32), device.zeros((n_queries,), np.uint32)
        shape = n_queries, capacity
        return cls(bars, counts, device.empty(shape, np.uint32), device.empty(shape, np.float32))

    @property
    def capacity(self) -> int:
        return int(self.positions.shape[1])


class Scanner(ABC):
    """Kernels that compare a batch of queries with codes of one format."""

    codes = 2**30  # that one launch compares
    levels: Array = None  # decoded rows of these codes

    def __init__(self, form: CodeFormat, n_queries: int) -> None:
        self.device, self.format, self.n_queries = form.device, form, n_queries
        self._queries: DeviceQueries | None = None

    def start(self, queries: DeviceQueries) -> None:
        """Set the queries."""
        self._queries = queries
        self._prepare(queries)

    @abstractmethod
    def _prepare(self, queries: DeviceQueries) -> None:
        """Write the values of queries in the form that the kernels read."""

    @abstractmethod
    def _launch(self, planes: Array, count: int, *target: object) -> None:
        """Launch the kernels for some codes."""

    def scan(self, part: Part, start: int, count: int, to: Candidates) -> None:
        """Scan ``count`` codes of a part for candidates; ``start`` is a multiple of 128."""
        self._scan(part, start, count, to, None)

    def values(self, part: Part, out: Array) -> None:
        """Write the values of all codes with their biases, (n_queries, n_codes) float32."""
        self._scan(part, 0, len(part), None, out)

    def _scan(self, part: Part, start: int, count: int, to: Candidates | None, out: Array | None) -> None:
        assert self._queries is not None
        found = (None, None, None) if to is None else (to.counts, to.positions, to.values)
        for first in range(start, start + count, self.codes):
            n = min(self.codes, start + count - first)
            planes, bars = part.planes[first // BLOCK :], None if to is None else to.bars
            biases = None if part.biases is None else part.biases[first:]
            alive = None if part.alive is None else part.alive[first // BLOCK :]
            sizes = part.base + first, n, self.n_queries, 0 if to is None else to.capacity
            numbers = self._queries.scales, self._queries.constants, bars, self.format.factors, biases, alive
            every = None if out is None else out.reshape(-1)[first:], np.uint64(len(part))
            self._launch(planes, n, planes, *numbers, *map(np.uint32, sizes), *found, *every)


class TableScanner(Scanner):
    """Scanner for a few queries: bytes of codes look up parts of the sums in tables in shared memory."""

    def __init__(self, form: CodeFormat, n_queries: int) -> None:
        super().__init__(form, n_queries)
        size, room = table_bytes(form), form.device.shared_bytes - STATIC_SHARED
        fitting = [batch for batch in BATCHES if batch * size <= room]
        self._batch = next((batch for batch in fitting if batch >= n_queries), fitting[-1])
        self._shared = self._batch * size
        self._threads = TABLE_THREADS * (2 if 2 * self._shared > form.device.shared_bytes else 1)
        self._tables = self.device.zeros((-(-n_queries // self._batch) * self._shared,), np.uint8)
        self._entries = {"ring": 512 * form.n_bytes, "kept": form.width}.get(form.scoring.kind, 32 * (form.n_bytes + 3))
        constants = {"QUERIES": self._batch, "TABLE_BYTES": size, "THREADS": self._threads}
        self._module = form.module("tables.cu", **constants)

    def _prepare(self, queries: DeviceQueries) -> None:
        grid = -(-self._entries // 256), self.n_queries
        books = self.format.steps, self.format.levels
        self._module.launch("make_tables", grid, 256, queries.values, *books, self._tables)

    def _launch(self, planes: Array, count: int, *target: object) -> None:
        resident = max(1, min(2048 // self._threads, self.device.shared_bytes // self._shared))
        blocks = min(resident * self.device.n_processors, -(-count // self._threads))
        for first in range(0, self.n_queries, self._batch):
            tables = self._tables, np.uint32(first)
            self._module.launch("scan_tables", blocks, self._threads, *tables, *target, shared=self._shared)


def table_bytes(form: CodeFormat) -> int:
    """Return the bytes of the tables of one query, see ``cuda/tables.cu``."""
    sizes = {"ring": 2048 * form.n_bytes, "kept": -(-form.width // 8) * 16}
    return sizes.get(form.scoring.kind, -(-form.n_bytes // 4) * 256)


class ProductScanner(Scanner):
    """Scanner for batches: decodes tiles of codes to bytes, which the tensor cores multiply with the queries."""

    def __init__(self, form: CodeFormat, n_queries: int) -> None:
        super().__init__(form, n_queries)
        slices = -(-form.width // TILE)
        kept = slices <= 4  # decoded codes stay in shared memory for all queries
        rows = TILE * TILE * (slices if kept else 2)
        needed = {size: rows + max(6 * TILE * size, 4 * TILE * (size + 9)) for size in TILES}
        fitting = [size for size in TILES if needed[size] + STATIC_SHARED <= form.device.shared_bytes]
        size = next((size for size in fitting if size >= n_queries), fitting[-1])
        self._shared, self._n_tiles = needed[size], -(-n_queries // size)
        self._across = 1 if kept else self._n_tiles
        self._columns = self.device.zeros((2 * size * self._n_tiles, slices * TILE), np.uint8)
        self._module = form.module("product.cu", QUERIES=size, WGMMA=int(self.device.has_wgmma))
        if form.scoring.kind == "kept":
            n_tiles = min(2 * self.device.n_processors, DECODED_BYTES // (TILE * TILE * slices))
            self.codes = TILE * max(1, n_tiles)
            self.levels = self.device.empty((self.codes, slices * TILE), np.uint8)

    def _prepare(self, queries: DeviceQueries) -> None:
        self._module.launch("split_queries", self.n_queries, 256, queries.values, self._columns)

    def _launch(self, planes: Array, count: int, *target: object) -> None:
        if self.levels is not None:
            self._module.launch("decode_kept", -(-count // 128), 128, planes, np.uint32(count), self.levels)
        levels = self.format.levels if self.levels is None else self.levels
        sizes = np.uint32(self._n_tiles), np.uint32(self._across)
        rows = self.format.coordinates, levels, self._columns, *sizes
        blocks = -(-count // TILE) * self._across
        self._module.launch("scan_products", blocks, 256, *rows, *target, shared=self._shared)


def make_scanner(form: CodeFormat, n_queries: int) -> Scanner:
    """Return the faster scanner for this number of queries."""
    if n_queries <= FEW_QUERIES and table_bytes(form) + STATIC_SHARED <= form.device.shared_bytes:
        return TableScanner(form, n_queries)
    return ProductScanner(form, n_queries)


class TopkSearch:
    """The k best codes of a batch of queries. Parts must come in the order of their positions.

    With ``waits``, scans take more codes than the buffer of candidates holds, and are repeated after an overflow: fewer
    and larger scans, but the host synchronizes after each. Without, calls can be captured in a CUDA graph, and queries
    that are not finite get NaN and the first k positions instead of none.
    """

    def __init__(self, form: CodeFormat, n_queries: int, k: int, n_codes: int, *, waits: bool = True) -> None:
        device = self.device = form.device
        self.n_queries, self.k, self.waits = n_queries, k, waits
        self.scanner = make_scanner(form, n_queries)
        self.candidates = Candidates.of(device, n_queries, n_codes)
        self.values, self.positions = device.empty((n_queries, k), np.float32), device.empty((n_queries, k), np.int64)
        self._best = device.empty((n_queries, k), np.uint64), device.empty((n_queries, k), np.uint32)
        self._module = device.module(("topk.cu",), {})
        self._room = max(512, 1 << (max(2 * k, k + 256) - 1).bit_length())
        self._seen = 0

    def start(self, queries: DeviceQueries) -> None:
        """Set new queries."""
        self._seen = 0
        self.scanner.start(queries)
        found, numbers = self.candidates, (queries.scales, queries.constants, np.uint32(self.k))
        self._module.launch("start_search", self.n_queries, 256, *numbers, found.bars, found.counts, *self._best)

    def scan(self, part: Part, out: tuple[Array, Array] | None = None) -> None:
        """Scan the codes of a part; write values and positions of the best codes so far to ``out``."""
        start = 0
        while start < len(part):
            count = min(len(part) - start, self._limit())
            self.scanner.scan(part, start, count, self.candidates)
            if count > self.candidates.capacity and self._overflows():
                self.candidates.counts[...] = 0
                count = self.candidates.capacity
                self.scanner.scan(part, start, count, self.candidates)
            self._keep(part, out or (self.values, self.positions))
            start += count
            self._seen += count

    def _limit(self) -> int:
        """Return the codes of the next scan: at most the capacity, or more if the scan can be repeated."""
        capacity = self.candidates.capacity
        if not self.waits or not self._seen:
            return max(TILE, min(max(FIRST_SCAN, GROWTH * self._seen), capacity) // TILE * TILE)
        growth = max(1, min(GROWTH, capacity // (4 * self.k)))  # about k * growth candidates are expected
        return max(capacity, min(LARGEST_SCAN, growth * self._seen)) // TILE * TILE

    def _overflows(self) -> bool:
        """Return whether the candidates of some query overflowed in the last scan."""
        return int(self.device.get(self.candidates.counts).max()) > self.candidates.capacity

    def _keep(self, part: Part, out: tuple[Array, Array]) -> None:
        found, sizes = self.candidates, (part.base, self.candidates.capacity, self.k, self._room)
        arguments = part.biases, *map(np.uint32, sizes), found.counts, found.positions, found.values
        results = *self._best, found.bars, np.uint32(not self.waits), *out
        self._module.launch("keep_best", self.n_queries, 256, *arguments, *results, shared=12 * self._room)


class WithinSearch:
    """All codes that reach the bound of each query, in parts of at most ``largest`` codes."""

    def __init__(self, form: CodeFormat, queries: DeviceQueries, bounds: Float32, largest: int) -> None:
        self.device = form.device
        self.scanner = make_scanner(form, len(queries))
        self.scanner.start(queries)
        self.candidates = Candidates.of(self.device, len(queries), largest)
        self.candidates.bars[...] = self.device.put(np.nextafter(bounds, np.float32(-np.inf)))

    def scan(self, part: Part) -> Iterator[tuple[Int64, Int64, Float32]]:
        """Yield queries, positions and values of matching codes of a part, scan by scan."""
        device, found = self.device, self.candidates
        for start in range(0, len(part), found.capacity):
            found.counts[...] = 0
            self.scanner.scan(part, start, min(found.capacity, len(part) - start), found)
            counts = device.get(found.counts).astype(np.int64)
            queries, slots = np.nonzero(np.arange(counts.max(initial=0)) < counts[:, np.newaxis])
            if len(queries):
                most = int(counts.max())
                positions, values = device.get(found.positions[:, :most]), device.get(found.values[:, :most])
                yield queries, positions[queries, slots].astype(np.int64), values[queries, slots]


class HeadScanner:
    """Codes of a head on a ``device``. Buffers are cached for later calls with inputs of the same shape.

    After the first call with a shape, only results are allocated and the host does not synchronize, so calls can be
    captured in a CUDA graph. Threads may share a scanner. Calls share buffers, so they are serialised, and a call on
    another stream than the last one synchronizes the device.

    Parameters
    ----------
    scoring : Scoring
        Of the head's rows: ``recipe.scoring_of("log", code_bytes=recipe.weight_encoder().nbytes)``.
    codes : array of shape (n_classes, scoring.code_bytes), uint8
        NumPy array, or array or tensor on the device.
    bias : array of shape (n_classes,), float32, or None
        Added to the logits.
    """

    def __init__(self, scoring: Scoring, codes: Any, bias: Any, *, device: Device) -> None:
        self.device = device
        self._format = CodeFormat(device, scoring)
        biases = device.put(bias) if isinstance(bias, np.ndarray) else bias
        self._part = Part(put_rows(device, codes), len(codes), biases)
        self._plans: OrderedDict[tuple[int, int], Any] = OrderedDict()  # buffers, by numbers of inputs and classes
        self._lock = threading.Lock()  # held during launches
        self._stream: int | None = None  # of the last launch

    def __len__(self) -> int:
        """Number of classes."""
        return len(self._part)

    @property
    def nbytes(self) -> int:
        """GPU memory of codes and biases, in bytes."""
        return int(self._part.planes.nbytes) + (0 if self._part.biases is None else 4 * len(self))

    def topk(self, inputs: DeviceQueries, k: int) -> tuple[Array, Array]:
        """Return the ``k`` highest logits of each of the ``inputs``, and their classes; ties by ascending class.

        The logits have the bits of the CPU. An input whose scale is not finite gets NaN and the first k classes.
        """
        if not 1 <= k <= min(MAX_K, len(self)):
            raise ValueError(f"k must lie in [1, {min(MAX_K, len(self))}] on a GPU, got {k}")
        shape, make = (len(inputs), k), partial(TopkSearch, k=k, n_codes=len(self), waits=False)
        values, classes = (empty_like(self.device, inputs.values, shape, t) for t in ("float32", "int64"))
        with self._launching(inputs):
            for rows, search in self._planned(inputs, k, make):
                search.start(inputs[rows])
                search.scan(self._part, (values[rows], classes[rows]))
        return values, classes

    def logits(self, inputs: DeviceQueries) -> Array:
        """Return logits of all classes for each of the ``inputs``, (n_inputs, n_classes), with the bits of the CPU."""
        out = empty_like(self.device, inputs.values, (len(inputs), len(self)), "float32")
        with self._launching(inputs):
            for rows, scanner in self._planned(inputs, 0, make_scanner):
                scanner.start(inputs[rows])
                scanner.values(self._part, out[rows])
        return out

    @contextmanager
    def _launching(self, inputs: DeviceQueries) -> Iterator[None]:
        """Serialise launches, which share buffers: threads by the lock, streams by a synchronization under it."""
        with self._lock, self.device.stream_of(inputs.values):
            self._stream = self.device.follow(self._stream)
            yield

    def _planned(self, inputs: DeviceQueries, k: int, make: Callable[..., Any]) -> Iterator[tuple[slice, Any]]:
        """Yield blocks of inputs, with the search or scanner whose buffers are cached for their number."""
        for start in range(0, len(inputs), MAX_INPUTS):
            rows = slice(start, start + MAX_INPUTS)
            key = len(inputs[rows]), k
            if key not in self._plans:
                self._plans[key] = make(self._format, key[0])
            if len(self._plans) > PLANS:
                self._plans.popitem(last=False)
            yield rows, self._plans[key]
