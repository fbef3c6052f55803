"""Evaluation of codes on a user's own signals: recall, bytes, time, and the validity of p-values."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Float32, Float64, Int64
from .._checks import as_signals, check_count, check_real, suggests_keywords
from ..index import Index
from ..search.regions import MIN_ENTRIES as MIN_REGION_ENTRIES
from ..store.segments import ORIGINAL_TYPES
from .report import Candidate, Configuration, Evaluation, K, Option, Recall, choose, configurations
from .sample import Extrapolation, Split, Truth, measure_isotropy, queries_needed, share_interval, split_signals

KS = (1, 10, 100)
FACTORS = (4, 10, 40)
"""Numbers of candidates per neighbour that are rescored."""

LEVELS = (0.1, 0.05, 0.01)
N_TIMED, N_SINGLE = 100, 16
"""Queries that are timed in one batch, and one at a time."""

REGION_MARGINS = (0.2, 0.6)
"""Recalls requested from searches of regions, as fractions of the way from the target to 1."""

N_NULL_ENTRIES = 1000
MEAN_SHARE = 0.02
"""Fraction of the energy in the mean from which all codes except trellis codes are also measured with centring."""

_no_warnings = partial(warnings.catch_warnings, action="ignore", category=UserWarning)
"""Ignores warnings about calibration and about few signals for a basis."""

Progress = Callable[[str, float], None]
"""Progress callback; its arguments are the current step and the completed fraction."""


@suggests_keywords
def evaluate(
    signals: npt.ArrayLike,
    *,
    queries: npt.ArrayLike | None = None,
    target_recall: float = 0.95,
    metric: str = "correlation",
    center: bool = False,
    n_signals: int | None = None,
    n_bits: Sequence[int] | None = None,
    n_entries: int = 50_000,
    n_queries: int = 500,
    random_state: int = 0,
    progress: Progress = lambda what, fraction: None,
) -> Evaluation:
    """Measure recall, size and speed of codes on a sample of the signals, and recommend a configuration.

    Parameters
    ----------
    signals : array of shape (n_signals, n_features)
        A memory map is sampled, not read completely.
    queries : array, optional
        Signals to search for; by default, rows of the signals are held out.
    target_recall : float in (0, 1)
        Fraction of the true 10 nearest neighbours that a search must find. The recommended configuration has the fewest
        resident bytes among those whose whole 95% interval meets the target, with or without rescoring by original
        signals. Regions are recommended only if they make single queries at least a quarter faster.
    metric : "correlation" or "inner_product"
        Metric that defines the true neighbours of all configurations.
    center : bool
        Whether the mean of the signals is subtracted before their true correlations are computed. Without it, codes are
        measured with and without centring if the signals have a mean.
    n_signals : int, optional
        Number of entries of the planned index; by default the number of signals. Recall decreases as entries are added,
        so it is measured in nested samples and extrapolated to this number.
    n_bits : sequence of int, optional
        Sizes of adaptive codes; by default from 1/32 to 1/4 of the number of features.
    n_entries, n_queries : int
        Maximum numbers of entries and queries in the sample.
    random_state : int
        Seed of the sample and of all projections.
    progress : callable, optional
        Called with the name of each step and the completed fraction.

    Returns
    -------
    Evaluation
        Recall, bytes and times of each configuration, false-alarm rates, and a recommendation.
    """
    start = time.perf_counter()
    given = as_signals(signals)
    asked = None if queries is None else as_signals(queries, n_features=given.shape[1], name="queries")
    target = check_real(target_recall, "target_recall", minimum=0, maximum=1)
    if not 0 < target < 1:
        raise ValueError(f"target_recall must lie strictly between 0 and 1, got {target_recall!r}")
    largest = check_count(n_entries, "n_entries", minimum=200), check_count(n_queries, "n_queries", minimum=10)
    progress("reading", 0.0)
    part = split_signals(given, asked, n_entries=largest[0], n_queries=largest[1], seed=random_state)
    n_features = part.entries.shape[1]
    total = part.n_signals if n_signals is None else check_count(n_signals, "n_signals")
    truth = Truth.of(metric, part.entries, center=center)
    isotropy = measure_isotropy(part.entries)
    tried, left_out = configurations(
        n_bits, n_features, len(part.entries), metric=metric, center=center, has_mean=isotropy.mean_share >= MEAN_SHARE
    )
    part.notes.extend(left_out)
    needed = queries_needed(target)
    if len(part.queries) < needed:
        part.notes.append(
            f"{len(part.queries)} queries cannot confirm a recall of {100 * target:.4g}%: at least {needed:,} are "
            "needed, even if every query finds all of its neighbours"
        )
    steps = len(tried) + 4

    progress("exact neighbours", 1 / steps)
    extrapolation = Extrapolation.of(K, len(part.entries), total)
    blocks = [np.arange(len(part.entries)), *extrapolation.nested(np.random.default_rng(random_state))]
    nearest = [block[truth.neighbors(part.entries[block], part.queries, max(KS))] for block in blocks]
    known = Neighborhoods(truth, blocks, nearest, extrapolation)
    found = []
    for i, one in enumerate(tried):
        progress(one.name, (2 + i) / steps)
        index = one.make(n_features, originals="float32", random_state=random_state)
        with _no_warnings():
            index.add(part.entries)
            found.append(measure(one, index, part, known))
    options = [option for one in found for option in one.options]
    progress("originals and regions", (steps - 2) / steps)
    stored = measure_stored(choose(options, target)[0], part, known, target, random_state)
    best, second = choose(_with_stored(options, stored), target)
    progress("false alarms", (steps - 1) / steps)
    false_alarms, n_judged = measure_false_alarms(part, best.configuration, random_state)
    progress("done", 1.0)
    return Evaluation(
        n_signals=total,
        n_entries=len(part.entries),
        n_queries=len(part.queries),
        n_features=n_features,
        own_queries=part.own_queries,
        metric=metric,
        center=center,
        target_recall=target,
        isotropy=isotropy,
        notes=part.notes,
        n_nested=len(blocks[1]) if len(blocks) > 1 else None,
        candidates=found,
        stored=stored,
        best=best,
        second=second,
        false_alarms=false_alarms,
        levels=list(LEVELS),
        n_judged=n_judged,
        random_state=random_state,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """True neighbours of the queries among all entries and among nested samples of them."""

    truth: Truth
    blocks: list[Int64]  # rows of all entries, then those of nested samples
    nearest: list[Int64]  # true neighbours of each query in each block
    extrapolation: Extrapolation


def measure(configuration: Configuration, index: Index, part: Split, known: Neighborhoods) -> Candidate:
    """Measure recall with and without rescoring, bytes and times of one index.

    An index orders rescored candidates exactly by its own metric, so the recall for all factors is computed here from
    one list of candidates. Only the times of rescoring are measured with real searches.
    """
    further, few = known.extrapolation, known.extrapolation.matched
    ids = np.asarray(index.search(part.queries, k=K * max(FACTORS)).ids)
    nested = [
        np.asarray(index.search(part.queries, k=few * max(FACTORS), among=block).ids) for block in known.blocks[1:]
    ]
    rescored = _rescored(index, part, known.truth)
    n_bytes = (index.nbytes - index.info["bytes"]["originals"]) / len(index)
    n_bytes += index.recipe.shared_nbytes / further.n_signals
    options = []
    for factor in (None, *FACTORS):

        def shares(ids: Int64, true: Int64, k: int, factor: int | None = factor) -> Float64:
            found = ids[:, :k] if factor is None else rescored(ids[:, : k * factor], k)
            return _found(found, true[:, :k])

        whole, matched = (shares(ids, known.nearest[0], k) for k in (K, few))
        smaller = [shares(mine, true, few) for mine, true in zip(nested, known.nearest[1:], strict=True)]
        expected = further.expected(whole, matched, float(np.mean(smaller)) if smaller else None)
        times = _times(index, part.queries, **({} if factor is None else {"rescore": K * factor}))
        options.append(Option(configuration, factor, n_bytes, _recall(whole, K), Recall(K, *expected), *times))
    recall = [_recall(_found(ids[:, :k], known.nearest[0][:, :k]), k) for k in KS if k <= len(part.entries)]
    return Candidate(configuration, n_bytes, recall, options)


def measure_stored(best: Option, part: Split, known: Neighborhoods, target: float, seed: int) -> list[Option]:
    """Measure the best configuration with stored originals of each type, and with regions.

    Regions need at least 20,000 entries. The loss by originals with fewer bits is assumed to be the same in the sample
    and among all signals. The recall of a search with regions is calibrated on each index, so it is not extrapolated.
    """
    found = []
    types = [] if best.factor is None else ORIGINAL_TYPES
    with_regions = len(part.entries) >= MIN_REGION_ENTRIES
    for kind in types or (("float16",) if with_regions else ()):
        with _no_warnings():
            index = best.configuration.make(part.entries.shape[1], originals=kind, random_state=seed)
            index.add(part.entries)
        stored = replace(best, originals=kind, disk_bytes=index.info["bytes"]["originals"] / len(index))
        if best.factor is not None:
            found.append(_stored_option(stored, index, part, known, rescore=K * best.factor))
        if with_regions and kind == "float16":
            without = index.nbytes
            index.learn_regions()
            n_bytes = best.bytes_per_entry + (index.nbytes - without) / len(index)
            for share in REGION_MARGINS:
                recall = round(target + share * (1 - target), 4)
                option = replace(stored, factor=None, recall=recall, bytes_per_entry=n_bytes)
                made = _stored_option(option, index, part, known, recall=recall)
                found.append(replace(made, expected=made.measured))
    return found


def _stored_option(option: Option, index: Index, part: Split, known: Neighborhoods, **search: Any) -> Option:
    """Return an option with the recall and the times measured on an index."""
    with _no_warnings():
        ids = np.asarray(index.search(part.queries, k=K, **search).ids)
        batch, single = _times(index, part.queries, **search)
    measured = _recall(_found(ids, known.nearest[0][:, :K]), K)
    change = measured.share - option.measured.share
    low, share, high = (
        float(np.clip(one + change, 0, 1)) for one in (option.expected.low, option.expected.share, option.expected.high)
    )
    expected = Recall(K, share, low, high)
    return replace(option, measured=measured, expected=expected, milliseconds=batch, single_milliseconds=single)


def _with_stored(options: list[Option], stored: list[Option]) -> list[Option]:
    """Return all options, with estimates replaced by options that were measured with stored originals."""
    again = {(one.configuration.name, one.factor) for one in stored if one.recall is None}
    return [one for one in options if (one.configuration.name, one.factor) not in again] + stored


def _rescored(index: Index, part: Split, truth: Truth) -> Callable[[Int64, int], Int64]:
    """Return a function that selects the entries among the candidates that rescoring would return.

    If the index rescores by the metric that defines the true neighbours, rescoring ranks all true neighbours among the
    candidates first, so the function returns all candidates. Otherwise, for example if the index subtracts a mean that
    the metric keeps, it orders the candidates as the index does and returns the first k.
    """
    exact = truth if truth.metric == "inner_product" else Truth("correlation", index.recipe.center)
    if (exact.mean is None) == (truth.mean is None):
        return lambda ids, k: ids
    return lambda ids, k: exact.ordered(part.entries, part.queries, ids)[:, :k]


def _times(index: Index, queries: Float32, **options: Any) -> tuple[float, float]:
    """Return milliseconds per query in a batch, and of single queries.

    Each search is run twice, because the first may load files or allocate memory.
    """

    def taken(some: Float32) -> float:
        begin = time.perf_counter()
        index.search(some, k=K, **options)
        return 1e3 * (time.perf_counter() - begin)

    batch = queries[:N_TIMED]
    singles = [min(taken(one), taken(one)) for one in batch[:N_SINGLE, np.newaxis]]
    return min(taken(batch), taken(batch)) / len(batch), float(np.median(singles))


def measure_false_alarms(part: Split, best: Configuration, seed: int) -> tuple[dict[str, list[float]], int]:
    """Measure the fraction of searches for held-out signals that have a match, with and without calibration.

    One half of the queries is used for calibration, the other half for measurement; no query is an entry. The result is
    empty if the codes have no p-values or if there are too few queries for a calibration.
    """
    half = len(part.queries) // 2
    some = np.sort(
        np.random.default_rng(seed).choice(len(part.entries), min(len(part.entries), N_NULL_ENTRIES), replace=False)
    )
    rates = {}
    for name in ("as they are", "calibrated"):
        if name == "as they are" and not best.has_null:
            continue
        index = best.make(part.entries.shape[1], random_state=seed)
        with _no_warnings():
            index.add(part.entries[some])
            if name == "calibrated":
                try:
                    index.calibrate(part.queries[:half], false_alarm=LEVELS[-1])
                except ValueError as error:
                    part.notes.append(f"false-alarm rates after calibration were not measured: {error}")
                    continue
            judged = part.queries[half:]
            found = [index.within(judged, false_alarm=level, force=True) for level in LEVELS]
        rates[name] = [float((np.diff(one.starts) > 0).mean()) for one in found]
    return rates, len(part.queries) - half


def _found(ids: Int64, wanted: Int64) -> Float64:
    """Return the fraction of each query's true neighbours that were found."""
    return np.array([np.isin(true, mine).mean() for mine, true in zip(ids, wanted, strict=True)], np.float64)


def _recall(shares: Float64, k: int) -> Recall:
    return Recall(k, float(shares.mean()), *share_interval(shares))
