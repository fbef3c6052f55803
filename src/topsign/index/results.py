"""Result types: what searches return and what ``get`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np

from .._arrays import Float32, Float64, Int64
from .tables import ResultTable

Codes = TypeVar("Codes")

Note = dict[str, Any] | None
"""Metadata of one entry: a JSON object, or None."""


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors(ResultTable):
    """Nearest entries of each query, closest first; ties by ascending id.

    Shapes depend on the number of queries and on k alone.
    """

    ids: Any  # (n_queries, k) int64, -1 where fewer than k entries are considered; or texts, and None
    distances: Float64  # (n_queries, k) fractions of differing signs in [0, 1], nan where id is -1
    scores: Float32  # (n_queries, k) estimated correlations or inner products, nan where id is -1
    p_values: Float64  # (n_queries, k) chance that one impostor looks as close, nan where id is -1
    metadata: Any = None  # (n_queries, k) dicts and None, where they were asked for
    n_entries: int = 0  # entries that each query was compared with

    @classmethod
    def empty(cls, n_queries: int, k: int, n_entries: int = 0) -> Self:
        """Neighbors with every place unfilled: ids of -1, and nan."""
        shape = (n_queries, k)
        return cls(
            np.full(shape, -1, np.int64),
            np.full(shape, np.nan),
            np.full(shape, np.nan, np.float32),
            np.full(shape, np.nan),
            n_entries=n_entries,
        )

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.ids)

    def places_of(self, query: int) -> list[tuple[int, ...]]:
        return [(query, rank) for rank in range(self.ids.shape[1]) if not np.isnan(self.distances[query, rank])]


@dataclass(frozen=True, eq=False, repr=False)
class Matches(ResultTable):
    """Every match of each query, closest first; ties by ascending id.

    The matches of query i are ``[starts[i]:starts[i + 1]]`` of each other array.
    """

    starts: Int64  # (n_queries + 1,)
    ids: Any  # (n_matches,) int64, or texts
    distances: Float64  # (n_matches,) fractions of differing signs in [0, 1]
    scores: Float32  # (n_matches,) estimated correlations or inner products
    p_values: Float64  # (n_matches,) chance that one impostor looks as close
    metadata: Any = None  # (n_matches,) dicts and None, where they were asked for
    n_entries: int = 0  # entries that each query was compared with

    @classmethod
    def concatenate(cls, parts: Iterable[Matches], n_entries: int = 0) -> Matches:
        """Matches of consecutive blocks of queries as one."""
        none, nothing = np.empty(0, np.int64), np.empty(0)
        parts = [cls(np.zeros(1, np.int64), none, nothing, nothing.astype(np.float32), nothing), *parts]
        ends = np.cumsum([0, *(part.starts[-1] for part in parts)])
        starts = [part.starts[1:] + before for part, before in zip(parts, ends, strict=False)]
        names = ("ids", "distances", "scores", "p_values")
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(starts=np.concatenate([np.zeros(1, np.int64), *starts]), **columns, n_entries=n_entries)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.starts) - 1

    def places_of(self, query: int) -> list[tuple[int, ...]]:
        return [(at,) for at in range(int(self.starts[query]), int(self.starts[query + 1]))]


@dataclass(frozen=True, eq=False)
class Entry(Generic[Codes]):
    """One entry of an index."""

    id: int | str
    code: Codes  # AdaptiveCodes of one code, or packed signs (1, ceil(n_pool / 8)) uint8
    metadata: Note = None


@dataclass(frozen=True, eq=False)
class Entries(Generic[Codes]):
    """Entries of an index, in the order asked."""

    ids: Any  # (n_entries,) int64, or texts
    codes: Codes  # AdaptiveCodes, or packed signs (n_entries, ceil(n_pool / 8)) uint8
    metadata: list[Note]  # metadata of each entry, None where it has none

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Entry[Codes]:
        """The entry asked for at this position."""
        at = range(len(self))[row]
        codes: Any = self.codes
        return Entry(self.ids[at : at + 1].tolist()[0], codes[at : at + 1], self.metadata[at])

    def __iter__(self) -> Iterator[Entry[Codes]]:
        return (self[row] for row in range(len(self)))
