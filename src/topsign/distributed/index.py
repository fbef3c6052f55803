"""ClusterIndex: an index whose segments the workers of a Dask cluster hold and search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from distributed import Client

from .._arrays import Array
from .._checks import check_count
from ..errors import ConflictError
from ..index import Index
from ..search import SMALL_QUERY_BYTES, Scan, make_scans
from ..signals import Location
from ..store import open_store
from ..store.folder_store import FolderStore
from .ask import ask
from .cluster import resolve_client, run_all, send, sent_threads
from .entries import ClusterEntries
from .placement import Placement

Progress = Callable[[int, int], None]


def open(
    path: Location,
    *,
    client: Client | None = None,
    version: int | None = None,
    readonly: bool = False,
    keep_versions: int = 1,
) -> ClusterIndex:
    """Open the index in a folder or bucket; the workers of a cluster load its segments now and keep them in memory.

    Parameters
    ----------
    path : path or URL
        A folder that all workers see, or a prefix in an object store: the same that :func:`topsign.open_index` opens.
    client : distributed.Client, optional
        Client of the cluster; by default of a local one in this process.
    version, readonly, keep_versions
        As in :func:`topsign.open_index`.

    Raises
    ------
    StorageError
        If there is no index, or a segment is missing or damaged.
    MemoryError
        If the segments do not fit into the memory of the workers.
    """
    client = resolve_client(client)
    store = open_store(
        path,
        readonly=readonly,
        timeout=None,
        version=None if version is None else check_count(version, "version"),
        keep_versions=keep_versions,
        optimistic=True,
    )
    assert isinstance(store, FolderStore)
    return ClusterIndex(store, client)


class ClusterIndex(Index):
    """An index of entries that the workers of a cluster hold. Made by :func:`open`.

    Everything is as in :class:`topsign.Index`, to the last bit: the same folder, methods and results. ``n_threads``
    are those of each worker, by default as many as it was started with. Changes are made by the client, one small
    version each; :func:`encode` is for many signals. If a worker is lost, others load its segments and are asked again.

    Other clients may change the same folder. A change that touches other entries than theirs is applied to the newest
    version; one that would remove or replace entries that another client changed since this index last looked raises
    ConflictError, and nothing is changed.
    """

    def __init__(self, store: FolderStore, client: Client) -> None:
        super().__init__(store.recipe, store)
        self._client, self._folder = client, store
        self._sent = send(client, store.recipe)
        self._loading = threading.Lock()
        self._loaded: tuple[str, ClusterEntries] | None = None
        self._entries()

    @property
    def client(self) -> Client:
        """Client of the cluster."""
        return self._client

    @property
    def version(self) -> int:
        """Version that searches see."""
        return self._folder.version

    @property
    def placement(self) -> dict[str, list[str]]:
        """Segments that each worker holds: names by address."""
        return self._entries().placement.by_worker()

    def _entries(self) -> ClusterEntries:
        """Return the entries of the version that the store has; segments that are new in it are loaded now."""
        with self._loading:
            while self._loaded is None or self._loaded[0] != self._folder.now.manifest.token:
                try:
                    self._loaded = self._load()
                except ConflictError:
                    if not self._folder.refresh():  # compacted meanwhile, if there is a newer version
                        raise
            return self._loaded[1]

    def _load(self) -> tuple[str, ClusterEntries]:
        now, before = self._folder.now, None if self._loaded is None else self._loaded[1].placement
        placement = Placement(self._client, self._folder.backend, self._sent, now.manifest.segments, like=before)
        ask(self._client, placement, _count_segments)  # damage is reported now
        entries = ClusterEntries(self._client, self.recipe, self._sent, placement, now.snapshot, len(now.snapshot))
        return now.manifest.token, entries

    def _scans(self, queries: Array, *, n_threads: int | None = None, **options: Any) -> Iterator[tuple[slice, Scan]]:
        """Queries are prepared once, here, so that all workers compare the same bits."""
        for rows, scan in make_scans(self.recipe, queries, **options | {"n_bytes": SMALL_QUERY_BYTES}):
            yield rows, replace(scan, n_threads=sent_threads(n_threads))

    def verify(self, *, progress: Progress | None = None) -> None:
        """Read every segment again from where it is stored, on the workers. Raise StorageError naming all damage."""
        self._folder.verify(partial(self._map, progress))

    def _map(self, progress: Progress | None, task: Callable[..., Any], jobs: Iterable[Any]) -> Iterator[Any]:
        """Yield what a task returns for each segment, as ``map`` does, but in any order."""
        records = list(jobs)
        done, total = 0, sum(record.file.entries for record in records)
        for record, result, error in run_all(
            self._client, records, lambda record: self._client.submit(task, record, pure=False), name=_name_of
        ):
            if error is not None:
                raise error
            done += record.file.entries
            if progress is not None:
                progress(done, total)
            yield result

    def refresh(self) -> bool:
        """Look for changes by other clients, and load their segments; return whether there were any."""
        changed = super().refresh()
        self._entries()
        return changed

    def close(self) -> None:
        """Let workers forget the segments; the end of the client does the same."""
        super().close()
        self._loaded = None

    def to(self, device: str, *, memory: int | None = None) -> NoReturn:
        raise TypeError(
            "an index on a cluster is searched by its workers; topsign.open_index(path).to(device) copies it"
        )

    def __getstate__(self) -> NoReturn:
        raise TypeError("an index on a cluster cannot be pickled; pickle its path, and open it there")

    def __repr__(self) -> str:
        if self._loaded is None:
            return f"ClusterIndex({self.path!r}, closed)"
        return f"ClusterIndex({self.path!r}, version {self.version}, {len(self)} entries, {self.recipe.summary})"


def _name_of(record: Any) -> str:
    return f"segment {record.file.name}"


def _count_segments(segments: list[Any]) -> int:
    """On a worker: return how many segments were loaded."""
    return len(segments)
