"""Scans: a batch of rounded queries against codes on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .device import Array, Device, Module
from .stripes import GROUP, CodeFormat, Format, Stripes

TILE = 128  # codes per tile of a matrix product
LONG_BITS = 1024  # from this size on, queries have two digits: the error bound of one would admit too many candidates
FEW_COLUMNS = 16
BestSoFar = tuple[Array, Array] | None  # keys and positions
PRODUCT_COLUMNS = {1: (16, 32, 64, 128, 256), 2: (16, 32, 64, 128, 256), 3: (48, 96, 192)}  # by digits


@dataclass(frozen=True)
class Tuning:
    """Sizes that change speed and memory, never results."""

    sample: int = 8192  # codes scored to initialise the bars of a few queries, divided among them
    first: int = 16896  # codes of the first scan of a batch
    growth: int = 512  # maximum ratio of the codes of a scan to those scanned before it
    candidate_bytes: int = 2**27
    largest: int = 2**22  # maximum number of codes per scan
    waves: int = 4  # tiles per multiprocessor and product
    few_columns: int = FEW_COLUMNS
    gather_threads: int = 1024

    def sampled(self, n_queries: int) -> int:
        """Return the number of codes scored for the first bar of each query."""
        return min(2048, max(1, self.sample // n_queries))

    def capacity(self, n_queries: int, n_codes: int) -> int:
        """Return the capacity for candidates of each query, which bounds the codes of a scan."""
        room = max(self.first, min(self.largest, self.candidate_bytes // (8 * max(1, n_queries))))
        return -(-min(room, max(1, n_codes)) // TILE) * TILE


DEFAULT = Tuning()


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive codes on a device, with the weights and biases of their sums."""

    stripes: Stripes
    weights: Array | None = None  # float32
    biases: Array | None = None  # float32
    alive: Array | None = None  # packed bitmap in uint32; None: all
    base: int = 0  # position of the first code

    def __len__(self) -> int:
        return self.stripes.n_codes


@dataclass(frozen=True, eq=False)
class Candidates:
    """Output arrays of scans: the codes that may score above the bar of each query."""

    steps: Array
    margins: Array
    bars: Array
    counts: Array
    positions: Array  # (n_queries, capacity)
    centers: Array
    n_queries: int
    capacity: int

    @classmethod
    def empty(cls, device: Device, n_queries: int, capacity: int) -> Candidates:
        steps = device.empty((2 * n_queries,), np.float32)  # and constants, for trellis codes
        margins, bars = (device.empty((n_queries,), np.float32) for _ in range(2))
        counts = device.zeros((n_queries,), np.uint32)
        positions = device.empty((n_queries, capacity), np.uint32)
        centers = device.empty((n_queries, capacity), np.float32)
        return cls(steps, margins, bars, counts, positions, centers, n_queries, capacity)

    def arguments(self, part: Part, start: int, count: int, *, every: bool) -> tuple[object, ...]:
        """Return the kernel arguments of a scan over some codes of a part."""
        end = start + count
        return (
            self.steps,
            self.margins,
            self.bars,
            None if part.weights is None else part.weights[start:end],
            None if part.biases is None else part.biases[start:end],
            None if part.alive is None else part.alive[start // 32 :],
            np.uint32(part.base + start),
            np.uint32(count),
            np.uint32(self.n_queries),
            np.uint32(self.capacity),
            np.uint32(every),
            self.counts,
            self.positions,
            self.centers,
        )


class Scanner(ABC):
    """Kernels that compare a batch of rounded queries with codes of one format."""

    def __init__(self, device: Device, form: CodeFormat, n_queries: int) -> None:
        self.device = device
        self.format = form
        self.n_queries = n_queries

    @abstractmethod
    def round(self, queries: Any, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        """Round and set queries (n_queries, n_pool); clear earlier results."""

    @abstractmethod
    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        """Scan ``count`` codes of a part for candidates; ``start`` is a multiple of 128."""

    @abstractmethod
    def scores(self, part: Part, steps: Array, out: Array) -> None:
        """Write all scores, (n_queries, n_codes) float32, up to the rounding of the digits."""


def start_search(module: Module, kernel: str, arguments: tuple[object, ...], to: Candidates, held: BestSoFar) -> None:
    """Launch the kernel that writes queries in the layout of the scans and clears earlier results."""
    keys, positions = held or (None, None)
    n_held = np.uint32(0 if held is None else held[0].shape[1])
    found = to.steps, to.margins, to.bars, to.counts, keys, positions, n_held
    module.launch(kernel, to.n_queries, 512, *arguments, *found)


def round_digits(
    scanner: Scanner,
    digits: int,
    table: Array,
    width: int,
    queries: Array,
    to: Candidates,
    held: BestSoFar,
    *,
    whole: bool,
) -> None:
    """Round queries to digits, into a table with rows of ``width`` bytes, or 0 for columns of the product."""
    module = scanner.format.module(scanner.device, "queries.cu", DIGITS=digits)
    start_search(module, "round_queries", (queries, np.uint32(width), np.uint32(whole), table), to, held)


class GatherScanner(Scanner):
    """Scanner for a few queries: looks up their values at the locations of each code."""

    def __init__(self, device: Device, form: Format, n_queries: int, digits: int, tuning: Tuning = DEFAULT) -> None:
        super().__init__(device, form, n_queries)
        self.digits = digits
        columns = n_queries * digits
        self._width = next(width for width in (1, 4, 8, 16) if width >= columns)
        table_bytes = -(-form.n_pool * max(4, self._width) // 16) * 16
        self._table = device.zeros((table_bytes,), np.uint8)
        in_shared = table_bytes + 1024 <= device.shared_bytes
        self._shared = table_bytes if in_shared else 0
        self._threads = tuning.gather_threads
        if table_bytes > device.shared_bytes // 4:
            self._threads = 1024 if self._width <= 8 else 512
        self._module = form.module(
            device,
            "gather.cu",
            WIDTH=self._width,
            DIGITS=digits,
            TABLE_SHARED=int(in_shared),
            GATHER_THREADS=self._threads,
        )

    def round(self, queries: Array, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        round_digits(self, self.digits, self._table, self._width, queries, to, held, whole=whole)

    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        arguments = to.arguments(part, start, count, every=every)
        grid = self._grid("gather", count)
        codes = part.stripes.at(start)
        self._module.launch("gather", grid, self._threads, codes, self._table, *arguments, shared=self._shared)

    def scores(self, part: Part, steps: Array, out: Array) -> None:
        self._module.launch(
            "gather_all",
            self._grid("gather_all", len(part)),
            self._threads,
            part.stripes.words,
            self._table,
            steps,
            part.weights,
            part.biases,
            np.uint32(len(part)),
            np.uint32(self.n_queries),
            np.uint64(len(part)),
            out,
            shared=self._shared,
        )

    def _grid(self, name: str, count: int) -> int:
        resident = self._module.resident_blocks(name, self._threads, self._shared) * self.device.n_processors
        return min(resident, -(-count // self._threads))


class TileScanner(Scanner):
    """Scanner for batches: expands codes to rows of bytes, which the tensor cores multiply with the queries.

    ``row_bytes`` is the shared memory that rows occupy throughout, ``stage_bytes`` that of staging them beside the
    columns. A launch takes at most ``codes`` codes; ``across`` blocks share the columns of a tile (0: one per tile).
    """

    rows_file: str  # kernels that expand codes to rows
    row_bytes, stage_bytes, codes, across = 0, 0, 2**30, 0

    def __init__(
        self, device: Device, form: CodeFormat, n_queries: int, n_pool: int, digits: int, **constants: int
    ) -> None:
        super().__init__(device, form, n_queries)
        columns = -(-n_queries // 8) * 8 * digits
        sizes = [size for size in PRODUCT_COLUMNS[digits] if self._needed(size, digits) + 1024 <= device.shared_bytes]
        size = next((size for size in sizes if size >= columns), sizes[-1])
        self._column_tiles, self._shared = -(-columns // size), self._needed(size, digits)
        self._columns = device.zeros((self._column_tiles * size, -(-n_pool // TILE) * TILE), np.uint8)
        constants |= {"COLUMNS": size, "WGMMA": int(device.has_wgmma)}
        self._module = form.module(device, "tiles.cuh", self.rows_file, "product.cu", DIGITS=digits, **constants)

    def _needed(self, columns: int, digits: int) -> int:
        """Return the shared memory of a thread block, in bytes."""
        queries = columns // digits
        centers = 4 * (TILE * (queries + 8) + 2 * max(queries, TILE))  # and their numbers
        return self.row_bytes + max(self.stage_bytes + 3 * TILE * columns, centers)

    @abstractmethod
    def _rows(self, part: Part, first: int, n: int) -> tuple[Array, ...]:
        """Return the operand of the product for ``n`` codes."""

    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        for first in range(start, start + count, self.codes):
            n = min(self.codes, start + count - first)
            arguments = list(to.arguments(part, first, n, every=every))
            if every:  # each code has its own slot in the buffers of the whole scan
                arguments[-2:] = [to.positions.ravel()[first - start :], to.centers.ravel()[first - start :]]
            self._launch("product", self._rows(part, first, n), n, *arguments)

    def scores(self, part: Part, steps: Array, out: Array) -> None:
        for first in range(0, len(part), self.codes):
            n = min(self.codes, len(part) - first)
            self._launch(
                "product_all",
                self._rows(part, first, n),
                n,
                steps,
                None if part.weights is None else part.weights[first:],
                None if part.biases is None else part.biases[first:],
                np.uint32(n),
                np.uint32(self.n_queries),
                np.uint64(len(part)),
                out.ravel()[first:],
            )

    def _launch(self, kernel: str, rows: tuple[Array, ...], n: int, *arguments: object) -> None:
        across = self.across or self._column_tiles
        columns = self._columns, np.uint32(self._column_tiles), np.uint32(across)
        self._module.launch(kernel, -(-n // TILE) * across, 256, *rows, *columns, *arguments, shared=self._shared)


class ProductScanner(TileScanner):
    """Scanner for batches of adaptive and sign codes, which are expanded to bytes of -1, 0 and 1."""

    format: Format
    rows_file, stage_bytes = "bitmaps.cu", 2 * TILE * TILE

    def __init__(self, device: Device, form: Format, n_queries: int, digits: int, tuning: Tuning = DEFAULT) -> None:
        super().__init__(device, form, n_queries, form.n_pool, digits)
        self.digits = digits
        slices = -(-form.n_pool // TILE)
        self._window_shared = GROUP * (min(slices, 64) * 8 + 1) * 4
        self.codes = tuning.waves * device.n_processors * TILE  # expanded at a time
        kept = 0 if form.signs else self.codes * form.n_bits
        self._kept = device.empty((kept,), np.uint16 if form.n_pool <= 2**15 else np.uint32)
        self._bitmaps = device.empty((self.codes * slices * 8,), np.uint32)

    def round(self, queries: Array, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        round_digits(self, self.digits, self._columns, 0, queries, to, held, whole=whole)

    def _rows(self, part: Part, first: int, n: int) -> tuple[Array, ...]:
        codes, groups = part.stripes.at(first), -(-n // GROUP)
        if self.format.signs:
            self._module.launch("draw_signs", groups, 256, codes, self._bitmaps)
        else:
            self._module.launch("list_kept", -(-groups // 4), 4 * GROUP, codes, np.uint32(n), self._kept)
            self._module.launch("draw_bitmaps", groups, 512, self._kept, self._bitmaps, shared=self._window_shared)
        return (self._bitmaps,)


def make_scanner(device: Device, form: Format, n_queries: int, *, digits: int, tuning: Tuning = DEFAULT) -> Scanner:
    """Return the faster scanner for this number of queries."""
    few = n_queries * digits <= tuning.few_columns and not form.signs
    return (GatherScanner if few else ProductScanner)(device, form, n_queries, digits, tuning)


def search_digits(form: Format, *, whole: bool) -> int:
    """Return the number of digits that queries are rounded to."""
    return 2 if form.n_bits >= LONG_BITS and not whole else 1
