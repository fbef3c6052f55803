"""Changes to a store in a folder: the files they write, and the version that makes them visible."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .._arrays import Int64
from .._checks import listed
from .._files import Record
from ..errors import ConflictError, StorageError
from .backend import FOLDERS
from .manifest import FileRecord, Manifest, SegmentRecord, new_name
from .memory import Change
from .rebase import unchanged_entries
from .segments import Segment, merge_segments
from .snapshot import Snapshot
from .stored_columns import StoredColumns, open_segment, write_segment
from .stored_file import write_columns

if TYPE_CHECKING:
    from .folder_store import FolderStore, Loaded

REMOVED_BYTES, REMOVED_SHARE = 2**16, 1 / 12
"""Removed entries may take this many bytes of a store, and this share of what all entries take."""

MANIFEST_BYTES = 2**16
"""Bytes of small files that a manifest may hold in all."""

TABLE_INLINE_BYTES = 2**12
"""Tables of at most so many bytes are kept in the manifest; there may be a dozen."""

OVERLAID_SHARE = 1 / 8
"""A segment is rewritten when more than this share of its metadata has been replaced."""


class FolderChange(Change):
    """A change to a folder. Its files are written as they come; nothing refers to them before :meth:`commit`."""

    def __init__(self, store: FolderStore, loaded: Loaded, seen: Loaded | None = None) -> None:
        tables = dict(loaded.tables)
        super().__init__(loaded.snapshot, loaded.manifest.next_id, dict(loaded.manifest.sources), tables)
        self.manifest: Manifest = loaded.manifest
        self.erased = False
        self.commit_begun = False  # then its files are deleted only if it is known to have failed
        self._store, self._backend, self._before = store, store.backend, loaded
        self._seen = seen or loaded  # what the client knew when it asked for the change
        self._process = os.getpid()
        self._held: list[Segment] = []
        self._written: set[str] = set()  # files and folders to sync

    def parts(self, n_entries: int) -> Iterator[slice]:
        limit = self._store.segment_entries
        for start in range(0, max(1, n_entries), limit):
            yield slice(start, min(start + limit, n_entries))

    def remove(self, rows: Int64) -> None:
        self._check_seen(rows)
        self.snapshot = self.snapshot.remove(rows, rewrite=False)

    def add(self, segments: list[Segment]) -> None:
        if self._held:  # the last ones stay in memory, because they may be merged with others
            self.snapshot = Snapshot((*self.snapshot.segments, *map(self._stored, self._held)))
        self._held = segments

    def add_stored(self, records: Sequence[SegmentRecord]) -> None:
        """Add segments whose files are in the store already."""
        made = [open_segment(self._backend, record, self._store.recipe, {}) for record in records]
        self.snapshot = Snapshot((*self.snapshot.segments, *made))
        for file in (file for record in records for file in record.files):
            self._note(file)

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

    def commit(self) -> None:
        """Make the change visible; a change of nothing makes no version."""
        self._check_process()
        limit = self._store.segment_entries
        self.snapshot = self.snapshot.add(self._held, limit=limit)
        self._held = []
        self._write_segments()
        while (
            self._removes
            and (step := self.snapshot.tidied(n_bytes=REMOVED_BYTES, share=REMOVED_SHARE, limit=limit)) is not None
        ):
            self.snapshot = step
            self._write_segments()
        before = self._before
        changed = self.next_id != before.manifest.next_id or self.sources != before.manifest.sources
        changed |= [*map(id, self.tables.values())] != [*map(id, before.tables.values())]
        if self.snapshot.segments == before.snapshot.segments and not changed:
            return
        self.snapshot = Snapshot(tuple(map(self._settled, self.snapshot.segments)))
        tables = self._table_records()
        manifest = before.manifest.next(
            next_id=self.next_id, sources=self.sources, segments=self._records(), tables=tables
        )
        self._check_process()
        self.commit_begun = True
        self._store.commits.commit(manifest, self._written)
        self.manifest = manifest

    @property
    def _removes(self) -> bool:
        return any(segment.alive is not None for segment in self.snapshot.segments)

    def _table_records(self) -> dict[str, FileRecord]:
        """Records of all tables; new ones are written."""
        before, records = self._before, {}
        for name, table in self.tables.items():
            if before.tables.get(name) is table:
                records[name] = before.manifest.tables[name]
            else:
                records[name] = write_columns(self._backend, "segments", table, 0, inline_bytes=TABLE_INLINE_BYTES)
                self._note(records[name])
        return records

    def _records(self) -> tuple[SegmentRecord, ...]:
        """Records of all segments; the largest files leave the manifest while it holds too many bytes."""
        records = [one.columns.record for one in self.snapshot.segments if isinstance(one.columns, StoredColumns)]
        inside = [file for record in records for file in record.files if file.content is not None]
        n_bytes = sum(file.n_bytes for file in inside)
        moved = {}
        for file in sorted(inside, key=lambda one: -one.n_bytes):
            if n_bytes > MANIFEST_BYTES:
                n_bytes -= file.n_bytes
                moved[file] = replace(
                    file, name=new_name(), content=None
                )  # a writer that died may have left the old one
                self._backend.create(moved[file].path, [file.content])
                self._note(moved[file])
        if moved:
            self.snapshot = Snapshot(tuple(self._renewed(segment, moved) for segment in self.snapshot.segments))
        return tuple(record.renewed(moved) for record in records)

    def _renewed(self, segment: Segment, moved: dict[FileRecord, FileRecord]) -> Segment:
        """A segment with some of its files in other places; the one before stays as it is if the change fails."""
        columns = segment.columns
        assert isinstance(columns, StoredColumns)
        if moved.keys().isdisjoint(columns.record.files):
            return segment
        known = {file.record.path: file for file in columns.files}
        record, recipe = columns.record.renewed(moved), self._store.recipe
        return replace(segment, columns=StoredColumns.open(self._backend, record, recipe, known, lenient=True))

    def _write_segments(self) -> None:
        """Store the segments that are in memory."""
        self.snapshot = Snapshot(tuple(map(self._stored, self.snapshot.segments)))

    def _stored(self, segment: Segment) -> Segment:
        if isinstance(segment.columns, StoredColumns):
            return segment
        self._check_process()
        record = write_segment(self._backend, segment.columns)
        for file in record.files:
            self._note(file)
        return Segment(StoredColumns.open(self._backend, record, self._store.recipe, {}), segment.alive)

    def _settled(self, segment: Segment) -> Segment:
        """A segment whose bitmap and metadata are stored too."""
        columns = segment.columns
        assert isinstance(columns, StoredColumns)
        written = columns.write(self._backend, segment.alive)
        if written is columns:
            return segment
        for file in set(written.record.files) - set(columns.record.files):
            self._note(file)
        return Segment(written, written.alive)

    def _note(self, file: FileRecord) -> None:
        """Remember to sync a new file and its folder."""
        if file.content is None:
            self._written |= {file.path, file.folder}

    def _check_seen(self, rows: Int64) -> None:
        """Refuse to remove or replace entries that another client changed since this one last looked."""
        if self._seen.manifest.token == self._before.manifest.token or not rows.size:
            return
        names = self._store.recipe.column_names
        same = unchanged_entries(self.snapshot, rows, self._seen.snapshot, names)
        if not same.all():
            ids = (
                self.snapshot.names(rows[~same])
                if self.snapshot.has_names
                else self.snapshot.gather("ids", rows[~same])
            )
            self._refuse(f"{listed(np.asarray(ids))} changed by another client since this index last looked")

    def keep_source(self, name: str, record: Record | None) -> None:
        if self._seen.manifest.sources.get(name) != self._before.manifest.sources.get(name):
            self._refuse(f"the record of {name} is changed by another client since this index last looked")
        super().keep_source(name, record)

    def _refuse(self, problem: str) -> NoReturn:
        remedy = "nothing was changed; refresh the index, then change it again"
        raise ConflictError(self._store.path, "entries", f"{problem}; {remedy}")

    def delete_written(self) -> None:
        """Delete the files of a change that no version will name."""
        for path in self._written - set(FOLDERS):
            self._backend.delete(path)

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
    """A segment without an overlay if that covers much of it."""
    columns = segment.columns
    if isinstance(columns, StoredColumns) and columns.n_overlaid > OVERLAID_SHARE * len(columns):
        return merge_segments([segment])
    return segment
