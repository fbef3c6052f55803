"""Rescoring: entries compared exactly by their original signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, raise_unusable
from .._rows import take_rows
from ..families.laws import PairNull, SampleNull
from ..store import Snapshot
from .engine import row_ranges
from .hits import Hits
from .scan import Scan

BLOCK_BYTES = 2**25  # kept signals that are compared at a time
SPARE = 16  # rows by float32 products beyond those needed
ROUNDING = 2.0**-21  # error of such products, in norms of the signals and square roots of their length

Source = npt.ArrayLike | Callable[[Int64], npt.ArrayLike]


class Originals:
    """Original signals by id: rows of an array or memory map, or the result of a callable."""

    def __init__(self, source: Source, *, n_features: int, mean: Float32 | None = None) -> None:
        self.n_features, self.mean = n_features, mean
        if callable(source):
            self._fetch: Callable[[Int64], npt.ArrayLike] = source
        else:
            self._rows = as_signals(source, n_features=n_features, name="rescore")
            self._fetch = self._row_of_each

    def compare(self, ids: Int64, queries: Array) -> tuple[Float64, Float64]:
        """Return exact inner products and correlations of each query with its entries, (n_queries, n_entries)."""
        inner, correlations = np.empty(ids.shape), np.empty(ids.shape)
        for row, query in enumerate(queries):
            signals = self._signals(ids[row])[np.newaxis]
            inner[row], correlations[row] = _compare(signals, query[np.newaxis], self.mean)
        return inner, correlations

    def _signals(self, ids: Int64) -> Float64:
        found = as_signals(self._fetch(ids), n_features=self.n_features, name="what rescore returned")
        if len(found) != len(ids):
            raise ValueError(f"rescore must return one signal per id, got {len(found)} for {len(ids)} ids")
        signals = np.asarray(found, dtype=np.float64)
        finite = np.isfinite(signals).all(axis=1)
        if not finite.all():
            raise_unusable(signals, int(np.argmin(finite)), "rescore")
        return signals

    def _row_of_each(self, ids: Int64) -> Array:
        if ids.size and ids.max() >= len(self._rows):
            raise ValueError(
                f"rescore must hold the signal of id i in row i, got {len(self._rows)} rows and id {ids.max()}; "
                "give all signals, or a callable that takes ids and returns their signals"
            )
        return take_rows(self._rows, ids)


class KeptOriginals:
    """Original signals that the index keeps."""

    def __init__(self, snapshot: Snapshot, *, n_features: int, mean: Float32 | None = None) -> None:
        self.n_features, self.mean, self._snapshot = n_features, mean, snapshot

    def compare(self, ids: Int64, queries: Array) -> tuple[Float64, Float64]:
        """Return exact inner products and correlations of each query with its entries, (n_queries, n_entries)."""
        inner, correlations = np.empty(ids.shape), np.empty(ids.shape)
        n_rows = max(1, BLOCK_BYTES // max(1, 8 * ids.shape[1] * self.n_features))
        for start in range(0, len(ids) if ids.size else 0, n_rows):
            part = slice(start, start + n_rows)
            signals = self._signals(ids[part].ravel())
            shaped = signals.astype(np.float64).reshape(*ids[part].shape, self.n_features)
            inner[part], correlations[part] = _compare(shaped, queries[part], self.mean)
        return inner, correlations

    def _signals(self, ids: Int64) -> Float32:
        signals = self._snapshot.signals(self._snapshot.locate(ids))
        if signals is None:
            raise ValueError("some entries were added without their signals, as a cluster adds them; add them again")
        return signals

    def best_rows(self, snapshot: Snapshot, queries: Array, n_rows: int, *, metric: str) -> Int64:
        """Return the rows of the entries nearest to each query by their signals, (n_queries, n_rows).

        Exact: the best by float32 products are compared exactly, and every entry for which rounding leaves open
        whether it is among them, for example one of many equal signals.
        """
        units = _units(np.asarray(queries, np.float32), self.mean, scaled=True)
        best, rows = np.empty((len(units), 0), np.float32), np.empty((len(units), 0), np.int64)
        n_held, margin = n_rows + SPARE, 0.0
        for some, scores, margins in self._products(snapshot, units, metric):
            best = np.hstack([best, scores])
            rows = np.hstack([rows, np.broadcast_to(some, scores.shape)])
            margin = max(margin, float(margins.max()))
            if best.shape[1] > n_held:
                kept = np.argpartition(-best, n_held - 1, axis=1)[:, :n_held]
                best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
        rows, exact = self._best_of(snapshot, rows, queries, n_rows, metric)
        if len(snapshot) > n_held:
            open_ones = np.flatnonzero(best.min(axis=1) + margin >= exact[:, -1])
            if open_ones.size:
                rows[open_ones] = self._all_compared(snapshot, queries[open_ones], n_rows, exact[open_ones, -1], metric)
        return rows

    def _products(self, snapshot: Snapshot, units: Float32, metric: str) -> Iterator[tuple[Int64, Float32, Float64]]:
        """Yield rows of living entries, float32 products with unit queries, and by how much rounding changes these."""
        size = max(1, BLOCK_BYTES // (4 * self.n_features))
        for first_row, segment in zip(snapshot.starts, snapshot.segments, strict=False):
            living = np.flatnonzero(segment.living)
            for start in range(0, len(living), size):
                some = living[start : start + size]
                signals = _units(self._signals(segment.ids[some]), self.mean, scaled=metric == "correlation")
                norms = np.sqrt(np.einsum("if,if->i", signals, signals, dtype=np.float64))
                yield first_row + some, units @ signals.T, ROUNDING * np.sqrt(self.n_features) * norms

    def _all_compared(self, snapshot: Snapshot, queries: Array, n_rows: int, least: Float64, metric: str) -> Int64:
        """Return the nearest rows by exact comparison of all entries whose products reach ``least`` within rounding."""
        units = _units(np.asarray(queries, np.float32), self.mean, scaled=True)
        held = [np.empty(0, np.int64)] * len(units)
        for some, scores, margins in self._products(snapshot, units, metric):
            for query, bound in enumerate(least):
                reaching = some[scores[query] + margins >= bound]
                if reaching.size:
                    rows = np.concatenate([held[query], reaching])[np.newaxis]
                    held[query] = self._best_of(snapshot, rows, queries[query : query + 1], n_rows, metric)[0][0]
        return np.array(held)

    def _best_of(
        self, snapshot: Snapshot, rows: Int64, queries: Array, n_rows: int, metric: str
    ) -> tuple[Int64, Float64]:
        """Return the best of some rows of each query and their scores for unit queries; ties by ascending id."""
        ids = snapshot.gather("ids", rows.ravel()).reshape(rows.shape)
        inner, correlations = self.compare(ids, queries)
        scores = _reported(inner if metric == "inner_product" else correlations)
        order = np.lexsort((ids, -scores), axis=1)[:, :n_rows]
        if metric == "inner_product":
            values = np.asarray(queries, np.float64) - (0 if self.mean is None else self.mean)
            scores = scores / np.sqrt((values**2).sum(axis=1))[:, np.newaxis]
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def candidates(
        self, scan: Scan, snapshot: Snapshot, queries: Array, which: Int64, n_rows: int
    ) -> tuple[Int64, Array]:
        """Return rows and code values of the entries nearest to some of the queries by their signals."""
        metric = scan.comparison.metric
        best = self.best_rows(snapshot, queries[which], min(n_rows, len(snapshot)), metric=metric)
        rows, values = list[Int64](), list[Array]()
        for query, some in zip(which, best, strict=True):
            found, value = scan.comparison.rank(row_ranges(snapshot, some), len(some), n_threads=1)
            rows.append(found[query])
            values.append(value[query])
        return np.array(rows).reshape(len(which), -1), np.array(values).reshape(len(which), -1)


def _units(signals: Float32, mean: Float32 | None, *, scaled: bool) -> Float32:
    """Return signals less the mean, and of norm one if ``scaled``; zero signals stay zero."""
    signals = signals if mean is None else signals - mean
    if not scaled:
        return signals
    norms = np.sqrt(np.einsum("if,if->i", signals, signals, dtype=np.float64))
    return (signals / np.where(norms > 0, norms, 1)[:, np.newaxis]).astype(np.float32)


def _compare(signals: Float64, queries: Array, mean: Float32 | None) -> tuple[Float64, Float64]:
    """Return inner products and correlations of queries with their signals, (n_queries, n_signals, n_features).

    Zero signals are uncorrelated.
    """
    values = np.asarray(queries, np.float64)
    if mean is not None:
        signals, values = signals - mean, values - mean
    inner = np.einsum("qif,qf->qi", signals, values)
    norms = np.sqrt(np.einsum("qif,qif->qi", signals, signals)) * np.sqrt((values**2).sum(axis=1))[:, np.newaxis]
    return inner, np.divide(inner, norms, out=np.zeros(inner.shape), where=norms > 0)


def _reported(exact: Float64) -> Float64:
    """Return exact scores as they are reported: sums of batches of other sizes may differ in the last bits."""
    return exact.astype(np.float32).astype(np.float64)


def rank_exactly(scan: Scan, candidates: Hits, originals: Originals | KeptOriginals, queries: Array, k: int) -> Hits:
    """Return the k best candidates of each query by exact comparison, with exact scores and p-values.

    Candidates are measured, and every query has as many. P-values of a learned null stay those of the codes, whose
    scores it was learned from; codes without a null have none for exact scores either.
    """
    shape = (len(queries), len(candidates.ids) // max(1, len(queries)))
    ids = candidates.ids.reshape(shape)
    inner, correlations = originals.compare(ids, queries)
    exact = inner if scan.comparison.metric == "inner_product" else correlations
    scores = _reported(exact)
    order = np.lexsort((ids, -scores))[:, :k]
    kept = (order + np.arange(len(queries))[:, None] * shape[1]).ravel()
    hits = replace(candidates[kept], scores=scores.ravel()[kept])
    if not isinstance(scan.null, PairNull):
        return hits
    logs = SampleNull(originals.n_features).log10_p_values(correlations.ravel()[kept])
    return replace(hits, log10_p_values=logs)
