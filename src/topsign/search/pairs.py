"""Pairs of entries that resemble each other, found by comparing their codes; equal codes are compared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy  # whose modules are loaded when they are first used

from .._arrays import Array, Bytes, Int64
from .._checks import check_count, check_false_alarm, check_real
from ..families import Null, Pairing, Recipe
from ..store.segments import Snapshot
from ..theory.tails import entry_level
from .engine import ENGINE, Hits

BLOCK_BYTES = 2**22  # codes that are read, or compared with all others, at a time


@dataclass(frozen=True, eq=False)
class EqualCodes:
    """Entries whose code equals that of an entry with a smaller id, the *first*; sorted by first, then by id."""

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
        rows = snapshot.living_rows
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

    def count(self, pairs: Hits) -> int:
        """Return the number of pairs that these pairs of first entries stand for."""
        mine, theirs = self.sizes(pairs.queries), self.sizes(pairs.ids)
        same = pairs.queries == pairs.ids
        return int((np.where(same, mine * (mine - 1) // 2, mine * theirs)).sum())

    def expand(self, pairs: Hits) -> Hits:
        """Return all pairs that these pairs of first entries stand for, with the smaller id as the query."""
        if not len(self):
            return pairs
        mine, theirs = self.sizes(pairs.queries), self.sizes(pairs.ids)
        each = np.repeat(np.arange(len(pairs)), mine * theirs)
        number = np.arange(len(each)) - np.repeat(np.cumsum(mine * theirs) - mine * theirs, mine * theirs)
        one = self._member(pairs.queries[each], number // theirs[each])
        other = self._member(pairs.ids[each], number % theirs[each])
        kept = (pairs.queries[each] != pairs.ids[each]) | (one < other)
        one, other = one[kept], other[kept]
        whole = pairs[each[kept]]
        return replace(whole, queries=np.minimum(one, other), ids=np.maximum(one, other))

    def sizes(self, ids: Int64) -> Int64:
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


BLOCK_PAIRS = 2**22  # pairs that a block may find if all entries are similar to each other
MIN_ROWS = 64  # entries of a block in a large index, in which not all entries are similar


@dataclass(frozen=True, eq=False)
class PairLimit:
    """Which pairs are wanted: those that are similar enough, or the ``k`` most similar to every entry."""

    pairing: Pairing
    bound: float  # least value of a pair
    k: int | None

    @classmethod
    def checked(
        cls,
        recipe: Recipe,
        n_entries: int,
        *,
        false_alarm: float | None,
        threshold: float | None,
        k: int | None,
        null: Null | None = None,
    ) -> PairLimit:
        """Return the limit for ``n_entries`` entries; exactly one of the three options must be given.

        A calibrated ``null`` of searches replaces that of the family: each entry is a search among the others.
        """
        given = {"false_alarm": false_alarm, "threshold": threshold, "k": k}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError("give exactly one of false_alarm, threshold and k, got " + (" and ".join(named) or "none"))
        pairing = recipe.pairing()
        if k is not None:
            return cls(pairing, -np.inf, check_count(k, "k"))
        if threshold is not None:
            return cls(pairing, pairing.bound(check_real(threshold, "threshold", minimum=-1, maximum=1)), None)
        if null is not None:
            rate = check_false_alarm(false_alarm) / max(1, n_entries)
            return cls(pairing, null.search_threshold(rate, n_entries), None)
        level = entry_level(check_false_alarm(false_alarm), n_entries * (n_entries - 1) // 2)
        return cls(pairing, pairing.null_bound(level), None)

    def kept(self, ids: Int64, hits: Hits, equal: EqualCodes) -> Hits:
        """Return hits of entries with these ids, which replace the positions: each pair once, or the k best others.

        An entry that stands for several with equal codes is kept as a pair with itself.
        """
        hits = replace(hits, queries=ids[hits.queries])
        if self.k is None:
            repeated = (hits.ids == hits.queries) & (equal.sizes(hits.ids) > 1)
            return hits[(hits.ids > hits.queries) | repeated]
        return Hits.merge([hits[hits.ids != hits.queries]], k=self.k)

    def join(self, parts: Iterable[Hits]) -> tuple[Int64, Int64, Array]:
        """Return the two ids and the value of all pairs, the most similar first, ties by ids."""
        whole = Hits.merge(parts)
        first, second, values = whole.queries, whole.ids, whole.values
        if self.k is not None:  # a pair may be near from both sides
            both = np.sort(np.stack([first, second]), axis=0)
            both, at = np.unique(both, axis=1, return_index=True)
            first, second, values = both[0], both[1], values[at]
        order = np.lexsort((second, first, -values))
        return first[order], second[order], values[order]


def compare_entries(
    blocks: Snapshot, snapshot: Snapshot, limit: PairLimit, equal: EqualCodes
) -> Iterator[tuple[int, Hits]]:
    """Compare each block of entries of one snapshot with those of another; yield its size and the pairs kept."""
    pairing = limit.pairing
    n_rows = max(1, BLOCK_BYTES // pairing.row_bytes)
    if limit.k is None:
        n_rows = min(n_rows, max(MIN_ROWS, BLOCK_PAIRS // max(1, len(snapshot))))
    for ids, codes in _blocks(blocks, n_rows):
        comparison = pairing.prepare(codes)
        if limit.k is None:  # each pair is found from its smaller id
            bounds = np.full(len(ids), limit.bound)
            living = (segment.living & (segment.ids >= ids[0]) for segment in snapshot.segments)
            later = np.concatenate([np.empty(0, bool), *living])
            hits = ENGINE.within(comparison, snapshot.where(later, gather=False), bounds)
        else:  # one of them is the entry itself
            hits = ENGINE.rank(comparison, snapshot, limit.k + 1)
        yield len(ids), limit.kept(ids, hits, equal)


def _blocks(snapshot: Snapshot, n_rows: int) -> Iterator[tuple[Int64, Bytes]]:
    """Yield ids, which ascend within a segment, and codes of the entries that are alive."""
    for segment in snapshot.segments:
        living = np.flatnonzero(segment.living)
        living = living if segment.is_ascending else living[np.argsort(segment.ids[living])]
        for start in range(0, len(living), n_rows):
            rows = living[start : start + n_rows]
            yield segment.ids[rows], segment.codes.rows(rows)


MAX_PAIRS = 10_000_000
"""Pairs that are listed unless the caller allows more."""

HELD_PAIRS = 2**22
"""Pairs held before those that connect no further entries are dropped."""


Progress = Callable[[int, int], None]
Reduced = TypeVar("Reduced")


class PairedEntries(Protocol):
    """Entries that are compared with each other, on this machine or on a cluster."""

    def __len__(self) -> int: ...
    def equal_codes(self, limit: PairLimit) -> EqualCodes:
        """Return entries with equal codes, of which :meth:`compared` compares only the first."""

    def compared(
        self, limit: PairLimit, equal: EqualCodes, reduce: Callable[[Iterable[Hits]], Reduced]
    ) -> Iterator[tuple[int, Reduced]]:
        """Compare each block of entries with all entries; yield its size and the reduced pairs."""

    def user_ids(self, ids: Int64) -> Any:
        """Convert internal ids to the user's ids."""


def find_pairs(
    entries: PairedEntries, limit: PairLimit, *, max_pairs: int | None, progress: Progress | None
) -> tuple[Int64, Int64, Array]:
    """Return ids and values of the pairs within the limit, the most similar first; ValueError if there are too many."""
    most = MAX_PAIRS if max_pairs is None else check_count(max_pairs, "max_pairs", minimum=0)
    if limit.k is not None:
        least = len(entries) * min(limit.k, max(0, len(entries) - 1)) // 2
        if least > most:
            _raise_too_many(f"at least {least:,}", most)
    equal = entries.equal_codes(limit)
    allowed = None if limit.k is not None else most
    listed = partial(_list_pairs, allowed, equal)
    parts, count = list[Hits](), 0
    for hits, n_pairs in _compared(entries, limit, equal, listed, progress):
        count += n_pairs
        if allowed is None or count <= allowed:
            parts.append(hits)
        else:
            parts.clear()  # only the number of pairs is wanted now
    if count > most and limit.k is None:
        _raise_too_many(f"{count:,}", most)
    return limit.join(equal.expand(part) for part in parts)


def find_groups(entries: PairedEntries, limit: PairLimit, *, progress: Progress | None) -> list[list[object]]:
    """Return the ids of entries that pairs connect, without a list of the pairs."""
    equal = entries.equal_codes(limit)
    held = _connecting(_compared(entries, limit, equal, _linked, progress))
    same = held[0] == held[1]
    alike = np.isin(equal.first, held[0, same])  # entries with equal codes, which are pairs too
    ids, labels = _connected(np.concatenate([held[:, ~same], [equal.first[alike], equal.ids[alike]]], axis=1))
    order = np.argsort(labels, kind="stable")
    named = entries.user_ids(ids[order]).tolist()
    ends = np.cumsum(np.bincount(labels)) if len(labels) else np.empty(0, np.int64)
    groups = [sorted(named[start:end]) for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False)]
    return sorted(groups, key=lambda group: (-len(group), group))


def _compared(
    entries: PairedEntries,
    limit: PairLimit,
    equal: EqualCodes,
    reduce: Callable[[Iterable[Hits]], Reduced],
    progress: Progress | None,
) -> Iterator[Reduced]:
    done = len(equal)
    for n_compared, found in entries.compared(limit, equal, reduce):
        done += n_compared
        if progress is not None:
            progress(done, len(entries))
        yield found


def _list_pairs(most: int | None, equal: EqualCodes, parts: Iterable[Hits]) -> tuple[Hits, int]:
    """Return pairs and their number; if there are more than ``most``, only the number is wanted."""
    kept, count = list[Hits](), 0
    for hits in parts:
        count += equal.count(hits)
        if most is None or count <= most:
            kept.append(hits)
        else:
            kept.clear()
    return kept[0] if len(kept) == 1 else Hits.merge(kept), count


def _linked(parts: Iterable[Hits]) -> Int64:
    """Return pairs of ids that connect the same entries, (2, n_pairs)."""
    return _connecting(np.stack([hits.queries, hits.ids]) for hits in parts)


def _connecting(parts: Iterable[Int64]) -> Int64:
    """Return pairs that connect the same entries as those of all parts, in bounded memory."""
    held, added, n_added = np.empty((2, 0), np.int64), list[Int64](), 0
    for part in parts:
        added.append(part)
        n_added += part.shape[1]
        if n_added > HELD_PAIRS:
            held, added, n_added = _spanning(np.concatenate([held, *added], axis=1)), [], 0
    return np.concatenate([held, *added], axis=1)


def _raise_too_many(count: str, most: int) -> None:
    raise ValueError(
        f"there are {count} pairs, more than max_pairs={most}; raise the threshold, list them with a larger max_pairs "
        "(about 40 bytes each), or ask for groups(), which lists none"
    )


def _connected(pairs: Int64) -> tuple[Int64, Int64]:
    """Return the ids in pairs, ascending, and the number of the group of each."""
    ids, at = np.unique(pairs, return_inverse=True)
    at = at.reshape(pairs.shape)
    graph = scipy.sparse.coo_array((np.ones(pairs.shape[1], np.int8), (at[0], at[1])), shape=(len(ids), len(ids)))
    return ids, scipy.sparse.csgraph.connected_components(graph, False)[1].astype(np.int64)


def _spanning(pairs: Int64) -> Int64:
    """Return fewer pairs than there are entries, which connect the same ones; those of entries with themselves stay."""
    same = pairs[0] == pairs[1]
    ids, labels = _connected(pairs[:, ~same])
    _, first = np.unique(labels, return_index=True)
    leaders = ids[first[labels]]
    return np.concatenate([np.stack([leaders, ids])[:, leaders != ids], pairs[:, same]], axis=1)
