"""Placement of segments on workers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import dask.config
from dask.sizeof import sizeof
from distributed import Client, Future

from ..errors import ConflictError
from ..families import Recipe
from ..store import Segment
from ..store.backends import Backend
from ..store.stored_columns import StoredColumns, open_segment
from ..store.versions import SegmentRecord
from .cluster import live_workers, memory_limits

sizeof.register(Segment, lambda segment: segment.nbytes)  # for Dask's accounting of worker memory


@dataclass(frozen=True, eq=False)
class Held:
    """Segment on a worker, kept there as long as its future is referenced."""

    address: str
    future: Future
    record: SegmentRecord


class Placement:
    """Segments of one version, each on one worker, balanced by bytes.

    Segments of a lost worker move to other workers when they are next needed. A later version reuses loaded segments;
    if only removals or metadata of a segment have changed, only these are read.
    """

    def __init__(
        self,
        client: Client,
        backend: Backend,
        recipe: Future,
        records: Iterable[SegmentRecord],
        *,
        like: Placement | None = None,
    ) -> None:
        self._client, self._backend, self._recipe = client, backend, recipe
        self.records = {record.file.name: record for record in records}
        before: dict[str, Held] = {} if like is None else like._held
        self._held: dict[str, Held] = {name: held for name, held in before.items() if name in self.records}
        self._lock = threading.Lock()

    def grouped(self, names: list[str]) -> dict[str, dict[str, Future]]:
        """Return the segments of each worker by address, after placing those that no worker holds."""
        with self._lock:
            alive = live_workers(self._client)
            self._place([name for name in names if name not in self._held or self._held[name].address not in alive])
            groups: dict[str, dict[str, Future]] = {}
            for name in names:
                groups.setdefault(self._held[name].address, {})[name] = self._renewed(name)
            return groups

    def forget(self, address: str, names: list[str]) -> None:
        """Forget that a worker holds these segments."""
        with self._lock:
            for name in names:
                if name in self._held and self._held[name].address == address:
                    del self._held[name]

    def by_worker(self) -> dict[str, list[str]]:
        """Return the names of the segments on each worker."""
        with self._lock:
            groups: dict[str, list[str]] = {}
            for name, held in sorted(self._held.items()):
                groups.setdefault(held.address, []).append(name)
            return groups

    def _place(self, names: list[str]) -> None:
        """Assign the largest segments first, each to the worker with the most free memory."""
        if not names:
            return
        target = dask.config.get("distributed.worker.memory.target") or 1.0
        limits = {address: target * limit for address, limit in memory_limits(self._client).items()}
        loads = dict.fromkeys(live_workers(self._client), 0)
        for name, held in self._held.items():
            if held.address in loads and name not in names:
                loads[held.address] += self._n_bytes(name)
        for name in sorted(names, key=lambda one: (-self._n_bytes(one), one)):
            address = min(loads, key=lambda one: (loads[one], one))
            loads[address] += self._n_bytes(name)
            if limits.get(address) and loads[address] > limits[address]:
                total = sum(map(self._n_bytes, self.records))
                raise MemoryError(
                    f"{total:,} bytes of segments do not fit: {address} would have to hold more than "
                    f"{int(limits[address]):,}, the part of its memory that Dask fills before it spills to disk; add "
                    "workers, or give them more memory"
                )
            self._held[name] = self._load(name, address, None)

    def _renewed(self, name: str) -> Future:
        """Return the segment of this version, updated from the loaded segment of another version if there is one."""
        held = self._held[name]
        if held.record != self.records[name]:
            held = self._held[name] = self._load(name, held.address, held.future)
        return held.future

    def _load(self, name: str, address: str, before: Future | None) -> Held:
        record = self.records[name]
        future = self._client.submit(
            _load_segment, self._backend, self._recipe, record, before, workers=[address], pure=False
        )
        return Held(address, future, record)

    def _n_bytes(self, name: str) -> int:
        return sum(file.n_bytes for file in self.records[name].files)


def _load_segment(backend: Backend, recipe: Recipe, record: SegmentRecord, before: Segment | None) -> Segment:
    """On a worker: read all columns of a segment that searches use, and verify them."""
    known = {}
    if before is not None and isinstance(before.columns, StoredColumns):
        known = {file.record.path: file for file in before.columns.files}
    try:
        segment = open_segment(backend, record, recipe, known)
    except FileNotFoundError:
        problem = "is missing: another client compacted the index since this version was opened; refresh the index"
        raise ConflictError(backend.path, record.file.path, f"{problem}, or restore the file from a copy") from None
    assert isinstance(segment.columns, StoredColumns)
    segment.columns.read()
    return segment
