"""Visits of regions on a device: the codes that a query visits are copied to contiguous memory and searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import Float32, Int32, Int64
from .best import BestSearch
from .chunks import CodesByRegion
from .device import Array as DeviceArray
from .device import Device
from .scan import TILE, Part
from .stripes import Stripes


@dataclass(frozen=True, eq=False)
class VisitedPart:
    """Codes of one cell of a chunk, and the spans that each query visits."""

    part: Part
    codes: CodesByRegion
    firsts: DeviceArray  # (n_visits,) uint32, where the region of each visit begins
    ends: DeviceArray  # (n_visits,) uint32, where it ends in the copy of its query
    counts: Int64  # (n_queries,) codes of each query

    @classmethod
    def of(cls, device: Device, part: Part, codes: CodesByRegion, starts: Int64, regions: Int32) -> VisitedPart:
        """Return the visits of queries: query q visits ``regions[starts[q] : starts[q + 1]]``."""
        firsts = codes.starts[regions]
        sums = np.append(0, np.cumsum(codes.starts[regions + 1] - firsts))
        counts = np.diff(sums[starts])
        ends = sums[1:] - np.repeat(sums[starts[:-1]], np.diff(starts))
        return cls(part, codes, device.put(firsts.astype(np.uint32)), device.put(ends.astype(np.uint32)), counts)

    @property
    def padded(self) -> Int64:
        """Places that the copy of each query takes: whole tiles."""
        return -(-self.counts // TILE) * TILE

    def copy(self, device: Device, query: int, visits: slice, to: Part, at: int) -> int:
        """Append the codes that a query visits to a copy that has ``at`` codes; return how many it has then."""
        assert to.alive is not None
        assert to.order is not None
        count = int(self.padded[query])
        part, stripes = self.part, self.part.stripes
        stripes.format.module(device, "visit.cu").launch(
            "copy_visited",
            count // TILE,
            TILE,
            stripes.words,
            part.weights,
            part.alive,
            self.codes.order,
            self.firsts[visits],
            self.ends[visits],
            np.uint32(visits.stop - visits.start),
            np.uint32(part.base),
            np.uint32(self.counts[query]),
            to.stripes.at(at),
            None if to.weights is None else to.weights[at:],
            to.alive[at // 32 :],
            to.order[at:],
        )
        return at + count


def visit_regions(
    search: BestSearch, queries: Any, parts: Sequence[VisitedPart], starts: Int64
) -> tuple[Int64, Float32]:
    """Return positions and scores, (n_queries, k), of the best codes of one cell in the regions of each query.

    ``search`` is one of a single query, with room for :func:`most_visited` codes.
    """
    device, n_queries, room = search.device, len(starts) - 1, most_visited(parts)
    copy = Part(
        Stripes(search.format, device.empty((search.format.nbytes(room) // 4,), np.uint32), room),
        None if parts[0].part.weights is None else device.empty((room,), np.float32),
        None,
        device.empty((room // 32,), np.uint32),
        order=device.empty((room,), np.uint32),
    )
    positions = device.put(np.full((n_queries, search.k), -1, np.int64))
    scores = device.empty((n_queries, search.k), np.float32)
    for query in range(n_queries):
        one, n_copied = slice(query, query + 1), 0
        for part in parts:
            n_copied = part.copy(device, query, slice(starts[query], starts[query + 1]), copy, n_copied)
        if n_copied:
            search.start(queries[one])
            copied = replace(copy, stripes=Stripes(search.format, copy.stripes.words, n_copied))
            search.scan(copied, (scores[one], positions[one]))
    return device.get(positions), device.get(scores)


def most_visited(parts: Sequence[VisitedPart]) -> int:
    """Return the most places that the copy of a query needs."""
    return int(np.sum([part.padded for part in parts], axis=0).max(initial=0))
