"""The engine of a GPU index: the entries of a snapshot found on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Bytes, Float32, Int32, Int64
from ..index.search import Hits, Queries
from ..index.storage import Segment, Snapshot
from ..kernels import Layout
from .best import MAX_K, BestSearch, search_within
from .device import Device
from .pieces import Piece, Pieces, pieces_of
from .scan import DEFAULT, Tuning
from .stripes import Format

MAX_QUERIES = 1024  # scanned at a time

Placed = list[tuple[Piece, Bytes | None, int]]


@dataclass(frozen=True, eq=False)
class Run:
    """Pieces of a snapshot whose ids ascend, so that of equal scores the lower position is the lower id."""

    pieces: Placed  # with the bitmap of those alive, and the position of the first entry
    bases: Int64
    places: Int64  # in the snapshot, of the first entry of each piece

    def places_of(self, positions: Int64) -> Int64:
        """Places in the snapshot of positions in the run."""
        owners = np.searchsorted(self.bases, positions, side="right") - 1
        return positions - self.bases[owners] + self.places[owners]

    def __len__(self) -> int:
        return sum(len(piece) for piece, _, _ in self.pieces)


class GpuEngine:
    """Entries of adaptive codes and signs: see :class:`topsign.index.search.Engine`."""

    def __init__(self, device: Device, pieces: Pieces, tuning: Tuning = DEFAULT) -> None:
        self.device, self.pieces, self.tuning = device, pieces, tuning

    def rank_mismatches(self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, n_threads: int) -> Hits:
        signs, compared = sign_values(queries, layout)
        hits = self._rank(snapshot, layout, signs, k, column=None, whole=True)
        return counted(hits, compared)

    def within_mismatches(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, radii: Int32, *, n_threads: int
    ) -> Hits:
        signs, compared = sign_values(queries, layout)
        needed = (compared - 2 * radii).astype(np.float32)
        hits = self._within(snapshot, layout, signs, needed, column=None, whole=True)
        return counted(hits, compared)

    def rank_scores(
        self, snapshot: Snapshot, layout: Layout, queries: Queries, k: int, *, column: str | None, n_threads: int
    ) -> Hits:
        return self._rank(snapshot, layout, queries.projected, k, column=column, whole=False)

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
        return self._within(snapshot, layout, queries.projected, thresholds, column=column, whole=False)

    def _rank(
        self, snapshot: Snapshot, layout: Layout, values: Float32, k: int, *, column: str | None, whole: bool
    ) -> Hits:
        wanted = min(k, len(snapshot))
        if wanted > MAX_K:  # more than a block sorts: all scores come to the host
            least = np.full(len(values), -np.inf, np.float32)
            hits = self._within(snapshot, layout, values, least, column=column, whole=whole)
            return hits[np.arange(len(hits.rows)) - np.searchsorted(hits.rows, hits.rows) < wanted]
        if wanted == 0:
            return no_hits(np.float32)
        parts = []
        for start in range(0, len(values), MAX_QUERIES):
            block = values[start : start + MAX_QUERIES]
            projected = self.device.put(block)
            for run in runs_of(snapshot):
                search = BestSearch(
                    self.device, Format.of(layout), len(block), wanted, len(run), whole=whole, tuning=self.tuning
                )
                search.start(projected)
                for part in self.pieces.parts(run.pieces, column):
                    search.scan(part)
                positions, scores = self.device.get(search.positions), self.device.get(search.scores)
                found = positions >= 0
                rows = start + np.nonzero(found)[0]
                parts.append(hits_at(snapshot, rows, run.places_of(positions[found]), scores[found]))
        return Hits.merge(parts, descending=True, k=wanted)

    def _within(
        self,
        snapshot: Snapshot,
        layout: Layout,
        values: Float32,
        thresholds: Float32,
        *,
        column: str | None,
        whole: bool,
    ) -> Hits:
        parts = [no_hits(np.float32)]
        for start in range(0, len(values), MAX_QUERIES):
            block = slice(start, start + MAX_QUERIES)
            projected = self.device.put(values[block])
            for run in runs_of(snapshot):
                found = search_within(
                    self.device,
                    Format.of(layout),
                    projected,
                    thresholds[block],
                    self.pieces.parts(run.pieces, column),
                    max((len(piece) for piece, _, _ in run.pieces), default=0),
                    whole=whole,
                    tuning=self.tuning,
                )
                parts += [hits_at(snapshot, start + rows, run.places_of(here), scores) for rows, here, scores in found]
        return Hits.merge(parts, descending=True)


def hits_at(snapshot: Snapshot, rows: Int64, places: Int64, scores: Float32) -> Hits:
    """Hits of entries by their places in a snapshot."""
    return Hits(rows, places, snapshot.gather("ids", places), scores)


def runs_of(snapshot: Snapshot) -> Iterator[Run]:
    """The living segments in runs of ascending ids: one, but where ids were given out of order."""
    living = [(start, segment) for start, segment in zip(snapshot.starts, snapshot.segments, strict=False)]
    living = [(start, segment) for start, segment in living if segment.n_alive]
    living.sort(key=lambda pair: int(pair[1].ids[0]))
    runs: list[list[tuple[int, Segment]]] = []
    for start, segment in living:
        first = int(segment.ids[0])
        run = next((run for run in runs if int(run[-1][1].ids[-1]) < first), None)
        runs.append([(start, segment)]) if run is None else run.append((start, segment))
    for run in runs:
        placed: Placed = []
        bases, places, base = [], [], 0
        for start, segment in run:
            for piece in pieces_of(segment):
                alive = segment.alive
                placed.append((piece, alive if alive is None else alive[piece.rows.start // 8 :], base))
                bases.append(base)
                places.append(int(start) + piece.rows.start)
                base += len(piece)
        yield Run(placed, np.array(bases, np.int64), np.array(places, np.int64))


def sign_values(queries: Queries, layout: Layout) -> tuple[Float32, Int64]:
    """Queries as +-1, zero outside of their masks, and the number of signs that each compares."""
    signs = np.where(queries.projected >= 0, np.float32(1), np.float32(-1))
    if queries.masks is None:
        return signs, np.full(len(queries), layout.n_bits)
    kept = np.unpackbits(queries.masks, axis=1, count=layout.n_pool, bitorder="little")
    return signs * kept.astype(np.float32), kept.sum(axis=1, dtype=np.int64)


def counted(hits: Hits, compared: Int64) -> Hits:
    """Hits with mismatches for sums of agreeing less differing signs."""
    values = ((compared[hits.rows] - hits.values.astype(np.int64)) // 2).astype(np.int32)
    return Hits(hits.rows, hits.places, hits.ids, values)


def no_hits(dtype: type) -> Hits:
    none = np.empty(0, np.int64)
    values: Array = np.empty(0, dtype)
    return Hits(none, none, none, values)
