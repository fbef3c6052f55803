"""What scans find, with all that is needed to merge it: parts of the entries may be searched apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Float32, Float64, Int64
from .._checks import check_choice, check_false_alarm, check_real
from ..theory.inference import SCORINGS
from .neighbors import Matches, Neighbors
from .scans import Meaning, Scan
from .segments import Hits, Snapshot


@dataclass(frozen=True, eq=False)
class Found:
    """Entries found for a block of queries: by falling closeness within a query, ties by id, queries in order."""

    rows: Int64  # query
    ids: Int64
    values: npt.NDArray[Any]  # mismatches or scores as the kernels gave them: what decides the order
    distances: Float64
    scores: Float32
    p_values: Float64

    @classmethod
    def of(cls, snapshot: Snapshot, hits: Hits, meaning: Meaning) -> Found:
        ids = snapshot.gather("ids", hits.places)
        return cls(hits.rows, ids, hits.values, meaning.distances, meaning.scores, meaning.p_values)

    @classmethod
    def merged(cls, parts: Iterable[Found], *, descending: bool, k: int | None = None) -> Found:
        """What one scan of all the parts' entries finds: everything, or the k best of each query."""
        none, nothing = np.empty(0, np.int64), np.empty(0)
        parts = list(parts) or [cls(none, none, nothing, nothing, nothing.astype(np.float32), nothing)]
        whole = cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))
        order = np.lexsort((whole.ids, -whole.values if descending else whole.values, whole.rows))
        if k is not None:
            rows = whole.rows[order]
            order = order[np.arange(len(order)) - np.searchsorted(rows, rows) < k]
        return whole[order]

    def __getitem__(self, kept: npt.NDArray[Any]) -> Found:
        return Found(*(getattr(self, field.name)[kept] for field in fields(self)))

    def fill(self, neighbors: Neighbors, block: slice) -> None:
        """Writes the same number of entries for each query of a block."""
        n_queries = block.stop - block.start
        shape = (n_queries, len(self.ids) // max(1, n_queries))
        for name in ("ids", "distances", "scores", "p_values"):
            getattr(neighbors, name)[block, : shape[1]] = getattr(self, name).reshape(shape)

    def matches(self, n_queries: int) -> Matches:
        starts = np.searchsorted(self.rows, np.arange(n_queries + 1)).astype(np.int64)
        return Matches(starts, self.ids, self.distances, self.scores, self.p_values)


@dataclass(frozen=True)
class Reach:
    """How near an entry must be: within a limit, or significant at a level."""

    limit: float
    is_level: bool = False  # the limit is a chance of a false alarm

    @classmethod
    def checked(
        cls, *, radius: float | None, threshold: float | None, false_alarm: float | None, scoring: str
    ) -> Reach:
        """Of what the caller of a range search gave."""
        given = {"radius": radius, "threshold": threshold, "false_alarm": false_alarm}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError(
                "give exactly one of radius, threshold and false_alarm, got " + (" and ".join(named) or "none")
            )
        check_choice(scoring, "scoring", SCORINGS)
        goes_with = {"radius": "hamming", "threshold": "asymmetric"}.get(named[0], scoring)
        if scoring != goes_with:
            raise ValueError(f'{named[0]} goes with scoring="{goes_with}", got scoring="{scoring}"')
        if false_alarm is not None:
            return cls(check_false_alarm(false_alarm), is_level=True)
        if radius is not None:
            return cls(check_real(radius, "radius", minimum=0, maximum=1))
        return cls(check_real(threshold, "threshold"))

    def for_entries(self, n_entries: int) -> Reach:
        """A chance for the whole search becomes that of each entry considered."""
        if not self.is_level:
            return self
        return replace(self, limit=float(-np.expm1(np.log1p(-self.limit) / max(1, n_entries))))


def find_nearest(scan: Scan, snapshot: Snapshot, k: int) -> Found:
    """The k best entries of each query, or all where there are fewer."""
    hits = scan.nearest(snapshot, k)
    return Found.of(snapshot, hits, scan.meaning(snapshot, hits))


def find_within(scan: Scan, snapshot: Snapshot, reach: Reach) -> Found:
    """Every entry that is near enough."""
    hits = (scan.significant if reach.is_level else scan.near)(snapshot, reach.limit)
    meaning = scan.meaning(snapshot, hits)
    kept = meaning.p_values <= reach.limit if reach.is_level else scan.reaches(meaning, reach.limit)
    return Found.of(snapshot, hits, meaning)[kept]
