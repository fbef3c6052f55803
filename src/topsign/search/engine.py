"""Engines, which execute comparisons over the entries of a snapshot on the CPU or another device."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .._arrays import Array, Int64
from ..families import Comparison, PairComparison
from ..kernels import CodeRange, VisitedCodes
from ..store import Snapshot
from .hits import Hits


class Engine(Protocol):
    """Search engine over snapshots; all engines return the same entries and values to the last bit."""

    def rank(self, comparison: Comparison, snapshot: Snapshot, k: int, *, n_threads: int) -> Hits:
        """Return the k best entries of each query, or all if fewer are alive."""

    def within(self, comparison: Comparison, snapshot: Snapshot, bounds: Array, *, n_threads: int) -> Hits:
        """Return every entry that reaches the bound of its query."""

    def visit(
        self, comparison: Comparison, snapshot: Snapshot, visits: VisitedCodes, k: int, *, n_threads: int
    ) -> Hits:
        """Return the k best entries of the regions that each query visits, or all if there are fewer."""

    def scan_cost(self, comparison: Comparison, n_entries: int) -> float:
        """Return the cost, in nanoseconds, of comparing all queries with ``n_entries`` entries."""

    def visit_cost(self, comparison: Comparison, n_entries: int, n_pairs: int) -> float:
        """Return the cost, in nanoseconds, of visiting ``n_entries`` entries in ``n_pairs`` comparisons."""


class KernelEngine:
    """The kernels of this machine, which search all segments in one call."""

    def rank(self, comparison: Comparison, snapshot: Snapshot, k: int, *, n_threads: int) -> Hits:
        return rank_ranges(comparison, snapshot, living_ranges(snapshot), min(k, len(snapshot)), n_threads)

    def within(self, comparison: Comparison, snapshot: Snapshot, bounds: Array, *, n_threads: int) -> Hits:
        return within_ranges(comparison, snapshot, living_ranges(snapshot), bounds, n_threads)

    def visit(
        self, comparison: Comparison, snapshot: Snapshot, visits: VisitedCodes, k: int, *, n_threads: int
    ) -> Hits:
        """Return the k best entries of the regions that each query visits."""
        return Hits.listed(snapshot, *comparison.visit(visits, k, n_threads=n_threads))

    def scan_cost(self, comparison: Comparison, n_entries: int) -> float:
        return n_entries * comparison.scan_cost(len(comparison))

    def visit_cost(self, comparison: Comparison, n_entries: int, n_pairs: int) -> float:
        """Return the cost, in nanoseconds, of visiting ``n_entries`` entries in ``n_pairs`` comparisons."""
        return n_entries * comparison.visit_cost(n_pairs / max(1, n_entries))


ENGINE = KernelEngine()


def living_ranges(snapshot: Snapshot, *, first_id: int = 0) -> list[CodeRange]:
    """Return the segments that have entries alive with ids from ``first_id`` on, and only those entries."""
    ranges = []
    for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
        if not segment.n_alive or segment.ids[-1] < first_id:
            continue
        alive = segment.alive
        if segment.ids[0] < first_id:
            living = segment.living
            living[: np.searchsorted(segment.ids, first_id)] = False
            alive = np.packbits(living, bitorder="little")
        ranges.append(CodeRange(segment.codes, int(first_row), alive, segment.ids))
    return ranges


def row_ranges(snapshot: Snapshot, rows: Int64) -> list[CodeRange]:
    """Return the segments with only the entries in these rows."""
    ranges = []
    for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
        kept = np.zeros(len(segment), bool)
        kept[rows[(rows >= first_row) & (rows < first_row + len(segment))] - first_row] = True
        if kept.any():
            alive = np.packbits(kept, bitorder="little")
            ranges.append(CodeRange(segment.codes, int(first_row), alive, segment.ids))
    return ranges


def rank_ranges(
    comparison: PairComparison, snapshot: Snapshot, ranges: list[CodeRange], k: int, n_threads: int
) -> Hits:
    """Return the k best entries of the ranges for each query."""
    if not ranges or not k:
        return Hits.none()
    return Hits.ranked(snapshot, *comparison.rank(ranges, k, n_threads=n_threads))


def within_ranges(
    comparison: PairComparison, snapshot: Snapshot, ranges: list[CodeRange], bounds: Array, n_threads: int
) -> Hits:
    """Return every entry of the ranges that reaches the bound of its query."""
    if not ranges:
        return Hits.none()
    return Hits.collected(snapshot, *comparison.within(ranges, bounds, n_threads=n_threads))
