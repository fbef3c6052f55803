"""Changes of a store in a folder: new files, and the version that makes them visible.

Clients of a shared store do not exclude each other. A change is made on the newest version. It holds if the entries
that it removes or replaces are those that its client last saw; entries that others added or changed do not matter.
This also applies to a local folder if so many versions lie between that it could be a restored copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .._arrays import Booleans, Int64
from .._checks import listed
from .._files import Record
from ..errors import ConflictError, StorageError
from .manifest import FileRecord, Manifest, SegmentRecord
from .memory import Change
from .segments import Segment, merge_segments
from .snapshot import Snapshot
from .stored_columns import StoredColumns, open_segment, write_segment
from .stored_file import FileWriter

if TYPE_CHECKING:
    from .folder_store import FolderStore, Loaded

REMOVED_BYTES, REMOVED_SHARE = 2**16, 1 / 12
"""Maximum bytes of removed entries in a store, and their maximum share of all entries."""

OVERLAID_SHARE = 1 / 8
"""Share of replaced metadata above which a segment is rewritten."""


class FolderChange(Change):
    """Change of a folder. Its files are written immediately but are invisible until a version names them."""

    def __init__(self, store: FolderStore, loaded: Loaded, seen: Loaded) -> None:
        tables = dict(loaded.tables)
        super().__init__(loaded.snapshot, loaded.manifest.next_id, dict(loaded.manifest.sources), tables)
        self.erased = False
        self.commit_begun = False  # from then on its files are deleted only if the commit is known to have failed
        self._store, self._backend, self.before = store, store.backend, loaded
        self._seen = seen  # version whose entries the change may remove or replace
        self._process = os.getpid()
        self._held: list[Segment] = []
        self._writer = FileWriter(store.backend, loaded.manifest.n_inline)

    def parts(self, n_entries: int) -> Iterator[slice]:
        limit = self._store.segment_entries
        for start in range(0, max(1, n_entries), limit):
            yield slice(start, min(start + limit, n_entries))

    def remove(self, rows: Int64) -> None:
        self._check_seen(rows)
        self.snapshot = self.snapshot.remove(rows, rewrite=False)

    def add(self, segments: list[Segment]) -> None:
        if self._held:  # the last segments stay in memory because they may be merged
            self.snapshot = Snapshot((*self.snapshot.segments, *map(self._stored, self._held)))
        self._held = segments

    def add_stored(self, records: Sequence[SegmentRecord]) -> None:
        """Add segments whose files are already in the store."""
        made = [open_segment(self._backend, record, self._store.recipe, {}) for record in records]
        self.snapshot = Snapshot((*self.snapshot.segments, *made))
        self._writer.adopt(file for record in records for file in record.files)

    def update_metadata(self, rows: Int64, texts: Sequence[bytes]) -> None:
        self._check_seen(rows)
        super().update_metadata(rows, texts)
        self.snapshot = Snapshot(tuple(map(_rewritten_if_overlaid, self.snapshot.segments)))

    def compact(self) -> None:
        while (step := self.snapshot.compacted(limit=self._store.segment_entries)) is not None:
            self.snapshot = step
            self._write_segments()

    def erase(self, rows: Int64) -> None:
        super().erase(rows)
        self.erased = True

    def finish(self) -> Manifest | None:
        """Sync the new files and return the next version, or None if the change has no effect."""
        limit, before = self._store.segment_entries, self.before
        self.snapshot = self.snapshot.add(self._held, limit=limit)
        self._held = []
        self._write_segments()
        while (
            self._removes
            and (step := self.snapshot.tidied(n_bytes=REMOVED_BYTES, share=REMOVED_SHARE, limit=limit)) is not None
        ):
            self.snapshot = step
            self._write_segments()
        changed = self.next_id != before.manifest.next_id or self.sources != before.manifest.sources
        changed |= [*map(id, self.tables.values())] != [*map(id, before.tables.values())]
        if self.snapshot.segments == before.snapshot.segments and not changed:
            return None
        self.snapshot = Snapshot(tuple(map(self._settled, self.snapshot.segments)))
        records = [one.columns.record for one in self.snapshot.segments if isinstance(one.columns, StoredColumns)]
        tables = {name: self._table_record(name) for name in self.tables}
        self._check_process()
        self._writer.sync()
        return before.manifest.next(next_id=self.next_id, sources=self.sources, segments=tuple(records), tables=tables)

    @property
    def _removes(self) -> bool:
        return any(segment.alive is not None for segment in self.snapshot.segments)

    def _table_record(self, name: str) -> FileRecord:
        """Return the record of a table, after writing it if it is new."""
        table, before = self.tables[name], self.before
        is_stored = before.tables.get(name) is table
        return before.manifest.tables[name] if is_stored else self._writer.write("segments", table, 0)

    def _write_segments(self) -> None:
        """Write the segments that are in memory."""
        self.snapshot = Snapshot(tuple(map(self._stored, self.snapshot.segments)))

    def _stored(self, segment: Segment) -> Segment:
        if isinstance(segment.columns, StoredColumns):
            return segment
        self._check_process()
        record = write_segment(self._writer, segment.columns)
        return Segment(StoredColumns.open(self._backend, record, self._store.recipe, {}), segment.alive)

    def _settled(self, segment: Segment) -> Segment:
        """Return a segment after writing its bitmap and metadata."""
        columns = segment.columns
        assert isinstance(columns, StoredColumns)
        written = columns.write(self._writer, segment.alive)
        return segment if written is columns else Segment(written, written.alive)

    def _check_seen(self, rows: Int64) -> None:
        """Raise ConflictError for entries that another client has changed since the last refresh."""
        if self._seen.manifest.token == self.before.manifest.token or not rows.size:
            return
        same = _unchanged_entries(self.snapshot, rows, self._seen.snapshot)
        if not same.all():
            ids = (
                self.snapshot.text_ids(rows[~same])
                if self.snapshot.has_text_ids
                else self.snapshot.gather("ids", rows[~same])
            )
            self._refuse(f"{listed(np.asarray(ids))} changed by another client since this index was last refreshed")

    def keep_source(self, name: str, record: Record | None) -> None:
        if self._seen.manifest.sources.get(name) != self.before.manifest.sources.get(name):
            self._refuse(f"the record of {name} is changed by another client since this index was last refreshed")
        super().keep_source(name, record)

    def _refuse(self, problem: str) -> NoReturn:
        remedy = "nothing was changed; refresh the index, then change it again"
        raise ConflictError(self._store.path, "entries", f"{problem}; {remedy}")

    def delete_written(self) -> None:
        """Delete the files of a change that no version will name."""
        self._writer.delete()

    @property
    def is_ours(self) -> bool:
        """Whether this process began the change, not one that it was forked from."""
        return os.getpid() == self._process

    def _check_process(self) -> None:
        if not self.is_ours:
            raise StorageError(
                self._store.path, "lock", "this process was forked during a change; only its parent can write"
            )


def _rewritten_if_overlaid(segment: Segment) -> Segment:
    """Return a segment, rewritten without its overlay if that covers much of it."""
    columns = segment.columns
    if isinstance(columns, StoredColumns) and columns.n_overlaid > OVERLAID_SHARE * len(columns):
        return merge_segments([segment])
    return segment


def _unchanged_entries(now: Snapshot, rows: Int64, then: Snapshot) -> Booleans:
    """Return whether the entries at these rows had the same content in an older snapshot."""
    ids = now.gather("ids", rows).astype(np.int64)
    before = then.locate(ids)
    same = before >= 0
    known: dict[object, int] = {}
    files, positions = _file_positions(now, rows, known)
    files_then, positions_then = _file_positions(then, before, known)
    moved = same & ((files != files_then) | (positions != positions_then))
    if moved.any():
        here, there = rows[moved], before[moved]
        equal = np.array(now.texts(here), object) == np.array(then.texts(there), object)
        same[moved] = equal & (now.gather("codes", here) == then.gather("codes", there)).all(axis=1)
    return same


def _file_positions(snapshot: Snapshot, rows: Int64, known: dict[object, int]) -> tuple[Int64, Int64]:
    """Return the file that holds each entry, as an index into ``known``, and the entry's position there."""
    owners = np.searchsorted(snapshot.starts, rows, side="right") - 1
    files = [known.setdefault(_file_key(segment.columns), len(known)) for segment in snapshot.segments]
    return np.array([*files, -1], np.int64)[owners], rows - snapshot.starts[owners]


def _file_key(columns: object) -> object:
    if not isinstance(columns, StoredColumns):
        return id(columns)
    record = columns.record
    return record.file.name, record.metadata and record.metadata.name
