"""Pieces: parts of segments on a device, those that stay and those that are copied for each search."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from .._arrays import Array, Bytes, Float32
from ..index.storage import Segment, Snapshot
from ..kernels import Layout
from .device import Array as DeviceArray
from .device import Device
from .scan import Part
from .stripes import Format, Stripes

PIECE = 2**22  # entries of a segment that are copied together


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive entries of a segment."""

    columns: Any  # of the segment, which never change
    rows: slice

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def key(self) -> tuple[int, int]:
        return id(self.columns), self.rows.start


class Held(Protocol):
    """A piece on a device."""

    @property
    def piece(self) -> Piece: ...

    def weights(self, column: str | None) -> object:
        """A column of weights, which is there from now on."""


class Resident:
    """A piece on the device; columns of weights follow when they are first asked for."""

    def __init__(self, device: Device, layout: Layout, piece: Piece) -> None:
        self.piece = piece  # keeps the columns, whose identity is the key
        self.stripes = Stripes.load(device, layout, np.asarray(piece.columns.codes[piece.rows]))
        self._device = device
        self._weights: dict[str, DeviceArray] = {}

    def weights(self, column: str | None) -> DeviceArray | None:
        values: Float32 | None = None if column is None else getattr(self.piece.columns, column)
        if column is None or values is None:
            return None
        if column not in self._weights:
            self._weights[column] = self._device.put(np.ascontiguousarray(values[self.piece.rows]))
        return self._weights[column]


Kept = TypeVar("Kept", bound="Held")


class HeldPieces(ABC, Generic[Kept]):
    """Pieces of snapshots on a device: those that fit stay there, the others are copied whenever they are asked for."""

    def __init__(self, device: Device, memory: int) -> None:
        self.device, self.memory = device, memory
        self._resident: dict[tuple[int, int], Kept] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def nbytes(self, n_entries: int) -> int:
        """Bytes of so many entries: codes, and columns of weights."""

    @abstractmethod
    def load(self, piece: Piece) -> Kept:
        """A copy of a piece on the device."""

    def needed_bytes(self, snapshot: Snapshot) -> int:
        """Bytes of all entries of a snapshot."""
        return sum(self.nbytes(len(piece)) for segment in snapshot.segments for piece in pieces_of(segment))

    @property
    def resident_bytes(self) -> int:
        return sum(self.nbytes(len(held.piece)) for held in self._resident.values())

    def keep(self, snapshot: Snapshot) -> int:
        """Copies what is new and fits, drops what is gone; returns the entries copied."""
        with self._lock:
            wanted = {piece.key: piece for segment in snapshot.segments for piece in pieces_of(segment)}
            self._resident = {key: held for key, held in self._resident.items() if key in wanted}
            copied, taken = 0, self.resident_bytes
            for key, piece in wanted.items():
                taken += 0 if key in self._resident else self.nbytes(len(piece))
                if key in self._resident or taken > self.memory:
                    continue
                self._resident[key] = self.load(piece)
                copied += len(piece)
            return copied

    def held(self, pieces: list[Piece], column: str | None = None) -> Iterator[Kept]:
        """Pieces in order, with a column of weights; those not resident are copied while the one before is scanned."""
        missing = [piece for piece in pieces if piece.key not in self._resident]
        with ThreadPoolExecutor(1) as copier:
            coming = iter([copier.submit(self._copy, piece, column) for piece in missing[:1]])
            left = iter(missing[1:])
            for piece in pieces:
                held = self._resident.get(piece.key)
                if held is None:
                    held = next(coming).result()
                    coming = iter([copier.submit(self._copy, following, column) for following in _take(left)])
                yield held
                if piece.key not in self._resident:
                    self.device.wait()  # the scan has read it: its memory may be taken again

    def _copy(self, piece: Piece, column: str | None) -> Kept:
        with self.device.background():
            made = self.load(piece)
            made.weights(column)
            self.device.wait()
        return made


class Pieces(HeldPieces[Resident]):
    """Pieces of adaptive codes and signs."""

    def __init__(self, device: Device, layout: Layout, memory: int) -> None:
        super().__init__(device, memory)
        self.layout = layout

    def nbytes(self, n_entries: int) -> int:
        return Format.of(self.layout).nbytes(n_entries) + 8 * n_entries

    def load(self, piece: Piece) -> Resident:
        return Resident(self.device, self.layout, piece)

    def parts(self, pieces: list[tuple[Piece, Bytes | None, int]], column: str | None) -> Iterator[Part]:
        """Parts in order, of (piece, alive, base)."""
        for held, (_, alive, base) in zip(self.held([piece for piece, _, _ in pieces], column), pieces, strict=True):
            bitmap = None if alive is None else self.device.put(bitmap_words(alive))
            yield Part(held.stripes, held.weights(column), None, bitmap, base)


def pieces_of(segment: Segment) -> list[Piece]:
    """A segment in pieces."""
    starts = range(0, len(segment), PIECE)
    return [Piece(segment.columns, slice(start, min(start + PIECE, len(segment)))) for start in starts]


def bitmap_words(alive: Bytes) -> Array:
    """A bitmap of bytes as words of 32 bits."""
    padded = np.zeros(-(-len(alive) // 4) * 4, np.uint8)
    padded[: len(alive)] = alive
    return padded.view(np.uint32)


def _take(pieces: Iterator[Piece]) -> list[Piece]:
    """The next piece, or none."""
    return [piece for _, piece in zip(range(1), pieces, strict=False)]
