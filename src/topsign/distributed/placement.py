"""Placement of segments on workers, and requests to the workers that hold them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import dask.config
from dask.sizeof import sizeof
from distributed import Client, Future, KilledWorker, get_worker

from .. import kernels
from ..errors import ConflictError
from ..families import Recipe
from ..store.backends import Backend
from ..store.segments import Segment
from ..store.stored_columns import StoredColumns, open_segment
from ..store.versions import SegmentRecord
from .cluster import POLL_SECONDS, live_workers, memory_limits, wait_for_one

MAX_LOSSES = 4
"""Number of workers lost with the same segment after which the search itself is considered the cause."""

sizeof.register(Segment, lambda segment: segment.nbytes)  # for Dask's accounting of worker memory


@dataclass(frozen=True, eq=False)
class LoadedSegment:
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
        self.client, self._backend, self._recipe = client, backend, recipe
        self.records = {record.file.name: record for record in records}
        self._lock = threading.Lock()
        self._held: dict[str, LoadedSegment] = {}
        if like is not None:
            with like._lock:
                self._held = {name: held for name, held in like._held.items() if name in self.records}

    def ask(self, task: Callable[..., Any], *arguments: Any, names: Collection[str] | None = None) -> list[Any]:
        """Run a task on every worker with the segments it holds, or with the named ones; return the results.

        A task receives the segments and the arguments, and must not return None. If a worker is lost, the task runs on
        the workers that take over its segments.
        """
        waiting: dict[Future, tuple[str, list[str]]] = {}
        answers: list[Any] = []
        losses: Counter[str] = Counter()
        n_threads = kernels.chosen_threads()

        def submit(names: list[str]) -> None:
            for address, held in self._by_address(names).items():
                future = self.client.submit(
                    _with_threads, n_threads, task, list(held.values()), *arguments, workers=[address], pure=False
                )
                waiting[future] = address, list(held)

        submit([name for name in self.records if names is None or name in names])
        while waiting:
            with suppress(CancelledError):  # lost with its worker; repeated below
                wait_for_one(self.client, list(waiting), POLL_SECONDS)
            alive = live_workers(self.client)
            for future, (address, held) in list(waiting.items()):
                if future.status == "finished" and (answer := _fetch(self.client, future, address)) is not None:
                    answers.append(answer)
                    del waiting[future]
                elif future.status == "error" and not isinstance(error := future.exception(), KilledWorker):
                    self.client.cancel(list(waiting))
                    raise error
                elif future.status in ("cancelled", "lost", "error") or address not in alive:
                    del waiting[future]
                    losses.update(held)
                    if losses[held[0]] > MAX_LOSSES:
                        self.client.cancel(list(waiting))
                        _raise_all_lost(held, losses[held[0]])
                    self._forget(address, held)
                    submit(held)
        return answers

    def _by_address(self, names: list[str]) -> dict[str, dict[str, Future]]:
        """Return the segments of each worker by address, after placing those that no worker holds."""
        with self._lock:
            alive = live_workers(self.client)
            self._place([name for name in names if name not in self._held or self._held[name].address not in alive])
            groups: dict[str, dict[str, Future]] = {}
            for name in names:
                groups.setdefault(self._held[name].address, {})[name] = self._update(name)
            return groups

    def _forget(self, address: str, names: list[str]) -> None:
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
        limits = {address: target * limit for address, limit in memory_limits(self.client).items()}
        loads = dict.fromkeys(live_workers(self.client), 0)
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

    def _update(self, name: str) -> Future:
        """Return the segment of this version, updated from the loaded segment of another version if there is one."""
        held = self._held[name]
        if held.record != self.records[name]:
            held = self._held[name] = self._load(name, held.address, held.future)
        return held.future

    def _load(self, name: str, address: str, before: Future | None) -> LoadedSegment:
        record = self.records[name]
        future = self.client.submit(
            _load_segment, self._backend, self._recipe, record, before, workers=[address], pure=False
        )
        return LoadedSegment(address, future, record)

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
        problem = "is missing: a later version of the index has replaced it; refresh the index"
        raise ConflictError(backend.path, record.file.path, f"{problem}, or restore the file from a copy") from None
    assert isinstance(segment.columns, StoredColumns)
    segment.columns.read()
    return segment


def _with_threads(n_threads: int | None, task: Callable[..., Any], *arguments: Any) -> Any:
    """On a worker: run a task with the client's number of threads, by default all threads of the worker."""
    with kernels.threads(n_threads or int(get_worker().state.nthreads)):
        return task(*arguments)


def _raise_all_lost(names: list[str], times: int) -> NoReturn:
    named = f"segment {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    raise RuntimeError(
        f"{times} workers were lost one after another while they loaded or searched {named}; are they out of memory? "
        "Their logs say"
    )


def _fetch(client: Client, future: Future, address: str) -> Any:
    """Return the result, or None if it was lost with its worker."""
    seconds = 1.0
    while True:
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            if address not in live_workers(client):
                return None
            seconds *= 2
