"""Evaluation of codes on a user's own signals: recall, bytes, time, and whether p-values hold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Float32, Float64, Int64
from .._checks import as_signals, check_count
from ..errors import CalibrationWarning
from ..index import AdaptiveIndex, Index, SignIndex
from .data import Isotropy, Split, measure_isotropy, split_signals

KS = (1, 10, 100)
LEVELS = (0.05, 0.01, 1e-3, 1e-4)
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
"""Sizes when none are given: shares of the features that are kept."""

RESCORE_FACTOR = 10
N_BOOTSTRAP = 1000

Progress = Callable[[str, float], None]
"""Called with what runs and the fraction of the whole that is done."""


@dataclass(frozen=True)
class Recall:
    """Share of the true k nearest among the k found, with its 95% bootstrap interval over queries."""

    k: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Candidate:
    """One kind and size of code, measured."""

    family: str  # "adaptive" or "sign"
    n_bits: int
    center: bool
    bytes_per_entry: float  # as stored: code, norm, scale and id, and the mean's share
    recall: list[Recall]
    rescored: list[Recall]  # ordered by the original signals: of 100 candidates, of 400 for the 100 nearest
    milliseconds: float  # per query, a batch on all threads
    rescored_milliseconds: float

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.family}, {self.n_bits} bits"


@dataclass(frozen=True)
class CalibrationRow:
    """Shares of random pairs below each level, which would be the level itself for a right null."""

    null: str
    shares: list[float]


@dataclass(frozen=True)
class Evaluation:
    """Everything measured; see :func:`evaluate`."""

    n_signals: int
    n_entries: int
    n_queries: int
    n_features: int
    own_queries: bool
    isotropy: Isotropy
    notes: list[str]
    candidates: list[Candidate]
    calibration: list[CalibrationRow]
    levels: list[float]
    n_pairs: int
    best: Candidate
    seconds: float

    @property
    def center(self) -> bool:
        """Whether centring is recommended: it is what the candidates were measured with."""
        return self.best.center

    @property
    def calibrate(self) -> bool:
        """Whether a learned null is recommended: p-values are off by more than a factor of two at 1e-3 without."""
        shares = {row.null: row.shares for row in self.calibration}["centred" if self.center else "as they are"]
        return not 0.5 <= shares[2] / self.levels[2] <= 2

    def command(self, signals: str = "signals.npy") -> str:
        """Shell commands that build the recommended index."""
        kind = f"--bits {self.best.n_bits}" if self.best.family == "adaptive" else "--kind sign"
        line = f"topsign build {signals} -o index.topsign {kind}" + (" --center" if self.center else "")
        return line + (" --calibrate" if self.calibrate else "")

    def python(self) -> str:
        """Python calls that build the recommended index."""
        kind, bits = (
            ("AdaptiveIndex", f", n_bits={self.best.n_bits}") if self.best.family == "adaptive" else ("SignIndex", "")
        )
        center = ", center=True" if self.center else ""
        lines = [f"index = ts.{kind}(n_features={self.n_features}{bits}{center}, random_state=0)", "index.add(signals)"]
        lines += ["index.calibrate()"] if self.calibrate else []
        return "\n".join([*lines, f"index.search(queries, k=10, rescore=signals, rescore_factor={RESCORE_FACTOR})"])

    def recommendation(self) -> str:
        """The recommendation and the numbers it will give, in a sentence."""
        best = self.best
        plain, exact = ({one.k: one for one in part} for part in (best.recall, best.rescored))
        return (
            f"{best.name}{', centred' if self.center else ''}: {best.bytes_per_entry:.0f} bytes per entry "
            f"({4 * self.n_features / best.bytes_per_entry:.1f} times less than float32); of the true 10 nearest it "
            f"finds {plain[10].share:.1%} [{plain[10].low:.1%}, {plain[10].high:.1%}] by codes alone and "
            f"{exact[10].share:.1%} [{exact[10].low:.1%}, {exact[10].high:.1%}] when {10 * RESCORE_FACTOR} candidates "
            f"are rescored, on {self.n_entries:,} entries in {best.milliseconds:.2f} ms per query."
        )


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
    bits = _sizes(n_bits, n_features)
    steps = len(bits) + 3

    progress("exact neighbours", 1 / steps)
    center = isotropy.mean_share >= 0.02
    mean = (
        part.entries.mean(axis=0, dtype=np.float64).astype(np.float32) if center else np.zeros(n_features, np.float32)
    )
    truth = exact_neighbors(part.entries - mean, part.queries - mean, max(KS))
    options: dict[str, Any] = {"n_features": n_features, "random_state": random_state}
    options["center"] = mean if center else False
    found = []
    for i, one in enumerate([*bits, None]):
        progress("sign codes" if one is None else f"{one} bits", (2 + i) / steps)
        index: Index[Any] = SignIndex(**options) if one is None else AdaptiveIndex(n_bits=one, **options)
        index.add(part.entries, n_threads=n_threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            found.append(measure(index, part, truth, center=center, n_threads=n_threads))
    best = choose(found)
    progress("p-values", (steps - 1) / steps)
    rows, n_pairs = measure_calibration(part, best, n_features, mean if center else None, random_state)
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
        seconds=time.perf_counter() - start,
    )


def exact_neighbors(entries: Float32, queries: Float32, k: int) -> Int64:
    """Rows of the k entries of largest correlation with each query, closest first."""
    units, asked = (
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-30) for part in (entries, queries)
    )
    k = min(k, len(entries))
    found = np.empty((len(asked), k), np.int64)
    for start in range(0, len(asked), 256):
        scores = asked[start : start + 256] @ units.T
        top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
        found[start : start + 256] = np.take_along_axis(top, order, axis=1)
    return found


def measure(index: Index[Any], part: Split, truth: Int64, *, center: bool, n_threads: int | None) -> Candidate:
    """Recall with and without rescoring, bytes and times of one index of the entries."""
    k = truth.shape[1]
    begin = time.perf_counter()
    plain = index.search(part.queries, k=k, n_threads=n_threads).ids
    middle = time.perf_counter()
    options: dict[str, Any] = {"rescore": part.entries, "n_threads": n_threads}
    exact = index.search(part.queries, k=min(10, k), rescore_factor=RESCORE_FACTOR, **options).ids
    end = time.perf_counter()
    many = index.search(part.queries, k=k, rescore_factor=4, **options).ids
    shared = 4 * index.n_features if center else 0  # the mean is stored once
    return Candidate(
        family=index.family,
        n_bits=index.n_bits,
        center=center,
        bytes_per_entry=index.nbytes / len(index) + shared / len(index),
        recall=[_recall(plain, truth, one) for one in KS if one <= k],
        rescored=[_recall(exact if one <= 10 else many, truth, one) for one in KS if one <= k],
        milliseconds=1e3 * (middle - begin) / len(part.queries),
        rescored_milliseconds=1e3 * (end - middle) / len(part.queries),
    )


def choose(found: list[Candidate]) -> Candidate:
    """The smallest code whose rescored recall@10 is at least 95%, or else the code of the best."""

    def reached(one: Candidate) -> float:
        return next(part.share for part in one.rescored if part.k == 10)

    enough = [one for one in found if reached(one) >= 0.95]
    return min(enough, key=lambda one: one.bytes_per_entry) if enough else max(found, key=reached)


def measure_calibration(
    part: Split, best: Candidate, n_features: int, mean: Float32 | None, seed: int
) -> tuple[list[CalibrationRow], int]:
    """Shares of p-values of random pairs below each level: as they are, centred, and with a learned null.

    Half of the queries teach the learned null, the other half judge all of them.
    """
    half = len(part.queries) // 2
    some = np.random.default_rng(seed).choice(len(part.entries), min(len(part.entries), 1000), replace=False)
    centre = part.entries.mean(axis=0, dtype=np.float64).astype(np.float32) if mean is None else mean
    rows = []
    n_pairs = 0
    for name, center in (("as they are", False), ("centred", centre), ("calibrated", False if mean is None else mean)):
        options: dict[str, Any] = {"n_features": n_features, "random_state": seed, "center": center}
        index: Index[Any] = (
            SignIndex(**options) if best.family == "sign" else AdaptiveIndex(n_bits=best.n_bits, **options)
        )
        index.add(part.entries[some])
        if name == "calibrated":
            index.calibrate(part.queries[:half], n_pairs=200_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            p_values = index.search(part.queries[half:], k=len(index)).p_values.ravel()
        n_pairs = len(p_values)
        rows.append(CalibrationRow(name, [float(np.mean(p_values <= level)) for level in LEVELS]))
    return rows, n_pairs


def _sizes(n_bits: Sequence[int] | None, n_features: int) -> list[int]:
    if n_bits is None:
        return sorted({max(8, int(n_features * share) // 8 * 8) for share in SHARES if n_features * share >= 1})
    if not len(n_bits):
        raise ValueError("n_bits must name at least one size, got none")
    return sorted({check_count(one, "n_bits", maximum=n_features) for one in n_bits})


def _recall(found: Int64, truth: Int64, k: int) -> Recall:
    shares = np.array(
        [len(np.intersect1d(mine[:k], true[:k])) / k for mine, true in zip(found, truth, strict=True)], dtype=np.float64
    )
    low, high = _bootstrap(shares)
    return Recall(k, float(shares.mean()), low, high)


def _bootstrap(values: Float64) -> tuple[float, float]:
    drawn = np.random.default_rng(0).integers(0, len(values), (N_BOOTSTRAP, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
