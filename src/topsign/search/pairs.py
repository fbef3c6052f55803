"""Pairs: entries of one index that resemble each other, found by comparing their codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._checks import check_count, check_false_alarm, check_real
from ..families import Pairing, Recipe
from ..store import Snapshot
from .engine import living_ranges, rank_ranges, within_ranges
from .equal_codes import EqualCodes
from .hits import Hits

BLOCK_BYTES = 2**22  # codes that are compared with all others at a time, as they are held for it
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
        cls, recipe: Recipe, n_entries: int, *, false_alarm: float | None, threshold: float | None, k: int | None
    ) -> PairLimit:
        """Return the limit for ``n_entries`` entries; exactly one of the three options must be given."""
        given = {"false_alarm": false_alarm, "threshold": threshold, "k": k}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError("give exactly one of false_alarm, threshold and k, got " + (" and ".join(named) or "none"))
        pairing = recipe.pairing()
        if k is not None:
            return cls(pairing, -np.inf, check_count(k, "k"))
        if threshold is not None:
            return cls(pairing, pairing.bound(check_real(threshold, "threshold", minimum=-1, maximum=1)), None)
        n_pairs = max(1, n_entries * (n_entries - 1) // 2)
        level = -np.expm1(np.log1p(-check_false_alarm(false_alarm)) / n_pairs)
        return cls(pairing, pairing.null_bound(float(level)), None)

    def kept(self, ids: Int64, hits: Hits, equal: EqualCodes) -> Hits:
        """Return hits of entries with these ids, which replace the positions: each pair once, or the k best others.

        An entry that stands for several with equal codes is kept as a pair with itself.
        """
        hits = replace(hits, queries=ids[hits.queries])
        if self.k is None:
            repeated = (hits.ids == hits.queries) & equal.stands_for_several(hits.ids)
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
    blocks: Snapshot, snapshot: Snapshot, limit: PairLimit, equal: EqualCodes, n_threads: int
) -> Iterator[tuple[int, Hits]]:
    """Compare each block of entries of one snapshot with those of another; yield its size and the pairs kept."""
    pairing = limit.pairing
    n_rows = max(1, BLOCK_BYTES // pairing.row_bytes)
    if limit.k is None:
        n_rows = min(n_rows, max(MIN_ROWS, BLOCK_PAIRS // max(1, len(snapshot))))
    for ids, codes in _blocks(blocks, n_rows):
        comparison = pairing.prepare(codes, n_threads=n_threads)
        if limit.k is None:  # each pair is found from its smaller id
            bounds = np.full(len(ids), limit.bound)
            ranges = living_ranges(snapshot, first_id=int(ids[0]))
            hits = within_ranges(comparison, snapshot, ranges, bounds, n_threads)
        else:  # one of them is the entry itself
            most = min(limit.k + 1, len(snapshot))
            hits = rank_ranges(comparison, snapshot, living_ranges(snapshot), most, n_threads)
        yield len(ids), limit.kept(ids, hits, equal)


def _blocks(snapshot: Snapshot, n_rows: int) -> Iterator[tuple[Int64, Bytes]]:
    """Yield ids, which ascend, and codes of the entries that are alive."""
    for segment in snapshot.segments:
        living = np.flatnonzero(segment.living)
        for start in range(0, len(living), n_rows):
            rows = living[start : start + n_rows]
            yield segment.ids[rows], segment.codes.rows(rows)
