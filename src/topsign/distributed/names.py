"""Ids of text on a cluster: entries have numbers there, and workers know the names of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client

from .._arrays import Int64
from .._checks import check_ids, listed
from ..index.ids import are_texts, check_names
from ..index.storage import Segment, Snapshot
from .ask import ask, by_shard
from .placement import Placement


class RemoteNames:
    """Turns ids of text into numbers and back by asking the workers; ids that are numbers stay as they are."""

    def __init__(self, client: Client, placement: Placement, has_names: bool) -> None:
        self._client, self._placement, self._has_names = client, placement, has_names

    def numbers(self, among: npt.ArrayLike | None) -> Int64 | None:
        """Numbers of the entries with these ids; an unknown text raises."""
        if among is None:
            return None
        if not are_texts(among):
            if self._has_names and np.size(among):
                raise TypeError("the ids of this index are texts, got among of integers")
            return check_ids(among, "among")
        if not self._has_names:
            raise TypeError("the ids of this index are integers, got among of texts")
        names = check_names(among, None, "among")
        answers = ask(self._client, self._placement, self._placement.shards, partial(_find_names, names))
        numbers = dict(pair for answer in answers for pair in answer)
        unknown = [name.decode() for name in names if name not in numbers]
        if unknown:
            raise ValueError(f"among must be in the index, but {listed(np.array(unknown, object))} not")
        return np.array([numbers[name] for name in names], np.int64)

    def ids(self, numbers: Int64) -> Any:
        """The ids that the user gave; -1 becomes None beside texts."""
        if not self._has_names:
            return numbers
        out = np.full(numbers.shape, None, object)
        known = numbers >= 0
        chosen, _ = by_shard(self._placement.shards, np.unique(numbers[known]))
        shards = tuple(shard for shard in self._placement.shards if shard.file in chosen)
        answers = ask(self._client, self._placement, shards, _name_entries, chosen=chosen)
        names = dict(pair for answer in answers for pair in answer)
        out[known] = [names[number] for number in numbers[known].tolist()]
        return out


# What follows runs on workers.


def _find_names(names: Sequence[bytes], segments: list[Segment], among: None) -> list[tuple[bytes, int]]:
    snapshot = Snapshot(tuple(segments))
    places = snapshot.find_names(names)
    held = np.flatnonzero(places >= 0)
    numbers = snapshot.gather("ids", places[held]).tolist()
    return [(names[at], number) for at, number in zip(held.tolist(), numbers, strict=True)]


def _name_entries(segments: list[Segment], among: Int64) -> list[tuple[int, str]]:
    snapshot = Snapshot(tuple(segments))
    return list(zip(among.tolist(), snapshot.names(snapshot.locate(among)), strict=True))
