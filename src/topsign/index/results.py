"""Result types: what searches return and what ``get`` returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

import numpy as np

from .._arrays import Float32, Float64, Int64

Codes = TypeVar("Codes")

Note = dict[str, Any] | None
"""Metadata of one entry: a JSON object, or None."""


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Nearest entries of each query, closest first; ties by ascending id.

    Shapes depend on the number of queries and on k alone.
    """

    ids: Int64  # (n_queries, k), -1 where the index holds fewer than k
    distances: Float64  # (n_queries, k) fractions of differing signs in [0, 1], nan where id is -1
    scores: Float32  # (n_queries, k) estimated correlations or inner products, nan where id is -1
    p_values: Float64  # (n_queries, k) chance that one impostor looks as close, nan where id is -1

    @classmethod
    def empty(cls, n_queries: int, k: int) -> Self:
        """Neighbors with every place unfilled: ids of -1, and nan."""
        shape = (n_queries, k)
        return cls(
            np.full(shape, -1, np.int64),
            np.full(shape, np.nan),
            np.full(shape, np.nan, np.float32),
            np.full(shape, np.nan),
        )

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Matches:
    """Every match of each query, closest first; ties by ascending id.

    The matches of query i are ``[starts[i]:starts[i + 1]]`` of each other array.
    """

    starts: Int64  # (n_queries + 1,)
    ids: Int64  # (n_matches,)
    distances: Float64  # (n_matches,) fractions of differing signs in [0, 1]
    scores: Float32  # (n_matches,) estimated correlations or inner products
    p_values: Float64  # (n_matches,) chance that one impostor looks as close

    @classmethod
    def concatenate(cls, parts: Iterable[Matches]) -> Matches:
        """Matches of consecutive blocks of queries as one."""
        none, nothing = np.empty(0, np.int64), np.empty(0)
        parts = [cls(np.zeros(1, np.int64), none, nothing, nothing.astype(np.float32), nothing), *parts]
        ends = np.cumsum([0, *(part.starts[-1] for part in parts)])
        starts = [part.starts[1:] + before for part, before in zip(parts, ends, strict=False)]
        names = [field.name for field in fields(cls)][1:]
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
        return cls(np.concatenate([np.zeros(1, np.int64), *starts]), *columns)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.starts) - 1


@dataclass(frozen=True, eq=False)
class Entries(Generic[Codes]):
    """Entries of an index, in the order asked."""

    ids: Int64  # (n_entries,)
    codes: Codes  # AdaptiveCodes, or packed signs (n_entries, ceil(n_pool / 8)) uint8
    metadata: list[Note]  # metadata of each entry, None where it has none

    def __len__(self) -> int:
        return len(self.ids)
