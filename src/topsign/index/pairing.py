"""Pairs and groups of the entries of an index, from the comparison of blocks of entries with all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy  # whose modules are loaded when they are first used

from .._arrays import Int64
from .._checks import check_count
from ..search import EqualCodes, Hits, PairLimit, Progress
from .entry_set import EntrySet
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
    parts, count = list[Hits](), 0
    for hits in _compared(entries, limit, equal, n_threads, progress):
        count += equal.count(hits)
        if limit.k is not None or count <= most:
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
    held = np.stack([equal.first, equal.ids])[:, :0]
    own = list[Int64]()  # entries that are like those with equal codes
    parts, n_held = list[Int64](), 0
    for hits in _compared(entries, limit, equal, n_threads, progress):
        same = hits.queries == hits.ids
        own.append(hits.ids[same])
        parts.append(np.stack([hits.queries[~same], hits.ids[~same]]))
        n_held += parts[-1].shape[1]
        if n_held > HELD_PAIRS:
            held = _spanning(np.concatenate([held, *parts], axis=1))
            parts, n_held = [], 0
    alike = np.isin(equal.first, np.concatenate([np.empty(0, np.int64), *own]))
    held = np.concatenate([held, *parts, np.stack([equal.first[alike], equal.ids[alike]])], axis=1)
    ids, labels = _connected(held)
    order = np.argsort(labels, kind="stable")
    named = entries.user_ids(ids[order]).tolist()
    ends = np.cumsum(np.bincount(labels)) if len(labels) else np.empty(0, np.int64)
    groups = [sorted(named[start:end]) for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False)]
    return sorted(groups, key=lambda group: (-len(group), group))


def _compared(
    entries: EntrySet, limit: PairLimit, equal: EqualCodes, n_threads: int | None, progress: Progress | None
) -> Iterator[Hits]:
    done = len(equal)
    for n_compared, hits in entries.compared(limit, equal, n_threads):
        done += n_compared
        if progress is not None:
            progress(done, len(entries))
        yield hits


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
    """Return fewer pairs than there are entries, which connect the same ones."""
    ids, labels = _connected(pairs)
    _, first = np.unique(labels, return_index=True)
    leaders = ids[first[labels]]
    return np.stack([leaders, ids])[:, leaders != ids]
