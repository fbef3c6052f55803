"""Chunks: parts of segments in GPU memory, resident or copied for each search."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Bytes, Int64
from ..families import CodeColumns, Range
from ..families.sign_comparison import weights_of
from ..store import Segment, Snapshot
from .device import Array as DeviceArray
from .device import Device
from .rings import TrellisFormat
from .scan import DEFAULT, Tuning
from .stripes import Format, Stripes

CHUNK = 2**22  # entries per copy to the device
MAX_QUERIES = 1024  # per scan


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive entries of a segment."""

    columns: CodeColumns  # of the segment; immutable
    positions: slice

    def __len__(self) -> int:
        return int(self.positions.stop - self.positions.start)

    @property
    def key(self) -> tuple[int, int]:
        """Key of the chunk, unique while its columns exist."""
        return id(self.columns), self.positions.start


@dataclass(frozen=True, eq=False)
class CellCodes:
    """Codes of one cell of a chunk on a device."""

    cell: int
    stripes: Stripes
    positions: Int64 | None  # in the chunk; None: all
    weights: dict[str, DeviceArray]  # factors of sums, by column name


@dataclass(frozen=True, eq=False)
class LoadedChunk:
    """A chunk on a device, cell by cell."""

    chunk: Chunk
    cells: list[CellCodes]

    def load_weights(self, device: Device, name: str | None) -> None:
        """Copy a column of weights unless it is on the device already; None: no weights."""
        for codes in self.cells:
            if name is not None and name not in codes.weights:
                values = weights_of(Range(self.chunk.columns), name)
                assert values is not None
                codes.weights[name] = device.put(np.ascontiguousarray(values[self.chunk.positions]))


class CodeLoader(ABC):
    """Loader of one recipe's codes: their formats on a device, and how they are scanned."""

    formats: Sequence[Format | TrellisFormat]  # of the codes of each cell
    tuning: Tuning = DEFAULT
    waits: bool = False  # whether scans are repeated after an overflow, see BestSearch

    @abstractmethod
    def nbytes(self, n_entries: int) -> int:
        """Return the GPU memory of a number of entries, in bytes: codes and columns of weights."""

    @abstractmethod
    def load(self, chunk: Chunk) -> LoadedChunk:
        """Copy a chunk to the device."""


class ResidentChunks:
    """Cache of chunks in GPU memory: those that fit are resident, the others are copied for each search."""

    def __init__(self, device: Device, loader: CodeLoader, memory: int) -> None:
        self.device, self.loader, self.memory = device, loader, memory
        self._resident: dict[tuple[int, int], LoadedChunk] = {}
        self.holds_all = False  # whether the last snapshot fits
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of resident chunks."""
        return len(self._resident)

    def needed_bytes(self, snapshot: Snapshot) -> int:
        """Return the GPU memory that all entries of a snapshot need, in bytes."""
        return sum(self.loader.nbytes(len(chunk)) for segment in snapshot.segments for chunk in chunks_of(segment))

    @property
    def nbytes(self) -> int:
        """GPU memory of the resident chunks, in bytes."""
        return sum(self.loader.nbytes(len(loaded.chunk)) for loaded in self._resident.values())

    def keep(self, snapshot: Snapshot) -> int:
        """Load new chunks that fit and drop chunks of earlier snapshots; return the number of entries copied."""
        with self._lock:
            wanted = {chunk.key: chunk for segment in snapshot.segments for chunk in chunks_of(segment)}
            self._resident = {key: loaded for key, loaded in self._resident.items() if key in wanted}
            copied, taken = 0, self.nbytes
            for key, chunk in wanted.items():
                taken += 0 if key in self._resident else self.loader.nbytes(len(chunk))
                if key in self._resident or taken > self.memory:
                    continue
                self._resident[key] = self.loader.load(chunk)
                copied += len(chunk)
            self.holds_all = len(self._resident) == len(wanted)
            return copied

    def load(self, chunks: list[Chunk], weights: str | None) -> Iterator[LoadedChunk]:
        """Yield chunks in order, with a column of weights; copy the next one that is not resident during the scan."""
        resident = dict(self._resident)  # another thread may keep another snapshot
        missing = iter([chunk for chunk in chunks if chunk.key not in resident])
        with ThreadPoolExecutor(1) as copier:
            coming = [copier.submit(self._copy, chunk, weights) for chunk in _take(missing)]
            for chunk in chunks:
                if chunk.key in resident:
                    loaded = resident[chunk.key]
                    loaded.load_weights(self.device, weights)
                    yield loaded
                else:
                    loaded = coming.pop().result()
                    coming = [copier.submit(self._copy, following, weights) for following in _take(missing)]
                    yield loaded
                    self.device.wait()  # for the scan, before the memory is reused

    def _copy(self, chunk: Chunk, weights: str | None) -> LoadedChunk:
        with self.device.background():
            loaded = self.loader.load(chunk)
            loaded.load_weights(self.device, weights)
            self.device.wait()
        return loaded


def chunks_of(segment: Segment) -> list[Chunk]:
    """Return the chunks of a segment."""
    starts = range(0, len(segment), CHUNK)
    return [Chunk(segment.columns, slice(start, min(start + CHUNK, len(segment)))) for start in starts]


def bitmap_words(alive: Bytes) -> Array:
    """Convert a bitmap of bytes to words of 32 bits."""
    padded = np.zeros(-(-len(alive) // 4) * 4, np.uint8)
    padded[: len(alive)] = alive
    return padded.view(np.uint32)


def _take(chunks: Iterator[Chunk]) -> list[Chunk]:
    """Return the next chunk, or none."""
    return [chunk for _, chunk in zip(range(1), chunks, strict=False)]
