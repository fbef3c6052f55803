"""Calibration: null distributions learned from searches for impostors, in place of those of isotropic signals."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float64, Int64
from .._rows import take_rows
from ..encoding import encode
from ..errors import StorageError
from ..families import Null, Recipe
from ..projections.blocks import float_blocks
from ..store import Snapshot
from ..theory.nulls import MAX_SCORES, SearchNull, searches_needed
from .hits import Hits
from .scan import Scan, make_scans

FORMAT = 1

N_SAMPLED = 512
"""Random entries that the bulk of scores is taken from."""

COPY = 0.99
"""Share of the score with its own code that a copy of a signal reaches with noise of a tenth of its norm."""

MAX_SAME = 0.05
"""Share of impostors that may have the code of an entry: small codes of different signals are equal now and then."""

MIN_DETECTED = 0.95
"""Share of copies that must reach the threshold of a calibration from the index's own signals."""

Progress = Callable[[int, int], None]


class Population(Protocol):
    """Entries that can be searched and sampled: a snapshot, or segments on a cluster."""

    @property
    def has_text_ids(self) -> bool | None: ...
    def __len__(self) -> int: ...
    def nearest(self, scan: Scan, k: int) -> Hits: ...
    def codes_of(self, ids: Int64) -> Bytes: ...
    def sample(self, n_entries: int, rng: np.random.Generator) -> Snapshot: ...


@dataclass(frozen=True, eq=False)
class Calibration:
    """Null distributions of an index, by scoring, and the bulk of scores that drift is judged by."""

    nulls: Mapping[str, SearchNull]  # of negated mismatches, and of estimated correlations
    bulk: Float64  # (n,) ascending: a high quantile of each impostor's scores with random entries
    own: bool = False  # whether the index's own signals were searched for

    @property
    def n_queries(self) -> int:
        """Searches for impostors."""
        return self.nulls["asymmetric"].n_searches

    @property
    def n_entries(self) -> int:
        """Entries of the index at the time."""
        return self.nulls["asymmetric"].n_entries

    @property
    def level(self) -> float:
        """Smallest false-alarm rate of a search that needs no model of the tail."""
        return max(null.level for null in self.nulls.values())

    @property
    def floor(self) -> float:
        """Smallest false-alarm rate, and smallest E-value, that is supported at all."""
        return max(null.floor for null in self.nulls.values())

    def for_scans(self) -> dict[str, Null]:
        """Return the nulls that scans use, by scoring."""
        return dict(self.nulls)

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values."""
        nulls = {scoring: null.to_json() for scoring, null in self.nulls.items()}
        return {"format": FORMAT, "nulls": nulls, "bulk": self.bulk.tolist(), "own": self.own}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Calibration:
        """Return the calibration in a record that was read from ``path``; StorageError if it is not one."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            nulls = {scoring: SearchNull.from_json(one) for scoring, one in record["nulls"].items()}
            bulk = np.array(record["bulk"], np.float64)
            if "asymmetric" not in nulls or bulk.ndim != 1 or not (np.diff(bulk) >= 0).all() or len(bulk) > MAX_SCORES:
                raise ValueError("it has no null of real-valued scores")
            return cls(nulls, bulk, bool(record["own"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; calibrate the index again") from None


def learn_calibration(
    recipe: Recipe,
    entries: Population,
    queries: Array,
    *,
    own_ids: Int64 | None = None,
    false_alarm: float,
    rng: np.random.Generator,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Search for impostors and return the null distributions of their best scores.

    ``own_ids`` are the entries that the queries are themselves, -1 for none: no query is compared with itself. Raises
    ValueError if ``false_alarm`` cannot be promised.
    """
    chosen = np.sort(rng.permutation(len(queries))[:MAX_SCORES])
    own = None if own_ids is None else own_ids[chosen]
    _check_number(len(chosen), false_alarm, own is not None)
    asked = queries if len(chosen) == len(queries) else take_rows(queries, chosen)
    nulls: dict[str, SearchNull] = {}
    for scoring in recipe.scorings:
        best, pairs, bulk = _impostor_scores(recipe, entries, asked, own, scoring, rng, n_threads, progress)
        searched = np.isfinite(best)
        _check_number(int(searched.sum()), false_alarm, own is not None)
        step = 0.0 if scoring == "asymmetric" else 1.0
        nulls[scoring] = SearchNull.learn(best[searched], n_entries=len(entries), pairs=pairs, step=step)
        if scoring == "asymmetric":
            if own is not None:
                copies = own_scores(recipe, asked, n_threads=n_threads)
                _check_detection(recipe, nulls[scoring], copies, false_alarm)
            spread = np.sort(bulk)
    return Calibration(nulls, spread, own is not None)


def _impostor_scores(
    recipe: Recipe,
    entries: Population,
    queries: Array,
    own: Int64 | None,
    scoring: str,
    rng: np.random.Generator,
    n_threads: int | None,
    progress: Progress | None,
) -> tuple[Float64, Float64, Float64]:
    """Return the best statistic of each search, statistics of random pairs, and a high quantile of these by query."""
    best, pairs, bulk = np.full(len(queries), -np.inf), [], []
    for block, scan in make_scans(recipe, queries, scoring=scoring, n_threads=n_threads):
        scan = scan.correlated()
        mine = None if own is None else own[block]
        hits = entries.nearest(scan, 1 if mine is None else 2)
        if mine is None and scoring == "asymmetric":
            _check_impostors(recipe, queries, block, hits, entries, n_threads)
        best[block] = best_by_query(scan, hits, mine)
        found = bulk_scores(scan, entries.sample(min(len(entries), N_SAMPLED), rng), mine)
        pairs.append(found[np.isfinite(found)])
        bulk.append(bulk_quantiles(found))
        if progress is not None:
            progress(block.stop, len(queries))
    best[best == -np.inf] = np.nan
    return best, np.concatenate(pairs), np.concatenate(bulk)


def best_by_query(scan: Scan, hits: Hits, own: Int64 | None) -> Float64:
    """Return the best statistic of each query but for its own entry; -inf for zero queries and without entries."""
    best = np.full(len(scan.comparison), -np.inf)
    statistics = scan.comparison.statistics(hits.queries, hits.values, hits.scores)
    others = scan.comparison.norms[hits.queries] > 0
    if own is not None:
        others &= hits.ids != own[hits.queries]
    np.maximum.at(best, hits.queries[others], statistics[others])
    return best


def bulk_scores(scan: Scan, some: Snapshot, own: Int64 | None = None) -> Float64:
    """Return statistics of each query with each of some entries, descending; nan for its own entry and zero queries."""
    hits = scan.measure(some, scan.rank(some, len(some)))
    statistics = scan.comparison.statistics(hits.queries, hits.values, hits.scores)
    known = scan.comparison.norms[hits.queries] > 0
    if own is not None:
        known &= hits.ids != own[hits.queries]
    return np.where(known, statistics, np.nan).reshape(len(scan.comparison), -1)


def bulk_quantiles(scores: Float64) -> Float64:
    """Return the 90% quantile of each query's scores with random entries, for the queries that have any."""
    finite = np.isfinite(scores)
    whole = finite.all(axis=1)
    found = np.empty(len(scores))
    found[whole] = np.quantile(scores[whole], 0.9, axis=1) if whole.any() else 0.0
    for row in np.flatnonzero(~whole & finite.any(axis=1)):  # nanquantile of a matrix takes a hundred times as long
        found[row] = np.quantile(scores[row][finite[row]], 0.9)
    return found[finite.any(axis=1)]


def bulk_of_queries(recipe: Recipe, entries: Population, queries: Array) -> Float64:
    """Return a high quantile of each query's scores with random entries, to compare with :attr:`Calibration.bulk`."""
    found = []
    some = entries.sample(min(len(entries), N_SAMPLED), np.random.default_rng(0))
    for _, scan in make_scans(recipe, queries, scoring="asymmetric"):
        found.append(bulk_quantiles(bulk_scores(scan.correlated(), some)))
    return np.concatenate([np.empty(0), *found])


def own_scores(recipe: Recipe, signals: Array, *, n_threads: int | None = None) -> Float64:
    """Return the estimated correlation of each signal with its own code."""
    found = np.zeros(len(signals))
    threads = kernels.n_threads(n_threads)
    for block in float_blocks(signals, recipe.block_signals, minus=recipe.center, n_threads=threads):
        codes = recipe.encode(block, n_threads=threads)
        kept, norms = recipe.norms(codes), np.sqrt(np.where(block.square_norms > 0, block.square_norms, 1))
        products = np.einsum("ij,ij->i", block.values, recipe.reference(codes), dtype=np.float64)
        found[block.rows] = products / norms / (1 if kept is None else kept)
    return found


def _check_number(n_searches: int, false_alarm: float, own: bool) -> None:
    needed = searches_needed(false_alarm)
    if n_searches < needed:
        given = "signals of entries" if own else "impostors"
        raise ValueError(
            f"false_alarm={false_alarm:g} takes at least {needed:,} {given} to calibrate with, got {n_searches:,}; "
            "each counts once, however many entries it is compared with. Give more, or a larger false_alarm"
        )


def _check_impostors(
    recipe: Recipe, queries: Array, block: slice, hits: Hits, entries: Population, n_threads: int | None
) -> None:
    """Refuse impostors that are entries of the index: they would raise every threshold to a perfect match."""
    codes = encode(recipe, queries, part=block, n_threads=n_threads, name="impostors", allow_zero=True)
    same = (codes[hits.queries] == entries.codes_of(hits.ids)).all(axis=1)
    if same.sum() > MAX_SAME * len(codes):
        row = block.start + int(hits.queries[np.argmax(same)])
        raise ValueError(
            f"{int(same.sum()):,} of {len(codes):,} impostors, the first impostors[{row}], are entries of the index: "
            "their best match has their own code. Drop them, or give the ids of the entries that they are, as ids="
        )


def _check_detection(recipe: Recipe, null: SearchNull, copies: Float64, false_alarm: float) -> None:
    """Refuse thresholds that copies of entries do not reach, for example because near-duplicates have raised them."""
    threshold = null.search_threshold(false_alarm, null.n_entries)
    detected = float(np.mean(COPY * copies >= threshold))
    if detected < MIN_DETECTED:
        center = "" if recipe.center is not None else "make the index with center=True, "
        raise ValueError(
            f"at false_alarm={false_alarm:g} the threshold would be {threshold:.3f}, which only {detected:.0%} of "
            "copies of entries with a little noise reach: the index's own signals have too many near-duplicates, or "
            f"too much in common, to calibrate with; {center}give impostors=, signals that match no entry, ask for a "
            "larger false_alarm, or use larger codes"
        )
