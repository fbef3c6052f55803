"""Extrapolation of recall to a larger index, from fewer neighbours in the sample and from nested samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Float64, Int64
from .intervals import share_interval

MAX_BLOCKS = 5
"""Number of disjoint nested samples whose recalls are averaged."""

FARTHEST = 1e-4
"""Recalls are limited to [FARTHEST, 1 - FARTHEST] before log-odds are computed."""


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Extrapolation of recall from a sample of entries to a larger number.

    The k nearest of ten times as many entries are about as far from a query as the k/10 nearest in the sample. The
    recall of these *matched* neighbours therefore estimates the recall in the larger index, but it is too low because
    k/10 neighbours are fewer. The correction is measured within the sample: the recall of k neighbours among all
    entries, compared with the recall of k/10 neighbours among a tenth of them.
    """

    k: int
    matched: int  # number of neighbours in the sample with the same density as k in the larger index
    n_entries: int  # of the sample
    n_signals: int  # of the larger index

    @classmethod
    def of(cls, k: int, n_entries: int, n_signals: int) -> Extrapolation:
        """Return the extrapolation from a sample to an index; ``matched`` is rounded down, towards more entries."""
        return cls(k, max(1, min(k, k * n_entries // n_signals)), n_entries, n_signals)

    @property
    def needed(self) -> bool:
        """Whether the index is larger than the sample."""
        return self.n_signals > self.n_entries

    def nested(self, rng: np.random.Generator) -> list[Int64]:
        """Return rows of disjoint samples in which ``matched`` neighbours are as dense as k in the whole sample."""
        if not self.needed or self.matched == self.k:
            return []
        size = self.n_entries * self.matched // self.k
        order = rng.permutation(self.n_entries)
        return [np.sort(order[at * size : (at + 1) * size]) for at in range(min(MAX_BLOCKS, self.n_entries // size))]

    def expected(self, whole: Float64, matched: Float64, nested: float | None) -> tuple[float, float, float]:
        """Return the recall that is expected of the larger index, and its 95% interval.

        ``whole`` has the recall of k neighbours in the sample for each query, ``matched`` the recall of the matched
        neighbours, and ``nested`` is the mean recall of matched neighbours in the nested samples. The interval runs
        from the lower limit without the correction to the upper limit with it, and the expected recall lies between the
        two. Standing: approximation, tested on data sets ten times as large as the sample; for larger ones the same
        decrease per factor of ten is assumed.
        """
        mean = float(whole.mean())
        if not self.needed:
            return mean, *share_interval(whole)
        low, high = share_interval(matched)
        correction = 0.0 if nested is None else max(0.0, float(_logit(mean) - _logit(nested)))
        raw = float(_logit(float(matched.mean())))
        values = np.array([raw + correction / 2, _logit(low), _logit(high) + correction])
        reached = self.n_entries * self.k / self.matched
        if self.n_signals > reached:
            slopes = (
                (values - _logit(mean)) / np.log(reached / self.n_entries) if reached > self.n_entries else 0 * values
            )
            values = values + np.minimum(slopes, 0) * np.log(self.n_signals / reached)
        point, low, high = (float(one) for one in 1 / (1 + np.exp(-values)))
        return point, min(low, point), 1.0 if high > 1 - 2 * FARTHEST else max(high, point)


def _logit(share: float) -> Float64:
    inside = np.clip(share, FARTHEST, 1 - FARTHEST)
    return np.asarray(np.log(inside) - np.log1p(-inside))
