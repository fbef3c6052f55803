"""Scans of codes on a device by a batch of rounded queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from .device import Array, Device
from .stripes import GROUP, Format, Stripes

TILE = 128  # codes of one product
LONG_BITS = 1024  # from so many on, queries are rounded to two digits: the margin of one would let too many pass
FEW_COLUMNS = 16
PRODUCT_COLUMNS = {1: (16, 32, 64, 128, 256), 2: (16, 32, 64, 128, 256), 3: (48, 96, 192)}  # by digits


@dataclass(frozen=True)
class Tuning:
    """Sizes that change speed and memory, never results."""

    sample: int = 8192  # codes scored for the first bars of a few queries, shared among them
    first: int = 16896  # codes of a batch's first scan
    growth: int = 512  # a scan takes at most so many times the codes seen before it
    candidate_bytes: int = 2**27
    largest: int = 2**22  # codes of one scan
    waves: int = 4  # tiles of a product per multiprocessor
    few_columns: int = FEW_COLUMNS
    gather_threads: int = 1024

    def sampled(self, n_queries: int) -> int:
        """Codes scored for the first bar of each query."""
        return min(2048, max(1, self.sample // n_queries))

    def capacity(self, n_queries: int, n_codes: int) -> int:
        """Codes that one scan takes: each may be a candidate of every query."""
        room = max(self.first, min(self.largest, self.candidate_bytes // (8 * max(1, n_queries))))
        return -(-min(room, max(1, n_codes)) // TILE) * TILE


DEFAULT = Tuning()


@dataclass(frozen=True, eq=False)
class Part:
    """Codes in a row on a device, and what their sums are multiplied with and added to."""

    stripes: Stripes
    weights: Array | None = None  # float32
    biases: Array | None = None  # float32
    alive: Array | None = None  # packed bitmap in uint32; None when all take part
    base: int = 0  # position of the first

    def __len__(self) -> int:
        return self.stripes.n_codes


@dataclass(frozen=True, eq=False)
class Candidates:
    """Arrays that scans write to: the codes that may score above the bar of each query."""

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
        steps, margins, bars = (device.empty((n_queries,), np.float32) for _ in range(3))
        counts = device.zeros((n_queries,), np.uint32)
        positions = device.empty((n_queries, capacity), np.uint32)
        centers = device.empty((n_queries, capacity), np.float32)
        return cls(steps, margins, bars, counts, positions, centers, n_queries, capacity)

    def arguments(self, part: Part, start: int, count: int, *, every: bool) -> tuple[object, ...]:
        """What a scan of some codes of a part is given."""
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
    """A batch of queries, rounded, against codes of one format."""

    def __init__(self, device: Device, form: Format, n_queries: int, digits: int) -> None:
        self.device = device
        self.format = form
        self.n_queries = n_queries
        self.digits = digits

    @property
    @abstractmethod
    def width(self) -> int:
        """Bytes of a row of the table; 0 for columns of the product."""

    @property
    @abstractmethod
    def digits_of_queries(self) -> Array: ...

    def round(self, projected: Array, to: Candidates, held: tuple[Array, Array] | None, *, whole: bool) -> None:
        """Rounds queries (n_queries, n_pool) and empties what was found before."""
        keys, positions = held or (None, None)
        n_held = 0 if held is None else held[0].shape[1]
        self.format.module(self.device, "queries.cu", DIGITS=self.digits).launch(
            "round_queries",
            self.n_queries,
            512,
            projected,
            np.uint32(self.width),
            np.uint32(whole),
            self.digits_of_queries,
            to.steps,
            to.margins,
            to.bars,
            to.counts,
            keys,
            positions,
            np.uint32(n_held),
        )

    @abstractmethod
    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        """Offers ``count`` codes of a part, from a multiple of 128 on."""

    @abstractmethod
    def scores(self, part: Part, steps: Array, out: Array) -> None:
        """All scores, (n_queries, n_codes) float32, within the rounding of the digits."""


class GatherScanner(Scanner):
    """A few queries: their values at the locations of each code are looked up."""

    def __init__(self, device: Device, form: Format, n_queries: int, digits: int, tuning: Tuning = DEFAULT) -> None:
        super().__init__(device, form, n_queries, digits)
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

    @property
    def width(self) -> int:
        return self._width

    @property
    def digits_of_queries(self) -> Array:
        return self._table

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


class ProductScanner(Scanner):
    """A batch of queries: codes are widened to bytes and multiplied with the queries by the tensor cores."""

    def __init__(self, device: Device, form: Format, n_queries: int, digits: int, tuning: Tuning = DEFAULT) -> None:
        super().__init__(device, form, n_queries, digits)
        columns = -(-n_queries // 8) * 8 * digits
        sizes = PRODUCT_COLUMNS[digits]
        self._tile_columns = next((size for size in sizes if size >= columns), sizes[-1])
        self._column_tiles = -(-columns // self._tile_columns)
        slices = -(-form.n_pool // TILE)
        self._columns = device.zeros((self._column_tiles * self._tile_columns, slices * TILE), np.uint8)
        tiles = {"COLUMNS": self._tile_columns, "WGMMA": int(device.has_wgmma)}
        self._module = form.module(device, "product.cu", DIGITS=digits, **tiles)
        queries = self._tile_columns // digits
        centers = 4 * (TILE * (queries + 8) + max(queries, 2 * TILE))  # and the numbers beside them
        self._shared = max(TILE * TILE * 2 + 3 * TILE * self._tile_columns, centers)
        self._window_shared = GROUP * (min(slices, 64) * 8 + 1) * 4
        self._codes = tuning.waves * device.n_processors * TILE  # widened at a time
        kept = 0 if form.signs else self._codes * form.n_bits
        self._kept = device.empty((kept,), np.uint16 if form.n_pool <= 2**15 else np.uint32)
        self._bitmaps = device.empty((self._codes * slices * 8,), np.uint32)

    @property
    def width(self) -> int:
        return 0

    @property
    def digits_of_queries(self) -> Array:
        return self._columns

    def scan(self, part: Part, start: int, count: int, to: Candidates, *, every: bool) -> None:
        for first in range(start, start + count, self._codes):
            n = min(self._codes, start + count - first)
            self._draw(part, first, n)
            arguments = list(to.arguments(part, first, n, every=every))
            if every:  # each code has a place of its own among those of the whole scan
                arguments[-2:] = [to.positions.ravel()[first - start :], to.centers.ravel()[first - start :]]
            grid = -(-n // TILE) * self._column_tiles
            columns = np.uint32(self._column_tiles)
            self._module.launch(
                "product", grid, 256, self._bitmaps, self._columns, columns, *arguments, shared=self._shared
            )

    def scores(self, part: Part, steps: Array, out: Array) -> None:
        for first in range(0, len(part), self._codes):
            n = min(self._codes, len(part) - first)
            self._draw(part, first, n)
            self._module.launch(
                "product_all",
                -(-n // TILE) * self._column_tiles,
                256,
                self._bitmaps,
                self._columns,
                np.uint32(self._column_tiles),
                steps,
                None if part.weights is None else part.weights[first:],
                None if part.biases is None else part.biases[first:],
                np.uint32(n),
                np.uint32(self.n_queries),
                np.uint64(len(part)),
                out.ravel()[first:],
                shared=self._shared,
            )

    def _draw(self, part: Part, first: int, n: int) -> None:
        codes, groups = part.stripes.at(first), -(-n // GROUP)
        if self.format.signs:
            self._module.launch("draw_signs", groups, 256, codes, self._bitmaps)
            return
        self._module.launch("list_kept", -(-groups // 4), 4 * GROUP, codes, np.uint32(n), self._kept)
        self._module.launch("draw_bitmaps", groups, 512, self._kept, self._bitmaps, shared=self._window_shared)


def make_scanner(device: Device, form: Format, n_queries: int, *, digits: int, tuning: Tuning = DEFAULT) -> Scanner:
    """The faster way for so many queries."""
    few = n_queries * digits <= tuning.few_columns and not form.signs
    return (GatherScanner if few else ProductScanner)(device, form, n_queries, digits, tuning)


def search_digits(form: Format, *, whole: bool) -> int:
    """Digits that queries are rounded to before a search."""
    return 2 if form.n_bits >= LONG_BITS and not whole else 1
