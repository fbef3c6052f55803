"""Evaluation of codes on a user's own signals: recall, bytes, time, and whether p-values hold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .._arrays import Float32, Float64, Int64
from .._checks import as_signals, check_count
from ..errors import CalibrationWarning
from ..index import Index
from .configurations import Configuration, configurations
from .data import Split, measure_isotropy, split_signals
from .report import RESCORE_FACTOR, CalibrationRow, Candidate, Evaluation, Recall

KS = (1, 10, 100)
LEVELS = (0.05, 0.01, 1e-3, 1e-4)
BLOCK_VALUES = 2**24
"""Values of entries that are compared exactly in one go."""

N_BOOTSTRAP = 1000
N_TIMED = 32
"""Queries whose rescoring is timed."""

Progress = Callable[[str, float], None]
"""Called with what runs and the fraction of the whole that is done."""


def evaluate(
    signals: npt.ArrayLike,
    *,
    queries: npt.ArrayLike | None = None,
    n_bits: Sequence[int] | None = None,
    n_entries: int = 50_000,
    n_queries: int = 500,
    random_state: int = 0,
    n_threads: int | None = None,
    progress: Progress = lambda what, fraction: None,
) -> Evaluation:
    """Measures what codes would do on these signals, from a sample, before anything is built.

    Parameters
    ----------
    signals : array of shape (n_signals, n_features)
        A memory map is sampled, not read whole.
    queries : array, optional
        Signals to search for; rows of the signals are held out when not given.
    n_bits : sequence of int, optional
        Sizes of adaptive codes; a thirty-second to a quarter of the features when not given.
    n_entries, n_queries : int
        Largest sizes of the sample.

    Returns
    -------
    Evaluation
        Recall of the exact nearest by correlation, bytes, times, calibration of p-values, and a recommendation.
    """
    start = time.perf_counter()
    given = as_signals(signals)
    asked = None if queries is None else as_signals(queries, n_features=given.shape[1], name="queries")
    sizes = check_count(n_entries, "n_entries", minimum=200), check_count(n_queries, "n_queries", minimum=10)
    progress("reading", 0.0)
    part = split_signals(given, asked, n_entries=sizes[0], n_queries=sizes[1], seed=random_state)
    n_features = part.entries.shape[1]
    isotropy = measure_isotropy(part.entries)
    center = isotropy.mean_share >= 0.02
    tried, left_out = configurations(n_bits, n_features, len(part.entries), center=center)
    part.notes.extend(left_out)
    steps = len(tried) + 3

    progress("exact neighbours", 1 / steps)
    mean = part.entries.mean(axis=0, dtype=np.float64).astype(np.float32) if center else None
    truth = {center: exact_neighbors(part.entries, part.queries, max(KS), mean)}
    if center:
        truth[False] = exact_neighbors(part.entries, part.queries, max(KS))
    found = []
    for i, one in enumerate(tried):
        progress(one.name, (2 + i) / steps)
        index = one.make(n_features, random_state=random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of calibration, and of few signals for a basis
            index.add(part.entries, n_threads=n_threads)
            centred = index.recipe.center is not None
            found.append(measure(one, index, part, truth[centred], n_threads=n_threads))
    best = choose([one for one in found if one.configuration.has_null])
    smaller = [one for one in found if one.bytes_per_entry < best.bytes_per_entry]
    progress("p-values", (steps - 1) / steps)
    rows, n_pairs = measure_calibration(part, best.configuration, random_state)
    progress("done", 1.0)
    return Evaluation(
        n_signals=part.n_signals,
        n_entries=len(part.entries),
        n_queries=len(part.queries),
        n_features=n_features,
        own_queries=part.own_queries,
        isotropy=isotropy,
        notes=part.notes,
        candidates=found,
        calibration=rows,
        levels=list(LEVELS),
        n_pairs=n_pairs,
        best=best,
        smaller=_as_good(smaller, best),
        seconds=time.perf_counter() - start,
    )


def exact_neighbors(entries: Float32, queries: Float32, k: int, mean: Float32 | None = None) -> Int64:
    """Rows of the k entries of largest correlation with each query, less a mean, closest first.

    Entries go by in blocks, and the best so far are kept: nothing of the size of all entries is made.
    """
    k, n_rows = min(k, len(entries)), max(k, BLOCK_VALUES // entries.shape[1])
    asked = _units(queries, mean)
    best = np.full((len(asked), k), -np.inf, np.float32)
    found = np.zeros((len(asked), k), np.int64)
    for start in range(0, len(entries), n_rows):
        scores = asked @ _units(entries[start : start + n_rows], mean).T
        part = min(k, scores.shape[1])
        top = np.argpartition(-scores, part - 1, axis=1)[:, :part]
        best = np.hstack([best, np.take_along_axis(scores, top, axis=1)])
        found = np.hstack([found, top + start])
        order = np.argsort(-best, axis=1, kind="stable")[:, :k]
        best, found = np.take_along_axis(best, order, axis=1), np.take_along_axis(found, order, axis=1)
    return found


def _units(signals: Float32, mean: Float32 | None) -> Float32:
    centred = signals if mean is None else signals - mean
    norms = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    return np.asarray(centred / np.maximum(norms, 1e-30)[:, np.newaxis], np.float32)


def measure(
    configuration: Configuration, index: Index, part: Split, truth: Int64, *, n_threads: int | None
) -> Candidate:
    """Recall with and without rescoring, bytes and times of one index of the entries.

    Rescoring orders candidates exactly, so that it finds those of the true k nearest that are among them: counting
    these gives its recall, and only its time is measured by doing it.
    """
    found = index.search(part.queries, k=4 * max(KS), n_threads=n_threads).ids
    shown = [k for k in KS if k <= truth.shape[1]]
    begin = time.perf_counter()
    index.search(part.queries, k=10, n_threads=n_threads)
    plain = (time.perf_counter() - begin) / len(part.queries)
    few, begin = part.queries[:N_TIMED], time.perf_counter()
    index.search(few, k=10, n_threads=n_threads)
    middle = time.perf_counter()
    index.search(few, k=10, rescore=part.entries, rescore_factor=RESCORE_FACTOR, n_threads=n_threads)
    more = max(0.0, (time.perf_counter() - middle) - (middle - begin)) / len(few)
    return Candidate(
        configuration=configuration,
        center=index.recipe.center is not None,
        bytes_per_entry=index.nbytes / len(index) + index.recipe.shared_nbytes / part.n_signals,
        recall=[_recall(found[:, :k], truth, k) for k in shown],
        rescored=[_recall(found[:, : 10 * RESCORE_FACTOR if k <= 10 else 4 * k], truth, k) for k in shown],
        milliseconds=1e3 * plain,
        rescored_milliseconds=1e3 * (plain + more),
    )


def _reached(one: Candidate) -> float:
    return next(part.share for part in one.rescored if part.k == 10)


def choose(found: list[Candidate]) -> Candidate:
    """The smallest code whose rescored recall@10 is at least 95%, or else the code of the best."""

    enough = [one for one in found if _reached(one) >= 0.95]
    return min(enough, key=lambda one: one.bytes_per_entry) if enough else max(found, key=_reached)


def _as_good(found: list[Candidate], best: Candidate) -> Candidate | None:
    """The smallest of these whose rescored recall@10 is that of the best, or 95%."""
    enough = [one for one in found if _reached(one) >= min(0.95, _reached(best))]
    return min(enough, key=lambda one: one.bytes_per_entry, default=None)


def measure_calibration(part: Split, best: Configuration, seed: int) -> tuple[list[CalibrationRow], int]:
    """Shares of p-values of random pairs below each level: as they are, centred, and with a learned null.

    Half of the queries teach the learned null, the other half judge all of them.
    """
    half = len(part.queries) // 2
    some = np.random.default_rng(seed).choice(len(part.entries), min(len(part.entries), 1000), replace=False)
    mean = part.entries.mean(axis=0, dtype=np.float64).astype(np.float32)
    rows = []
    n_pairs = 0
    chosen = mean if best.parameters.get("center") else False
    for name, center in (("as they are", False), ("centred", mean), ("calibrated", chosen)):
        index = best.make(part.entries.shape[1], center=center, random_state=seed)
        index.add(part.entries[some])
        if name == "calibrated":
            index.calibrate(part.queries[:half], false_alarm=max(0.1, 2 / half))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            p_values = index.search(part.queries[half:], k=len(index)).p_values.ravel()
        n_pairs = len(p_values)
        rows.append(CalibrationRow(name, [float(np.mean(p_values <= level)) for level in LEVELS]))
    return rows, n_pairs


def _recall(found: Int64, truth: Int64, k: int) -> Recall:
    """Share of the true k nearest that are among those found."""
    shares = np.array([np.isin(true[:k], mine).mean() for mine, true in zip(found, truth, strict=True)], np.float64)
    low, high = _bootstrap(shares)
    return Recall(k, float(shares.mean()), low, high)


def _bootstrap(values: Float64) -> tuple[float, float]:
    drawn = np.random.default_rng(0).integers(0, len(values), (N_BOOTSTRAP, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
