"""Results of searches and of ``pairs``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import Float64, Int64
from ..search import NOT_ASKED, Hits, Scan, Visited
from ..theory.log_tails import probabilities
from .entry_set import EntrySet
from .tables import Measure, ResultTable, Tabular, no_distances

PAIR_COLUMNS = ("first", "second", "score", "p_value", "log10_p_value")


@dataclass(frozen=True, eq=False)
class FoundBlock:
    """Results of consecutive queries, with the scan that computes their distances."""

    rows: slice  # of the queries
    hits: Hits
    scan: Scan

    def distances(self, entries: EntrySet) -> Float64:
        """Return the distances of the hits: those that a worker sent with them, or computed from the codes."""
        known = len(self.hits.distances) == len(self.hits)
        return self.hits.distances if known else entries.distances(self.scan, self.hits)


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors(ResultTable):
    """Nearest entries of each query, closest first; ties by ascending id.

    Shapes depend only on the number of queries and on k.
    """

    ids: Any  # (n_queries, k) int64, -1 where fewer than k entries are considered; or texts, and None
    scores: Float64  # (n_queries, k) estimated correlations or inner products, nan where id is -1
    log10_p_values: Float64  # (n_queries, k) of the chance that one impostor looks as close, nan where id is -1
    metadata: Any = None  # (n_queries, k) dicts and None, where they were asked for
    n_entries: int = 0  # entries that each query was compared with, or chosen from
    measure: Measure = no_distances  # computes the distances
    said: Visited | None = None  # what a search for a recall visited
    recall_of: str = "codes"  # what recall is of: the search by code, or the exact neighbours ("signals")

    @property
    def visited(self) -> Float64:
        """Share of the entries that each query was compared with, (n_queries,)."""
        return self._visited.visited

    @property
    def recall(self) -> Float64:
        """Expected recall of each query, (n_queries,); 1 if all entries were visited, nan if it is unknown."""
        return self._visited.recall

    @property
    def recall_low(self) -> Float64:
        """One-sided 95% lower bound of :attr:`recall`; nan under a filter, when recall is only an estimate."""
        return self._visited.recall_low

    @property
    def exhaustive(self) -> Any:
        """Why all entries were visited, a text for each query; empty if they were not."""
        return self._visited.exhaustive

    @property
    def _visited(self) -> Visited:
        return Visited.everything(len(self), NOT_ASKED) if self.said is None else self.said

    def with_visited(self, said: Visited, recall_of: str) -> Neighbors:
        """Return the same neighbours of a search that visited a part of the entries."""
        return replace(self, said=said, recall_of=recall_of)

    @classmethod
    def of_blocks(cls, blocks: Sequence[FoundBlock], entries: EntrySet, n_queries: int, k: int) -> Neighbors:
        """Return the hits of all blocks; each query of a block has the same number of them."""

        def filled(empty: Any, values: Callable[[FoundBlock], Any]) -> Any:
            for one in blocks:
                shape = one.rows.stop - one.rows.start, len(one.hits) // (one.rows.stop - one.rows.start)
                empty[one.rows, : shape[1]] = values(one).reshape(shape)
            return empty

        def measure() -> Float64:
            distances: Float64 = filled(np.full((n_queries, k), np.nan), lambda one: one.distances(entries))
            return distances

        ids = filled(np.full((n_queries, k), -1, np.int64), lambda one: one.hits.ids)
        scores = filled(np.full((n_queries, k), np.nan), lambda one: one.hits.scores)
        logs = filled(np.full((n_queries, k), np.nan), lambda one: one.hits.log10_p_values)
        return cls(ids, scores, logs, n_entries=len(entries), measure=measure)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.ids)

    def positions_of(self, query: int) -> list[tuple[int, ...]]:
        return [(query, rank) for rank in range(self.ids.shape[1]) if not np.isnan(self.scores[query, rank])]


@dataclass(frozen=True, eq=False, repr=False)
class Matches(ResultTable):
    """Every match of each query, closest first; ties by ascending id.

    The matches of query i are ``[starts[i]:starts[i + 1]]`` of each other array.
    """

    starts: Int64  # (n_queries + 1,)
    ids: Any  # (n_matches,) int64, or texts
    scores: Float64  # (n_matches,) estimated correlations or inner products
    log10_p_values: Float64  # (n_matches,) of the chance that one impostor looks as close
    metadata: Any = None  # (n_matches,) dicts and None, where they were asked for
    n_entries: int = 0  # entries that each query was compared with
    measure: Measure = no_distances  # computes the distances

    @classmethod
    def of_blocks(cls, blocks: Sequence[FoundBlock], entries: EntrySet) -> Matches:
        """Return the hits of consecutive blocks as one."""
        counts = [np.zeros(1, np.int64)]
        for one in blocks:
            counts.append(np.bincount(one.hits.queries, minlength=one.rows.stop - one.rows.start).astype(np.int64))
        starts = np.cumsum(np.concatenate(counts))
        ids = np.concatenate([np.empty(0, np.int64), *(one.hits.ids for one in blocks)])
        scores = np.concatenate([np.empty(0), *(one.hits.scores for one in blocks)])
        logs = np.concatenate([np.empty(0), *(one.hits.log10_p_values for one in blocks)])

        def measure() -> Float64:
            return np.concatenate([np.empty(0), *(one.distances(entries) for one in blocks)])

        return cls(starts, ids, scores, logs, n_entries=len(entries), measure=measure)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.starts) - 1

    def positions_of(self, query: int) -> list[tuple[int, ...]]:
        return [(at,) for at in range(int(self.starts[query]), int(self.starts[query + 1]))]


@dataclass(frozen=True, eq=False)
class Pairs(Tabular):
    """Pairs of entries, each once; the most alike first, ties by ids."""

    first: Any  # (n_pairs,) ids; of numbers the smaller, of texts the one added earlier
    second: Any  # (n_pairs,) ids
    scores: Float64  # (n_pairs,) estimated correlations, or cosines of reconstructions
    log10_p_values: Float64  # (n_pairs,) of the chance that independent signals look as much alike; nan if unknown

    @property
    def p_values(self) -> Float64:
        """Chance that two independent signals look as much alike, (n_pairs,); never 0, nan if it is unknown."""
        return probabilities(self.log10_p_values)

    def __len__(self) -> int:
        return len(self.scores)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return columns by name, with one value per pair."""
        columns = (self.first, self.second, self.scores, self.p_values, self.log10_p_values)
        return {name: column.tolist() for name, column in zip(PAIR_COLUMNS, columns, strict=True)}

    def _kinds(self, arrow: Any) -> dict[str, Any]:
        id_kind = arrow.string() if self.first.dtype == object else arrow.int64()
        return dict(zip(PAIR_COLUMNS, [id_kind] * 2 + [arrow.float64()] * 3, strict=True))

    def __repr__(self) -> str:
        shown = [f"  {a} - {b}: {score:.4f}" for a, b, score in zip(self.first, self.second, self.scores, strict=True)]
        more = [f"  ... {len(self) - 10} more"] if len(self) > 10 else []
        return "\n".join([f"Pairs: {len(self)}", *shown[:10], *more])
