"""Scans of trellis codes on a device: exact integer sums of rounded queries and levels."""

from __future__ import annotations

import numpy as np

from .device import Array, Device
from .rings import LEVELS, RoundedOnDevice, TrellisFormat, padded, shared_module
from .scan import DEFAULT, TILE, BestSoFar, Candidates, Part, Scanner, TileScanner, Tuning, start_search

FEW_QUERIES = (1, 2, 4, 8, 16)  # that a thread takes along while it reads a code
THREADS = 256
KEPT_SLICES = 4  # of 128 coordinates, that stay in shared memory for all queries
MOST_TABLE_BYTES = 2**15 + 2**10


class FewScanner(Scanner):
    """A few queries: every thread reads a code and sums its levels times all queries."""

    format: TrellisFormat

    def __init__(self, device: Device, form: TrellisFormat, n_queries: int) -> None:
        super().__init__(device, form, n_queries)
        self._width = next(width for width in FEW_QUERIES if width >= n_queries * form.n_digits)
        self._table = device.zeros((padded(form.n_pool) * self._width,), np.uint8)
        self._module = form.module(device, "few.cu", QUERIES=self._width, FEW_THREADS=THREADS)
        self._shared = few_bytes(form, self._width)

    def round(self, queries: RoundedOnDevice, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        place_queries(self, queries, self._width, self._table, to, held)

    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        arguments = to.arguments(part, start, count, every=every)
        self._module.launch(
            "few",
            self._grid("few", count),
            THREADS,
            part.stripes.at(start),
            self.format.coordinates,
            self.format.levels,
            self._table,
            *arguments,
            shared=self._shared,
        )

    def scores(self, part: Part, steps: Array, out: Array) -> None:
        self._module.launch(
            "few_all",
            self._grid("few_all", len(part)),
            THREADS,
            part.stripes.words,
            self.format.coordinates,
            self.format.levels,
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
        resident = self._module.resident_blocks(name, THREADS, self._shared) * self.device.n_processors
        return min(resident, -(-count // THREADS))


class LevelScanner(TileScanner):
    """A batch of queries: levels are read into shared memory, a tile of codes at a time."""

    format: TrellisFormat
    rows_file, across = "levels.cu", 1

    def __init__(self, device: Device, form: TrellisFormat, n_queries: int) -> None:
        slices = -(-form.n_pool // TILE)
        in_shared = form.table_bytes <= MOST_TABLE_BYTES
        rows = TILE * TILE * (slices if slices <= KEPT_SLICES else 2) + (form.table_bytes if in_shared else LEVELS)
        self.row_bytes = -(-rows // 1024) * 1024
        super().__init__(device, form, n_queries, form.n_pool, 1, COORDINATES_SHARED=int(in_shared))

    def round(self, queries: RoundedOnDevice, to: Candidates, held: BestSoFar, *, whole: bool) -> None:
        place_queries(self, queries, 0, self._columns, to, held)

    def _rows(self, part: Part, first: int, n: int) -> tuple[Array, ...]:
        return part.stripes.at(first), self.format.coordinates, self.format.levels


def place_queries(
    scanner: Scanner, queries: RoundedOnDevice, width: int, table: Array, to: Candidates, held: BestSoFar
) -> None:
    """Writes rounded queries as scans read them: in rows of ``width`` words of four values, or 0 for columns."""
    module = shared_module(scanner.device, "rounded.cu")
    sizes = np.uint32(queries.values.shape[1]), np.uint32(width)
    start_search(module, "place_queries", (*queries.arrays, queries.fine, *sizes, table), to, held)


def few_bytes(form: TrellisFormat, n_queries: int) -> int:
    """Shared memory of a scan by a few queries."""
    return form.table_bytes + padded(form.n_pool) * n_queries


def make_trellis_scanner(
    device: Device, form: TrellisFormat, n_queries: int, *, tuning: Tuning = DEFAULT
) -> FewScanner | LevelScanner:
    """The faster way for so many queries; those of two digits, at most 8 of them, go the way of few."""
    few = form.n_digits == 2 or n_queries <= min(tuning.few_columns, FEW_QUERIES[-1])
    if few and few_bytes(form, FEW_QUERIES[-1]) + 1024 <= device.shared_bytes:
        return FewScanner(device, form, n_queries)
    return LevelScanner(device, form, n_queries)
