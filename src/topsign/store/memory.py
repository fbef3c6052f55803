"""The store in memory, whose interface stores in folders share, and changes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from .._arrays import Array, Int64
from .._checks import MAX_ID
from .._files import Record
from ..errors import StorageError
from ..families import Recipe
from . import segments
from .segments import Segment, Snapshot, merge_segments, take_entries

Result = TypeVar("Result")

Table = Mapping[str, Array]
"""Named arrays of the whole index."""


@dataclass(frozen=True, eq=False)
class StoreVersion:
    """One version of a store; a search reads all of it at once, while writers continue."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    next_id: int = 0  # one more than the largest id ever used
    sources: Mapping[str, Record] = field(default_factory=dict)  # progress of named sources, for resumed builds
    tables: Mapping[str, Table] = field(default_factory=dict)  # arrays of the whole index


class Change:
    """Change of a version by one writer; searches see it once it is committed."""

    part_entries = sys.maxsize  # maximum number of new entries that are encoded and added at a time

    def __init__(self, before: StoreVersion) -> None:
        self.snapshot, self.next_id = before.snapshot, before.next_id
        self.sources, self.tables = dict(before.sources), dict(before.tables)
        self.segment_entries = segments.MERGED_ENTRIES  # maximum size of a segment that is rewritten

    def free_ids(self, n_entries: int) -> Int64:
        """Return ids for new entries: the integers after the largest id ever used."""
        if self.next_id + n_entries - 1 > MAX_ID:
            raise ValueError(f"no ids are left after {self.next_id - 1}, the largest; give ids yourself")
        return np.arange(self.next_id, self.next_id + n_entries)

    def remove(self, rows: Int64) -> None:
        """Remove the entries at these rows."""
        self.snapshot = self.snapshot.remove(rows)

    def update_metadata(self, rows: Int64, texts: Sequence[bytes]) -> None:
        """Replace the metadata of the entries at these rows."""
        self.snapshot = self.snapshot.with_metadata(rows, texts)

    def keep_source(self, name: str, record: Record | None) -> None:
        """Store or delete the record of a source."""
        if record is None:
            self.sources.pop(name, None)
        else:
            self.sources[name] = record

    def add(self, new: list[Segment]) -> None:
        """Add new segments."""
        self.snapshot = self.snapshot.add(new, limit=self.segment_entries)

    def order_by_region(self, regions: Array) -> None:
        """Rewrite all segments in the order of these regions of all rows, and drop removed entries."""
        before = self.snapshot
        rows = before.living_rows
        rows = rows[np.lexsort((before.gather("ids", rows), regions[rows]))]
        parts = (rows[part] for part in _cuts_of_regions(regions[rows], self.segment_entries))
        self._take(take_entries(before, part, {"regions": regions[part]}) for part in parts)

    def _take(self, made: Iterable[Segment]) -> None:
        """Make a snapshot of these segments; a folder writes each before the next is made, so memory stays bounded."""
        self.snapshot = Snapshot(tuple(made))

    def compact(self) -> None:
        """Drop removed entries and merge small segments; those with regions are ordered by them as a whole."""
        parts = self.snapshot.segments
        if "regions" in self.snapshot.extra_names:
            regions = [segment.columns.extra("regions") for segment in parts]
            ordered = all(one[-1] <= other[0] for one, other in pairwise(regions))
            if not ordered or any(segment.alive is not None for segment in parts):
                self.order_by_region(np.concatenate(regions))
        while (step := self.snapshot.compacted(limit=self.segment_entries)) is not None:
            self._take(step.segments)

    def erase(self, rows: Int64) -> None:
        """Remove the entries at these rows together with all copies of their data."""
        self.remove(rows)
        self.compact()


def _cuts_of_regions(regions: Array, limit: int) -> Iterator[slice]:
    """Yield slices of entries sorted by region with at most ``limit`` entries, which end with a region if possible."""
    ends = np.append(np.flatnonzero(regions[1:] != regions[:-1]) + 1, len(regions))
    start = 0
    while start < len(regions):
        last = int(ends[np.searchsorted(ends, start + limit, side="right") - 1])
        end = last if last > start else min(start + limit, len(regions))
        yield slice(start, end)
        start = end


Version = TypeVar("Version", bound=StoreVersion)


class BaseStore(Generic[Version]):
    """Properties of a store, and the version that searches see."""

    path: str | None = None
    recipe: Recipe | None = None  # stored recipe of a folder
    header: Record | None = None  # format, library version and recipe of a folder
    readonly = False
    pinned: int | None = None  # pinned version of a folder, or None for the newest
    originals: str | None = None  # type of the kept originals
    now: Version  # that searches see

    @property
    def snapshot(self) -> Snapshot:
        """Entries that searches see."""
        return self.now.snapshot

    def close(self) -> None:
        """Release the entries; later calls raise."""
        vars(self).pop("now", None)

    def __getattr__(self, name: str) -> Any:
        """Raise StorageError for the version that :meth:`close` has released."""
        if name != "now":
            raise AttributeError(name)
        section, remedy = ("folder", "open it again") if self.path else ("index", "make or open another one")
        raise StorageError(self.path or "memory", section, f"this index is closed; {remedy}")


class MemoryStore(BaseStore[StoreVersion]):
    """Store of the entries of an index in the memory of this process."""

    def __init__(self, originals: str | None = None) -> None:
        self.originals = originals
        self.now = StoreVersion()
        self._lock = threading.Lock()

    @property
    def sizes(self) -> Counter[str]:
        """Bytes of everything that the store holds, by content."""
        found = Counter(tables=sum(array.nbytes for table in self.now.tables.values() for array in table.values()))
        for segment in self.snapshot.segments:
            found.update(segment.columns.sizes)
            found["removed"] += 0 if segment.alive is None else segment.alive.nbytes
        return +found

    def apply(self, make: Callable[[Change], Result]) -> Result:
        """Apply a change and return its result; changes exclude each other."""
        with self._lock:
            change = Change(self.now)
            result = make(change)
            self.now = StoreVersion(change.snapshot, change.next_id, change.sources, change.tables)
        return result

    def versions(self) -> list[int]:
        """Return the kept versions: none."""
        return []

    def refresh(self) -> bool:
        """Load a newer version if there is one; return whether there was."""
        return False

    def verify(self) -> None:
        """Do nothing: entries in memory have no checksums."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the living entries."""
        segments = [merge_segments([one]) if one.alive is not None else one for one in self.snapshot.segments]
        living = replace(self.now, snapshot=Snapshot(tuple(segments)))
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"now": living}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())
