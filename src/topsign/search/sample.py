"""Sample of the signals of an index, stored in tables with its entries, to calibrate from.

Every entry has a priority, a hash of its id, and the sample is the entries of lowest priority: uniform, whatever the
order of additions and removals. Additions write only their own part of it; parts are merged in tiers, as segments are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32, Int64
from ..projections.blocks import Block
from ..store import Change, Snapshot, Table

MAX_SIGNALS, MAX_BYTES, MIN_SIGNALS = 2000, 2**26, 32

MIN_SHARE = 0.9
"""Share of the entries of lowest priority that a sample must hold to speak for the index."""

MARGIN = 8
"""Standard deviations by which the expected number of entries of low priority is exceeded."""

TIER = 4
"""Parts of similar size that are merged into one, so that most additions merge none."""

PREFIX = "sample."
"""Names of the tables that hold the parts of a sample, before their number."""

IDS, SIGNALS = "sampled_ids", "sampled_signals"
"""Columns of a part."""

Priorities = npt.NDArray[np.uint64]

_NONE = np.empty(0, np.int64)


def capacity(n_features: int) -> int:
    """Return the most signals that a sample keeps."""
    return int(np.clip(MAX_BYTES // (4 * n_features), MIN_SIGNALS, MAX_SIGNALS))


def priorities(ids: Int64) -> Priorities:
    """Return a hash of each id (SplitMix64), the same on every machine."""
    mixed = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def lowest(ids: Int64, n_kept: int) -> Int64:
    """Return the positions of the ids of lowest priority, ascending."""
    return np.sort(np.argsort(priorities(ids), kind="stable")[:n_kept])


def sampled_rows(ids: Int64, n_features: int, below: int | None) -> Int64:
    """Return the positions, ascending, of ids that may be in a sample: those of lowest priority, below a limit."""
    chosen = lowest(ids, capacity(n_features))
    return chosen if below is None else chosen[priorities(ids[chosen]) < np.uint64(below)]


class SampleDraw:
    """The signals of an addition that belong to the sample; they are copied while they are encoded."""

    def __init__(self, ids: Int64, n_features: int, *, first: int, below: int | None = None) -> None:
        self._first = first
        self._positions = sampled_rows(ids, n_features, below)
        self._signals = np.empty((len(self._positions), n_features), np.float32)

    def observe(self, block: Block) -> None:
        """Copy the chosen signals of a block."""
        start, stop = block.rows.start - self._first, block.rows.stop - self._first
        low, high = np.searchsorted(self._positions, [start, stop])
        self._signals[low:high] = block.raw[self._positions[low:high] - start]

    def chosen(self, ids: Int64) -> tuple[Int64, Float32]:
        """Return the chosen ids of all signals' ids, and the chosen signals."""
        return ids[self._positions], self._signals

    def keep(self, change: Change, ids: Int64) -> None:
        """Add the chosen signals to the sample of a change that gave the signals these ids."""
        keep_signals(change, *self.chosen(ids))


def keep_signals(change: Change, ids: Int64, signals: Float32) -> None:
    """Add signals of lowest priority to the sample of a change that adds their entries."""
    if len(ids):
        parts: list[Table] = [*_parts(change.tables).values(), {IDS: ids, SIGNALS: signals}]
        while len(parts) >= TIER and 2 * len(parts[-1][IDS]) >= len(parts[-TIER][IDS]):
            parts[-TIER:] = [_merged(parts[-TIER:], change.snapshot, added=ids)]
        if sum(len(part[IDS]) for part in parts) > 2 * capacity(signals.shape[1]):
            parts = [_merged(parts, change.snapshot, added=ids)]
        change.tables = _with_parts(change.tables, parts)


def likely_excluded(tables: Mapping[str, Table], n_features: int, n_entries: int) -> int | None:
    """Return a priority above which no entry is in the sample of ``n_entries``, except with probability 1e-14.

    Workers that add parts of many entries send the signals below it: hardly more than the sample.
    """
    n_kept, excluded = capacity(n_features), first_excluded(tables, n_features)
    share = (n_kept + MARGIN * n_kept**0.5) / max(1, n_entries)
    if share >= 1:
        return excluded
    likely = int(share * 2**64)
    return likely if excluded is None else min(likely, excluded)


def first_excluded(tables: Mapping[str, Table], n_features: int) -> int | None:
    """Return the priority from which on an entry is not in the sample; None while it is not full."""
    ids = np.concatenate([np.empty(0, np.int64), *(part[IDS] for part in _parts(tables).values())])
    n_kept = capacity(n_features)
    return None if len(ids) < n_kept else int(np.partition(priorities(ids), n_kept - 1)[n_kept - 1])


def pruned(tables: Mapping[str, Table], snapshot: Snapshot) -> dict[str, Table]:
    """Return the tables without signals of entries that are gone, so that nothing of these is stored."""
    parts = list(_parts(tables).values())
    if all((snapshot.locate(part[IDS]) >= 0).all() for part in parts):
        return dict(tables)
    return _with_parts(tables, [_merged(parts, snapshot)])


def own_signals(tables: Mapping[str, Table], snapshot: Snapshot, n_features: int) -> tuple[Float32, Int64] | None:
    """Return a uniform sample of an index's own signals, and the ids of their entries; None without any.

    Originals are used if they are kept.
    """
    if snapshot.has_originals:
        ids = snapshot.ids
        ids = ids[lowest(ids, capacity(n_features))]
        signals = snapshot.signals(snapshot.locate(ids))
        return None if signals is None else (signals, ids)
    parts = list(_parts(tables).values())
    if not parts:
        return None
    sample = _merged(parts, snapshot)
    return (sample[SIGNALS], sample[IDS]) if _is_uniform(sample[IDS], snapshot.ids) else None


def _is_uniform(sampled: Int64, ids: Int64) -> bool:
    """Return whether a sample holds the entries of lowest priority.

    Signals that were added later to an index without a sample would speak for themselves only.
    """
    if not len(sampled):
        return False
    due = int(np.count_nonzero(priorities(ids) <= priorities(sampled).max()))
    return len(sampled) >= MIN_SHARE * due


def _parts(tables: Mapping[str, Table]) -> dict[str, Table]:
    named = [name for name in tables if name.startswith(PREFIX)]
    return {name: tables[name] for name in sorted(named, key=lambda name: int(name.removeprefix(PREFIX)))}


def _with_parts(tables: Mapping[str, Table], parts: list[Table]) -> dict[str, Table]:
    others = {name: table for name, table in tables.items() if not name.startswith(PREFIX)}
    return others | {f"{PREFIX}{number}": part for number, part in enumerate(parts) if len(part[IDS])}


def _merged(parts: list[Table], snapshot: Snapshot, *, added: Int64 = _NONE) -> dict[str, Array]:
    """Return one part: of an id that was added again the latest signal, without entries that are gone.

    Entries in ``added`` are there, although the snapshot of a change may not show them yet.
    """
    ids = np.concatenate([part[IDS] for part in parts])
    owners = np.concatenate([np.full(len(part[IDS]), number) for number, part in enumerate(parts)])
    rows = np.concatenate([np.arange(len(part[IDS])) for part in parts])
    _, latest = np.unique(ids[::-1], return_index=True)
    kept = np.sort(len(ids) - 1 - latest)
    kept = kept[(snapshot.locate(ids[kept]) >= 0) | np.isin(ids[kept], added)]
    kept = kept[lowest(ids[kept], capacity(parts[0][SIGNALS].shape[1]))]
    signals = np.empty((len(kept), parts[0][SIGNALS].shape[1]), np.float32)
    for number, part in enumerate(parts):
        mine = owners[kept] == number
        signals[mine] = part[SIGNALS][rows[kept][mine]]
    return {IDS: ids[kept], SIGNALS: signals}
