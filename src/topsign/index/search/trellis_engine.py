"""Engines of trellis codes: what finds entries for rounded queries, on the processor or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ... import kernels
from ..._arrays import Float32, Int64
from ...kernels import RoundedQueries, TrellisEntries
from ...recipe import Recipe
from ..storage import Segment, Snapshot
from .hits import Hits


class TrellisEngine(Protocol):
    """Finds the entries of a snapshot; every engine finds the same, with the same values to the last bit.

    Queries are rounded for each cell. ``norms``: whether scores are multiplied with those of the entries.
    """

    def rank_trellis(
        self, snapshot: Snapshot, recipe: Recipe, queries: list[RoundedQueries], k: int, *, norms: bool, n_threads: int
    ) -> Hits: ...
    def within_trellis(
        self,
        snapshot: Snapshot,
        recipe: Recipe,
        queries: list[RoundedQueries],
        thresholds: Float32,
        *,
        norms: bool,
        n_threads: int,
    ) -> Hits: ...


class TrellisKernelEngine:
    """The kernels of this machine, segment by segment."""

    def rank_trellis(
        self, snapshot: Snapshot, recipe: Recipe, queries: list[RoundedQueries], k: int, *, norms: bool, n_threads: int
    ) -> Hits:
        def kernel(segment: Segment, k: int) -> tuple[Int64, Float32]:
            return best_of_cells(
                [
                    kernels.active().trellis_search(entries, rounded, k, n_threads=n_threads)
                    for entries, rounded in _entries_of_cells(recipe, segment, queries, norms)
                ],
                k,
            )

        return Hits.nearest(snapshot, kernel, len(queries[0]), k, descending=True)

    def within_trellis(
        self,
        snapshot: Snapshot,
        recipe: Recipe,
        queries: list[RoundedQueries],
        thresholds: Float32,
        *,
        norms: bool,
        n_threads: int,
    ) -> Hits:
        def kernel(segment: Segment) -> tuple[Int64, Int64, Float32]:
            return all_of_cells(
                [
                    kernels.active().trellis_within(entries, rounded, thresholds, n_threads=n_threads)
                    for entries, rounded in _entries_of_cells(recipe, segment, queries, norms)
                ]
            )

        return Hits.within(snapshot, kernel, len(queries[0]), descending=True)


def _entries_of_cells(
    recipe: Recipe, segment: Segment, queries: list[RoundedQueries], norms: bool
) -> Iterator[tuple[TrellisEntries, RoundedQueries]]:
    """The entries of each cell, and the queries as its kernels take them."""
    codes = segment.codes
    if len(recipe.cells) == 1:
        yield TrellisEntries(recipe.cells[0].tables, codes, norms, segment.alive), queries[0]
        return
    for cell, places in recipe.cells.of_codes(codes):
        yield TrellisEntries(cell.tables, codes, norms, segment.alive, places), queries[cell.number]


def best_of_cells(parts: list[tuple[Int64, Float32]], k: int) -> tuple[Int64, Float32]:
    """The k best of all cells: positions and scores, by falling score, then by position; -1 and nan after."""
    if len(parts) == 1:
        return parts[0]
    positions, scores = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    order = np.lexsort((positions, np.where(positions < 0, np.inf, -scores)))[:, :k]
    return np.take_along_axis(positions, order, axis=1), np.take_along_axis(scores, order, axis=1)


def all_of_cells(parts: list[tuple[Int64, Int64, Float32]]) -> tuple[Int64, Int64, Float32]:
    """What all cells found: starts, positions ascending, scores."""
    if len(parts) == 1:
        return parts[0]
    n_queries = len(parts[0][0]) - 1
    rows = np.concatenate([np.repeat(np.arange(n_queries), np.diff(starts)) for starts, _, _ in parts])
    positions, scores = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    order = np.lexsort((positions, rows))
    starts = np.append(0, np.cumsum(np.bincount(rows, minlength=n_queries))).astype(np.int64)
    return starts, positions[order], scores[order]
