"""Immutable segments of entries, and snapshots of them that a search reads from beginning to end."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.interface import Bytes, Float32, Int64

MERGED_ENTRIES = 65_536
"""Segments grow to this size by merging and no further, so that adding never copies much at once."""

COLUMNS = ("ids", "codes", "norms", "scales", "weights")

Scan = Callable[["Segment", int], tuple[Int64, npt.NDArray[Any]]]
RangeScan = Callable[["Segment"], tuple[Int64, Int64, npt.NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class Segment:
    """Entries in ascending order of id, never changed; of equal scores the lower position is the lower id."""

    ids: Int64
    codes: Bytes
    norms: Float32 | None
    scales: Float32 | None
    weights: Float32 | None  # scales / norms: what a correlation is weighted with
    alive: Bytes | None = None  # packed bitmap of the entries that take part; None when all do

    @cached_property
    def n_alive(self) -> int:
        return len(self.ids) if self.alive is None else int(np.bitwise_count(self.alive).sum())

    @property
    def nbytes(self) -> int:
        arrays = (self.ids, self.codes, self.norms, self.scales, self.weights, self.alive)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def living(self) -> npt.NDArray[np.bool_]:
        """Whether each entry takes part."""
        if self.alive is None:
            return np.ones(len(self.ids), bool)
        return np.unpackbits(self.alive, count=len(self.ids), bitorder="little").view(bool)

    def where(self, living: npt.NDArray[np.bool_]) -> Segment:
        """The same entries, of which only these take part."""
        return replace(self, alive=None if living.all() else np.packbits(living, bitorder="little"))

    def position(self, ids: Int64) -> Int64:
        """Where each id stands; -1 where it is not, or takes no part."""
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        found = self.ids[places] == ids
        if self.alive is not None:
            found &= (self.alive[places >> 3] >> (places & 7) & 1).astype(bool)
        return np.where(found, places, -1)


def make_segments(ids: Int64, codes: Bytes, norms: Float32 | None, scales: Float32 | None) -> list[Segment]:
    """Segments of new entries, sorted by id; reorders the arrays in place, which become theirs.

    Ascending ids give one segment. Others are sorted part by part, so that no second copy is held.
    """
    weights = None if norms is None or scales is None else scales / norms
    whole = Segment(ids, codes, norms, scales, weights)
    if (np.diff(ids) > 0).all():
        return [whole] if len(ids) else []
    parts = [_part(whole, slice(start, start + MERGED_ENTRIES)) for start in range(0, len(ids), MERGED_ENTRIES)]
    for part in parts:
        order = np.argsort(part.ids)
        for name in COLUMNS:
            column = getattr(part, name)
            if column is not None:
                column[:] = column[order]
    return parts


def merge_segments(segments: Iterable[Segment]) -> Segment:
    """One segment of the entries that are alive."""
    kept = [(segment, np.flatnonzero(segment.living)) for segment in segments]
    order = np.argsort(np.concatenate([segment.ids[rows] for segment, rows in kept]))

    places = np.argsort(order)

    def joined(name: str) -> Any:
        first = getattr(kept[0][0], name)
        if first is None:
            return None
        out, start = _pages((len(places), *first.shape[1:]), first.dtype), 0
        for segment, rows in kept:
            out[places[start : start + len(rows)]] = getattr(segment, name)[rows]
            start += len(rows)
        return out

    return Segment(**{name: joined(name) for name in COLUMNS})


def _pages(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An empty array in pages of its own: once freed they are the system's again, where the heap would keep them."""
    pages = mmap.mmap(-1, max(1, math.prod(shape) * dtype.itemsize))
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def _part(segment: Segment, rows: slice) -> Segment:
    def cut(column: Any) -> Any:
        return None if column is None else column[rows]

    return Segment(**{name: cut(getattr(segment, name)) for name in COLUMNS})


@dataclass(frozen=True, eq=False)
class Hits:
    """Entries found: by falling closeness within a query, ties by id, queries in order."""

    rows: Int64  # query
    places: Int64  # entry, counted through the segments of the snapshot
    values: npt.NDArray[Any]  # mismatches or scores, as the kernels gave them


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The segments of one moment. Methods that change something return another snapshot."""

    segments: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Entries alive."""
        return sum(segment.n_alive for segment in self.segments)

    @cached_property
    def starts(self) -> Int64:
        """The place at which each segment begins."""
        return np.cumsum([0, *(len(segment.ids) for segment in self.segments)], dtype=np.int64)

    @property
    def ids(self) -> Int64:
        """Ids alive, ascending."""
        parts = [segment.ids if segment.alive is None else segment.ids[segment.living] for segment in self.segments]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def locate(self, ids: Int64) -> Int64:
        """The place of each id, -1 where there is none."""
        places = np.full(len(ids), -1, np.int64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            positions = segment.position(ids)
            places = np.where(positions >= 0, start + positions, places)
        return places

    def gather(self, name: str, places: Int64) -> npt.NDArray[Any]:
        """Ids, codes, norms, scales or weights of the entries at these places."""
        first = getattr(self.segments[0], name) if self.segments else np.empty(0, np.int64)
        out = np.empty((len(places), *first.shape[1:]), first.dtype)
        owners = np.searchsorted(self.starts, places, side="right") - 1
        for owner in np.unique(owners):
            chosen = owners == owner
            out[chosen] = getattr(self.segments[owner], name)[places[chosen] - self.starts[owner]]
        return out

    def among(self, places: Int64) -> Snapshot:
        """Only the entries at these places take part."""
        kept = np.zeros(self.starts[-1], bool)
        kept[places] = True
        return Snapshot(tuple(segment.where(part) for segment, part in self._split(kept)))

    def add(self, segments: Iterable[Segment]) -> Snapshot:
        """With new segments at the end; small ones are merged in tiers, so that their number stays logarithmic."""
        result = list(self.segments)
        for segment in segments:
            result.append(segment)
            while len(result) > 1 and _worth_merging(*result[-2:]):
                result[-2:] = [merge_segments(result[-2:])]
        return Snapshot(tuple(result))

    def remove(self, places: Int64) -> Snapshot:
        """Without the entries at these places; segments that are mostly removed are rewritten, or dropped."""
        removed = np.zeros(self.starts[-1], bool)
        removed[places] = True
        result = []
        for segment, part in self._split(removed):
            left = segment.where(segment.living & ~part) if part.any() else segment
            if 2 * left.n_alive < len(left.ids) and left.n_alive:
                left = merge_segments([left])
            result += [left] if left.n_alive else []
        return Snapshot(tuple(result))

    def nearest(self, scan: Scan, n_queries: int, k: int, *, descending: bool) -> Hits:
        """The k best entries of each query, or all where fewer are alive, merged from those of each segment."""
        places, ids = np.empty((2, n_queries, 0), np.int64)
        values: npt.NDArray[Any] | None = None
        for start, segment in zip(self.starts, self.segments, strict=False):
            if segment.n_alive:
                positions, found = scan(segment, min(k, segment.n_alive))
                places = np.hstack([places, start + positions])
                ids = np.hstack([ids, segment.ids[positions]])
                values = found if values is None else np.hstack([values, found])
                order = np.lexsort((ids, -values if descending else values))[:, :k]
                places, ids, values = (np.take_along_axis(part, order, axis=1) for part in (places, ids, values))
        values = np.empty((n_queries, 0)) if values is None else values
        return Hits(np.repeat(np.arange(n_queries), places.shape[1]), places.ravel(), values.ravel())

    def within(self, scan: RangeScan, n_queries: int, *, descending: bool) -> Hits:
        """Every entry that the scan of its segment finds."""
        rows, places, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
        for start, segment in zip(self.starts, self.segments, strict=False):
            starts, positions, found = scan(segment)
            rows.append(np.repeat(np.arange(n_queries), np.diff(starts)))
            places.append(start + positions)
            values.append(found)
        flat = np.concatenate(values) if values else np.empty(0)
        hits = Hits(np.concatenate(rows), np.concatenate(places), flat)
        ids = self.gather("ids", hits.places)
        order = np.lexsort((ids, -flat if descending else flat, hits.rows))
        return Hits(hits.rows[order], hits.places[order], flat[order])

    def _split(self, mask: npt.NDArray[np.bool_]) -> list[tuple[Segment, npt.NDArray[np.bool_]]]:
        """Each segment with its part of a mask over all places."""
        return list(zip(self.segments, np.split(mask, self.starts[1:-1]), strict=True)) if self.segments else []


def _worth_merging(before: Segment, newest: Segment) -> bool:
    return 2 * newest.n_alive >= before.n_alive and before.n_alive + newest.n_alive <= MERGED_ENTRIES
