"""Encoding of one segment by a worker: the plan of its rows, and the task that reads, encodes and writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Int64
from .._checks import check_metadata
from ..encoding import encode
from ..errors import StorageError
from ..families import Recipe
from ..index.addition import keep_originals
from ..index.entries import check_new_ids
from ..search.regions import Regions
from ..signals import SignalFile, TableColumns
from ..store.backends import Backend
from ..store.segments import Arrays, make_segments, merge_segments
from ..store.stored_columns import FileWriter, StoredColumns, find_columns, write_segment
from ..store.versions import SegmentRecord

ENCODED_ROWS = 8192
"""Signals per encoded block, whose codes are in memory in addition to those of the segment."""


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
    columns: TableColumns = field(default_factory=TableColumns)  # id and metadata columns of tables

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


def plan_segments(
    files: list[SignalFile], first_id: int, limit: int, columns: TableColumns
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


@dataclass(frozen=True, eq=False)
class SegmentFormat:
    """Contents of the segments: codes of a recipe, and the extra columns of the store."""

    recipe: Recipe
    originals: str | None = None  # type in which signals are kept
    regions: Regions | None = None  # that entries are assigned to

    def extra_names(self, name: str) -> dict[str, str]:
        """Return the names of the files of extra columns of a segment, by what they hold."""
        held = {"originals": self.originals, "regions": self.regions and self.regions.generation}
        digests = {file: hashlib.sha256(f"{name} {file} {what}".encode()).hexdigest() for file, what in held.items()}
        return {file: digest[:32] for file, digest in digests.items() if held[file] is not None}


class EncodedSegment(NamedTuple):
    """A segment whose file is in the store."""

    record: SegmentRecord
    has_text_ids: bool
    last_id: int
    is_new: bool  # False if an earlier run wrote it


def encode_segment(backend: Backend, form: SegmentFormat, name: str, plan: PlannedSegment) -> EncodedSegment:
    """Encode the rows of a segment and write its files, unless they exist."""
    found = find_segment(backend, form, name, plan)
    if found is not None:
        return found
    columns = _encode_columns(form, plan)
    extras = form.extra_names(name)
    for one in (name, *extras.values()):
        backend.delete(f"segments/{one}.safetensors")  # possibly incomplete after an aborted run
    record = write_segment(FileWriter(backend), columns, {"columns": name} | extras)
    return EncodedSegment(record, columns.has_text_ids, int(columns.ids.max()), True)


def find_segment(backend: Backend, form: SegmentFormat, name: str, plan: PlannedSegment) -> EncodedSegment | None:
    """Return the segment of an earlier run if it is complete and undamaged."""
    extras = form.extra_names(name)
    file, *others = (find_columns(backend, "segments", one, plan.n_entries) for one in (name, *extras.values()))
    if file is None or None in others:
        return None
    record = SegmentRecord(file, **dict(zip(extras, others, strict=True)))
    try:
        columns = StoredColumns.open(backend, record, form.recipe, {})
        columns.read()
        for column in columns.extra_names:
            columns.extra(column)
    except StorageError:
        return None
    return EncodedSegment(record, columns.has_text_ids, int(columns.ids.max()), False)


def _encode_columns(form: SegmentFormat, plan: PlannedSegment) -> Arrays:
    """Return all columns of a segment, sorted by id."""
    codes = np.empty((plan.n_entries, form.recipe.code_bytes), np.uint8)
    extras: dict[str, list[Array]] = {}
    ids, texts, start = list[Any](), list[bytes](), 0
    for piece in plan.parts:
        rows = slice(piece.start, piece.stop)
        stop = start + rows.stop - rows.start
        try:
            values = plan.columns.read_rows(piece.file, rows)
            with kernels.threads(1):  # other threads encode other segments
                _encode_rows(form, piece.file.rows(), rows, codes[start:stop], extras)
            texts += check_metadata(values["metadata"], stop - start) or [b""] * (stop - start)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.file.url}: {error}") from None
        ids += values["ids"] or []
        start = stop
    try:
        columns = _sorted_columns(plan, ids, codes, texts, {name: np.concatenate(one) for name, one in extras.items()})
    except (ValueError, TypeError) as error:
        raise type(error)(f"{plan}: {error}") from None
    return columns


def _encode_rows(form: SegmentFormat, signals: Any, part: slice, codes: Bytes, extras: dict[str, list[Array]]) -> None:
    """Encode rows of a file into ``codes``, and append their extra columns."""
    for start in range(part.start, part.stop, ENCODED_ROWS):
        rows = slice(start, min(start + ENCODED_ROWS, part.stop))
        encoded = codes[rows.start - part.start : rows.stop - part.start]
        encoded[:] = encode(form.recipe, signals, part=rows)
        found = {} if form.originals is None else keep_originals(signals, rows, form.originals)
        if form.regions is not None:
            found["regions"] = form.regions.assign_codes(form.recipe, encoded)
        for name, column in found.items():
            extras.setdefault(name, []).append(column)


def _sorted_columns(
    plan: PlannedSegment, given: list[Any], codes: Bytes, texts: list[bytes], extras: dict[str, Array]
) -> Arrays:
    ids: Int64 = np.arange(plan.first_id, plan.first_id + plan.n_entries)
    text_ids = None
    if given:
        empty = next((row for row, one in enumerate(given) if one is None), None)
        if empty is not None:
            raise ValueError(f"ids must be integers or texts, but row {empty} of this segment has none")
        checked = check_new_ids(given, plan.n_entries)
        text_ids, ids = (checked, ids) if isinstance(checked, list) else (None, np.asarray(checked))
    made = make_segments(ids, codes, texts if any(texts) else None, text_ids, extras)
    found: Any = (made[0] if len(made) == 1 else merge_segments(made)).columns
    columns: Arrays = found
    return columns
