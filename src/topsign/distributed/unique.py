"""Ids that several shards have: found on the workers before a manifest names the shards.

Every id has a key of 64 bits, itself or the hash of its text. Workers read the ids of a group of shards and part their
keys by value; one task per part then looks for keys that occur twice. Eight bytes per entry are held, by the workers.
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
from ..index.storage.names import hash_names
from .cluster import run_all
from .folder import Folder
from .shard import Shard, read_column

GROUP_ENTRIES = 2**22
"""Entries whose ids one task reads."""

SHOWN = 20
"""Repeated keys that are looked up for the message."""


def check_unique(client: Client, folder: Folder, shards: list[Shard], *, texts: bool) -> None:
    """Raises ValueError where two entries have the same id; integers are read where ranges of shards overlap alone."""
    files = [shard.file for shard in (shards if texts else _overlapping(shards))]
    if len(files) < 2:
        return
    sizes = {shard.file: shard.n_entries for shard in shards}
    groups = _grouped(files, sizes)
    split = partial(client.submit, _split_keys, folder, texts=texts, n_parts=len(groups), pure=False)
    keys = [split(group) for group in groups]

    def find(part: int) -> Any:
        return client.submit(_find_twice, [client.submit(getitem, one, part, pure=False) for one in keys], pure=False)

    repeated = [_result(found, error) for _, found, error in run_all(client, range(len(groups)), find)]
    chosen = np.unique(np.concatenate(repeated))[:SHOWN]
    if not chosen.size:
        return
    counts: Counter[Any] = Counter()
    look = partial(client.submit, _ids_of, folder, texts=texts, keys=chosen, pure=False)
    for _, ids, error in run_all(client, groups, look):
        counts.update(_result(ids, error))
    twice = sorted(id for id, count in counts.items() if count > 1)  # of texts, keys may agree by chance
    if twice:
        raise ValueError(f"ids must differ, but {listed(np.array(twice, object))} given more than once")


def _overlapping(shards: list[Shard]) -> list[Shard]:
    """Shards whose range of ids meets that of another."""
    found, last = dict[str, Shard](), None
    for shard in sorted(shards, key=lambda one: one.first_id):
        if last is not None and shard.first_id <= last.last_id:
            found |= {last.file: last, shard.file: shard}
        last = shard if last is None or shard.last_id > last.last_id else last
    return list(found.values())


def _grouped(files: list[str], sizes: dict[str, int]) -> list[tuple[str, ...]]:
    groups, held = [list[str]()], 0
    for file in files:
        if groups[-1] and held + sizes[file] > GROUP_ENTRIES:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += sizes[file]
    return [tuple(group) for group in groups]


def _result(value: Any, error: Exception | None) -> Any:
    if error is not None:
        raise error
    return value


# What follows runs on workers.


def _keys(folder: Folder, file: str, texts: bool) -> tuple[Array, Any]:
    """Keys of the entries of a shard, and their ids."""
    column = read_column(folder, file, "names" if texts else "ids")
    if texts:
        names = column.to_pylist()
        return hash_names(names), names
    ids = column.to_numpy()
    return ids.view(np.uint64), ids.tolist()


def _split_keys(folder: Folder, files: tuple[str, ...], *, texts: bool, n_parts: int) -> list[Array]:
    keys = np.concatenate([_keys(folder, file, texts)[0] for file in files])
    return [keys[keys % np.uint64(n_parts) == part] for part in range(n_parts)]


def _find_twice(parts: list[Array]) -> Array:
    unique, counts = np.unique(np.concatenate(parts), return_counts=True)
    return unique[counts > 1][:SHOWN]


def _ids_of(folder: Folder, files: tuple[str, ...], *, texts: bool, keys: Int64) -> list[Any]:
    """Ids with these keys."""
    found = []
    for file in files:
        here, ids = _keys(folder, file, texts)
        found += [ids[at].decode() if texts else ids[at] for at in np.flatnonzero(np.isin(here, keys))]
    return found
