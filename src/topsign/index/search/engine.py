"""Engines: what finds entries for prepared queries, on the processor or elsewhere."""

from __future__ import annotations

from typing import Protocol

from ... import kernels
from ..._arrays import Float32, Int32, Int64
from ...kernels import Layout
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
    """The kernels of this machine, segment by segment."""

    def rank_mismatches(self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, n_threads: int) -> Hits:
        def kernel(segment: Segment, k: int) -> tuple[Int64, Int32]:
            return kernels.active().search_mismatches(
                layout,
                segment.codes,
                queries.bits,
                k,
                masks=queries.masks,
                alive=segment.alive,
                n_threads=n_threads,
            )

        return Hits.nearest(snapshot, kernel, len(queries), k, descending=False)

    def within_mismatches(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, radii: Int32, *, n_threads: int
    ) -> Hits:
        def kernel(segment: Segment) -> tuple[Int64, Int64, Int32]:
            return kernels.active().within_mismatches(
                layout,
                segment.codes,
                queries.bits,
                radii,
                masks=queries.masks,
                alive=segment.alive,
                n_threads=n_threads,
            )

        return Hits.within(snapshot, kernel, len(queries), descending=False)

    def rank_scores(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, column: str | None, n_threads: int
    ) -> Hits:
        def kernel(segment: Segment, k: int) -> tuple[Int64, Float32]:
            return kernels.active().search_scores(
                layout,
                segment.codes,
                queries.projected,
                k,
                weights=column_of(segment, column),
                alive=segment.alive,
                n_threads=n_threads,
            )

        return Hits.nearest(snapshot, kernel, len(queries), k, descending=True)

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
        def kernel(segment: Segment) -> tuple[Int64, Int64, Float32]:
            return kernels.active().within_scores(
                layout,
                segment.codes,
                queries.projected,
                thresholds,
                weights=column_of(segment, column),
                alive=segment.alive,
                n_threads=n_threads,
            )

        return Hits.within(snapshot, kernel, len(queries), descending=True)


def column_of(segment: Segment, name: str | None) -> Float32 | None:
    """A column of weights; None without a name, or where the entries keep none."""
    weights: Float32 | None = None if name is None else getattr(segment, name)
    return weights
