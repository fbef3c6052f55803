"""ClusterIndex: an index whose segments the workers of a Dask cluster hold and search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from distributed import Client

from .._arrays import Array
from .._checks import suggests_keywords
from ..errors import ConflictError
from ..index import BaseIndex, Index, LearnedIndex
from ..index.regions import IndexRegions
from ..search.engine import ENGINE
from ..search.query_block import SMALL_QUERY_BYTES, QueryBlock, query_blocks
from ..signals import Location
from ..store.folder_store import FolderStore, OpenVersion, open_store
from .cluster import resolve_client, run_each, send
from .entries import ClusterEntries
from .placement import Placement

Progress = Callable[[int, int], None]


@suggests_keywords
def open(
    path: Location,
    *,
    client: Client | None = None,
    version: int | None = None,
    readonly: bool = False,
    keep_versions: int = 1,
) -> ClusterIndex:
    """Open an index on a cluster; its workers load the segments and keep them in memory.

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
    options: Any = {"version": version, "keep_versions": keep_versions}
    return ClusterIndex(open_store(path, readonly=readonly, optimistic=True, **options), client)


@suggests_keywords
class ClusterIndex(Index):
    """Index whose segments are held by the workers of a cluster. Made by :func:`open` from the ``store`` of its folder.

    It has the same folder, methods and results, to the last bit, as :class:`topsign.Index`. ``topsign.threads``
    applies to each worker; the default is all of the worker's threads. The ``client`` makes the changes, each of them a
    small version; use :func:`encode` for many signals. If a worker is lost, others load its segments and repeat its
    part of the search.

    Other clients may change the same folder. A change of other entries than theirs is applied to the newest version. A
    change that removes or replaces entries that another client has changed since the last refresh raises ConflictError
    and has no effect.
    """

    def __init__(self, store: FolderStore, client: Client) -> None:
        BaseIndex.__init__(self, LearnedIndex(store.recipe, store), ENGINE)
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
        """Names of the segments on each worker, by address."""
        return self._entries().placement.by_worker()

    def _entries(self) -> ClusterEntries:
        """Return the entries of the store's version after loading its new segments."""
        with self._loading:
            while True:
                now = self._folder.now
                if self._loaded is not None and self._loaded[0] == now.manifest.token:
                    return self._loaded[1]
                try:
                    self._loaded = self._load(now)
                except ConflictError:  # a later version, of this object or of another client, has replaced segments
                    if self._folder.now is now and not self._folder.refresh():
                        raise

    def _load(self, now: OpenVersion) -> tuple[str, ClusterEntries]:
        before = None if self._loaded is None else self._loaded[1].placement
        placement = Placement(self._client, self._folder.backend, self._sent, now.manifest.segments, like=before)
        placement.ask(len)  # report damage now
        entries = ClusterEntries(self.recipe, self._sent, placement, now.snapshot, now.tables, len(now.snapshot))
        return now.manifest.token, entries

    def _query_blocks(self, queries: Array, **options: Any) -> Iterator[tuple[slice, QueryBlock]]:
        """Queries are prepared once, here, so that all workers compare the same bits."""
        return query_blocks(self.recipe, queries, **options | {"n_bytes": SMALL_QUERY_BYTES})

    def verify(self, *, progress: Progress | None = None) -> None:
        """Read every segment again from storage, on the workers; raise StorageError that lists all damage.

        ``progress`` is called as segments are done.
        """
        self._folder.verify(partial(self._map, progress))
        IndexRegions(self.recipe, self._folder).verify(self._entries())

    def _map(self, progress: Progress | None, task: Callable[..., Any], jobs: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of a task for each segment, in any order."""
        records = list(jobs)
        done, total = 0, sum(record.file.entries for record in records)
        submit = partial(self._client.submit, task, pure=False)
        for record, result in run_each(self._client, records, submit, name=lambda one: f"segment {one.file.name}"):
            done += record.file.entries
            if progress is not None:
                progress(done, total)
            yield result

    def refresh(self) -> bool:
        """Load changes made by other clients; return whether there were any."""
        changed = super().refresh()
        self._entries()
        return changed

    def close(self) -> None:
        """Release the segments on the workers; closing the client does the same."""
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
