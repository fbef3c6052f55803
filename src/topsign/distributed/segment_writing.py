"""Encoding tasks of the workers: read signals, encode them, and write a segment file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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
from ..search import Regions
from ..store import Arrays, make_segments, merge_segments
from ..store.backends import Backend
from ..store.stored_columns import FileWriter, StoredColumns, find_columns, write_segment
from ..store.versions import SegmentRecord
from .plan import PlannedSegment

ENCODED_ROWS = 8192
"""Signals per encoded block, whose codes are in memory in addition to those of the segment."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Output of the encoding tasks: codes of a recipe, and the extra columns of the store."""

    recipe: Recipe
    originals: str | None = None  # type in which signals are kept
    regions: Regions | None = None  # that entries are assigned to

    def extra_names(self, name: str) -> dict[str, str]:
        """Return the names of the files of extra columns of a segment, by what they hold."""
        held = {"originals": self.originals, "regions": self.regions and self.regions.generation}
        digests = {file: hashlib.sha256(f"{name} {file} {what}".encode()).hexdigest() for file, what in held.items()}
        return {file: digest[:32] for file, digest in digests.items() if held[file] is not None}


class Written(NamedTuple):
    """A segment whose file is in the store."""

    record: SegmentRecord
    has_text_ids: bool
    last_id: int
    is_new: bool  # whether this run wrote the segment


def find_segment(backend: Backend, coding: Coding, name: str, plan: PlannedSegment) -> Written | None:
    """Return the segment of an earlier run if it is complete and undamaged."""
    extras = coding.extra_names(name)
    file, *others = (find_columns(backend, "segments", one, plan.n_entries) for one in (name, *extras.values()))
    if file is None or None in others:
        return None
    record = SegmentRecord(file, **dict(zip(extras, others, strict=True)))
    try:
        columns = StoredColumns.open(backend, record, coding.recipe, {})
        columns.read()
        for column in columns.extra_names:
            columns.extra(column)
    except StorageError:
        return None
    return Written(record, columns.has_text_ids, int(columns.ids.max()), is_new=False)


def write_from_files(backend: Backend, coding: Coding, name: str, plan: PlannedSegment) -> Written:
    """Write a segment from parts of files, unless it exists."""
    found = find_segment(backend, coding, name, plan)
    if found is not None:
        return found
    filled = _SegmentArrays(coding, plan)
    for piece in plan.parts:
        try:
            rows = slice(piece.start, piece.stop)
            values = plan.columns.read_rows(piece.file, rows)
            with kernels.threads(1):  # other threads encode other segments
                filled.take(piece.file.rows(), rows)
            filled.note(rows.stop - rows.start, **values)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.file.url}: {error}") from None
    return _write(backend, coding, name, plan, filled)


def _write(backend: Backend, coding: Coding, name: str, plan: PlannedSegment, filled: _SegmentArrays) -> Written:
    try:
        columns = filled.finished()
    except (ValueError, TypeError) as error:
        raise type(error)(f"{plan}: {error}") from None
    extras = coding.extra_names(name)
    for one in (name, *extras.values()):
        backend.delete(f"segments/{one}.safetensors")  # possibly incomplete after an aborted run
    record = write_segment(FileWriter(backend), columns, {"columns": name} | extras)
    return Written(record, columns.has_text_ids, int(columns.ids.max()), is_new=True)


class _SegmentArrays:
    """Columns of a planned segment, filled part by part."""

    def __init__(self, coding: Coding, plan: PlannedSegment) -> None:
        self._coding, self._filled, n_entries = coding, 0, plan.n_entries
        self._recipe = recipe = coding.recipe
        self._extras: dict[str, list[Array]] = {}
        self._assigned: Int64 = np.arange(plan.first_id, plan.first_id + n_entries)
        self._codes = np.empty((n_entries, recipe.code_bytes), np.uint8)
        self._ids: list[Any] = []
        self._texts: list[bytes] = []

    def take(self, signals: Any, part: slice) -> None:
        """Encode a part of the signals."""
        for start in range(part.start, part.stop, ENCODED_ROWS):
            rows = slice(start, min(start + ENCODED_ROWS, part.stop))
            codes = encode(self._recipe, signals, part=rows)
            filled = slice(self._filled, self._filled + rows.stop - rows.start)
            self._codes[filled] = codes
            for name, column in self._extra_columns(signals, rows, codes).items():
                self._extras.setdefault(name, []).append(column)
            self._filled = filled.stop

    def _extra_columns(self, signals: Any, rows: slice, codes: Bytes) -> dict[str, Array]:
        """Return the extra columns of encoded signals."""
        kind, regions = self._coding.originals, self._coding.regions
        found = {} if kind is None else keep_originals(signals, rows, kind)
        if regions is not None:
            found["regions"] = regions.assign_codes(self._recipe, codes)
        return found

    def note(self, n_entries: int, *, ids: list[Any] | None, metadata: Any) -> None:
        """Add the ids and metadata of the next entries."""
        self._ids += ids or []
        self._texts += check_metadata(metadata, n_entries) or [b""] * n_entries

    def finished(self) -> Arrays:
        """Return all columns sorted by id."""
        n_entries, text_ids, ids = len(self._assigned), None, self._assigned
        if self._ids:
            empty = next((row for row, one in enumerate(self._ids) if one is None), None)
            if empty is not None:
                raise ValueError(f"ids must be integers or texts, but row {empty} of this segment has none")
            given = check_new_ids(self._ids, n_entries)
            text_ids, ids = (given, ids) if isinstance(given, list) else (None, np.asarray(given))
        texts = self._texts if any(self._texts) else None
        extras = {name: np.concatenate(parts) for name, parts in self._extras.items()}
        made = make_segments(ids, self._codes, texts, text_ids, extras)
        found: Any = (made[0] if len(made) == 1 else merge_segments(made)).columns
        columns: Arrays = found
        return columns
