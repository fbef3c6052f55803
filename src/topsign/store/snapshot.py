"""Snapshots: immutable lists of segments that searches read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import Array, Booleans, Float32, Int64
from .._checks import raise_unknown_ids
from .._lazy import lazy
from . import segments as limits
from .extras import unpack_originals
from .segments import Columns, Segment, cut_segment, gather_segment, merge_segments
from .texts import Note, Texts, hash_text_ids, parse_notes

SPARSE = 8
"""Entries are gathered before a scan if fewer than one in this many takes part."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Immutable list of segments. Methods that change entries return a new snapshot."""

    segments: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Number of live entries."""
        return self._n_alive

    @lazy
    def _n_alive(self) -> int:
        return sum(segment.n_alive for segment in self.segments)

    @lazy
    def starts(self) -> Int64:
        """First row of each segment."""
        return np.cumsum([0, *(len(segment) for segment in self.segments)], dtype=np.int64)

    @lazy
    def derived(self) -> dict[str, Any]:
        """Cache of values computed from the segments."""
        return {}

    @property
    def ids(self) -> Int64:
        """Ids of the live entries, ascending."""
        parts = [segment.ids if segment.alive is None else segment.ids[segment.living] for segment in self.segments]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def locate(self, ids: Int64) -> Int64:
        """Return the row of each id, or -1."""
        rows = np.full(len(ids), -1, np.int64)
        for start, segment in zip(self.starts, self.segments, strict=False):
            positions = segment.position(ids)
            rows = np.where(positions >= 0, start + positions, rows)
        return rows

    def rows_with(self, ids: Int64, name: str = "ids") -> Int64:
        """Return the row of each id; raise ValueError for an unknown one."""
        rows = self.locate(ids)
        if (rows < 0).any():
            raise_unknown_ids(ids[rows < 0], name)
        return rows

    @property
    def has_text_ids(self) -> bool | None:
        """Whether entries have text ids; None without entries."""
        return next((segment.columns.has_text_ids for segment in self.segments), None)

    def find_text_ids(self, texts: Sequence[bytes]) -> Int64:
        """Return the row of each text id, or -1."""
        rows, hashes = np.full(len(texts), -1, np.int64), hash_text_ids(texts)
        for start, segment in zip(self.starts, self.segments, strict=False):
            stored = segment.columns.text_ids
            for position, row in stored.find(texts, hashes) if stored is not None else []:
                if segment.alive is None or segment.alive[row >> 3] >> (row & 7) & 1:
                    rows[position] = start + row
        return rows

    def text_ids(self, rows: Int64) -> list[str]:
        """Return the text ids of the entries at these rows."""
        return [text.decode() for text in self._texts_at(rows, lambda columns: columns.text_ids)]

    def gather(self, name: str, rows: Int64) -> Array:
        """Return ids, codes or another column of the entries at these rows; codes as rows, (n, code_bytes)."""
        return self._gather((name,), rows)[0]

    def _gather(self, names: tuple[str, ...], rows: Int64) -> list[Array]:
        """Return several columns of the entries at these rows."""
        if not self.segments:
            return [np.empty(0, np.int64) for _ in names]
        if len(self.segments) == 1 or not rows.size:
            return [self.segments[0].columns.rows(name, rows) for name in names]
        found: list[Array] = []
        for columns, chosen, positions in self._columns_at(rows):
            values = [columns.rows(name, positions) for name in names]
            found = found or [np.empty((len(rows), *one.shape[1:]), one.dtype) for one in values]
            for out, one in zip(found, values, strict=True):
                out[chosen] = one
        return found

    def _columns_at(self, rows: Int64) -> Iterator[tuple[Columns, Int64, Int64]]:
        """Yield the columns of each segment that has some of these rows, with their indices and their positions."""
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        ends = np.searchsorted(ascending, self.starts)
        for owner in np.flatnonzero(np.diff(ends)).tolist():
            part = slice(ends[owner], ends[owner + 1])
            yield self.segments[owner].columns, order[part], ascending[part] - self.starts[owner]

    def _texts_at(self, rows: Int64, of: Callable[[Columns], Texts | None]) -> list[bytes]:
        """Return texts of the entries at these rows, empty for segments without."""
        found = [b""] * len(rows)
        for columns, chosen, positions in self._columns_at(rows):
            if (stored := of(columns)) is not None:
                for at, text in zip(chosen, stored.texts(positions), strict=True):
                    found[at] = text
        return found

    @lazy
    def has_originals(self) -> bool:
        """Whether all entries have originals."""
        return bool(self.segments) and all("originals" in one.columns.extra_names for one in self.segments)

    def signals(self, rows: Int64) -> Float32 | None:
        """Return the originals of the entries at these rows, or None."""
        if not self.has_originals:
            return None
        return unpack_originals(*self._gather(("originals", "original_scales"), rows))

    def notes(self, rows: Int64) -> list[Note]:
        """Return the metadata of the entries at these rows."""
        return parse_notes(self.texts(rows))

    def texts(self, rows: Int64) -> list[bytes]:
        """Return the metadata of the entries at these rows as JSON texts, empty without metadata."""
        return self._texts_at(rows, lambda columns: columns.metadata)

    def among(self, rows: Int64) -> Snapshot:
        """Return the segments with only the entries at these rows alive."""
        return self.where(self.mask(rows))

    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot:
        """Return a snapshot of randomly chosen live entries without reading ids."""
        return self.among(self.draw(n_entries, rng))

    def draw(self, n_entries: int, rng: np.random.Generator) -> Int64:
        """Return the rows of randomly chosen live entries."""
        rows: Int64 | int = int(self.starts[-1])
        if any(segment.alive is not None for segment in self.segments):
            rows = np.flatnonzero(np.concatenate([segment.living for segment in self.segments]))
        return rng.choice(rows, n_entries, replace=False)

    def last(self, n_entries: int) -> Int64:
        """Return the rows of the live entries with the largest ids in the newest segments."""
        found: list[Int64] = []
        for start, segment in zip(self.starts[-2::-1], reversed(self.segments), strict=True):
            left = n_entries - sum(map(len, found))
            if left <= 0:
                break
            found.append(start + np.flatnonzero(segment.living)[-left:])
        return np.concatenate([np.empty(0, np.int64), *reversed(found)])

    def mask(self, rows: Int64) -> Booleans:
        """Return a mask of these rows."""
        kept = np.zeros(self.starts[-1], bool)
        kept[rows] = True
        return kept

    def where(self, kept: Booleans) -> Snapshot:
        """Return a snapshot of only these live entries; small subsets are gathered into a new segment."""
        chosen = [segment.where(part) for segment, part in self._split(kept)]
        if SPARSE * int(kept.sum()) > len(kept):
            return Snapshot(tuple(chosen))
        return Snapshot(tuple(gather_segment(segment) for segment in chosen if segment.n_alive))

    def add(self, segments: Iterable[Segment], *, limit: int | None = None) -> Snapshot:
        """Return a snapshot with new segments; small ones are merged in tiers, so their number stays logarithmic."""
        result, limit = list(self.segments), limit or limits.MERGED_ENTRIES
        for segment in segments:
            result.append(segment)
            while len(result) > 1 and _worth_merging(result[-2], result[-1], limit):
                result[-2:] = [merge_segments(result[-2:])]
        return Snapshot(tuple(result))

    def remove(self, rows: Int64, *, rewrite: bool = True) -> Snapshot:
        """Return a snapshot without these rows; mostly removed segments are rewritten, empty ones dropped."""
        result = []
        for segment, part in self._split(self.mask(rows)):
            left = segment.where(segment.living & ~part) if part.any() else segment
            if rewrite and left.n_alive and 2 * left.n_alive < len(left):
                left = merge_segments([left])
            result += [left] if left.n_alive else []
        return Snapshot(tuple(result))

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> Snapshot:
        """Return a snapshot with the metadata at these rows replaced."""
        order = np.argsort(rows)
        owners = np.searchsorted(self.starts, rows[order], side="right") - 1
        result = list(self.segments)
        for owner in np.unique(owners):
            chosen, segment = order[owners == owner], result[owner]
            columns = segment.columns.with_metadata(rows[chosen] - self.starts[owner], [texts[at] for at in chosen])
            result[owner] = replace(segment, columns=columns)
        return Snapshot(tuple(result))

    def groups(self, *, limit: int | None = None) -> list[slice]:
        """Return runs of adjacent segments, each as long as fits into one segment."""
        found, start = [], 0
        while start < len(self.segments):
            end = start + 1
            while end < len(self.segments) and fit_together(self.segments[start : end + 1], limit):
                end += 1
            found.append(slice(start, end))
            start = end
        return found

    def compacted(self, *, limit: int | None = None) -> Snapshot | None:
        """Merge some adjacent segments towards full segments without removed entries; return None when done."""
        for group in self.groups(limit=limit):
            together = self.segments[group]
            if len(together) > 1 or together[0].alive is not None:
                return Snapshot((*self.segments[: group.start], merge_segments(together), *self.segments[group.stop :]))
        return None

    def tidied(self, *, n_bytes: int, share: float, limit: int) -> Snapshot | None:
        """Rewrite the segment with the largest share of removed entries; return None when few enough are left.

        The segment is merged with a neighbour or divided, so that results have at most ``limit`` entries. Few enough
        means at most ``n_bytes`` or this share of all bytes, and no segment that consists mostly of removed entries.
        """
        shares = np.array([1 - segment.n_alive / len(segment) for segment in self.segments])
        sizes = np.array([segment.nbytes for segment in self.segments])
        if not len(sizes) or (shares.max() <= 1 / 2 and shares @ sizes <= max(n_bytes, share * sizes.sum())):
            return None
        most = int(np.argmax(shares))
        pairs = [slice(max(0, most - 1), most + 1), slice(most, most + 2)]
        chosen = next((pair for pair in pairs if fit_together(self.segments[pair], limit)), slice(most, most + 1))
        merged = cut_segment(merge_segments(self.segments[chosen]), limit)
        return Snapshot((*self.segments[: chosen.start], *merged, *self.segments[chosen.stop :]))

    def _split(self, mask: Booleans) -> list[tuple[Segment, Booleans]]:
        """Return each segment with its part of a mask over all rows."""
        return list(zip(self.segments, np.split(mask, self.starts[1:-1]), strict=True)) if self.segments else []


def _worth_merging(before: Segment, newest: Segment, limit: int) -> bool:
    return 2 * newest.n_alive >= before.n_alive and fit_together((before, newest), limit)


def fit_together(together: Sequence[Segment], limit: int | None) -> bool:
    """Return whether these segments fit into one by number of entries and bytes of metadata."""
    n_texts = sum(segment.columns.metadata_bytes for segment in together)
    n_alive = sum(segment.n_alive for segment in together)
    return n_alive <= (limit or limits.MERGED_ENTRIES) and n_texts <= limits.METADATA_BYTES
