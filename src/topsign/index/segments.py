"""Immutable segments of entries, and snapshots of them that a search reads from beginning to end."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Int64
from .metadata import Metadata, Note

MERGED_ENTRIES = 65_536
"""Segments grow to this size by merging and no further, so that adding never copies much at once."""

COLUMNS = ("ids", "codes", "norms", "scales", "weights")

Scan = Callable[["Segment", int], tuple[Int64, npt.NDArray[Any]]]
RangeScan = Callable[["Segment"], tuple[Int64, Int64, npt.NDArray[Any]]]


class Columns(Protocol):
    """What entries consist of, in ascending order of id; of equal scores the lower position is the lower id."""

    @property
    def ids(self) -> Int64: ...
    @property
    def codes(self) -> Bytes: ...
    @property
    def norms(self) -> Float32 | None: ...
    @property
    def scales(self) -> Float32 | None: ...
    @property
    def weights(self) -> Float32 | None:
        """scales / norms: what a correlation is weighted with"""

    @property
    def metadata(self) -> Metadata | None: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Arrays:
    """Columns in memory."""

    ids: Int64
    codes: Bytes
    norms: Float32 | None
    scales: Float32 | None
    weights: Float32 | None
    metadata: Metadata | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        held = (self.ids, self.codes, self.norms, self.scales, self.weights, self.metadata)
        return sum(array.nbytes for array in held if array is not None)


@dataclass(frozen=True, eq=False)
class Segment:
    """Entries that are never changed, and which of them take part."""

    columns: Columns
    alive: Bytes | None = None  # packed bitmap of the entries that take part; None when all do

    def __len__(self) -> int:
        """Entries, whether they take part or not."""
        return len(self.columns)

    @property
    def ids(self) -> Int64:
        return self.columns.ids

    @property
    def codes(self) -> Bytes:
        return self.columns.codes

    @property
    def norms(self) -> Float32 | None:
        return self.columns.norms

    @property
    def scales(self) -> Float32 | None:
        return self.columns.scales

    @property
    def weights(self) -> Float32 | None:
        return self.columns.weights

    @cached_property
    def n_alive(self) -> int:
        return len(self) if self.alive is None else int(np.bitwise_count(self.alive).sum())

    @property
    def nbytes(self) -> int:
        return self.columns.nbytes + (0 if self.alive is None else self.alive.nbytes)

    @property
    def living(self) -> npt.NDArray[np.bool_]:
        """Whether each entry takes part."""
        if self.alive is None:
            return np.ones(len(self), bool)
        return np.unpackbits(self.alive, count=len(self), bitorder="little").view(bool)

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


def make_segments(
    ids: Int64, codes: Bytes, norms: Float32 | None, scales: Float32 | None, texts: list[bytes] | None = None
) -> list[Segment]:
    """Segments of new entries, sorted by id; reorders the arrays in place, which become theirs.

    Ascending ids give one segment. Others are sorted part by part, so that no second copy is held.
    """
    weights = None if norms is None or scales is None else scales / norms
    whole = Arrays(ids, codes, norms, scales, weights)
    if (np.diff(ids) > 0).all():
        return [Segment(replace(whole, metadata=_metadata(texts)))] if len(ids) else []
    parts = []
    for start in range(0, len(ids), MERGED_ENTRIES):
        rows = slice(start, start + MERGED_ENTRIES)
        order = np.argsort(ids[rows])
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            column = getattr(whole, name)
            if column is not None:
                column[rows] = column[rows][order]
            columns[name] = None if column is None else column[rows]
        noted = _metadata(texts and [texts[start + row] for row in order])
        parts.append(Segment(Arrays(**columns, metadata=noted)))
    return parts


def merge_segments(segments: Iterable[Segment]) -> Segment:
    """One segment, in memory, of the entries that are alive."""
    kept = [(segment.columns, np.flatnonzero(segment.living)) for segment in segments]
    order = np.argsort(np.concatenate([columns.ids[rows] for columns, rows in kept]))

    places = np.argsort(order)

    def joined(name: str) -> Any:
        first = getattr(kept[0][0], name)
        if first is None:
            return None
        out, start = _pages((len(places), *first.shape[1:]), first.dtype), 0
        for columns, rows in kept:
            out[places[start : start + len(rows)]] = getattr(columns, name)[rows]
            start += len(rows)
        return out

    texts: list[bytes] | None = None
    if any(columns.metadata is not None for columns, _ in kept):
        parts = [columns.metadata.texts(rows) if columns.metadata else len(rows) * [b""] for columns, rows in kept]
        flat = [text for part in parts for text in part]
        texts = [flat[place] for place in order]
    return Segment(Arrays(**{name: joined(name) for name in COLUMNS}, metadata=_metadata(texts)))


def _pages(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An empty array in pages of its own: once freed they are the system's again, where the heap would keep them."""
    pages = mmap.mmap(-1, max(1, math.prod(shape) * dtype.itemsize))
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def _metadata(texts: list[bytes] | None) -> Metadata | None:
    return Metadata.of(texts) if texts and any(texts) else None


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
        return np.cumsum([0, *(len(segment) for segment in self.segments)], dtype=np.int64)

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
        owners = np.searchsorted(self.starts, places, side="right") - 1
        first = getattr(self.segments[owners.min(initial=0)], name) if self.segments else np.empty(0, np.int64)
        out = np.empty((len(places), *first.shape[1:]), first.dtype)
        for owner in np.unique(owners):
            chosen = owners == owner
            out[chosen] = getattr(self.segments[owner], name)[places[chosen] - self.starts[owner]]
        return out

    def notes(self, places: Int64) -> list[Note]:
        """Metadata of the entries at these places."""
        owners = np.searchsorted(self.starts, places, side="right") - 1
        found: list[Note] = [None] * len(places)
        for owner in np.unique(owners):
            metadata, chosen = self.segments[owner].columns.metadata, np.flatnonzero(owners == owner)
            if metadata is not None:
                for at, note in zip(chosen, metadata.notes(places[chosen] - self.starts[owner]), strict=True):
                    found[at] = note
        return found

    def among(self, places: Int64) -> Snapshot:
        """Only the entries at these places take part."""
        kept = np.zeros(self.starts[-1], bool)
        kept[places] = True
        return Snapshot(tuple(segment.where(part) for segment, part in self._split(kept)))

    def add(self, segments: Iterable[Segment], *, limit: int | None = None) -> Snapshot:
        """With new segments at the end; small ones are merged in tiers, so that their number stays logarithmic."""
        result, limit = list(self.segments), limit or MERGED_ENTRIES
        for segment in segments:
            result.append(segment)
            while len(result) > 1 and _worth_merging(result[-2], result[-1], limit):
                result[-2:] = [merge_segments(result[-2:])]
        return Snapshot(tuple(result))

    def remove(self, places: Int64) -> Snapshot:
        """Without the entries at these places; segments that are mostly removed are rewritten, or dropped."""
        removed = np.zeros(self.starts[-1], bool)
        removed[places] = True
        result = []
        for segment, part in self._split(removed):
            left = segment.where(segment.living & ~part) if part.any() else segment
            if 2 * left.n_alive < len(left) and left.n_alive:
                left = merge_segments([left])
            result += [left] if left.n_alive else []
        return Snapshot(tuple(result))

    def compacted(self, *, limit: int | None = None) -> Snapshot | None:
        """One step towards no removed entries and full segments: some neighbours merged; None when there is no more."""
        segments = self.segments
        start = 0
        while start < len(segments):
            end, n_alive = start + 1, segments[start].n_alive
            while end < len(segments) and n_alive + segments[end].n_alive <= (limit or MERGED_ENTRIES):
                n_alive += segments[end].n_alive
                end += 1
            if end > start + 1 or segments[start].alive is not None:
                return Snapshot((*segments[:start], merge_segments(segments[start:end]), *segments[end:]))
            start = end
        return None

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


def _worth_merging(before: Segment, newest: Segment, limit: int) -> bool:
    return 2 * newest.n_alive >= before.n_alive and before.n_alive + newest.n_alive <= limit
