"""Original signals, with which queries are compared exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, raise_unusable
from .._rows import take_rows
from ..kernels import CodeBlocks, CodeRange, OriginalRows
from ..significance.null_distributions import PairNull, SampleNull
from ..store.segments import Snapshot, unpack_originals
from .engine import Hits
from .query_block import QueryBlock

BLOCK_BYTES = 2**25  # bytes of stored signals compared at a time
SPARE = 16  # additional candidates from float32 products
FEW_QUERIES = 4  # queries that are compared exactly with all originals
ROUNDING = 2.0**-21  # bound of their relative rounding error, divided by the square root of n_features

Source = npt.ArrayLike | Callable[[Int64], npt.ArrayLike]


class ExactSignals(Protocol):
    """Original signals that candidates are compared with."""

    @property
    def n_features(self) -> int: ...
    def compare(self, hits: Hits, starts: Int64, queries: Array) -> tuple[Float64, Float64]:
        """Return exact inner products and correlations of queries with entries.

        Those of query q are the hits from ``starts[q]`` up to ``starts[q + 1]``.
        """


class Originals:
    """Original signals by id: rows of an array or memory map, or the result of a callable."""

    def __init__(self, source: Source, *, n_features: int, mean: Float32 | None = None) -> None:
        self.n_features, self.mean = n_features, mean
        if callable(source):
            self._fetch: Callable[[Int64], npt.ArrayLike] = source
        else:
            self._rows = as_signals(source, n_features=n_features, name="rescore")
            self._fetch = self._row_of_each

    def compare(self, hits: Hits, starts: Int64, queries: Array) -> tuple[Float64, Float64]:
        signals = [np.empty((0, self.n_features), np.float32)]
        for begin, end in pairwise(starts.tolist()):
            signals += [self._signals(hits.ids[begin:end])] if end > begin else []
        values = np.concatenate(signals)
        return compare_rows(values, np.ones(len(values), np.float32), starts, queries, self.mean)

    def _signals(self, ids: Int64) -> Float32:
        found = as_signals(self._fetch(ids), n_features=self.n_features, name="what rescore returned")
        if len(found) != len(ids):
            raise ValueError(f"rescore must return one signal per id, got {len(found)} for {len(ids)} ids")
        with np.errstate(over="ignore"):
            signals = np.asarray(found, np.float32)
        finite = np.isfinite(signals).all(axis=1)
        if not finite.all():
            raise_unusable(np.asarray(found), int(np.argmin(finite)), "rescore")
        return signals

    def _row_of_each(self, ids: Int64) -> Array:
        if ids.size and ids.max() >= len(self._rows):
            raise ValueError(
                f"rescore must hold the signal of id i in row i, got {len(self._rows)} rows and id {ids.max()}; "
                "give all signals, or a callable that takes ids and returns their signals"
            )
        return take_rows(self._rows, ids)


class KeptOriginals:
    """Original signals stored in the index.

    ``searched`` is the snapshot that rows belong to. If it has gathered a few entries, they are found by id.
    """

    def __init__(self, snapshot: Snapshot, searched: Snapshot, *, n_features: int, mean: Float32 | None = None) -> None:
        self.n_features, self.mean, self._snapshot = n_features, mean, snapshot
        self._is_gathered = searched.starts[-1] != snapshot.starts[-1]

    def compare(self, hits: Hits, starts: Int64, queries: Array) -> tuple[Float64, Float64]:
        return self.compare_entries(hits.ids, hits.rows, starts, queries)

    def compare_entries(self, ids: Int64, rows: Int64, starts: Int64, queries: Array) -> tuple[Float64, Float64]:
        """Return the results of :meth:`compare` for entries with these internal ids and rows."""
        inner, correlations = np.empty(len(rows)), np.empty(len(rows))
        n_rows = max(1, BLOCK_BYTES // (4 * self.n_features))
        for first in range(0, len(rows), n_rows):
            part = slice(first, min(first + n_rows, len(rows)))
            values, scales = self._stored(ids[part], rows[part])
            counts = np.clip(starts, part.start, part.stop).astype(np.int64) - part.start
            inner[part], correlations[part] = compare_rows(values, scales, counts, queries, self.mean)
        return inner, correlations

    def _stored(self, ids: Int64, rows: Int64) -> tuple[Array, Float32]:
        """Return originals of entries as they are stored, and their scales."""
        found = self._snapshot.packed_signals(self._snapshot.locate(ids) if self._is_gathered else rows)
        if found is None:
            raise ValueError("some entries were added without their signals, as a cluster adds them; add them again")
        return found

    def best(self, snapshot: Snapshot, queries: Array, n_rows: int, *, metric: str) -> Compared:
        """Return the ``n_rows`` entries nearest to each query by their signals.

        Few queries are compared exactly with all entries. Of many, the best by float32 products are compared exactly,
        and every entry for which rounding leaves open whether it is among them, for example one of many equal signals.
        """
        if len(queries) <= FEW_QUERIES:
            return self._best_of_all(snapshot, queries, n_rows, metric)
        units = _units(np.asarray(queries, np.float32), self.mean, scaled=True)
        best, rows = np.empty((len(units), 0), np.float32), np.empty((len(units), 0), np.int64)
        n_held, margin = n_rows + SPARE, 0.0
        for some, scores, margins in self._products(snapshot, units, metric):
            margin = max(margin, float(margins.max()))
            if best.shape[1] < n_held:
                added = scores, np.broadcast_to(some, scores.shape)
            else:
                added = _above(scores, some, best.min(axis=1))
            best, rows = np.hstack([best, added[0]]), np.hstack([rows, added[1]])
            if best.shape[1] > n_held:
                kept = np.argpartition(-best, n_held - 1, axis=1)[:, :n_held]
                best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
        found = self._compared(snapshot, rows, queries, metric).best(snapshot, n_rows)
        if len(snapshot) > n_held:
            least = found.scores[:, -1]
            if metric == "inner_product":  # of unit queries, as the products
                centred = np.asarray(queries, np.float64) - (0 if self.mean is None else self.mean)
                least = np.asarray(least / np.sqrt((centred**2).sum(axis=1)))
            open_ones = np.flatnonzero(best.min(axis=1) + margin >= least)
            if open_ones.size:
                again = self._best_reaching(snapshot, queries[open_ones], n_rows, least[open_ones], metric)
                for column, values in zip(found, again, strict=True):
                    column[open_ones] = values
        return found

    def _best_of_all(self, snapshot: Snapshot, queries: Array, n_rows: int, metric: str) -> Compared:
        """Return the nearest entries by exact comparison of all, which are read where they are stored."""
        size, found, n_queries = max(1, BLOCK_BYTES // (4 * self.n_features)), Compared.none(len(queries)), len(queries)
        for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            living = np.flatnonzero(segment.living)
            for start in range(0, len(living), size):
                some = living[start : start + size]
                if self._is_gathered or not snapshot.has_originals:
                    (values, scales), places = self._stored(segment.ids[some], first_row + some), np.arange(len(some))
                else:
                    values, scales = (segment.columns.extra(name) for name in ("originals", "original_scales"))
                    places = some
                starts, places = np.arange(n_queries + 1) * len(some), np.tile(places, n_queries)
                inner, correlations = compare_rows(values, scales, starts, queries, self.mean, places)
                scores = round_scores(inner if metric == "inner_product" else correlations).reshape(n_queries, -1)
                n_best = min(n_rows, len(some))
                best = (scores >= np.partition(scores, -n_best, axis=1)[:, [-n_best]]).any(axis=0)
                rows = np.broadcast_to(first_row + some[best], (n_queries, best.sum()))
                compared = Compared(rows, scores[:, best], correlations.reshape(n_queries, -1)[:, best])
                found = found.joined(compared).best(snapshot, n_rows)
        return found

    def _best_reaching(self, snapshot: Snapshot, queries: Array, n_rows: int, least: Float64, metric: str) -> Compared:
        """Return the nearest entries by exact comparison of all whose products reach ``least`` within rounding."""
        units = _units(np.asarray(queries, np.float32), self.mean, scaled=True)
        found = [Compared.none(1)] * len(units)
        for some, scores, margins in self._products(snapshot, units, metric):
            for query, bound in enumerate(least):
                reaching = some[np.newaxis, scores[query] + margins >= bound]
                if reaching.size:
                    here = self._compared(snapshot, reaching, queries[query : query + 1], metric)
                    found[query] = found[query].joined(here).best(snapshot, n_rows)
        return Compared(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _products(self, snapshot: Snapshot, units: Float32, metric: str) -> Iterator[tuple[Int64, Float32, Float64]]:
        """Yield rows of live entries, float32 products with unit queries, and bounds of their rounding errors."""
        size = max(1, BLOCK_BYTES // (4 * self.n_features))
        for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            living = np.flatnonzero(segment.living)
            for start in range(0, len(living), size):
                some = living[start : start + size]
                stored = self._stored(segment.ids[some], first_row + some)
                signals = _units(unpack_originals(*stored), self.mean, scaled=metric == "correlation")
                norms = np.sqrt(np.einsum("if,if->i", signals, signals, dtype=np.float64))
                yield first_row + some, units @ signals.T, ROUNDING * np.sqrt(self.n_features) * norms

    def _compared(self, snapshot: Snapshot, rows: Int64, queries: Array, metric: str) -> Compared:
        """Compare each query exactly with the entries of its row of ``rows``."""
        ids = snapshot.gather("ids", rows.ravel())
        starts = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
        inner, correlations = self.compare_entries(ids, rows.ravel(), starts, queries)
        scores = round_scores(inner if metric == "inner_product" else correlations)
        return Compared(rows, scores.reshape(rows.shape), correlations.reshape(rows.shape))

    def nearest(self, snapshot: Snapshot, scan: QueryBlock, queries: Array, which: Int64, k: int) -> Hits:
        """Return the k entries of a snapshot nearest to queries by their signals, measured, with exact scores.

        ``queries`` are the signals of the queries number ``which`` of the scan.
        """
        if not len(snapshot):
            return scan.measure(snapshot, Hits.none())
        n_rows = min(k, len(snapshot))
        found = self.best(snapshot, queries, n_rows, metric=scan.comparison.metric)
        rows = found.rows.ravel()
        hits = Hits(np.repeat(which, n_rows), rows, snapshot.gather("ids", rows), np.empty(len(rows), np.float32))
        hits = replace(hits, values=scan.values_of(snapshot, hits))  # of codes, from which distances are computed
        hits = scan.measure(snapshot, hits)
        logs = exact_p_values(scan, self.n_features, hits.log10_p_values, found.correlations.ravel())
        return replace(hits, scores=found.scores.ravel(), log10_p_values=logs)


class Compared(NamedTuple):
    """Entries that were compared exactly with each query, (n_queries, n_entries)."""

    rows: Int64
    scores: Float64
    correlations: Float64

    @classmethod
    def none(cls, n_queries: int) -> Compared:
        """Return no entries."""
        return cls(np.empty((n_queries, 0), np.int64), np.empty((n_queries, 0)), np.empty((n_queries, 0)))

    def joined(self, other: Compared) -> Compared:
        """Return the entries of both."""
        return Compared(*(np.hstack(columns) for columns in zip(self, other, strict=True)))

    def best(self, snapshot: Snapshot, n_rows: int) -> Compared:
        """Return the ``n_rows`` entries with the highest scores of each query; ties by ascending id."""
        ids = snapshot.gather("ids", self.rows.ravel()).reshape(self.rows.shape)
        order = np.lexsort((ids, -self.scores), axis=1)[:, :n_rows]
        columns: tuple[Array, ...] = self
        return Compared(*(np.take_along_axis(column, order, axis=1) for column in columns))


def _above(scores: Float32, rows: Int64, bounds: Float32) -> tuple[Float32, Int64]:
    """Return the scores of each query above its bound and their rows, padded with scores of minus infinity."""
    queries, columns = np.nonzero(scores > bounds[:, np.newaxis])
    counts = np.bincount(queries, minlength=len(scores))
    places = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.full((len(scores), int(counts.max(initial=0))), -np.inf, np.float32)
    found_rows = np.full(found.shape, rows[0], np.int64)
    found[queries, places], found_rows[queries, places] = scores[queries, columns], rows[columns]
    return found, found_rows


def _units(signals: Float32, mean: Float32 | None, *, scaled: bool) -> Float32:
    """Return signals minus the mean, scaled to norm one if ``scaled``; zero signals stay zero."""
    signals = signals if mean is None else signals - mean
    if not scaled:
        return signals
    norms = np.sqrt(np.einsum("if,if->i", signals, signals, dtype=np.float64))
    return (signals / np.where(norms > 0, norms, 1)[:, np.newaxis]).astype(np.float32)


def compare_rows(
    values: Array, scales: Float32, starts: Int64, queries: Array, mean: Float32 | None, rows: Int64 | None = None
) -> tuple[Float64, Float64]:
    """Return inner products and correlations of queries with signals, values times scales.

    Those of query q are the signals, or the ``rows`` of them, from ``starts[q]`` up to ``starts[q + 1]``; zero signals
    are uncorrelated.
    """
    held = CodeRange(CodeBlocks(np.empty((0, 0, 0), np.uint8), len(values)))
    originals = OriginalRows([(np.ascontiguousarray(values), scales)], is_inner=False, minus=mean)
    signals, rows = np.ascontiguousarray(queries, np.float32), np.arange(len(values)) if rows is None else rows
    return kernels.active().compare_originals([held], originals, signals, starts, rows)


def round_scores(exact: Float64) -> Float64:
    """Round scores to float32, because the last bits depend on the batch size."""
    return exact.astype(np.float32).astype(np.float64)


def rank_exactly(scan: QueryBlock, candidates: Hits, originals: ExactSignals, queries: Array, k: int) -> Hits:
    """Return the k best candidates of each query by exact comparison, with exact scores and p-values.

    Candidates are measured, and those of a query stand together. P-values of a learned null stay those of the codes,
    whose scores it was learned from; codes without a null have none for exact scores either.
    """
    starts = np.searchsorted(candidates.queries, np.arange(len(queries) + 1)).astype(np.int64)
    inner, correlations = originals.compare(candidates, starts, queries)
    scores = round_scores(inner if scan.comparison.metric == "inner_product" else correlations)
    order = np.lexsort((candidates.ids, -scores, candidates.queries))
    ordered = candidates.queries[order]
    kept = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < k]
    hits = replace(candidates[kept], scores=scores[kept])
    logs = exact_p_values(scan, originals.n_features, hits.log10_p_values, correlations[kept])
    return replace(hits, log10_p_values=logs)


def exact_p_values(scan: QueryBlock, n_features: int, logs: Float64, correlations: Float64) -> Float64:
    """Return the logarithms of p-values of exact correlations; those of the codes if their null is learned."""
    return SampleNull(n_features).log10_p_values(correlations) if isinstance(scan.null, PairNull) else logs
