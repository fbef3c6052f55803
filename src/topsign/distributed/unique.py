"""Detection of duplicate ids across segments on the workers, before a version makes the segments visible.

Each id has a 64-bit key: the integer itself, or the hash of the text. Workers read the ids of groups of segments and
partition the keys by value; one task per partition then finds duplicate keys. Workers hold eight bytes per entry.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
from distributed import Client

from .._arrays import Array, Int64
from .._checks import listed
from ..families import Recipe
from ..store.backends import Backend
from ..store.stored_columns import open_segment
from ..store.versions import SegmentRecord
from .cluster import run_all, send

GROUP_ENTRIES = 2**22
"""Number of ids read by one task."""

SHOWN = 20
"""Number of duplicate keys that are looked up for the error message."""


def check_unique(
    client: Client, backend: Backend, recipe: Recipe, records: list[SegmentRecord], *, texts: bool
) -> None:
    """Raise ValueError if two entries have the same id."""
    groups = _grouped(records)
    sent = send(client, recipe)
    split = partial(client.submit, _split_keys, backend, sent, texts=texts, n_parts=len(groups), pure=False)
    keys = [split(group) for group in groups]

    def find(part: int) -> Any:
        return client.submit(_find_twice, [client.submit(getitem, one, part, pure=False) for one in keys], pure=False)

    repeated = [_result(found, error) for _, found, error in run_all(client, range(len(groups)), find)]
    chosen = np.unique(np.concatenate(repeated))[:SHOWN]
    if not chosen.size:
        return
    counts: Counter[Any] = Counter()
    look = partial(client.submit, _ids_of, backend, sent, texts=texts, keys=chosen, pure=False)
    for _, ids, error in run_all(client, groups, look):
        counts.update(_result(ids, error))
    twice = sorted(id for id, count in counts.items() if count > 1)  # hashes of different texts may collide
    if twice:
        raise ValueError(f"ids must differ, but {listed(np.array(twice, object))} given more than once")


def _grouped(records: list[SegmentRecord]) -> list[tuple[SegmentRecord, ...]]:
    groups, held = [list[SegmentRecord]()], 0
    for record in records:
        if groups[-1] and held + record.file.entries > GROUP_ENTRIES:
            groups.append([])
            held = 0
        groups[-1].append(record)
        held += record.file.entries
    return [tuple(group) for group in groups]


def _result(value: Any, error: Exception | None) -> Any:
    if error is not None:
        raise error
    return value


# Tasks that run on workers


def _keys(backend: Backend, recipe: Recipe, record: SegmentRecord, texts: bool) -> tuple[Array, Any]:
    """Return the keys of the live entries of a segment, and their ids."""
    segment = open_segment(backend, record, recipe, {})
    rows, stored = np.flatnonzero(segment.living), segment.columns.text_ids
    if texts:
        assert stored is not None
        hashes = np.empty_like(stored.hashes)
        hashes[stored.order] = stored.hashes  # sorted by hash, not by entry
        return hashes[rows], stored.texts(rows)
    return segment.ids[rows].view(np.uint64), segment.ids[rows].tolist()


def _split_keys(
    backend: Backend, recipe: Recipe, records: tuple[SegmentRecord, ...], *, texts: bool, n_parts: int
) -> list[Array]:
    keys = np.concatenate([_keys(backend, recipe, record, texts)[0] for record in records])
    return [keys[keys % np.uint64(n_parts) == part] for part in range(n_parts)]


def _find_twice(parts: list[Array]) -> Array:
    unique, counts = np.unique(np.concatenate(parts), return_counts=True)
    return unique[counts > 1][:SHOWN]


def _ids_of(
    backend: Backend, recipe: Recipe, records: tuple[SegmentRecord, ...], *, texts: bool, keys: Int64
) -> list[Any]:
    """Return the ids with these keys."""
    found = []
    for record in records:
        here, ids = _keys(backend, recipe, record, texts)
        found += [ids[at].decode() if texts else ids[at] for at in np.flatnonzero(np.isin(here, keys))]
    return found
