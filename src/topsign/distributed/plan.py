"""Planned shards: which rows of which files, or which block of an array, become which shard."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..signals import SignalFile


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file."""

    file: SignalFile
    start: int
    stop: int


@dataclass(frozen=True)
class Block:
    """One block of a dask array."""

    name: str  # of the array
    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class PlannedShard:
    """A planned shard; its file name hashes its inputs. Its ids are consecutive from the first."""

    first_id: int
    parts: tuple[Piece, ...] | tuple[Block]

    @property
    def n_entries(self) -> int:
        """Rows of all parts."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def file(self) -> str:
        """Name of the file."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        return f"{self.first_id:015d}-{digest}.parquet"


def plan_files(files: list[SignalFile], first_id: int, limit: int) -> Iterator[PlannedShard]:
    """Shards of ``limit`` entries, through the files one after another."""
    parts: list[Piece] = []
    room = limit
    for file in files:
        start = 0
        while start < file.n_signals:
            stop = min(file.n_signals, start + room)
            parts.append(Piece(file, start, stop))
            room, start = room - (stop - start), stop
            if not room:
                yield PlannedShard(first_id, tuple(parts))
                first_id, parts, room = first_id + limit, [], limit
    if parts:
        yield PlannedShard(first_id, tuple(parts))


def plan_blocks(array: Any, first_id: int) -> Iterator[PlannedShard]:
    """One shard per block of a dask array that holds any rows."""
    ends = np.cumsum(array.chunks[0]).tolist()
    for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        if stop > start:
            yield PlannedShard(first_id + start, (Block(array.name, number, start, stop),))
