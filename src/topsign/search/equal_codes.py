"""Entries with equal codes: one of them is compared with others, and its pairs are those of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from .._arrays import Array, Booleans, Bytes, Int64
from ..store import Snapshot
from .hits import Hits

BLOCK_BYTES = 2**22  # codes that are read at a time


@dataclass(frozen=True, eq=False)
class EqualCodes:
    """Entries whose code an entry with a smaller id has, the *first*; sorted by first, then by id."""

    ids: Int64
    first: Int64

    @classmethod
    def none(cls) -> EqualCodes:
        """Return no entries."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def find(cls, snapshot: Snapshot) -> EqualCodes:
        """Return the entries with equal codes, in 24 bytes per entry.

        Codes with equal hashes are compared. Entries are missed only if different codes have the same hash, which
        costs time but changes no pairs.
        """
        rows = np.flatnonzero(np.concatenate([np.empty(0, bool), *(segment.living for segment in snapshot.segments)]))
        if not rows.size:
            return cls.none()
        n_rows = max(1, BLOCK_BYTES // (8 + snapshot.gather("codes", rows[:1]).nbytes))
        blocks = [slice(start, start + n_rows) for start in range(0, len(rows), n_rows)]
        hashes = np.concatenate([_hashes(snapshot.gather("codes", rows[block])) for block in blocks])
        order = np.lexsort((snapshot.gather("ids", rows), hashes))
        rows, hashes = rows[order], hashes[order]
        leads = np.concatenate([[True], hashes[1:] != hashes[:-1]])
        leaders = rows[np.flatnonzero(leads)[np.cumsum(leads) - 1]]
        rows, leaders = rows[~leads], leaders[~leads]
        same = np.zeros(len(rows), bool)
        for start in range(0, len(rows), n_rows):
            part = slice(start, start + n_rows)
            mine, theirs = snapshot.gather("codes", rows[part]), snapshot.gather("codes", leaders[part])
            same[part] = (mine == theirs).all(axis=1)
        ids, first = snapshot.gather("ids", rows[same]), snapshot.gather("ids", leaders[same])
        order = np.lexsort((ids, first))
        return cls(ids[order], first[order])

    @classmethod
    def joined(cls, parts: Iterable[EqualCodes]) -> EqualCodes:
        """Return the entries of all parts, which have different firsts: equal codes in two parts stay apart."""
        parts = [cls.none(), *parts]
        ids, first = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "first"))
        order = np.lexsort((ids, first))
        return cls(ids[order], first[order])

    def __len__(self) -> int:
        return len(self.ids)

    def left_out(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without the entries that another stands for."""
        rows = snapshot.locate(self.ids)
        return snapshot.remove(rows[rows >= 0]) if (rows >= 0).any() else snapshot

    def stands_for_several(self, ids: Int64) -> Booleans:
        """Return whether each entry is the first of several."""
        return self._sizes(ids) > 1

    def count(self, pairs: Hits) -> int:
        """Return the number of pairs that these pairs of first entries stand for."""
        mine, theirs = self._sizes(pairs.queries), self._sizes(pairs.ids)
        same = pairs.queries == pairs.ids
        return int((np.where(same, mine * (mine - 1) // 2, mine * theirs)).sum())

    def expand(self, pairs: Hits) -> Hits:
        """Return all pairs that these pairs of first entries stand for, with the smaller id as the query."""
        if not len(self):
            return pairs
        mine, theirs = self._sizes(pairs.queries), self._sizes(pairs.ids)
        each = np.repeat(np.arange(len(pairs)), mine * theirs)
        number = np.arange(len(each)) - np.repeat(np.cumsum(mine * theirs) - mine * theirs, mine * theirs)
        one = self._member(pairs.queries[each], number // theirs[each])
        other = self._member(pairs.ids[each], number % theirs[each])
        kept = (pairs.queries[each] != pairs.ids[each]) | (one < other)
        one, other = one[kept], other[kept]
        whole = pairs[each[kept]]
        return replace(whole, queries=np.minimum(one, other), ids=np.maximum(one, other))

    def _sizes(self, ids: Int64) -> Int64:
        """Return how many entries have the code of each entry that is a first or has a code of its own."""
        last = np.searchsorted(self.first, ids, side="right")
        return np.asarray(1 + last - np.searchsorted(self.first, ids), np.int64)

    def _member(self, first: Int64, number: Int64) -> Int64:
        """Return the entries with these numbers among those with the codes of ``first``, which has number 0."""
        at = np.searchsorted(self.first, first) + number - 1
        return np.where(number == 0, first, self.ids[np.minimum(np.maximum(at, 0), len(self.ids) - 1)])


def _hashes(codes: Bytes) -> Array:
    """Return a hash of 64 bits of each code."""
    padded = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), np.uint8)
    padded[:, : codes.shape[1]] = codes
    hashes = np.full(len(codes), 0xCBF29CE484222325, np.uint64)
    for word in padded.view(np.uint64).T:
        hashes = (hashes ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes
