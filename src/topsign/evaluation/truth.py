"""True neighbours: the exact nearest neighbours of the signals by one metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Float32, Int64
from .._checks import check_choice

METRICS = ("cosine", "centred cosine", "inner_product")

BLOCK_VALUES = 2**24
"""Maximum number of values of entries in one block of exact comparisons."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact scores by a metric: cosines of the signals, cosines after subtracting a mean, or inner products."""

    metric: str
    mean: Float32 | None

    @classmethod
    def of(cls, metric: str, entries: Float32) -> Truth:
        """Return the metric with the mean of the entries."""
        check_choice(metric, "metric", METRICS)
        return cls(metric, mean_of(entries) if metric == "centred cosine" else None)

    def vectors(self, signals: Float32) -> Float32:
        """Return vectors whose inner products are the scores."""
        if self.metric == "inner_product":
            return signals
        centred = signals if self.mean is None else signals - self.mean
        norms = np.sqrt(np.einsum("ij,ij->i", centred, centred))
        return np.asarray(centred / np.maximum(norms, 1e-30)[:, np.newaxis], np.float32)

    def neighbors(self, entries: Float32, queries: Float32, k: int) -> Int64:
        """Return the rows of the k entries with the largest scores for each query, closest first.

        Entries are compared in blocks, so memory does not grow with their number.
        """
        k, n_rows = min(k, len(entries)), max(k, BLOCK_VALUES // entries.shape[1])
        asked = self.vectors(queries)
        best = np.full((len(asked), k), -np.inf, np.float32)
        found = np.zeros((len(asked), k), np.int64)
        for start in range(0, len(entries), n_rows):
            scores = asked @ self.vectors(entries[start : start + n_rows]).T
            part = min(k, scores.shape[1])
            top = np.argpartition(-scores, part - 1, axis=1)[:, :part]
            best = np.hstack([best, np.take_along_axis(scores, top, axis=1)])
            found = np.hstack([found, top + start])
            order = np.argsort(-best, axis=1, kind="stable")[:, :k]
            best, found = np.take_along_axis(best, order, axis=1), np.take_along_axis(found, order, axis=1)
        return found

    def ordered(self, entries: Float32, queries: Float32, ids: Int64) -> Int64:
        """Return the candidates of each query in descending order of their exact scores; negative ids come last."""
        asked, found = self.vectors(queries), np.empty_like(ids)
        for row, mine in enumerate(ids):
            scores = self.vectors(entries[mine]) @ asked[row]
            found[row] = mine[np.argsort(np.where(mine < 0, np.inf, -scores), kind="stable")]
        return found


def mean_of(signals: Float32) -> Float32:
    """Return the mean signal."""
    return np.asarray(signals.mean(axis=0, dtype=np.float64), np.float32)
