"""Rescoring: entries compared exactly by their original signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, raise_unusable
from .._rows import take_rows
from ..families.laws import PairNull, SampleNull
from ..store import Snapshot
from .hits import Hits
from .scan import Scan

BLOCK_BYTES = 2**25  # kept signals that are compared at a time

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
            signals = self._snapshot.signals(self._snapshot.locate(ids[part].ravel()))
            assert signals is not None
            shaped = signals.astype(np.float64).reshape(*ids[part].shape, self.n_features)
            inner[part], correlations[part] = _compare(shaped, queries[part], self.mean)
        return inner, correlations


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


def rank_exactly(scan: Scan, candidates: Hits, originals: Originals | KeptOriginals, queries: Array, k: int) -> Hits:
    """Return the k best candidates of each query by exact comparison, with exact scores and p-values.

    Candidates are measured, and every query has as many. P-values of a learned null stay those of the codes, whose
    scores it was learned from; codes without a null have none for exact scores either.
    """
    shape = (len(queries), len(candidates.ids) // max(1, len(queries)))
    ids = candidates.ids.reshape(shape)
    inner, correlations = originals.compare(ids, queries)
    exact = inner if scan.comparison.metric == "inner_product" else correlations
    order = np.lexsort((ids, -exact))[:, :k]
    kept = (order + np.arange(len(queries))[:, None] * shape[1]).ravel()
    hits = replace(candidates[kept], scores=exact.ravel()[kept].astype(np.float32))
    if not isinstance(scan.null, PairNull):
        return hits
    return replace(hits, p_values=SampleNull(originals.n_features).p_values(correlations.ravel()[kept]))
