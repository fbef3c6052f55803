"""Scans of trellis codes on a device: exact integer sums of products of rounded queries and levels."""

from __future__ import annotations

import numpy as np

from .device import Array, Device, Module
from .rings import LEVELS, RoundedOnDevice, TrellisFormat, padded, shared_module
from .scan import DEFAULT, TILE, BestSoFar, Candidates, Part, Scanner, TileScanner, Tuning, start_search

FEW_QUERIES = (1, 2, 4, 8, 16)  # that a thread compares with a code while it reads it
THREADS = 256
KEPT_SLICES = 4  # slices of 128 coordinates that stay in shared memory for all queries
MOST_TABLE_BYTES = 2**15 + 2**10
JOINT_THREADS = 1024
JOINT_CODES = {1: 8, 8: 2, 16: 1}  # short codes per thread between changes of tables, by number of queries
LONG_CODES = 1024  # coordinates from which a thread reads one code at a time


class FewScanner(Scanner):
    """Scanner for a few queries: each thread reads codes, window by window, and compares them with all queries."""

    format: TrellisFormat
    widths: tuple[int, ...] = FEW_QUERIES

    def __init__(self, device: Device, form: TrellisFormat, n_queries: int) -> None:
        super().__init__(device, form, n_queries)
        self._width = next(width for width in self.widths if width >= n_queries * form.n_digits)
        self._table = device.zeros((padded(form.n_pool) * self._width,), np.uint8)
        self._prepare()

    def _prepare(self) -> None:
        self._module = self._compiled("windows.cuh", THREADS)
        self._shared = few_bytes(self.format, self._width)
        self._tables: tuple[Array, ...] = self.format.coordinates, self.format.levels

    def _compiled(self, file: str, threads: int, **constants: int) -> Module:
        constants |= {"QUERIES": self._width, "FEW_THREADS": threads}
        return self.format.module(self.device, file, "few.cu", **constants)

    def round(self, queries: RoundedOnDevice, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        place_queries(self, queries, self._width, self._table, to, held)

    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        self._launch("few", part.stripes.at(start), count, *to.arguments(part, start, count, every=every))

    def scores(self, part: Part, steps: Array, out: Array) -> None:
        n = np.uint32(len(part)), np.uint32(self.n_queries), np.uint64(len(part))
        self._launch("few_all", part.stripes.words, len(part), steps, part.weights, part.biases, *n, out)

    def _launch(self, kernel: str, words: Array, count: int, *arguments: object) -> None:
        blocks, threads = self._grid(kernel, count)
        arguments = words, *self._tables, self._table, *arguments
        self._module.launch(kernel, blocks, threads, *arguments, shared=self._shared)

    def _grid(self, kernel: str, count: int) -> tuple[int, int]:
        """Return the number of blocks, and of threads per block."""
        resident = self._module.resident_blocks(kernel, THREADS, self._shared) * self.device.n_processors
        return min(resident, -(-count // THREADS)), THREADS


class JointScanner(FewScanner):
    """Scanner for a few queries and evenly spaced windows: looks up the levels of four coordinates together."""

    widths = (1, 8, 16)

    def _prepare(self) -> None:
        self._codes = 1 if self.format.n_pool >= LONG_CODES else JOINT_CODES[self._width]
        self._module = self._compiled("joint.cuh", JOINT_THREADS, STEP=self.format.joint_step, CODES=self._codes)
        self._shared = joint_bytes(self.format, self._width)
        self._tables = (self.format.joint,)

    def _grid(self, kernel: str, count: int) -> tuple[int, int]:
        each = -(-count // (self.device.n_processors * self._codes))
        threads = min(JOINT_THREADS, max(128, -(-each // 32) * 32))
        return min(self.device.n_processors, -(-count // (threads * self._codes))), threads


class LevelScanner(TileScanner):
    """Scanner for batches: expands tiles of codes to levels in shared memory, which the tensor cores multiply."""

    format: TrellisFormat
    rows_file, across = "levels.cu", 1

    def __init__(self, device: Device, form: TrellisFormat, n_queries: int) -> None:
        slices = -(-form.n_pool // TILE)
        in_shared = form.table_bytes <= MOST_TABLE_BYTES
        rows = TILE * TILE * (slices if slices <= KEPT_SLICES else 2) + (form.table_bytes if in_shared else LEVELS)
        self.row_bytes = -(-rows // 1024) * 1024
        super().__init__(device, form, n_queries, form.n_pool, form.n_digits, COORDINATES_SHARED=int(in_shared))

    def round(self, queries: RoundedOnDevice, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        place_queries(self, queries, 0, self._columns, to, held)

    def _rows(self, part: Part, first: int, n: int) -> tuple[Array, ...]:
        return part.stripes.at(first), self.format.coordinates, self.format.levels


def place_queries(
    scanner: Scanner, queries: RoundedOnDevice, width: int, table: Array, to: Candidates, held: BestSoFar
) -> None:
    """Write rounded queries in the layout of the scans: rows of ``width`` words of four values, or 0 for columns."""
    module = shared_module(scanner.device, "rounded.cu")
    sizes = np.uint32(queries.values.shape[1]), np.uint32(width)
    start_search(module, "place_queries", (*queries.arrays, queries.fine, *sizes, table), to, held)


def few_bytes(form: TrellisFormat, n_columns: int) -> int:
    """Return the shared memory of :class:`FewScanner`, in bytes."""
    return form.table_bytes + padded(form.n_pool) * n_columns


def joint_bytes(form: TrellisFormat, n_columns: int) -> int:
    """Return the shared memory of :class:`JointScanner`, in bytes."""
    step = form.joint_step
    n_fours = 32 // step  # of a word
    n_words = -(-form.n_pool // (4 * n_fours))
    return n_fours * (4 << form.tables.window + step - 1) + -(-n_words // (2 * step)) * n_fours * n_columns * 4


def make_trellis_scanner(
    device: Device, form: TrellisFormat, n_queries: int, *, tuning: Tuning = DEFAULT
) -> FewScanner | LevelScanner:
    """Return the faster scanner for this number of queries."""
    if n_queries * form.n_digits > min(tuning.few_columns, FEW_QUERIES[-1]):
        return LevelScanner(device, form, n_queries)
    room = device.shared_bytes - 1024
    if form.joint_step and joint_bytes(form, FEW_QUERIES[-1]) <= room:
        return JointScanner(device, form, n_queries)
    scanner = FewScanner if few_bytes(form, FEW_QUERIES[-1]) <= room else LevelScanner
    return scanner(device, form, n_queries)
