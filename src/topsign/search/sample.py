"""A uniform sample of the signals that were added, to learn null distributions from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Float32, Int64
from ..projections.blocks import Block

MAX_SIGNALS, MAX_BYTES, MIN_SIGNALS = 2000, 2**26, 32

MOST_COUNTED = 10**9
"""NumPy draws hypergeometric numbers only for fewer signals; of so many a few are drawn as if with replacement."""


@dataclass(frozen=True, eq=False)
class SignalSample:
    """A uniform sample of signals with their ids; :meth:`merged` returns that of two additions."""

    ids: Array  # as users see them
    signals: Float32  # (n_kept, n_features)
    n_seen: int  # signals that it was drawn from

    @classmethod
    def empty(cls, n_features: int) -> SignalSample:
        """Return a sample of no signals."""
        return cls(np.empty(0, np.int64), np.empty((0, n_features), np.float32), 0)

    def merged(self, other: SignalSample) -> SignalSample:
        """Return a uniform sample of the signals of both."""
        if not self.n_seen or not other.n_seen:
            return self if self.n_seen else other
        rng = np.random.default_rng([self.n_seen, other.n_seen])
        n_seen, capacity = self.n_seen + other.n_seen, _capacity(self.signals.shape[1])
        n_kept = min(capacity, n_seen)
        # The number of the other's signals in a uniform sample of all is hypergeometric.
        if n_seen < MOST_COUNTED:
            n_other = int(rng.hypergeometric(other.n_seen, self.n_seen, n_kept))
        else:
            n_other = min(int(rng.binomial(n_kept, other.n_seen / n_seen)), len(other.ids))
            n_other = max(n_other, n_kept - len(self.ids))
        mine = np.sort(rng.choice(len(self.ids), n_kept - n_other, replace=False))
        theirs = np.sort(rng.choice(len(other.ids), n_other, replace=False))
        ids = np.concatenate([self.ids[mine], other.ids[theirs]])
        return SignalSample(ids, np.concatenate([self.signals[mine], other.signals[theirs]]), n_seen)


class SampleDraw:
    """The choice among signals that are about to be added; they are copied while they are encoded."""

    def __init__(self, n_signals: int, n_features: int, *, first: int) -> None:
        self._first, self._n_seen = first, n_signals
        rng = np.random.default_rng([0, n_signals])
        n_kept = min(n_signals, _capacity(n_features))
        self._positions: Int64 = np.sort(rng.choice(n_signals, n_kept, replace=False)) if n_kept else _NONE
        self._signals = np.empty((n_kept, n_features), np.float32)

    def observe(self, block: Block) -> None:
        """Copy the chosen signals of a block."""
        start, stop = block.rows.start - self._first, block.rows.stop - self._first
        low, high = np.searchsorted(self._positions, [start, stop])
        self._signals[low:high] = block.raw[self._positions[low:high] - start]

    def sample(self, ids: Array) -> SignalSample:
        """Return the chosen signals, once the signals have these ids."""
        return SignalSample(ids[self._positions], self._signals, self._n_seen)


_NONE = np.empty(0, np.int64)


def _capacity(n_features: int) -> int:
    """Return the most signals that are kept."""
    return int(np.clip(MAX_BYTES // (4 * n_features), MIN_SIGNALS, MAX_SIGNALS))
