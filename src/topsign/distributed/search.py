"""Searching on a cluster: shards stay where they are, queries and what is found travel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
from dask.sizeof import sizeof
from distributed import Client, get_worker

from .._arrays import Array, Int64
from .._checks import (
    as_signals,
    check_choice,
    check_count,
    raise_unknown_ids,
)
from ..errors import StorageError
from ..index import Matches, Neighbors
from ..index.search import Hits, Reach, Scan, make_scans
from ..index.storage import Segment, Snapshot
from ..signals import Location
from ..theory.inference import SCORINGS
from .ask import ask, by_shard
from .cluster import resolve_client
from .folder import Folder
from .manifest import Manifest, read_manifest
from .names import RemoteNames
from .placement import Placement
from .shard import SentRecipe, Shard, read_shard
from .verify import verify_shards

QUERY_BYTES = 2**23
"""Projections of queries that travel at a time."""

MAX_LOSSES = 4
"""Workers that may be lost with the same shard in one search before the search is held to be the cause."""

sizeof.register(Segment, lambda segment: segment.nbytes)  # so that Dask knows what its workers hold


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
    folder = Folder.at(out)
    return ShardedIndex(folder, read_manifest(folder, version), resolve_client(client))


@dataclass(frozen=True)
class Request:
    """What all workers are asked of a block of queries."""

    n_threads: int | None  # None: as many as a worker has
    k: int | None = None  # nearest, or
    reach: Reach | None = None  # all within


@dataclass(frozen=True, eq=False)
class Unknown:
    """Ids asked for that no entry has."""

    ids: Int64


class ShardedIndex:
    """Entries in shards that the workers of a cluster hold. Made by :func:`open`.

    A search gives what one index of the same entries gives: ids, distances, scores, p-values and their order. Each
    worker scans its shards with the same code; the best of all are merged. Where a worker is lost, others load its
    shards and are asked again. Safe from any thread.
    """

    def __init__(self, folder: Folder, manifest: Manifest, client: Client) -> None:
        self._folder, self._client = folder, client
        self.recipe = manifest.recipe
        self._loading = threading.Lock()
        self._placement: Placement | None = None
        self._load(manifest)

    def _load(self, manifest: Manifest) -> None:
        """Loads the shards of a version; those that are there already stay where they are."""
        with self._loading:
            load = partial(_load_shard, self._folder, SentRecipe.of(manifest.recipe))
            placement = Placement(self._client, manifest.shards, load, like=self._placement)
            loaded = ask(self._client, placement, manifest.shards, _count_entries)
            assert sum(n_entries for n_entries, _ in loaded) == manifest.n_entries
            self._names = RemoteNames(self._client, placement, any(has_names for _, has_names in loaded))
            self._manifest, self._placement = manifest, placement

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
        return self._placed().by_worker()

    def __len__(self) -> int:
        """Number of entries."""
        return self._manifest.n_entries

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Neighbors:
        """The k nearest entries of each query, as :meth:`AdaptiveIndex.search` and :meth:`SignIndex.search`.

        ``n_threads`` are those of each worker; as many as it was started with when not given.
        """
        k = check_count(k, "k")
        check_choice(scoring, "scoring", SCORINGS)
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        request, wanted, placement = Request(_check_threads(n_threads), k=k), self._names.numbers(among), self._placed()
        n_entries = placement.n_entries if wanted is None else len(np.unique(wanted))
        found = Neighbors.empty(len(queries), k, n_entries)
        for rows, scan in self._scans(queries, scoring, adaptive_bits):
            parts = _find(self._client, placement, scan, request, wanted)
            Hits.merge(parts, descending=scan.descending, k=k).fill(found, rows)
        return replace(found, ids=self._names.ids(found.ids))

    def within(
        self,
        queries: npt.ArrayLike,
        *,
        radius: float | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Matches:
        """Every match of each query, as :meth:`AdaptiveIndex.within` and :meth:`SignIndex.within`."""
        reach = Reach.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        wanted, placement = self._names.numbers(among), self._placed()
        n_entries = placement.n_entries if wanted is None else len(np.unique(wanted))
        reach = reach.for_entries(n_entries)
        request, parts = Request(_check_threads(n_threads), reach=reach), []
        for rows, scan in self._scans(queries, scoring, adaptive_bits):
            answers = _find(self._client, placement, scan, request, wanted)
            parts.append(Hits.merge(answers, descending=scan.descending).matches(rows.stop - rows.start))
        found = Matches.concatenate(parts, n_entries)
        return replace(found, ids=self._names.ids(found.ids))

    def verify(self) -> None:
        """Reads every shard again from where it is stored. Raises StorageError naming every damaged one."""
        verify_shards(self._folder, self._manifest, self._client)

    def refresh(self) -> bool:
        """Looks for a newer version of the manifest, and loads its shards; returns whether there was one."""
        newest = read_manifest(self._folder)
        if newest.version == self.version:
            return False
        self._load(newest)
        return True

    def close(self) -> None:
        """Lets workers forget the shards; the end of the client does the same."""
        self._placement = None

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

    def _placed(self) -> Placement:
        if self._placement is None:
            raise StorageError(self._folder.url, "shards", "this index is closed; open it again")
        return self._placement

    def _scans(self, queries: Array, scoring: str, adaptive_bits: int | None) -> Iterator[tuple[slice, Scan]]:
        """Queries are projected once, here, so that all workers compare the same bits."""
        yield from make_scans(self.recipe, queries, scoring=scoring, adaptive_bits=adaptive_bits, n_bytes=QUERY_BYTES)


def _find(client: Client, placement: Placement, scan: Scan, request: Request, wanted: Int64 | None) -> list[Hits]:
    """What each worker finds."""
    shards = placement.shards
    chosen: dict[str, Int64] | None = None
    unknown = [np.empty(0, np.int64)]
    if wanted is not None:
        chosen, outside = by_shard(shards, np.unique(wanted))
        unknown.append(outside)
        shards = tuple(shard for shard in shards if shard.file in chosen)
    sent = client.submit(_same, scan, pure=False)
    answers = ask(client, placement, shards, partial(_answer, request), sent, chosen=chosen)
    unknown += [answer.ids for answer in answers if isinstance(answer, Unknown)]
    missing = np.concatenate(unknown)
    if wanted is not None and missing.size:
        raise_unknown_ids(wanted[np.isin(wanted, missing)], "among")
    return answers


def _check_threads(n_threads: int | None) -> int | None:
    return None if n_threads is None else check_count(n_threads, "n_threads")


# What follows runs on workers.


def _load_shard(folder: Folder, sent: SentRecipe, shard: Shard) -> Segment:
    return read_shard(folder, shard, sent.recipe())


def _count_entries(segments: list[Segment], among: None) -> tuple[int, bool]:
    """Number of entries, and whether they have ids of text."""
    return sum(len(segment) for segment in segments), bool(Snapshot(tuple(segments)).has_names)


def _same(scan: Scan) -> Scan:
    """A task, and not scattered data: Dask makes its result again where it is lost with a worker."""
    return scan


def _answer(request: Request, segments: list[Segment], scan: Scan, among: Int64 | None) -> Hits | Unknown:
    threads = get_worker().state.nthreads if request.n_threads is None else request.n_threads
    scan, snapshot = replace(scan, n_threads=threads), Snapshot(tuple(segments))
    if among is not None:
        places = snapshot.locate(among)
        if (places < 0).any():
            return Unknown(among[places < 0])
        snapshot = snapshot.among(places)
    if request.k is not None:
        return scan.nearest(snapshot, request.k)
    assert request.reach is not None
    return scan.within(snapshot, request.reach)
