"""Rescoring: entries compared exactly by their original signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, raise_unusable
from .._rows import take_rows
from ..families.laws import sample_pvalues
from .hits import Hits
from .scan import Scan

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

    def compare(self, ids: Int64, query: Float64) -> tuple[Float64, Float64]:
        """Exact inner products and correlations of a query with these entries; zero signals are uncorrelated."""
        signals = self._signals(ids)
        if self.mean is not None:
            signals, query = signals - self.mean, query - self.mean
        inner = signals @ query
        norms = np.sqrt((signals**2).sum(axis=1)) * np.sqrt((query**2).sum())
        return inner, np.divide(inner, norms, out=np.zeros(len(ids)), where=norms > 0)

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


def rank_exactly(scan: Scan, candidates: Hits, originals: Originals, queries: Array, k: int) -> Hits:
    """Return the k best candidates of each query by exact comparison, with exact scores and p-values.

    Candidates are measured, and every query has as many. P-values of a learned null stay those of the codes, whose
    scores it was learned from; codes without a null have none for exact scores either.
    """
    shape = (len(queries), len(candidates.ids) // max(1, len(queries)))
    ids = candidates.ids.reshape(shape)
    inner, correlations = np.empty(shape), np.empty(shape)
    for row, query in enumerate(queries):
        inner[row], correlations[row] = originals.compare(ids[row], query.astype(np.float64))
    exact = inner if scan.comparison.metric == "inner_product" else correlations
    order = np.lexsort((ids, -exact))[:, :k]
    kept = (order + np.arange(len(queries))[:, None] * shape[1]).ravel()
    hits = replace(candidates[kept], scores=exact.ravel()[kept].astype(np.float32))
    if scan.null is None or scan.null.learned:
        return hits
    return replace(hits, p_values=sample_pvalues(correlations.ravel()[kept], originals.n_features))
