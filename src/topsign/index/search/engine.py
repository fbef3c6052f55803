"""Engines: what finds entries for prepared queries, on the processor or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ... import kernels
from ..._arrays import Float32, Int32, Int64
from ...kernels import CodeSegment, Layout
from ..storage import Segment, Snapshot
from .hits import Hits
from .queries import Queries


class Engine(Protocol):
    """Finds the entries of a snapshot; every engine finds the same, with the same values to the last bit.

    ``column`` names what sums are weighted with: scales, weights, norms, or None.
    """

    def rank_mismatches(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, n_threads: int
    ) -> Hits: ...
    def within_mismatches(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, radii: Int32, *, n_threads: int
    ) -> Hits: ...
    def rank_scores(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, column: str | None, n_threads: int
    ) -> Hits: ...
    def within_scores(
        self,
        snapshot: Snapshot,
        layout: Layout,
        queries: Queries,
        thresholds: Float32,
        *,
        column: str | None,
        n_threads: int,
    ) -> Hits: ...


class KernelEngine:
    """The kernels of this machine, which search all segments together."""

    def rank_mismatches(self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, n_threads: int) -> Hits:
        living = Living.of(snapshot, layout)
        places, mismatches = kernels.active().rank_mismatches(
            layout, living.segments, queries.bits, min(k, len(snapshot)), masks=queries.masks, n_threads=n_threads
        )
        return Hits.ranked(snapshot, living.places(places), mismatches)

    def within_mismatches(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, radii: Int32, *, n_threads: int
    ) -> Hits:
        living = Living.of(snapshot, layout)
        starts, places, mismatches = kernels.active().collect_mismatches(
            layout, living.segments, queries.bits, radii, masks=queries.masks, n_threads=n_threads
        )
        return Hits.collected(snapshot, starts, living.places(places), mismatches, descending=False)

    def rank_scores(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, column: str | None, n_threads: int
    ) -> Hits:
        living = Living.of(snapshot, layout, column)
        places, scores = kernels.active().rank_scores(
            layout, living.segments, queries.projected, min(k, len(snapshot)), n_threads=n_threads
        )
        return Hits.ranked(snapshot, living.places(places), scores)

    def within_scores(
        self,
        snapshot: Snapshot,
        layout: Layout,
        queries: Queries,
        thresholds: Float32,
        *,
        column: str | None,
        n_threads: int,
    ) -> Hits:
        living = Living.of(snapshot, layout, column)
        starts, places, scores = kernels.active().collect_scores(
            layout, living.segments, queries.projected, thresholds, n_threads=n_threads
        )
        return Hits.collected(snapshot, starts, living.places(places), scores, descending=True)


@dataclass(frozen=True, eq=False)
class Living:
    """The segments of a snapshot that have entries alive, as kernels take them; an empty one where none has."""

    segments: list[CodeSegment]
    starts: Int64  # the place in the snapshot at which each begins

    @classmethod
    def of(cls, snapshot: Snapshot, layout: Layout, column: str | None = None) -> Living:
        """With this column as the weights of scores."""
        pairs = [pair for pair in zip(snapshot.segments, snapshot.starts, strict=False) if pair[0].n_alive]
        if not pairs:
            return cls([CodeSegment(np.empty((0, layout.code_bytes), np.uint8))], np.zeros(1, np.int64))
        segments = [CodeSegment(one.codes, one.alive, column_of(one, column), one.ids) for one, _ in pairs]
        return cls(segments, np.array([start for _, start in pairs], np.int64))

    def places(self, found: Int64) -> Int64:
        """Places in the snapshot of those that count through the segments; -1 stays."""
        ends = np.cumsum([len(segment.codes) for segment in self.segments])
        owners = np.minimum(np.searchsorted(ends, found, side="right"), len(ends) - 1)
        shifts = self.starts - np.append(0, ends[:-1])
        return np.where(found < 0, found, found + shifts[owners])


def column_of(segment: Segment, name: str | None) -> Float32 | None:
    """A column of weights; None without a name, or where the entries keep none."""
    weights: Float32 | None = None if name is None else getattr(segment, name)
    return weights
