"""Encoding tasks of the workers: read signals, encode them, and write a segment file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Int64
from .._checks import check_metadata
from .._rows import take_rows
from ..encoding import encode
from ..errors import StorageError
from ..families import Recipe
from ..index.addition import keep_originals
from ..index.entries import check_new_ids
from ..search import Regions, SampleDraw, sampled_rows
from ..store import Arrays, make_segments, merge_segments
from ..store.backends import Backend
from ..store.stored_columns import FileWriter, StoredColumns, find_columns, write_segment
from ..store.versions import SegmentRecord
from .plan import PlannedSegment

ENCODED_ROWS = 8192
"""Signals per encoded block, whose codes are in memory in addition to those of the segment."""


Sample = tuple[Int64, Float32]
"""Ids and signals that may belong to the calibration sample."""


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
    sample: Sample | None  # None if an earlier run wrote the segment

    @property
    def is_new(self) -> bool:
        """Whether this run wrote the segment."""
        return self.sample is not None


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
    return Written(record, columns.has_text_ids, int(columns.ids[-1]), None)


def write_from_files(backend: Backend, coding: Coding, name: str, plan: PlannedSegment, below: int | None) -> Written:
    """Write a segment from parts of files, unless it exists."""
    found = find_segment(backend, coding, name, plan)
    if found is not None:
        return found
    filled = _SegmentArrays(coding, plan, below)
    for piece in plan.parts:
        try:
            rows = slice(piece.start, piece.stop)
            values = plan.columns.read_rows(piece.file, rows)
            with kernels.threads(1):  # other threads encode other segments
                filled.take(piece.file.rows(), rows, values["ids"])
            filled.note(rows.stop - rows.start, **values)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.file.url}: {error}") from None
    return _write(backend, coding, name, plan, filled)


def sample_files(plan: PlannedSegment, n_features: int, below: int | None) -> Sample:
    """Return the calibration sample of an existing segment by reading only its signals."""
    first, found = plan.first_id, []
    for piece in plan.parts:
        rows = slice(piece.start, piece.stop)
        ids = ids_of_rows(first, rows.stop - rows.start, plan.columns.read_rows(piece.file, rows)["ids"])
        chosen = sampled_rows(ids, n_features, below)
        found.append((ids[chosen], np.asarray(take_rows(piece.file.rows(), piece.start + chosen), np.float32)))
        first += len(ids)
    return joined_samples(found, n_features)


def joined_samples(parts: Iterable[Sample], n_features: int) -> Sample:
    """Concatenate samples."""
    parts = [(np.empty(0, np.int64), np.empty((0, n_features), np.float32)), *parts]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([signals for _, signals in parts])


def ids_of_rows(first: int, n_rows: int, given: list[Any] | None) -> Int64:
    """Return internal ids of rows: the user's integers, or consecutive ones."""
    if given and all(isinstance(one, int) and abs(one) < 2**62 for one in given):
        return np.array(given, np.int64)
    return np.arange(first, first + n_rows)


def _write(backend: Backend, coding: Coding, name: str, plan: PlannedSegment, filled: _SegmentArrays) -> Written:
    try:
        columns = filled.finished()
    except (ValueError, TypeError) as error:
        raise type(error)(f"{plan}: {error}") from None
    extras = coding.extra_names(name)
    for one in (name, *extras.values()):
        backend.delete(f"segments/{one}.safetensors")  # possibly incomplete after an aborted run
    record = write_segment(FileWriter(backend), columns, {"columns": name} | extras)
    return Written(record, columns.has_text_ids, int(columns.ids[-1]), filled.sample())


class _SegmentArrays:
    """Columns of a planned segment, filled part by part."""

    def __init__(self, coding: Coding, plan: PlannedSegment, below: int | None) -> None:
        self._coding, self._filled, n_entries = coding, 0, plan.n_entries
        self._recipe = recipe = coding.recipe
        self._extras: dict[str, list[Array]] = {}
        self._first_id, self._below, self._samples = plan.first_id, below, list[Sample]()
        self._assigned: Int64 = np.arange(plan.first_id, plan.first_id + n_entries)
        self._codes = np.empty((n_entries, recipe.code_bytes), np.uint8)
        self._ids: list[Any] = []
        self._texts: list[bytes] = []

    def take(self, signals: Any, part: slice, given: list[Any] | None) -> None:
        """Encode a part of the signals, and draw the calibration sample by the given ids."""
        ids = ids_of_rows(self._first_id + self._filled, part.stop - part.start, given)
        drawn = SampleDraw(ids, self._recipe.n_features, first=part.start, below=self._below)
        for start in range(part.start, part.stop, ENCODED_ROWS):
            rows = slice(start, min(start + ENCODED_ROWS, part.stop))
            codes = encode(self._recipe, signals, part=rows, observe=drawn.observe)
            filled = slice(self._filled, self._filled + rows.stop - rows.start)
            self._codes[filled] = codes
            for name, column in self._extra_columns(signals, rows, codes).items():
                self._extras.setdefault(name, []).append(column)
            self._filled = filled.stop
        self._samples.append(drawn.chosen(ids))

    def _extra_columns(self, signals: Any, rows: slice, codes: Bytes) -> dict[str, Array]:
        """Return the extra columns of encoded signals."""
        kind, regions = self._coding.originals, self._coding.regions
        found = {} if kind is None else keep_originals(signals, rows, kind)
        if regions is not None:
            found["regions"] = regions.assign_codes(self._recipe, codes)
        return found

    def sample(self) -> Sample:
        """Return the candidates for the calibration sample."""
        return joined_samples(self._samples, self._recipe.n_features)

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
