"""Pairs and groups of the entries of an index, from the comparison of blocks of entries with all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import scipy  # whose modules are loaded when they are first used

from .._arrays import Int64
from .._checks import check_count
from ..search import EqualCodes, Hits, PairLimit, Progress
from .entry_set import EntrySet, Reduced
from .results import Pairs

MAX_PAIRS = 10_000_000
"""Pairs that are listed unless the caller allows more."""

HELD_PAIRS = 2**22
"""Pairs held before those that connect no further entries are dropped."""


def find_pairs(
    entries: EntrySet, limit: PairLimit, *, max_pairs: int | None, n_threads: int | None, progress: Progress | None
) -> Pairs:
    """Return the pairs within the limit; ValueError if there are more than ``max_pairs``."""
    most = MAX_PAIRS if max_pairs is None else check_count(max_pairs, "max_pairs", minimum=0)
    if limit.k is not None:
        least = len(entries) * min(limit.k, max(0, len(entries) - 1)) // 2
        if least > most:
            _raise_too_many(f"at least {least:,}", most)
    equal = entries.equal_codes(limit)
    allowed = None if limit.k is not None else most
    listed = partial(_listed, allowed, equal)
    parts, count = list[Hits](), 0
    for hits, n_pairs in _compared(entries, limit, equal, listed, n_threads, progress):
        count += n_pairs
        if allowed is None or count <= allowed:
            parts.append(hits)
        else:
            parts.clear()  # only the number of pairs is wanted now
    if count > most and limit.k is None:
        _raise_too_many(f"{count:,}", most)
    first, second, values = limit.join(equal.expand(part) for part in parts)
    pairing = limit.pairing
    return Pairs(
        entries.user_ids(first), entries.user_ids(second), pairing.scores(values), pairing.log10_p_values(values)
    )


def find_groups(
    entries: EntrySet, limit: PairLimit, *, n_threads: int | None, progress: Progress | None
) -> list[list[object]]:
    """Return the ids of entries that pairs connect, without a list of the pairs."""
    equal = entries.equal_codes(limit)
    held = _connecting(_compared(entries, limit, equal, _linked, n_threads, progress))
    same = held[0] == held[1]
    alike = np.isin(equal.first, held[0, same])  # entries with equal codes, which are pairs too
    ids, labels = _connected(np.concatenate([held[:, ~same], [equal.first[alike], equal.ids[alike]]], axis=1))
    order = np.argsort(labels, kind="stable")
    named = entries.user_ids(ids[order]).tolist()
    ends = np.cumsum(np.bincount(labels)) if len(labels) else np.empty(0, np.int64)
    groups = [sorted(named[start:end]) for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False)]
    return sorted(groups, key=lambda group: (-len(group), group))


def _compared(
    entries: EntrySet,
    limit: PairLimit,
    equal: EqualCodes,
    reduce: Callable[[Iterable[Hits]], Reduced],
    n_threads: int | None,
    progress: Progress | None,
) -> Iterator[Reduced]:
    done = len(equal)
    for n_compared, found in entries.compared(limit, equal, n_threads, reduce):
        done += n_compared
        if progress is not None:
            progress(done, len(entries))
        yield found


def _listed(most: int | None, equal: EqualCodes, parts: Iterable[Hits]) -> tuple[Hits, int]:
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
