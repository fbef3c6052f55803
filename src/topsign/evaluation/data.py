"""Inspection of a user's signals: sampling, mean, spectrum, and rows that cannot be encoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._rows import take_rows

MAX_ROWS = 2000
"""Number of signals from which the spectrum is computed."""

MIN_ENTRIES, MIN_QUERIES = 200, 10

MAX_VALUES = 2**27
"""Maximum number of values (signals times features) in a sample: half a gigabyte."""


@dataclass(frozen=True)
class Isotropy:
    """Deviation of signals from equal variance in all directions."""

    mean_share: float  # of the energy: squared norm of the mean over the mean squared norm
    effective_dimensions: float  # of the centred signals: squared sum of the variances over the sum of their squares
    spectrum: Float64  # shares of the centred variance by direction, descending

    def sentence(self, n_features: int) -> str:
        """Summary in one sentence."""
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
    """Entries and queries of an evaluation, with notes on omitted rows."""

    entries: Float32
    queries: Float32
    own_queries: bool  # whether queries are held-out rows of the signals
    n_signals: int  # rows before sampling
    notes: list[str]


def split_signals(signals: Array, queries: Array | None, *, n_entries: int, n_queries: int, seed: int) -> Split:
    """Draw a random sample of usable rows, and hold out queries from it if none are given.

    Rows that cannot be encoded are omitted and listed in the notes. Raises ValueError if too few rows remain.
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
            f"{constant.size} of {n_features} columns are constant (the first is {constant[0]}); once the mean is "
            "removed, they carry no information"
        )
    if queries is None and len(sample) < MIN_ENTRIES + MIN_QUERIES:
        raise ValueError(
            f"an evaluation needs at least {MIN_ENTRIES + MIN_QUERIES} usable signals, {MIN_ENTRIES} entries and "
            f"{MIN_QUERIES} held-out queries, got {len(sample)}; give more signals, or pass queries separately"
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
                    f"an evaluation needs at least {least} usable {name}, got {len(rows_of)}{_in_brackets(notes)}"
                )
    return Split(sample, asked, queries is None, len(signals), notes)


def _in_brackets(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def measure_isotropy(signals: Float32) -> Isotropy:
    """Measure the mean and the spectrum on a few thousand signals."""
    some = signals[:: max(1, len(signals) // MAX_ROWS)][:MAX_ROWS]
    mean = some.mean(axis=0, dtype=np.float64)
    energy = float(np.einsum("ij,ij->i", some, some, dtype=np.float64).mean())
    centred = (some - mean).astype(np.float32)
    # Squared singular values, from the smaller of the two Gram matrices.
    products = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.maximum(np.linalg.eigvalsh(products.astype(np.float64))[::-1], 0)
    shares = values / values.sum() if values.sum() > 0 else np.ones(1)
    # With few signals the smallest variances are underestimated, and their number limits the effective dimensions.
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
            f"{len(twice):,} of {len(sample):,} signals are duplicates of another one and were left out "
            f"({_listed(rows[twice])})"
        )
    return sample[first], rows[first]


def _listed(rows: Int64) -> str:
    named = ", ".join(str(row) for row in rows[:3])
    return f"row {named}" if len(rows) == 1 else f"rows {named}{' and others' if len(rows) > 3 else ''}"
