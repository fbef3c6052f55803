"""Entries on a cluster: workers hold them, and are asked for their ids, metadata, codes, and for samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client

from .._arrays import Int64
from .._checks import check_ids, raise_unknown_ids
from ..index.filters import Where, check_fields, known_fields, parse_where, passing
from ..index.ids import check_asked, check_found
from ..index.results import Note
from ..index.storage import Arrays, Segment, Snapshot, merge_segments
from ..index.storage.metadata import parse_notes
from .ask import ask
from .placement import Placement


@dataclass(frozen=True, eq=False)
class ShardedEntries:
    """Entries of all shards, or those of them that a search considers.

    Entries are known by numbers, which are the ids where these are integers; ids of text are looked up on the workers.
    """

    client: Client
    placement: Placement
    has_names: bool
    n_entries: int
    numbers: Int64 | None = None  # ascending; None: all
    where: Where | None = None

    def __len__(self) -> int:
        return self.n_entries

    def ask(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What every worker answers that holds any; a task gets a snapshot of those it holds, and the arguments."""
        asked = partial(_with_considered, task, self.where)
        return ask(self.client, self.placement, asked, *arguments, ids=self.numbers)

    def considered(self, among: npt.ArrayLike | None, where: Where | None) -> ShardedEntries:
        """Those of ``among`` that fulfil ``where``; an id or a field that no entry has raises."""
        if where is not None:
            parse_where(where)
        numbers = None if among is None else np.unique(self.find(among, "among"))
        answers = ask(self.client, self.placement, partial(_count, where), ids=numbers)
        if numbers is not None:
            missing = np.setdiff1d(numbers, np.concatenate([np.empty(0, np.int64), *(one[1] for one in answers)]))
            if missing.size:
                given = check_ids(among, "among")
                raise_unknown_ids(given[np.isin(given, missing)], "among")
        if where is not None and len(self):  # a field may be in shards that hold no entry of ``among``
            others = ask(self.client, self.placement, partial(_count, where)) if numbers is not None else []
            check_fields(where, set().union(*(one[2] for one in (*answers, *others))))
        return replace(self, numbers=numbers, where=where, n_entries=sum(one[0] for one in answers))

    def find(self, ids: npt.ArrayLike, name: str = "ids") -> Int64:
        """Numbers of the entries with these ids; an unknown text raises, an unknown number does not."""
        asked = check_asked(ids, self.has_names if self.n_entries else None, name)
        if not isinstance(asked, list):
            return asked
        numbers = self.numbers_of(asked)
        check_found(asked, [one in numbers for one in asked], name)
        return np.array([numbers[one] for one in asked], np.int64)

    def numbers_of(self, names: Sequence[bytes]) -> dict[bytes, int]:
        """Numbers of the entries that have these texts as ids."""
        answers = ask(self.client, self.placement, partial(_find_names, names))
        return dict(pair for answer in answers for pair in answer)

    def held(self, numbers: Int64) -> Int64:
        """Those of the numbers that entries have, ascending."""
        answers = ask(self.client, self.placement, partial(_count, None), ids=np.unique(numbers))
        return np.unique(np.concatenate([np.empty(0, np.int64), *(one[1] for one in answers)]))

    def names(self, numbers: Int64) -> dict[int, str]:
        """Ids of text by number."""
        answers = ask(self.client, self.placement, _name_entries, ids=np.unique(numbers))
        return dict(pair for answer in answers for pair in answer)

    def notes(self, numbers: Int64) -> list[Note]:
        """Metadata of the entries with these numbers."""
        answers = ask(self.client, self.placement, _texts_of_entries, ids=np.unique(numbers))
        texts = dict(pair for answer in answers for pair in answer)
        return parse_notes(texts.get(number, b"") for number in numbers.tolist())

    def fetch(self, numbers: Int64) -> list[Segment]:
        """The entries with these numbers, as segments in this process; unknown numbers are left out."""
        answers = ask(self.client, self.placement, _taken, ids=np.unique(numbers))
        return [segment for answer in answers for segment in answer]

    def codes(self, files: Sequence[str], rows: slice) -> list[Segment]:
        """Numbers and codes of these rows of each of these shards, in this process."""
        answers = ask(self.client, self.placement, partial(_cut, rows), files=files)
        return [segment for answer in answers for segment in answer]

    def ids(self) -> Any:
        """All ids: ascending integers, or texts in the order of their numbers."""
        parts = self.ask(_list_entries)
        numbers = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
        order = np.argsort(numbers)
        if not self.has_names:
            return numbers[order]
        return np.array([name for part in parts for name in part[1]], object)[order]

    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot:
        """About so many of the entries, chosen at random by the workers: each entry has the same chance."""
        share = min(1.0, n_entries / max(1, len(self)))
        seed = int(rng.integers(2**63))
        parts = self.ask(_sample, share, seed)
        return Snapshot(tuple(segment for part in parts for segment in part))


# What follows runs on workers.


def _consider(segments: list[Segment], where: Where | None, numbers: Int64 | None) -> Snapshot:
    snapshot = Snapshot(tuple(segments))
    if numbers is None and where is None:
        return snapshot
    kept = np.ones(int(snapshot.starts[-1]), bool)
    if numbers is not None:
        places = snapshot.locate(numbers)
        kept = snapshot.mask(places[places >= 0])
    return snapshot.where(kept if where is None else kept & passing(snapshot, where))


def _with_considered(task: Callable[..., Any], where: Where | None, segments: list[Segment], *arguments: Any) -> Any:
    *others, numbers = arguments
    return task(_consider(segments, where, numbers), *others)


def _count(where: Where | None, segments: list[Segment], numbers: Int64 | None) -> tuple[int, Int64, set[str]]:
    """Number of entries considered, those of the numbers that are here, and the fields of the condition that are."""
    snapshot = Snapshot(tuple(segments))
    here = np.empty(0, np.int64) if numbers is None else numbers[snapshot.locate(numbers) >= 0]
    fields = set[str]() if where is None else known_fields(snapshot, where)
    return len(_consider(segments, where, numbers)), here, fields


def _find_names(names: Sequence[bytes], segments: list[Segment], _: None) -> list[tuple[bytes, int]]:
    snapshot = Snapshot(tuple(segments))
    places = snapshot.find_names(names)
    held = np.flatnonzero(places >= 0)
    numbers = snapshot.gather("ids", places[held]).tolist()
    return [(names[at], number) for at, number in zip(held.tolist(), numbers, strict=True)]


def _held(segments: list[Segment], numbers: Int64) -> tuple[Snapshot, Int64, Int64]:
    """The snapshot, those of the numbers that are in it, and their places."""
    snapshot = Snapshot(tuple(segments))
    places = snapshot.locate(numbers)
    return snapshot, numbers[places >= 0], places[places >= 0]


def _name_entries(segments: list[Segment], numbers: Int64) -> list[tuple[int, str]]:
    snapshot, here, places = _held(segments, numbers)
    return list(zip(here.tolist(), snapshot.names(places), strict=True))


def _texts_of_entries(segments: list[Segment], numbers: Int64) -> list[tuple[int, bytes]]:
    snapshot, here, places = _held(segments, numbers)
    return [(number, text) for number, text in zip(here.tolist(), snapshot.texts(places), strict=True) if text]


def _taken(segments: list[Segment], numbers: Int64) -> list[Segment]:
    """Copies of the entries, with metadata and names."""
    parts = [segment.where(segment.living & np.isin(segment.ids, numbers)) for segment in segments]
    return [merge_segments([part]) for part in parts if part.n_alive]


def _cut(rows: slice, segments: list[Segment], _: None) -> list[Segment]:
    return [Segment(Arrays(one.ids[rows], one.codes[rows], None, None, None)) for one in segments]


def _list_entries(snapshot: Snapshot) -> tuple[Int64, list[str]]:
    numbers = snapshot.ids
    return numbers, snapshot.names(snapshot.locate(numbers)) if snapshot.has_names else []


def _sample(snapshot: Snapshot, share: float, seed: int) -> list[Segment]:
    if not len(snapshot):
        return []
    rng = np.random.default_rng([seed, int(snapshot.segments[0].ids[0])])  # workers draw differently
    some = snapshot.sample(int(rng.binomial(len(snapshot), share)), rng)
    return [merge_segments([segment]) for segment in some.segments if segment.n_alive]
