"""Where the entries of an index are kept, and how they change; here in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from .segments import Segment, Snapshot

Record = dict[str, Any]


class Change:
    """What a writer makes of a snapshot; nobody sees it before it is complete."""

    def __init__(self, snapshot: Snapshot, next_id: int, sources: dict[str, Record]) -> None:
        self.snapshot = snapshot
        self.next_id = next_id
        self.sources = sources

    def parts(self, n_entries: int) -> Iterator[slice]:
        """New entries, as many at a time as should be held in memory."""
        yield slice(0, n_entries)

    def add(self, segments: list[Segment]) -> None:
        self.snapshot = self.snapshot.add(segments)

    def compact(self) -> None:
        while (step := self.snapshot.compacted()) is not None:
            self.snapshot = step


class Store(Protocol):
    """Keeps the newest snapshot that was asked for."""

    @property
    def path(self) -> str | None: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def sources(self) -> dict[str, Record]:
        """What was added from which file."""

    def change(self) -> AbstractContextManager[Change]:
        """The only writer for the time being; the change takes effect at the end, or not at all."""

    def refresh(self) -> bool:
        """Whether something newer was found."""

    def verify(self) -> None: ...
    def close(self) -> None: ...


class MemoryStore:
    """Entries of this process alone."""

    path = None

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.sources: dict[str, Record] = {}
        self._next_id = 0
        self._lock = threading.Lock()

    @contextmanager
    def change(self) -> Iterator[Change]:
        with self._lock:
            change = Change(self.snapshot, self._next_id, dict(self.sources))
            yield change
            self.snapshot, self._next_id, self.sources = change.snapshot, change.next_id, change.sources

    def refresh(self) -> bool:
        return False

    def verify(self) -> None:
        """There is nothing to compare memory with."""

    def close(self) -> None:
        self.snapshot = Snapshot()
