"""Sample of a user's signals: entries, queries, isotropy, true neighbours, and recall with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float32, Float64, Int64
from .._checks import check_choice, check_flag
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
        asked, sample = sample[order[:n_held]], sample[np.sort(order[n_held : n_held + n_entries])]
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
                f"{int(bad.sum()):,} of {len(sample):,} {name} {what} and were left out ({_format_rows(rows[bad])})"
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
            f"({_format_rows(rows[twice])})"
        )
    return sample[first], rows[first]


def _format_rows(rows: Int64) -> str:
    named = ", ".join(str(row) for row in rows[:3])
    return f"row {named}" if len(rows) == 1 else f"rows {named}{' and others' if len(rows) > 3 else ''}"


METRICS = ("correlation", "inner_product")

BLOCK_VALUES = 2**24
"""Maximum number of values of entries in one block of exact comparisons."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact scores by a metric: correlations, of signals as given or after subtracting a mean, or inner products."""

    metric: str
    mean: Float32 | None

    @classmethod
    def of(cls, metric: str, entries: Float32, *, center: bool = False) -> Truth:
        """Return the metric, with the mean of the entries if ``center``."""
        check_choice(metric, "metric", METRICS)
        if check_flag(center, "center") and metric == "inner_product":
            raise ValueError("center=True applies to the metric 'correlation'; omit it for inner products")
        return cls(metric, np.asarray(entries.mean(axis=0, dtype=np.float64), np.float32) if center else None)

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


N_DRAWS = 20_000
RISK = 0.025
"""Probability that a mean lies below its 95% interval, and that it lies above."""


def share_interval(shares: npt.ArrayLike) -> tuple[float, float]:
    """Return a 95% confidence interval for the mean of independent values in [0, 1].

    Gaffke's interval: each limit is a quantile of a weighted mean of the values and of one additional value, 0 for the
    lower and 1 for the upper limit. The random weights are the spacings of uniform variables. For values 0 and 1 it is
    the Clopper-Pearson interval. It has a positive width even if all values are equal, and each value may be a fraction
    of several dependent trials, such as the neighbours of one query. Standing: in simulations (``make
    test-statistics``) nominal 95% intervals cover at least 93%.

    >>> low, high = share_interval([1.0] * 99)
    >>> round(low, 2), high
    (0.96, 1.0)
    """
    values = np.asarray(shares, np.float64).ravel()
    if not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"shares must be at least one value in [0, 1], got {len(values)} values")
    low = np.quantile(_weighted_means(values, 0.0), RISK)
    high = np.quantile(_weighted_means(values, 1.0), 1 - RISK)
    return float(min(low, values.mean())), float(max(high, values.mean()))


def queries_needed(share: float) -> int:
    """Return the smallest number of values, all equal to 1, whose interval lies above ``share``.

    >>> queries_needed(0.95), queries_needed(0.99)
    (72, 368)
    """
    return int(np.ceil(np.log(RISK) / np.log(share)))


def _weighted_means(values: npt.NDArray[np.float64], end: float) -> npt.NDArray[np.float64]:
    """Return draws of the randomly weighted mean of the values and of one additional value."""
    known, counts = np.unique(np.append(values, end), return_counts=True)
    weights = np.random.default_rng(0).standard_gamma(counts, (N_DRAWS, len(known)))
    return np.asarray(weights @ known / weights.sum(axis=1))


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
