"""Entries sorted by region, which searches visit; they depend only on the generation and number of regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Int32, Int64
from ..kernels import CodeRange, RegionArrays, RegionCodes
from ..store import Columns, Segment, Snapshot


@dataclass(frozen=True)
class RegionOrder:
    """Generation and number of regions, which suffice to visit regions; sent to the workers of a cluster."""

    generation: int
    n_regions: int

    def positions(self, columns: Columns) -> tuple[Int32, Int32] | None:
        """Return positions sorted by region and the start of each region; None if no regions are assigned."""
        known = columns.derived.get("region_order")
        if known is None or known[0] != self:
            if "regions" not in columns.extra_names:
                return None
            regions = columns.extra("regions")
            if len(regions) and regions.max() >= self.n_regions:
                raise ValueError(f"an entry is in region {regions.max()}, of {self.n_regions}")
            positions = np.argsort(regions, kind="stable").astype(np.int32)
            counts = np.bincount(regions, minlength=self.n_regions)
            starts = np.append(0, np.cumsum(counts)).astype(np.int32)
            known = columns.derived["region_order"] = self, positions, starts
        return known[1], known[2]

    def ranges(self, snapshot: Snapshot) -> RegionArrays | None:
        """Return all segments with live entries, sorted by region; None if a segment has no regions."""
        known = snapshot.derived.get("region_ranges")
        if known is None or known[0] != self:
            known = snapshot.derived["region_ranges"] = self, self._ranges(snapshot)
        found: RegionArrays | None = known[1]
        return found

    def _ranges(self, snapshot: Snapshot) -> RegionArrays | None:
        found = []
        for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            if not segment.n_alive:
                continue
            order = self.positions(segment.columns)
            if order is None:
                return None
            codes = CodeRange(segment.codes, int(first_row), segment.alive, segment.ids)
            found.append(RegionCodes(codes, *order))
        return RegionArrays(found)

    def counts(self, snapshot: Snapshot) -> Int64 | None:
        """Return the number of live entries in each region; None if a segment has no regions."""
        known = snapshot.derived.get("region_counts")
        if known is None or known[0] != self:
            known = snapshot.derived["region_counts"] = self, self._counts(snapshot)
        found: Int64 | None = known[1]
        return found

    def _counts(self, snapshot: Snapshot) -> Int64 | None:
        counts = np.zeros(self.n_regions, np.int64)
        for segment in snapshot.segments:
            if segment.n_alive:
                order = self.positions(segment.columns)
                if order is None:
                    return None
                counts += self._segment_counts(segment, order[1])
        return counts

    def _segment_counts(self, segment: Segment, starts: Int32) -> Array:
        if segment.alive is None:
            return np.diff(starts)
        return np.bincount(segment.columns.extra("regions")[segment.living], minlength=self.n_regions)


@dataclass(frozen=True, eq=False)
class RegionVisits:
    """Regions that each query visits, without repetition."""

    order: RegionOrder
    starts: Int64  # (n_queries + 1,)
    regions: Int32  # those of query q are regions[starts[q] : starts[q + 1]]
