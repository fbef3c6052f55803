"""Searching on a cluster: shards stay where they are, queries and what is found travel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from dask.sizeof import sizeof
from distributed import Client

from .._arrays import Array, Int64
from .._named import named
from ..errors import StorageError
from ..index.filters import Where
from ..index.results import Note
from ..index.search import Calibration, Hits, LearnedSignificance, Reach, Scan, make_scans
from ..index.searching import Searching
from ..index.storage import Segment, Snapshot
from ..signals import Location
from .ask import ask
from .changes import ShardedVerbs
from .cluster import resolve_client, send, sent_threads, worker_threads
from .compact import Compacted, compact
from .entries import ShardedEntries
from .folder import Folder
from .manifest import Manifest, read_manifest, write_manifest
from .pairs import ShardedPairs
from .placement import Placement
from .shard import SentRecipe, Shard, read_shard
from .verify import verify_shards

QUERY_BYTES = 2**23
"""Projections of queries that travel at a time."""

Loaded = TypeVar("Loaded")

sizeof.register(Segment, lambda segment: segment.nbytes)  # so that Dask knows what its workers hold


@named
def open(out: Location, *, client: Client | None = None, version: int | None = None) -> ShardedIndex:
    """An index over the shards in a folder, which the workers of a cluster load now and keep in memory.

    Parameters
    ----------
    out : path or URL
        What :func:`encode` or :func:`split` has written.
    client : distributed.Client, optional
        Of the cluster; a local one in this process when not given.
    version : int, optional
        Of the manifest; the newest when not given.

    Raises
    ------
    StorageError
        Where there is no manifest, or a shard is missing, damaged, or of another encoder.
    MemoryError
        Where the shards do not fit into the memory of the workers.
    """
    folder, client = Folder.at(out), resolve_client(client)
    return _loaded(folder, lambda manifest: ShardedIndex(folder, manifest, client), version)


def _loaded(folder: Folder, load: Callable[[Manifest], Loaded], version: int | None = None) -> Loaded:
    """What ``load`` makes of a version; of the newest that is compacted away meanwhile, the one that is newest then."""
    manifest = read_manifest(folder, version)
    while True:
        try:
            return load(manifest)
        except StorageError:
            newest = read_manifest(folder, version)
            if newest.version == manifest.version:
                raise
            manifest = newest


class ShardedIndex(ShardedVerbs, ShardedPairs, Searching[ShardedEntries]):
    """Entries in shards that the workers of a cluster hold. Made by :func:`open`.

    A search takes what :meth:`topsign.Index.search` takes and gives what one index of the same entries gives: ids,
    distances, scores, p-values and their order. ``n_threads`` are those of each worker; as many as it was started with
    when not given. ``rescore`` is called by the client. Each worker scans its shards with the same code; the best of
    all are merged. Where a worker is lost, others load its shards and are asked again. Safe from any thread.
    """

    def __init__(self, folder: Folder, manifest: Manifest, client: Client) -> None:
        self._folder, self._client = folder, client
        self.recipe = manifest.recipe
        self._loading = threading.Lock()
        self._entries: ShardedEntries | None = None
        self._load(manifest)

    def _load(self, manifest: Manifest) -> None:
        """Loads the shards of a version; those that are there already stay where they are."""
        with self._loading:
            load = partial(_load_shard, self._folder, SentRecipe.of(manifest.recipe))
            before = None if self._entries is None else self._entries.placement
            placement = Placement(self._client, manifest.shards, load, like=before)
            loaded = ask(self._client, placement, _count_entries)
            assert sum(n_entries for n_entries, _ in loaded) == manifest.n_entries
            has_names = any(has_names for _, has_names in loaded)
            self._entries = ShardedEntries(self._client, placement, has_names, manifest.n_entries)
            self._manifest = manifest
            record, where = manifest.calibration, self._folder.url
            self._calibration = None if record is None else Calibration.from_json(record, where)

    @property
    def version(self) -> int:
        """Version of the manifest."""
        return self._manifest.version

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features

    @property
    def n_bits(self) -> int:
        """Signs kept for each entry."""
        return self.recipe.n_bits

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.recipe.n_pool

    @property
    def metric(self) -> str:
        """What scores estimate."""
        return self.recipe.metric

    @property
    def seed(self) -> int:
        """Seed of the projection."""
        return self.recipe.seed

    @property
    def placement(self) -> dict[str, list[str]]:
        """Which worker holds which shards: file names by address."""
        return self._whole().placement.by_worker()

    @property
    def calibration(self) -> Calibration | None:
        return self._calibration

    def verify(self) -> None:
        """Reads every shard again from where it is stored. Raises StorageError naming every damaged one."""
        verify_shards(self._folder, self._manifest, self._client)

    def refresh(self) -> bool:
        """Looks for a newer version of the manifest, and loads its shards; returns whether there was one."""
        before = self.version
        _loaded(self._folder, lambda manifest: None if manifest.version == before else self._load(manifest))
        return self.version != before

    @named
    def compact(self, *, keep: int = 1) -> Compacted:
        """Deletes older versions of the manifest, and the shards that only those need; see :func:`compact`."""
        return compact(self._folder.url, keep=keep)

    def close(self) -> None:
        """Lets workers forget the shards; the end of the client does the same."""
        self._entries = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"ShardedIndex({self._folder.url!r}, version {self.version}, {len(self)} entries in "
            f"{self._manifest.n_shards} shards, n_features={self.n_features}, n_bits={self.n_bits}, "
            f"n_pool={self.n_pool}, metric={self.metric!r}, seed={self.seed})"
        )

    def _whole(self) -> ShardedEntries:
        if self._entries is None:
            raise StorageError(self._folder.url, "shards", "this index is closed; open it again")
        return self._entries

    def _considered(self, whole: ShardedEntries, among: npt.ArrayLike | None, where: Where | None) -> ShardedEntries:
        return whole if among is None and where is None else whole.considered(among, where)

    def _scans(
        self,
        queries: Array,
        *,
        scoring: str,
        adaptive_bits: int | None,
        n_threads: int | None,
        significance: LearnedSignificance | None,
    ) -> Iterator[tuple[slice, Scan]]:
        """Queries are projected once, here, so that all workers compare the same bits."""
        for rows, scan in make_scans(
            self.recipe,
            queries,
            scoring=scoring,
            adaptive_bits=adaptive_bits,
            significance=significance,
            n_bytes=QUERY_BYTES,
        ):
            yield rows, replace(scan, n_threads=sent_threads(n_threads))

    def _nearest(self, entries: ShardedEntries, scan: Scan, k: int) -> Hits:
        parts = entries.ask(partial(_find_nearest, k), send(self._client, scan))
        return Hits.merge(parts, descending=scan.descending, k=k)

    def _within(self, entries: ShardedEntries, scan: Scan, reach: Reach) -> Hits:
        parts = entries.ask(partial(_find_within, reach), send(self._client, scan))
        return Hits.merge(parts, descending=scan.descending)

    def _user_ids(self, whole: ShardedEntries, numbers: Int64) -> Any:
        if not whole.has_names:
            return numbers
        out = np.full(numbers.shape, None, object)
        known = numbers >= 0
        names = whole.names(numbers[known])
        out[known] = [names[number] for number in numbers[known].tolist()]
        return out

    def _notes(self, whole: ShardedEntries, numbers: Int64) -> list[Note]:
        return whole.notes(numbers)

    def _keep_calibration(self, learned: Calibration) -> None:
        self._publish(replace(self._manifest, version=self.version + 1, calibration=learned.to_json()))

    def _publish(self, manifest: Manifest) -> None:
        write_manifest(self._folder, manifest)
        self._load(manifest)


# What follows runs on workers.


def _load_shard(folder: Folder, sent: SentRecipe, shard: Shard) -> Segment:
    return read_shard(folder, shard, sent.recipe())


def _count_entries(segments: list[Segment], _: None) -> tuple[int, bool]:
    """Number of entries, and whether they have ids of text."""
    return sum(len(segment) for segment in segments), bool(Snapshot(tuple(segments)).has_names)


def _find_nearest(k: int, snapshot: Snapshot, scan: Scan) -> Hits:
    return replace(scan, n_threads=worker_threads(scan.n_threads)).nearest(snapshot, k)


def _find_within(reach: Reach, snapshot: Snapshot, scan: Scan) -> Hits:
    return replace(scan, n_threads=worker_threads(scan.n_threads)).within(snapshot, reach)
