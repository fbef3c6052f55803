"""Significance of an index: calibration by searches for impostors, and checks of the null distribution in use."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from .._arrays import Array, Booleans, Float32, Float64, Int64
from .._checks import check_false_alarm
from .._rows import take_rows
from ..encoding import encode
from ..errors import CalibrationWarning, StorageError, warn
from ..families import Null, Recipe
from ..projections.blocks import float_blocks
from ..search.engine import ENGINE, Hits
from ..search.query_block import QueryBlock, query_blocks
from ..search.regions import Progress
from ..significance import MAX_REPEATED, ScoreCalibration, probabilities, searches_needed
from ..store.segments import Snapshot
from ..theory.tails import entry_level
from .entries import EntrySet

KEY = "topsign:calibration"
"""Name under which a store keeps the calibration among its sources."""

FORMAT = 2

PAIRS = "pairs"
"""Name of the null distribution of pairs of codes."""

MAX_IMPOSTORS, LIST = 20_000, 50
"""Maximum number of impostors that are searched for, and length of the lists that growth is learned from."""

PAIRED_IMPOSTORS, PAIRED_ENTRIES, PAIRED_ROWS = 5000, 10_000, 256
"""Maximum numbers of impostors and entries whose codes are compared to learn the null of pairs, and rows at a time."""

N_KNOTS, MAX_KNOTS = 256, 4096
STEP = 1.05
"""Numbers of entries by which thresholds grow have this ratio, so that few additions change them."""

WINDOW, MAX_JUDGED = 64, 512
"""Queries that are judged together for drift, at least and at most; searches of fewer wait for others."""

DRIFT_LEVEL, DRIFT_MARGIN = 1e-6, 0.1
"""Significance of a drift warning, and the difference of two distributions that is too small to matter."""

N_SAMPLED = 512
"""Random entries that the bulk of scores is taken from."""

COPY = 0.99
"""Share of the score with its own code that a copy of a signal reaches with noise of a tenth of its norm."""

MAX_SAME = 0.05
"""Share of impostors that may have the code of an entry: small codes of different signals are equal now and then."""

MAX_SIGNALS = 2000
"""Kept originals that an index is calibrated with."""

N_ROWS = 1024  # signals read at a time to find repeated ones

MIN_DETECTED = 0.95
"""Share of copies that must reach the threshold of a calibration from the index's own signals."""

LEVEL, TOO_MANY = 1e-3, 10
N_PAIRS, MIN_PAIRS, MIN_ENTRIES, CHECKED_QUERIES = 8192, 2000, 200, 32
FLOOD = 0.01  # share of all pairs above which a range search by significance is refused
CAUSE = "the signals are not isotropic, so that p-values and false_alarm mean little"


@dataclass(frozen=True, eq=False)
class CalibratedNull:
    """Null distributions of the best score of a search and of the score of one comparison; larger scores are closer.

    The p-value of one comparison is the E-value of the search over the number of entries; for scores below the median
    of the best scores it comes from random pairs.
    """

    scores: ScoreCalibration
    knots: Float64  # scores of random pairs, ascending
    survival: Float64  # fraction of random pairs that score at least each knot

    @classmethod
    def learn(cls, scores: ScoreCalibration, pairs: Float64) -> Self:
        """Learn from best scores and from scores of random (impostor, entry) pairs."""
        bulk = np.sort(pairs)
        shares = np.concatenate([np.linspace(1, 0.02, N_KNOTS), np.geomspace(0.02, 1 / len(bulk), N_KNOTS)])
        positions = np.clip(np.round((1 - shares) * len(bulk)).astype(int), 0, len(bulk) - 1)
        knots = np.unique(bulk[positions])
        return cls(scores, knots, (len(bulk) - np.searchsorted(bulk, knots, side="left")) / len(bulk))

    def search_threshold(self, false_alarm: float, n_entries: int) -> float:
        """Return the smallest threshold at which a search for an impostor has a match with at most this probability.

        Fewer entries than in the calibration have the same threshold, because a filter draws no random share of them.
        """
        return float(self.scores.threshold(false_alarm, max(n_entries, self.scores.n_entries)))

    def significant(self, statistics: Float64, false_alarm: float, n_entries: int) -> Booleans:
        """Return a mask of the scores that are matches at this false-alarm rate."""
        return np.asarray(statistics >= self.search_threshold(false_alarm, n_entries))

    def log10_p_values(self, statistics: Float64) -> Float64:
        """Return decimal logarithms of the probability that one comparison with an impostor scores at least as high."""
        middle = self.scores.best[self.scores.n_queries // 2]
        reached = self.scores.e_value(np.maximum(statistics, middle)) / self.scores.n_entries
        body = np.interp(statistics, self.knots, self.survival, left=1.0, right=float(self.survival[-1]))
        return np.asarray(np.log10(np.where(statistics < middle, np.maximum(body, reached), np.minimum(reached, 1.0))))

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Self:
        """Restore a null from a record; raise ValueError if the record is invalid."""
        scores = ScoreCalibration.from_json(record["scores"], path)
        knots, survival = (np.array(record[name], np.float64) for name in ("knots", "survival"))
        sound = all(one.ndim == 1 and len(one) and np.isfinite(one).all() for one in (knots, survival))
        sound = sound and len(knots) == len(survival) <= MAX_KNOTS and bool((np.diff(knots) > 0).all())
        if not (sound and (np.diff(survival) <= 0).all() and survival[0] <= 1 and survival[-1] > 0):
            raise ValueError("its scores of random pairs are out of range")
        return cls(scores, knots, survival)


@dataclass(frozen=True, eq=False)
class IndexCalibration:
    """Null distributions of an index, by scoring, and the bulk of scores that drift is judged by."""

    nulls: Mapping[str, CalibratedNull]  # of negated mismatches, of estimated correlations, and of pairs of codes
    score_quantiles: Float64  # (n,) ascending: a high quantile of each impostor's scores with random entries

    @property
    def scores(self) -> ScoreCalibration:
        """Best scores of real-valued comparisons."""
        return self.nulls["asymmetric"].scores

    def grown(self, n_entries: int) -> IndexCalibration:
        """Return the calibration for an index that has grown to so many entries."""
        return replace(
            self, nulls={name: replace(null, scores=null.scores.grown(n_entries)) for name, null in self.nulls.items()}
        )

    def to_json(self) -> dict[str, Any]:
        """Return a record of plain values."""
        nulls = {
            name: {"scores": null.scores.to_json(), "knots": null.knots.tolist(), "survival": null.survival.tolist()}
            for name, null in self.nulls.items()
        }
        return {"format": FORMAT, "nulls": nulls, "score_quantiles": self.score_quantiles.tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], path: str | os.PathLike[str]) -> Self:
        """Return the calibration in a record that was read from ``path``; StorageError if it is not one."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}; this library reads {FORMAT}")
            nulls = {name: CalibratedNull.from_json(one, path) for name, one in record["nulls"].items()}
            bulk = np.array(record["score_quantiles"], np.float64)
            if "asymmetric" not in nulls or bulk.ndim != 1 or not (np.diff(bulk) >= 0).all():
                raise ValueError("it has no null of real-valued scores")
            return cls(nulls, bulk)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StorageError(path, "calibration", f"cannot be read: {error}; calibrate the index again") from None


class Significance:
    """P-values of one recipe: those of the family, or of a calibration once there is one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._n_checked = 0  # entries there were at the last check of the null, 0 before the first
        self._recent: list[Float32] = []  # queries that are not judged yet
        self._warned: tuple[IndexCalibration, int] | None = None  # last warning of drift, and number of entries then
        self._grown: tuple[IndexCalibration, int, IndexCalibration] | None = None  # calibration, entries, and grown
        self._passed: dict[str, tuple[IndexCalibration | None, float, int]] = {}  # checked level of each scoring

    def nulls(self, calibration: IndexCalibration | None, n_entries: int) -> Mapping[str, CalibratedNull] | None:
        """Return the null distributions of an index that has so many entries now."""
        if calibration is None:
            return None
        then = calibration.scores.n_entries
        if n_entries <= then:
            return calibration.nulls
        size = math.ceil(then * STEP ** math.ceil(math.log(n_entries / then) / math.log(STEP)))
        known = self._grown
        if known is None or known[0] is not calibration or known[1] != size:
            self._grown = known = calibration, size, calibration.grown(size)
        return known[2].nulls

    def observe(self, entries: EntrySet, queries: Array, scoring: str, calibration: IndexCalibration | None) -> None:
        """Warn if the null in use does not fit the queries and entries of searches; warn again if the index doubles.

        The null of isotropic signals is checked at the first search of enough pairs, and when the index has doubled
        since. A calibration is compared with every 64 queries, together with random entries of now, so that drift of
        either is noticed.
        """
        n_entries = len(entries)
        if n_entries < MIN_ENTRIES or not len(queries):
            return
        if calibration is None:
            if n_entries >= 2 * self._n_checked and can_decide(queries, n_entries):
                self._n_checked = n_entries
                found = check_pairs(self._recipe, entries, queries, scoring, None)
                if not found.trusted:
                    warn(f"{found}: {CAUSE}; {self._remedy(None, n_entries)}", CalibrationWarning)
        elif self._warned is None or calibration is not self._warned[0] or n_entries >= 2 * self._warned[1]:
            self._observe_drift(entries, queries, calibration)

    def _observe_drift(self, entries: EntrySet, queries: Array, calibration: IndexCalibration) -> None:
        some = np.asarray(take_rows(queries, np.arange(min(len(queries), MAX_JUDGED))), np.float32)
        recent = [*self._recent, some]  # threads that search at the same time may lose some of each other's
        enough = sum(map(len, recent)) >= WINDOW
        self._recent = [] if enough else recent
        if not enough:
            return
        judged = np.concatenate(recent)
        distance = drift_distance(score_quantiles_of(self._recipe, entries, judged), calibration.score_quantiles)
        if distance > 0:
            self._warned = calibration, len(entries)
            warn(
                "scores of these queries with random entries differ from those that the null was learned from, by "
                f"{distance:.2f} more than chance in the distance of two distributions: queries or entries have "
                f"drifted, and false-alarm rates no longer hold; {self._remedy(calibration, len(entries))}",
                CalibrationWarning,
            )

    def check_level(
        self,
        entries: EntrySet,
        queries: Array,
        scoring: str,
        calibration: IndexCalibration | None,
        false_alarm: float,
        *,
        force: bool,
    ) -> None:
        """Refuse a range search at a level that is not supported, or that would return a flood of pairs.

        The flood is looked for at the first search, and again at larger levels or if the index has doubled.
        """
        n_entries = len(entries)
        nulls = self.nulls(calibration, n_entries)
        if nulls is not None:
            nulls[scoring].search_threshold(false_alarm, n_entries)  # raises ValueError
        known, passed, then = self._passed.get(scoring, (None, 0.0, 0))
        if known is calibration and false_alarm <= passed and n_entries < 2 * then:
            return
        if force or not can_decide(queries, n_entries):
            return
        level = entry_level(false_alarm, n_entries)
        found = check_pairs(self._recipe, entries, queries, scoring, nulls, level=level)
        if found.share > FLOOD:
            raise ValueError(
                f"{found.share:.1%} of {found.n_pairs:,} random pairs of queries and entries are significant at this "
                f"false_alarm, so that {found.share * n_entries:,.0f} of {n_entries:,} entries would be "
                f"returned per query: {CAUSE}; {self._remedy(calibration, n_entries)}, or pass force=True to "
                "return them anyway"
            )
        self._passed[scoring] = calibration, false_alarm, n_entries

    def _remedy(self, calibration: IndexCalibration | None, n_entries: int) -> str:
        if calibration is not None:
            then = calibration.scores.n_entries
            grown = f" (it was calibrated with {then:,} entries, there are {n_entries:,})" if then < n_entries else ""
            return f"calibrate the index again, with signals like these{grown}"
        learn = "learn the null of its scores by index.calibrate()"
        return learn if self._recipe.center is not None else f"make the index with center=True, or {learn}"


def can_decide(queries: Array, n_entries: int) -> bool:
    """Return whether random pairs of these queries and entries are enough to reject a null distribution."""
    return n_entries >= MIN_ENTRIES and min(CHECKED_QUERIES, len(queries)) * n_entries >= MIN_PAIRS


def kept_sample(snapshot: Snapshot) -> tuple[Array, Int64] | None:
    """Return up to 2,000 kept originals, drawn at random, and the ids of their entries; None without originals."""
    if not snapshot.has_originals or not len(snapshot):
        return None
    n_signals = min(len(snapshot), MAX_SIGNALS)
    rows = np.sort(np.random.default_rng(0).permutation(len(snapshot))[:n_signals])
    signals = snapshot.signals(rows)
    return None if signals is None else (signals, snapshot.gather("ids", rows).astype(np.int64))


def choose_impostors(
    given: Array | None, own_ids: Int64 | None, sample: tuple[Array, Int64] | None
) -> tuple[Array, Int64 | None]:
    """Return the signals to calibrate with, and the ids of their own entries: those given, else originals."""
    if given is not None:
        if own_ids is not None and len(own_ids) != len(given):
            raise ValueError(f"ids must be one per signal, got {len(own_ids)} for {len(given)} signals")
        return given, own_ids
    if own_ids is not None:
        raise ValueError("ids are those of signals of entries; give these signals too")
    if sample is None:
        raise ValueError(
            "this index keeps no originals to calibrate with; give impostors, signals that match no entry, or "
            "signals of some entries with their ids="
        )
    return sample


def drift_distance(seen: Float64, learned: Float64) -> float:
    """Return by how much two samples differ beyond chance: Kolmogorov's distance less its critical value, or 0."""
    if not len(seen) or not len(learned):
        return 0.0
    at = np.concatenate([seen, learned])
    shares = [np.searchsorted(np.sort(one), at, side="right") / len(one) for one in (seen, learned)]
    distance = float(np.abs(shares[0] - shares[1]).max())
    critical = math.sqrt(math.log(2 / DRIFT_LEVEL) / 2 * (1 / len(seen) + 1 / len(learned)))
    return max(0.0, distance - critical - DRIFT_MARGIN)


def learn_calibration(
    recipe: Recipe,
    entries: EntrySet,
    queries: Array,
    own_ids: Int64 | None = None,
    *,
    false_alarm: float,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> IndexCalibration:
    """Search for impostors and return the null distributions of their best scores.

    ``own_ids`` are the entries that the queries are themselves, -1 for none: no query is compared with itself. Raises
    ValueError if ``false_alarm`` cannot be promised.
    """
    check_false_alarm(false_alarm)
    chosen = np.sort(rng.permutation(len(queries))[:MAX_IMPOSTORS])
    chosen = chosen[distinct_rows(queries, chosen)]
    own = None if own_ids is None else own_ids[chosen]
    _check_number(len(chosen), false_alarm, own is not None)
    asked = queries if len(chosen) == len(queries) else take_rows(queries, chosen)
    nulls: dict[str, CalibratedNull] = {}
    for scoring in recipe.scorings:
        lists, pairs, bulk = _impostor_scores(recipe, entries, asked, own, scoring, rng, progress)
        searched = np.isfinite(lists[:, 0])
        _check_number(int(searched.sum()), false_alarm, own is not None)
        scores = ScoreCalibration.fit(lists[searched], n_entries=len(entries), tail="pareto")
        nulls[scoring] = CalibratedNull.learn(replace(scores, own=own is not None), pairs)
        if scoring == "asymmetric":
            if own is not None:
                copies = own_scores(recipe, asked)
                _check_detection(recipe, nulls[scoring], copies, false_alarm)
            spread = np.sort(bulk)
    found = np.flatnonzero(searched)
    nulls[PAIRS] = learn_pairs(recipe, entries, take_rows(asked, found), None if own is None else own[found], rng)
    return IndexCalibration(nulls, spread)


def learn_pairs(
    recipe: Recipe, entries: EntrySet, impostors: Array, own: Int64 | None, rng: np.random.Generator
) -> CalibratedNull:
    """Compare the codes of impostors with those of entries, and return the null distribution of pairs of codes."""
    codes = encode(recipe, impostors, part=slice(0, min(len(impostors), PAIRED_IMPOSTORS)), name="impostors")
    some = entries.sample(min(len(entries), PAIRED_ENTRIES), rng)
    pairing, k = recipe.pairing(), max(1, min(LIST, len(some) - 1))
    lists, pairs = np.full((len(codes), k), -np.inf), []
    for start in range(0, len(codes), PAIRED_ROWS):
        comparison = pairing.prepare(codes[start : start + PAIRED_ROWS])
        every = len(some) if not start else k + 1  # all pairs of the first rows show the bulk
        hits = ENGINE.rank(comparison, some, every)
        hits = hits if own is None else hits[hits.ids != own[start + hits.queries]]
        ranks = np.arange(len(hits)) - np.searchsorted(hits.queries, hits.queries)
        best = hits[ranks < k]
        lists[start + best.queries, ranks[ranks < k]] = best.values
        pairs.append(hits.values.astype(np.float64) if not start else np.empty(0))
    scores = ScoreCalibration.fit(lists, n_entries=len(some), tail="far")
    return CalibratedNull.learn(replace(scores, own=own is not None), np.concatenate(pairs))


def distinct_rows(signals: Array, rows: Int64) -> Int64:
    """Return all positions, or those of the first of equal rows if many repeat others and are no evidence."""
    seen: dict[bytes, int] = {}
    for start in range(0, len(rows), N_ROWS):
        values = np.asarray(take_rows(signals, rows[start : start + N_ROWS]), np.float32)
        for position, row in enumerate(values, start):
            seen.setdefault(blake2b(row.tobytes(), digest_size=16).digest(), position)
    few = len(seen) >= (1 - MAX_REPEATED) * len(rows)
    return np.arange(len(rows)) if few else np.array(list(seen.values()), np.int64)


def _impostor_scores(
    recipe: Recipe,
    entries: EntrySet,
    queries: Array,
    own: Int64 | None,
    scoring: str,
    rng: np.random.Generator,
    progress: Progress | None,
) -> tuple[Float64, Float64, Float64]:
    """Return the best statistics of each search, statistics of random pairs, and a high quantile of these by query."""
    k = max(1, min(LIST, len(entries) - (own is not None)))
    lists, pairs, bulk = np.full((len(queries), k), -np.inf), [], []
    for block, scan in query_blocks(recipe, queries, scoring=scoring):
        scan = scan.correlated()
        mine = None if own is None else own[block]
        hits = entries.nearest(scan, k + (mine is not None))
        if mine is None and scoring == "asymmetric":
            _check_impostors(recipe, queries, block, hits, entries)
        lists[block] = best_statistics(scan, hits, mine, k)
        found = random_scores(scan, entries.sample(min(len(entries), N_SAMPLED), rng), mine)
        pairs.append(found[np.isfinite(found)])
        bulk.append(high_quantiles(found))
        if progress is not None:
            progress(block.stop, len(queries))
    return lists, np.concatenate(pairs), np.concatenate(bulk)


def best_statistics(scan: QueryBlock, hits: Hits, own: Int64 | None, k: int) -> Float64:
    """Return the k best statistics of each query but for its own entry; -inf for zero queries and missing entries."""
    statistics = scan.comparison.statistics(hits.queries, hits.values, hits.scores)
    others = scan.comparison.norms[hits.queries] > 0
    if own is not None:
        others &= hits.ids != own[hits.queries]
    order = np.lexsort((-statistics[others], hits.queries[others]))
    queries, statistics = hits.queries[others][order], statistics[others][order]
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries)
    best = np.full((len(scan.comparison), k), -np.inf)
    best[queries[ranks < k], ranks[ranks < k]] = statistics[ranks < k]
    return best


def random_scores(scan: QueryBlock, some: Snapshot, own: Int64 | None = None) -> Float64:
    """Return statistics of each query with each of some entries, descending; nan for its own entry and zero queries."""
    hits = scan.nearest(some, len(some))
    statistics = scan.comparison.statistics(hits.queries, hits.values, hits.scores)
    known = scan.comparison.norms[hits.queries] > 0
    if own is not None:
        known &= hits.ids != own[hits.queries]
    return np.where(known, statistics, np.nan).reshape(len(scan.comparison), -1)


def high_quantiles(scores: Float64) -> Float64:
    """Return the 90% quantile of each query's scores with random entries, for the queries that have any."""
    finite = np.isfinite(scores)
    whole = finite.all(axis=1)
    found = np.empty(len(scores))
    found[whole] = np.quantile(scores[whole], 0.9, axis=1) if whole.any() else 0.0
    for row in np.flatnonzero(~whole & finite.any(axis=1)):  # nanquantile of a matrix takes a hundred times as long
        found[row] = np.quantile(scores[row][finite[row]], 0.9)
    return found[finite.any(axis=1)]


def score_quantiles_of(recipe: Recipe, entries: EntrySet, queries: Array) -> Float64:
    """Return a high quantile of each query's scores with random entries, as a calibration holds them."""
    found = []
    some = entries.sample(min(len(entries), N_SAMPLED), np.random.default_rng(0))
    for _, scan in query_blocks(recipe, queries, scoring="asymmetric"):
        found.append(high_quantiles(random_scores(scan.correlated(), some)))
    return np.concatenate([np.empty(0), *found])


def own_scores(recipe: Recipe, signals: Array) -> Float64:
    """Return the estimated correlation of each signal with its own code."""
    found = np.zeros(len(signals))
    for block in float_blocks(signals, recipe.block_signals, minus=recipe.center):
        codes = recipe.encode(block)
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


def _check_impostors(recipe: Recipe, queries: Array, block: slice, hits: Hits, entries: EntrySet) -> None:
    """Refuse impostors that are entries of the index: they would raise every threshold to a perfect match."""
    codes = encode(recipe, queries, part=block, name="impostors", allow_zero=True)
    _, first = np.unique(hits.queries, return_index=True)  # hits descend within a query
    hits = hits[first]
    same = (codes[hits.queries] == entries.codes_of(hits.ids)).all(axis=1)
    if same.sum() > MAX_SAME * len(codes):
        row = block.start + int(hits.queries[np.argmax(same)])
        raise ValueError(
            f"{int(same.sum()):,} of {len(codes):,} impostors, the first impostors[{row}], are entries of the index: "
            "their best match has their own code. Drop them, or give the ids of the entries that they are, as ids="
        )


def _check_detection(recipe: Recipe, null: CalibratedNull, copies: Float64, false_alarm: float) -> None:
    """Refuse thresholds that copies of entries do not reach, for example because near-duplicates have raised them."""
    threshold = null.search_threshold(false_alarm, null.scores.n_entries)
    detected = float(np.mean(COPY * copies >= threshold))
    if detected < MIN_DETECTED:
        center = "" if recipe.center is not None else "make the index with center=True, "
        raise ValueError(
            f"at false_alarm={false_alarm:g} the threshold would be {threshold:.3f}, which only {detected:.0%} of "
            "copies of entries with a little noise reach: the index's own signals have too many near-duplicates, or "
            f"too much in common, to calibrate with; {center}give impostors=, signals that match no entry, ask for a "
            "larger false_alarm, or use larger codes"
        )


@dataclass(frozen=True)
class NullCheck:
    """Share of random pairs with p-values of at most ``level``; it equals ``level`` if the null is correct."""

    share: float
    n_pairs: int
    level: float = LEVEL
    by_codes: bool = False  # two codes were compared, not a signal and a code

    @property
    def trusted(self) -> bool:
        """False if ten times the nominal share falls below the level."""
        return self.n_pairs < MIN_PAIRS or self.share <= TOO_MANY * self.level

    def __str__(self) -> str:
        pairs = "pairs of entries" if self.by_codes else "pairs of queries and entries"
        return (
            f"{self.share:.2%} of {self.n_pairs:,} random {pairs} have p-values below {self.level:g}, where "
            f"{self.level:.2%} is nominal"
        )


def check_pairs(
    recipe: Recipe,
    entries: EntrySet,
    queries: Array,
    scoring: str,
    nulls: Mapping[str, Null] | None,
    own_ids: Int64 | None = None,
    *,
    level: float = LEVEL,
) -> NullCheck:
    """Compare a few queries with random entries; queries that are entries are not compared with themselves.

    Codes without a null have no p-values to check: no pairs are compared.
    """
    if not len(entries) or not len(queries):
        return NullCheck(0.0, 0, level)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(queries))[:CHECKED_QUERIES])
    some = entries.sample(min(len(entries), N_PAIRS // len(rows)), rng)
    n_below = n_pairs = 0
    for block, scan in query_blocks(recipe, take_rows(queries, rows), scoring=scoring, nulls=nulls):
        if scan.null is None:
            break
        hits = scan.nearest(some, len(some))
        kept = np.ones(len(hits.ids), bool) if own_ids is None else hits.ids != own_ids[rows][block][hits.queries]
        n_pairs += int(kept.sum())
        n_below += int((probabilities(hits.log10_p_values[kept]) <= level).sum())
    return NullCheck(n_below / max(1, n_pairs), n_pairs, level)


def check_codes(recipe: Recipe, entries: EntrySet) -> NullCheck:
    """Compare pairs of entries by their codes, under the law of isotropic signals."""
    n_entries = min(len(entries), math.isqrt(2 * N_PAIRS))
    if n_entries < 2:
        return NullCheck(0.0, 0, by_codes=True)
    some = entries.sample(n_entries, np.random.default_rng(0))
    codes = some.gather("codes", some.locate(some.ids))
    p_values = recipe.code_pvalues(codes)
    if p_values is None:
        return NullCheck(0.0, 0, by_codes=True)
    first, second = np.triu_indices(len(codes), 1)
    return NullCheck(float(np.mean(p_values[first, second] <= LEVEL)), len(first), by_codes=True)
