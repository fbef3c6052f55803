"""Hits: the entries that scans find, merged over segments and over shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from ..._arrays import Array, Float32, Float64, Int64
from ..results import Matches, Neighbors
from ..storage import Segment, Snapshot

NearestKernel = Callable[[Segment, int], tuple[Int64, Array]]
"""Positions and values, (n_queries, k), of the k best entries of a segment."""

WithinKernel = Callable[[Segment], tuple[Int64, Int64, Array]]
"""Starts, positions and values of the entries of a segment that are close enough."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Entries found for a block of queries: queries in order, closest first within a query, ties by ascending id.

    Kernels rank by ``values``; :meth:`Scan.measure` adds distances, scores and p-values to the hits that are kept.
    """

    rows: Int64  # query
    places: Int64  # counted through the segments of the snapshot
    ids: Int64
    values: Array  # mismatches or scores as the kernels computed them: these decide the order
    distances: Float64 = field(default_factory=lambda: np.empty(0))  # empty until measured
    scores: Float32 = field(default_factory=lambda: np.empty(0, np.float32))
    p_values: Float64 = field(default_factory=lambda: np.empty(0))

    @classmethod
    def ranked(cls, snapshot: Snapshot, places: Int64, values: Array) -> Hits:
        """The best entries of each query, (n_queries, k), in order; -1 in place of those that score -inf."""
        places, values = _complete(snapshot, places, values)
        rows = np.repeat(np.arange(len(places)), places.shape[1])
        return cls(rows, places.ravel(), snapshot.gather("ids", places.ravel()), values.ravel())

    @classmethod
    def collected(cls, snapshot: Snapshot, starts: Int64, places: Int64, values: Array, *, descending: bool) -> Hits:
        """All entries that are close enough, those of each query from its start on."""
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return cls(rows, places, snapshot.gather("ids", places), values).ordered(descending=descending)

    @classmethod
    def nearest(cls, snapshot: Snapshot, kernel: NearestKernel, n_queries: int, k: int, *, descending: bool) -> Hits:
        """The k best entries of each query, or all where fewer are alive."""
        places, ids = np.empty((2, n_queries, 0), np.int64)
        values: Array | None = None
        for start, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            if segment.n_alive:
                positions, found = _complete(Snapshot((segment,)), *kernel(segment, min(k, segment.n_alive)))
                places = np.hstack([places, start + positions])
                ids = np.hstack([ids, segment.ids[positions]])
                values = found if values is None else np.hstack([values, found])
                order = np.lexsort((ids, -values if descending else values))[:, :k]
                places, ids, values = (np.take_along_axis(part, order, axis=1) for part in (places, ids, values))
        values = np.empty((n_queries, 0)) if values is None else values
        rows = np.repeat(np.arange(n_queries), places.shape[1])
        return cls(rows, places.ravel(), ids.ravel(), values.ravel())

    @classmethod
    def within(cls, snapshot: Snapshot, kernel: WithinKernel, n_queries: int, *, descending: bool) -> Hits:
        """Every entry that the kernel finds in its segment."""
        none = np.empty(0, np.int64)
        rows, places, ids, values = [none], [none], [none], []
        for start, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            starts, positions, found = kernel(segment)
            rows.append(np.repeat(np.arange(n_queries), np.diff(starts)))
            places.append(start + positions)
            ids.append(segment.ids[positions])
            values.append(found)
        flat = np.concatenate(values) if values else np.empty(0)
        hits = cls(np.concatenate(rows), np.concatenate(places), np.concatenate(ids), flat)
        return hits.ordered(descending=descending)

    @classmethod
    def merge(cls, parts: Iterable[Hits], *, descending: bool, k: int | None = None) -> Hits:
        """The hits of one scan over the entries of all parts: every hit, or the k best of each query."""
        none = np.empty(0, np.int64)
        parts = list(parts) or [cls(none, none, none, np.empty(0))]
        whole = cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))
        whole = whole.ordered(descending=descending)
        if k is None:
            return whole
        return whole[np.arange(len(whole.rows)) - np.searchsorted(whole.rows, whole.rows) < k]

    def ordered(self, *, descending: bool) -> Hits:
        """The same hits, closest first within each query."""
        return self[np.lexsort((self.ids, -self.values if descending else self.values, self.rows))]

    def __getitem__(self, kept: Array) -> Hits:
        columns = [getattr(self, field.name) for field in fields(self)]
        return Hits(*(column[kept] if len(column) == len(self.rows) else column for column in columns))

    def fill(self, neighbors: Neighbors, block: slice) -> None:
        """Writes the hits into a block of neighbors; every query has the same number of them."""
        n_queries = block.stop - block.start
        shape = (n_queries, len(self.ids) // max(1, n_queries))
        for name in ("ids", "distances", "scores", "p_values"):
            getattr(neighbors, name)[block, : shape[1]] = getattr(self, name).reshape(shape)

    def matches(self, n_queries: int) -> Matches:
        """The hits as matches of ``n_queries`` queries."""
        starts = np.searchsorted(self.rows, np.arange(n_queries + 1)).astype(np.int64)
        return Matches(starts, self.ids, self.distances, self.scores, self.p_values)


def _complete(snapshot: Snapshot, places: Int64, values: Array) -> tuple[Int64, Array]:
    """Kernels leave places of -1 where scores are -inf, as products of extreme values are: other entries fill them."""
    for row in np.flatnonzero((places < 0).any(axis=1)):
        empty = places[row] < 0
        alive = np.flatnonzero(np.concatenate([segment.living for segment in snapshot.segments]))
        others = np.setdiff1d(alive, places[row])
        by_id = np.argsort(snapshot.gather("ids", others))
        places[row, empty], values[row, empty] = others[by_id[: empty.sum()]], -np.inf
    return places, values
