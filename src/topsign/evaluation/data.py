"""Inspection of a user's signals: sampling, spectrum, mean, and rows that do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._rows import take_rows

MAX_ROWS = 2000
"""Signals that the spectrum is measured on."""

MIN_ENTRIES, MIN_QUERIES = 200, 10

MAX_VALUES = 2**27
"""Values (signals times features) that a sample holds at most: half a gigabyte."""


@dataclass(frozen=True)
class Isotropy:
    """Deviation of signals from equal variance in all directions."""

    mean_share: float  # of the energy: squared norm of the mean over the mean squared norm
    effective_dimensions: float  # of the centred signals: squared sum of the variances over the sum of their squares
    spectrum: Float64  # shares of the centred variance by direction, descending

    def sentence(self, n_features: int) -> str:
        """The finding in one sentence."""
        top = float(self.spectrum[: max(1, n_features // 20)].sum())
        if self.mean_share < 0.02 and self.effective_dimensions > 0.5 * n_features:
            return (
                f"The signals are nearly isotropic: their mean holds {self.mean_share:.1%} of the energy, and the "
                f"variance is spread over {self.effective_dimensions:.0f} of {n_features} dimensions."
            )
        return (
            f"The signals are not isotropic: their mean holds {self.mean_share:.0%} of the energy, and the variance is "
            f"spread over {self.effective_dimensions:.0f} effective dimensions of {n_features} (the first "
            f"{max(1, n_features // 20)} directions hold {top:.0%})."
        )


@dataclass(frozen=True)
class Split:
    """Entries and queries to evaluate with, and what was left out."""

    entries: Float32
    queries: Float32
    own_queries: bool  # whether queries are held-out rows of the signals
    n_signals: int  # rows before sampling
    notes: list[str]


def split_signals(signals: Array, queries: Array | None, *, n_entries: int, n_queries: int, seed: int) -> Split:
    """A random sample of usable rows, split into entries and held-out queries where none are given.

    Rows that cannot be encoded are left out and named. Raises ValueError where too few remain.
    """
    n_features = signals.shape[1]
    rng = np.random.default_rng(seed)
    limit = max(1000, MAX_VALUES // n_features)
    wanted = min(len(signals), limit, n_entries + (n_queries if queries is None else 0))
    rows = np.sort(rng.choice(len(signals), wanted, replace=False))
    sample = take_rows(signals, rows).astype(np.float32, copy=False)
    sample, rows, notes = _usable(sample, rows, "signals")
    sample, rows = _without_duplicates(sample, rows, notes)
    constant = np.flatnonzero(np.ptp(sample, axis=0) == 0) if len(sample) else np.empty(0, np.int64)
    if constant.size:
        notes.append(
            f"{constant.size} of {n_features} columns are constant (the first is {constant[0]}): they say nothing "
            "about similarity once the mean is removed"
        )
    if queries is None and len(sample) < MIN_ENTRIES + MIN_QUERIES:
        raise ValueError(
            f"an evaluation takes at least {MIN_ENTRIES + MIN_QUERIES} usable signals, {MIN_ENTRIES} entries and "
            f"{MIN_QUERIES} queries that are held out of them, got {len(sample)}; give more, or queries of their own"
            + _in_brackets(notes)
        )
    if queries is None:
        n_held = min(n_queries, max(MIN_QUERIES, min(len(sample) // 5, len(sample) - MIN_ENTRIES)))
        order = rng.permutation(len(sample))
        asked, sample = sample[order[:n_held]], sample[np.sort(order[n_held:])]
    else:
        chosen = np.sort(rng.choice(len(queries), min(len(queries), n_queries), replace=False))
        asked, _, more = _usable(take_rows(queries, chosen).astype(np.float32, copy=False), chosen, "queries")
        notes += more
        for name, rows_of, least in (("signals", sample, MIN_ENTRIES), ("queries", asked, MIN_QUERIES)):
            if len(rows_of) < least:
                raise ValueError(
                    f"an evaluation takes at least {least} usable {name}, got {len(rows_of)}{_in_brackets(notes)}"
                )
    return Split(sample, asked, queries is None, len(signals), notes)


def _in_brackets(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def measure_isotropy(signals: Float32) -> Isotropy:
    """Mean and spectrum of a few thousand signals."""
    some = signals[:: max(1, len(signals) // MAX_ROWS)][:MAX_ROWS]
    mean = some.mean(axis=0, dtype=np.float64)
    energy = float(np.einsum("ij,ij->i", some, some, dtype=np.float64).mean())
    centred = (some - mean).astype(np.float32)
    # The squared singular values, by the smaller of the two matrices of products.
    products = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.maximum(np.linalg.eigvalsh(products.astype(np.float64))[::-1], 0)
    shares = values / values.sum() if values.sum() > 0 else np.ones(1)
    # Few signals make the smallest variances smaller than they are; their number bounds the effective dimensions.
    effective = 1 / float((shares**2).sum())
    n = len(some)
    corrected = effective * n / (n - effective) if effective < 0.9 * n else effective
    return Isotropy(float(mean @ mean) / energy if energy else 0.0, min(corrected, some.shape[1]), shares)


def _usable(sample: Float32, rows: Int64, name: str) -> tuple[Float32, Int64, list[str]]:
    notes = []
    finite = np.isfinite(sample).all(axis=1)
    zero = finite & ~sample.any(axis=1)
    for bad, what in ((~finite, "hold NaN or infinity"), (zero, "are zero")):
        if bad.any():
            notes.append(
                f"{int(bad.sum()):,} of {len(sample):,} {name} {what} and were left out ({_listed(rows[bad])})"
            )
    kept = finite & ~zero
    return sample[kept], rows[kept], notes


def _without_duplicates(sample: Float32, rows: Int64, notes: list[str]) -> tuple[Float32, Int64]:
    if not len(sample):
        return sample, rows
    _, first = np.unique(sample.view(np.dtype((np.void, sample.shape[1] * 4))).ravel(), return_index=True)
    first = np.sort(first)
    if len(first) < len(sample):
        twice = np.setdiff1d(np.arange(len(sample)), first)
        notes.append(
            f"{len(twice):,} of {len(sample):,} signals repeat another one exactly and were left out "
            f"({_listed(rows[twice])})"
        )
    return sample[first], rows[first]


def _listed(rows: Int64) -> str:
    named = ", ".join(str(row) for row in rows[:3])
    return f"row {named}" if len(rows) == 1 else f"rows {named}{' and others' if len(rows) > 3 else ''}"
