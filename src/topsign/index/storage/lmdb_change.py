"""Changes to an LMDB store: what they write, in which transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..._arrays import Int64
from ..._files import pack_record, unpack_record
from .lmdb_columns import StoredColumns
from .lmdb_count import write_count
from .lmdb_records import State, removal_values, segment_key, segment_values
from .memory import Change
from .segments import Segment
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .lmdb_store import FileStore

REMOVED_BYTES, REMOVED_SHARE = 2**20, 1 / 12
"""Removed entries may take this many bytes of a file, and this share of what all entries take."""

PARTS, LEAST_ENTRIES = 64, 4096
"""What is merged or rewritten, rather than compacted, is at most one of so many parts of all entries, or has few.

The pages of a large value must follow each other: small ones find room where others were, large ones lengthen the file.
"""


class FileChange(Change):
    """A change to a file, in a transaction of its own.

    New segments beyond one are written ahead, each in its own transaction and under a number that nothing refers to
    until the last transaction does, so that memory stays bounded and the change is still visible at once or never.
    """

    def __init__(self, store: FileStore, state: State, snapshot: Snapshot) -> None:
        super().__init__(snapshot, state.next_id, dict(state.sources))
        self.state = state
        self._store = store
        self._before = snapshot
        self._ahead: list[Segment] = []
        self._held: list[Segment] = []
        self.replaced: Int64 | None = None

    def parts(self, n_entries: int) -> Iterator[slice]:
        limit = self._store.segment_entries
        for start in range(0, max(1, n_entries), limit):
            yield slice(start, min(start + limit, n_entries))

    def remove(self, places: Int64) -> None:
        self.snapshot = self.snapshot.remove(places, rewrite=False)  # tidy does

    def replace(self, ids: Int64) -> None:
        self.replaced = ids  # removed at the commit: until then the snapshot is loaded again and again

    def add(self, segments: list[Segment]) -> None:
        if self._held:
            self._write_ahead()
        self._held = segments

    def discard(self) -> bool:
        """Gives the change up; returns whether segments were written ahead."""
        self._let_go()
        return bool(self._ahead)

    def compact(self) -> None:
        """In steps, each a transaction of its own: all keep the same entries."""
        while (step := self.snapshot.compacted(limit=self._store.segment_entries)) is not None:
            self.snapshot = step
            del step
            self.commit()

    def tidy(self) -> None:
        """Rewrites segments, those with most removed entries first, while removed entries take much of the file.

        In steps as :meth:`compact` does, so that each uses the pages that the one before it has freed.
        """
        limit = self._part_entries
        while (step := self.snapshot.tidied(n_bytes=REMOVED_BYTES, share=REMOVED_SHARE, limit=limit)) is not None:
            self.snapshot = step
            del step
            self.commit()

    @property
    def _part_entries(self) -> int:
        return min(self._store.segment_entries, max(LEAST_ENTRIES, len(self.snapshot) // PARTS))

    def commit(self) -> None:
        """Makes the change visible, and goes on from there."""
        if self.replaced is not None:
            self.remove(self.snapshot.places(self.replaced))
            self.replaced = None
        if self._ahead:  # they cannot be read yet, and so not be merged
            self.snapshot = Snapshot((*self.snapshot.segments, *self._ahead, *self._held))
        else:
            self.snapshot = self.snapshot.add(self._held, limit=self._part_entries)
        changed = self.next_id != self.state.next_id or self.sources != self.state.sources
        if self.snapshot.segments == self._before.segments and not changed:
            return
        values, numbers, next_segment = self._planned()
        gone = set(self.state.segments) - set(numbers)
        state = State(self.state.sequence + 1, self.next_id, next_segment, numbers, self.sources)
        self._let_go()
        self._store.put(values | {b"state": pack_record(state.to_record())}, gone=gone)
        self.state, self.snapshot = self._store.adopt(self._store.load())  # nobody here keeps the old state's pages
        self._before, self._ahead = self.snapshot, []
        write_count(self._store.path, (self.state.sequence, len(self.snapshot)))

    def _planned(self) -> tuple[dict[bytes, Any], tuple[int, ...], int]:
        """Values to store, the segments in their order, and the next number."""
        values: dict[bytes, Any] = {}
        numbers, next_segment = [], self.state.next_segment + len(self._ahead)
        for segment in self.snapshot.segments:
            columns = segment.columns
            if isinstance(columns, StoredColumns):
                numbers.append(columns.number)
                if segment.alive is not columns.alive:
                    values |= removal_values(columns.record, segment)
            else:
                values |= segment_values(next_segment, segment)
                numbers.append(next_segment)
                next_segment += 1
        return values, tuple(numbers), next_segment

    def _write_ahead(self) -> None:
        held, self._held = self._held, []
        self._let_go()
        for segment in held:
            number = self.state.next_segment + len(self._ahead)
            values = segment_values(number, segment)
            self._store.put(values)
            record = unpack_record(values[segment_key(number)], self._store.path, "segment")
            self._ahead.append(Segment(StoredColumns(record, self._store.recipe, None)))
        _, self.snapshot = self._store.load()
        self._before = self.snapshot

    def _let_go(self) -> None:
        """Releases the map, which may have to grow."""
        self.snapshot = self._before = Snapshot()
        self._held = []
