"""Results of searches and of ``pairs``, as arrays, rows, or tables of pandas, Arrow or Polars."""

from __future__ import annotations

import html
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Self

import numpy as np

from .._arrays import Float64, Int64
from .._checks import check_flag, import_pyarrow
from .._lazy import lazy
from ..kernels import RegionHits
from ..search.engine import Hits
from ..search.query_block import QueryBlock
from ..search.recall import NOT_ASKED, SearchPlan, VisitReport
from ..significance import probabilities, probability_text
from .entries import EntrySet

Measure = Callable[[], Float64]


def no_distances() -> Float64:
    """Return the distances of no matches."""
    return np.empty(0)


COLUMNS = ("query", "rank", "id", "score", "distance", "p_value", "log10_p_value", "e_value")
SHOWN = 10
"""Rows that a repr shows."""


@dataclass(frozen=True)
class Match:
    """One entry found for a query."""

    id: int | str  #: id of the entry
    score: float  #: estimated correlation or inner product
    distance: float  #: fraction of differing signs
    p_value: float  #: chance that one impostor looks as close; never 0
    log10_p_value: float  #: its decimal logarithm, also if the p-value is too small for a float
    e_value: float  #: impostors to expect that look as close, among all entries searched
    metadata: dict[str, Any] | None = None  #: where it was asked for


class Tabular(ABC):
    """Rows that can be had as a table of pandas, Arrow or Polars."""

    @abstractmethod
    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name; one value per row."""

    @abstractmethod
    def _kinds(self, arrow: Any) -> dict[str, Any]:
        """Types of the columns, by name."""

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per match or pair."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.to_dict())

    def to_arrow(self) -> Any:
        """Return a pyarrow Table with one row per match or pair; metadata are JSON texts."""
        arrow = import_pyarrow("to_arrow makes a pyarrow table")
        columns, kinds = self.to_dict(), self._kinds(arrow)
        if "metadata" in columns:
            columns["metadata"] = [None if note is None else json.dumps(note) for note in columns["metadata"]]
        return arrow.table({name: arrow.array(values, kinds[name]) for name, values in columns.items()})

    def to_polars(self) -> Any:
        """Return a Polars DataFrame with one row per match or pair; metadata are JSON texts."""
        try:
            import polars
        except ImportError:
            raise ImportError("to_polars needs Polars: pip install polars") from None
        return polars.from_arrow(self.to_arrow())


class ResultTable(Tabular):
    """Results of a search; ``found[i]`` is the list of matches of query i, closest first."""

    ids: Any  #: ids of entries
    scores: Float64  #: scores of unrelated pairs
    log10_p_values: Float64
    metadata: Any  #: A dict per entry, or None for an entry without metadata
    n_entries: int  #: number of entries that one search compares with
    _measure: Measure

    def _finished(self, entries: EntrySet, *, with_metadata: bool) -> Self:
        """Return the same matches with the ids of ``entries`` that the user gave, ``with_metadata`` or without."""
        notes = None
        if check_flag(with_metadata, "with_metadata"):
            notes, known = np.full(self.ids.shape, None, object), self.ids >= 0
            for at, note in zip(np.argwhere(known), entries.notes(self.ids[known]), strict=True):
                notes[tuple(at)] = note
        elif not entries.has_text_ids:
            return self
        changed: Any = self
        return replace(changed, ids=entries.user_ids(self.ids), metadata=notes)  # type: ignore[no-any-return]

    @lazy
    def distances(self) -> Float64:
        """Distances in [0, 1], in the shape of ``scores``: fractions of differing signs, or angles over pi.

        Computed when they are first read: codes that were ordered by their scores are compared again for it.
        """
        return self._measure()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle distances instead of the way to compute them."""
        return self.__dict__ | {"distances": self.distances, "_measure": no_distances}

    @property
    def p_values(self) -> Float64:
        """Chance that one impostor looks as close, in the shape of ``scores``; at least 5e-324, the smallest float.

        ``log10_p_values`` has the logarithms of smaller ones.
        """
        return probabilities(self.log10_p_values)

    @property
    def e_values(self) -> Float64:
        """Expected number of impostors that look as close, among all entries searched: p-values times ``n_entries``."""
        return self.p_values * self.n_entries

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _positions_of(self, query: int) -> list[tuple[int, ...]]:
        """Return the slice of the matches of ``query`` in each array."""

    def __getitem__(self, query: int) -> list[Match]:
        """Return the matches of one query, closest first."""
        return [Match(*self._values(at)) for at in self._positions_of(range(len(self))[query])]

    def __iter__(self) -> Iterator[list[Match]]:
        """Iterate over the queries; yield the matches of each."""
        return (self[query] for query in range(len(self)))

    def _values(self, at: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the values of a :class:`Match`, with metadata only if they were asked for."""
        id = self.ids[at]
        score, distance, log10 = (float(values[at]) for values in (self.scores, self.distances, self.log10_p_values))
        p_value = float(probabilities(log10))
        known = id if isinstance(id, str) else int(id), score, distance, p_value, log10, p_value * self.n_entries
        return known if self.metadata is None else (*known, self.metadata[at])

    def rows(self, limit: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the values of :attr:`columns` for every match, at most ``limit``; queries from 0, ranks from 1."""
        queries = range(len(self))
        found = ((query, rank, at) for query in queries for rank, at in enumerate(self._positions_of(query), 1))
        return ((query, rank, *self._values(at)) for query, rank, at in islice(found, limit))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the values of :meth:`rows`."""
        return COLUMNS if self.metadata is None else (*COLUMNS, "metadata")

    def to_dict(self) -> dict[str, list[Any]]:
        """Return columns by name, with one value per match."""
        values = list(zip(*self.rows(), strict=True)) or [()] * len(self.columns)
        return {name: list(column) for name, column in zip(self.columns, values, strict=True)}

    def _kinds(self, arrow: Any) -> dict[str, Any]:
        reals = dict.fromkeys(COLUMNS[3:], arrow.float64())
        id_kind = arrow.string() if self.ids.dtype == object else arrow.int64()
        return {"query": arrow.int64(), "rank": arrow.int64(), "id": id_kind, **reals, "metadata": arrow.string()}

    def _shown(self) -> tuple[list[list[str]], list[str]]:
        """Return the names of columns and the first rows as texts, and lines that follow the table."""
        has_null, n_more = not np.isnan(self.log10_p_values).all(), np.count_nonzero(~np.isnan(self.scores)) - SHOWN
        hidden = {"log10_p_value"} if has_null else {"p_value", "log10_p_value", "e_value"}  # p-values show logarithms
        lines = [[name for name in self.columns if name not in hidden]]
        for row in self.rows(SHOWN):
            reals = [f"{row[3]:.4f}", f"{row[4]:.4f}"]
            if has_null:  # also of probabilities that are too small for a float
                logs = row[6], row[6] + math.log10(max(1, self.n_entries))
                reals += map(probability_text, logs)
            lines.append([*map(str, row[:3]), *reals, *(json.dumps(note) for note in row[8:])])
        below = [f"... {n_more} more"] if n_more > 0 else []
        below += [] if has_null or len(lines) == 1 else ["no p-values: calibrate the index first"]
        return lines, below

    def __repr__(self) -> str:
        lines, below = self._shown()
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        body = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        n_matches = np.count_nonzero(~np.isnan(self.scores))
        head = f"{type(self).__name__}: {len(self)} queries, {n_matches} matches"
        return "\n".join([head, *(body if n_matches else []), *below])

    def _repr_html_(self) -> str:
        (names, *rows), below = self._shown()
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in below)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


PAIR_COLUMNS = ("first", "second", "score", "p_value", "log10_p_value")


@dataclass(frozen=True, eq=False)
class FoundBlock:
    """Results of consecutive queries, with the prepared queries, which compute their distances."""

    rows: slice  # of the queries
    hits: Hits
    scan: QueryBlock

    def distances(self, entries: EntrySet) -> Float64:
        """Return the distances of the hits: those that a worker sent with them, or computed from the codes."""
        known = len(self.hits.distances) == len(self.hits)
        return self.hits.distances if known else entries.distances(self.scan, self.hits)


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors(ResultTable):
    """Nearest entries of each query, closest first; ties by ascending id.

    Shapes depend only on the number of queries and on k.
    """

    ids: Any  #: (n_queries, k) int64, -1 where fewer than k entries are considered; or texts, and None
    scores: Float64  #: (n_queries, k) estimated correlations or inner products, nan where id is -1
    log10_p_values: Float64  #: (n_queries, k) of the chance that one impostor looks as close, nan where id is -1
    metadata: Any = None  #: (n_queries, k) dicts and None, where they were asked for
    n_entries: int = 0  #: entries that each query was compared with, or chosen from
    _measure: Measure = no_distances  #: computes the distances
    _visit_report: VisitReport | None = None  #: what a search for a recall visited
    recall_of: str = "codes"  #: what recall is of: the search by code, or the exact neighbours ("signals")

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
    def _visited(self) -> VisitReport:
        return VisitReport.everything(len(self), NOT_ASKED) if self._visit_report is None else self._visit_report

    @classmethod
    def _of_blocks(cls, blocks: Sequence[FoundBlock], entries: EntrySet, n_queries: int, k: int) -> Neighbors:
        """Return the ``k`` hits of each of ``n_queries`` in all ``blocks``, among ``entries``; each query of a block
        has the same number of them.
        """
        ids, (scores, logs) = np.full((n_queries, k), -1, np.int64), np.full((2, n_queries, k), np.nan)
        for one in blocks:
            shape = one.rows.stop - one.rows.start, -1
            found = one.hits.ids.reshape(shape)
            for column, values in (ids, found), (scores, one.hits.scores), (logs, one.hits.log10_p_values):
                column[one.rows, : found.shape[1]] = values.reshape(shape)

        def measure() -> Float64:
            distances = np.full((n_queries, k), np.nan)
            for one in blocks:
                found = one.distances(entries).reshape(one.rows.stop - one.rows.start, -1)
                distances[one.rows, : found.shape[1]] = found
            return distances

        return cls(ids, scores, logs, n_entries=len(entries), _measure=measure)

    @classmethod
    def _planned(
        cls,
        plan: SearchPlan,
        scores: Float64,
        hits: RegionHits,
        visit_report: VisitReport,
        k: int,
        angles: Callable[[Float64], Float64],
    ) -> Neighbors:
        """Return what a search in one call found by a ``plan``: ``scores``, ``hits``, ``k`` per query.

        ``angles`` computes distances from the values of codes. ``visit_report`` says what was visited.
        """
        missing = (0, 0), (0, k - scores.shape[1])

        def measure() -> Float64:
            return np.pad(angles(hits.values.astype(np.float64)), missing, constant_values=np.nan)

        ids, logs = hits.ids, np.full((len(scores), k), np.nan)
        if k > scores.shape[1]:
            ids = np.pad(ids, missing, constant_values=-1)
            scores = np.pad(scores, missing, constant_values=np.nan)
        recall_of = "codes" if plan.planned.originals is None else "signals"
        return cls(ids, scores, logs, None, plan.n_entries, measure, visit_report, recall_of)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.ids)

    def _positions_of(self, query: int) -> list[tuple[int, ...]]:
        return [(query, rank) for rank in range(self.ids.shape[1]) if not np.isnan(self.scores[query, rank])]


@dataclass(frozen=True, eq=False, repr=False)
class Matches(ResultTable):
    """Every match of each query, closest first; ties by ascending id.

    The matches of query i are ``[starts[i]:starts[i + 1]]`` of each other array.
    """

    starts: Int64  #: (n_queries + 1,)
    ids: Any  #: (n_matches,) int64, or texts
    scores: Float64  #: (n_matches,) estimated correlations or inner products
    log10_p_values: Float64  #: (n_matches,) of the chance that one impostor looks as close
    metadata: Any = None  #: (n_matches,) dicts and None, where they were asked for
    n_entries: int = 0  #: entries that each query was compared with
    _measure: Measure = no_distances  #: computes the distances

    @classmethod
    def _of_blocks(cls, blocks: Sequence[FoundBlock], entries: EntrySet) -> Matches:
        """Return the hits of consecutive ``blocks`` as one; ``entries`` are those that were searched."""
        counts = [np.zeros(1, np.int64)]
        for one in blocks:
            counts.append(np.bincount(one.hits.queries, minlength=one.rows.stop - one.rows.start).astype(np.int64))
        starts = np.cumsum(np.concatenate(counts))
        ids = np.concatenate([np.empty(0, np.int64), *(one.hits.ids for one in blocks)])
        scores = np.concatenate([np.empty(0), *(one.hits.scores for one in blocks)])
        logs = np.concatenate([np.empty(0), *(one.hits.log10_p_values for one in blocks)])

        def measure() -> Float64:
            return np.concatenate([np.empty(0), *(one.distances(entries) for one in blocks)])

        return cls(starts, ids, scores, logs, n_entries=len(entries), _measure=measure)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.starts) - 1

    def _positions_of(self, query: int) -> list[tuple[int, ...]]:
        return [(at,) for at in range(int(self.starts[query]), int(self.starts[query + 1]))]


@dataclass(frozen=True, eq=False)
class Pairs(Tabular):
    """Pairs of entries, each once; the most alike first, ties by ids."""

    first: Any  #: (n_pairs,) ids; of numbers the smaller, of texts the one added earlier
    second: Any  #: (n_pairs,) ids
    scores: Float64  #: (n_pairs,) estimated correlations, or cosines of reconstructions
    log10_p_values: Float64  #: (n_pairs,) of :attr:`p_values`; nan if unknown

    @property
    def p_values(self) -> Float64:
        """Probability that two independent signals are at least as similar, (n_pairs,); never 0, nan if unknown."""
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
        first, second, scores = (column[:SHOWN] for column in (self.first, self.second, self.scores))
        shown = [f"  {a} - {b}: {score:.4f}" for a, b, score in zip(first, second, scores, strict=True)]
        more = [f"  ... {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([f"Pairs: {len(self)}", *shown, *more])
