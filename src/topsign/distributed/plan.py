"""Assignment of file rows to segments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..signals import SignalFile, TableColumns

NO_COLUMNS = TableColumns()


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file."""

    file: SignalFile
    start: int
    stop: int


@dataclass(frozen=True)
class PlannedSegment:
    """Planned segment, whose entries have consecutive internal ids from ``first_id``."""

    first_id: int
    parts: tuple[Piece, ...]
    columns: TableColumns = NO_COLUMNS  # id and metadata columns of tables

    @property
    def n_entries(self) -> int:
        """Number of rows in all parts."""
        return sum(part.stop - part.start for part in self.parts)

    def name(self, index: str) -> str:
        """Return the file name, a digest of the index and the inputs, so that a resumed job finds the segment."""
        inputs = f"{index} {self.first_id} {self.parts!r} {self.columns!r}"
        return hashlib.sha256(inputs.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        first, last = self.parts[0], self.parts[-1]
        more = f" to {last.file.name}" if len(self.parts) > 1 else ""
        return f"segment of {self.n_entries} rows from row {first.start} of {first.file.name}{more}"


def plan_files(
    files: list[SignalFile], first_id: int, limit: int, columns: TableColumns = NO_COLUMNS
) -> Iterator[PlannedSegment]:
    """Yield segments of ``limit`` entries over all files in order."""
    parts: list[Piece] = []
    room = limit
    for file in files:
        start = 0
        while start < file.n_signals:
            stop = min(file.n_signals, start + room)
            parts.append(Piece(file, start, stop))
            room, start = room - (stop - start), stop
            if not room:
                yield PlannedSegment(first_id, tuple(parts), columns)
                first_id, parts, room = first_id + limit, [], limit
    if parts:
        yield PlannedSegment(first_id, tuple(parts), columns)
