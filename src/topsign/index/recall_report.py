"""Reports on regions and on the recall of searches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Float64
from .results import Neighbors

DUE_GROWTH = 4
"""Regions should be learned again when an index has grown by this factor."""


@dataclass(frozen=True)
class RegionSummary:
    """Summary of the regions of an index."""

    n_regions: int
    n_learned: int  # entries there were when they were learned
    n_entries: int  # entries there are
    recall_of: str | None  # "codes" or "signals"; None if recall is not calibrated
    n_queries: int  # of the calibration

    @property
    def growth(self) -> float:
        """Entries there are, relative to those the regions were learned with."""
        return self.n_entries / max(1, self.n_learned)

    @property
    def is_due(self) -> bool:
        """Whether learning again would make searches faster."""
        return self.growth >= DUE_GROWTH


@dataclass(frozen=True)
class RecallCheck:
    """Recall of queries, compared with what was asked for."""

    asked: float
    achieved: float
    interval: tuple[float, float]  # 95%, of the mean over queries
    predicted: float
    visited: float  # mean share of the entries
    exhaustive: float  # share of the queries for which all entries were visited
    recall_of: str
    k: int
    n_queries: int

    @classmethod
    def of_search(cls, found: Neighbors, exact: Array, own: Array | None, *, k: int, asked: float) -> RecallCheck:
        """Compare what a search for a recall found with the exact neighbours, without each query's own entry."""
        achieved = _recalls(found.ids, exact, own, k)
        return cls(
            asked,
            float(achieved.mean()),
            _mean_interval(achieved),
            float(np.mean(found.recall)),
            float(np.mean(found.visited)),
            float(np.mean(found.exhaustive != "")),
            found.recall_of,
            k,
            len(achieved),
        )

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"recall@{self.k} of {self.recall_of}: asked {self.asked:.3f}, achieved {self.achieved:.3f} "
            f"[{low:.3f}, {high:.3f}] with {self.n_queries:,} queries, which visited {self.visited:.2%} of the entries"
        )


def _recalls(found: Array, exact: Array, own: Array | None, k: int) -> Float64:
    """Return the share of the k exact neighbours of each query that were found, without the query itself."""
    recalls = np.empty(len(found))
    for row, (some, right) in enumerate(zip(found.tolist(), exact.tolist(), strict=True)):
        left = None if own is None else own[row]
        wanted = [one for one in right if one != left][:k]
        had = {one for one in some if one != left}
        recalls[row] = sum(one in had for one in wanted) / max(1, len(wanted))
    return recalls


def _mean_interval(values: Float64) -> tuple[float, float]:
    """Return the 95% interval of a mean over queries."""
    half = 1.96 * float(values.std()) / np.sqrt(max(1, len(values)))
    mean = float(values.mean()) if len(values) else float("nan")
    return max(0.0, mean - half), min(1.0, mean + half)
