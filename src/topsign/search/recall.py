"""Calibration of recall: how many regions a search must visit to reach a requested recall.

Conformal risk control (Angelopoulos et al., arXiv 2208.02814) in strata of the query's best region score. Settings, the
number of regions and of candidates to rescore, lie on one path ordered by cost. Of a stratum of m calibration queries
the first setting is taken with ``(m * (1 - mean recall) + 1) / (m + 1) <= 0.85 * (1 - asked)``. In expectation over
queries that are exchangeable with those of the calibration, the recall is then at least the one asked for. The factor
is a reserve for other queries: without it, searches for verbs in an index of nouns reached .882 of a recall@1 of .90.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from .._arrays import Array, Booleans, Float32, Float64, Int32, Int64
from .._lazy import lazy
from ..families import Recipe, unit_queries
from ..kernels import RegionRule
from ..store import Snapshot
from .engine import Hits, living_ranges, rank_ranges
from .originals import SPARE, ExactSignals, KeptOriginals, rank_exactly
from .query_block import QueryBlock
from .regions import MIN_ENTRIES, RegionOrder, Regions, RegionVisits

N_QUERIES = 2000  # calibration queries
N_NEIGHBORS = 100  # neighbours per calibration query, and the largest k that recall is calibrated for
N_CANDIDATES = 1000  # maximum number of candidates to rescore
N_STRATA = 5
MIN_QUERIES = 200
MOST_REGIONS = 1 / 3  # a search that needs more than this share of the regions visits all entries
NEVER = 255
GROWTH = 1.12  # ratio of the numbers of regions of consecutive settings
PILOT_SHARE = 0.25  # share of the calibration queries that determine the path if candidates are rescored
RESERVE = 0.15  # share of the permitted loss held back for queries that differ from the entries
LOW_LEVEL = 0.05  # significance level of recall_low


def region_path(n_regions: int) -> Int64:
    """Return the number of regions of each setting: ascending, at most a third of all regions, at most 100 settings."""
    most = max(1, int(n_regions * MOST_REGIONS))
    steps = np.unique(np.rint(GROWTH ** np.arange(200)).astype(np.int64))
    return np.unique(np.append(steps[steps < most], most))


def candidate_path(region_ranks: Int64, code_ranks: Int64, path: Int64) -> Int64:
    """Return the number of candidates of each setting, so that they miss no more neighbours than the regions do.

    ``region_ranks`` are those of the neighbours' regions, ``code_ranks`` those of the neighbours in the search by code.
    """
    lost = 1 - (region_ranks.ravel()[np.newaxis] < path[:, np.newaxis]).mean(axis=1)
    ordered = np.sort(code_ranks.ravel())
    places = np.ceil((1 - lost) * len(ordered)).astype(np.int64) - 1
    return np.maximum.accumulate(np.clip(ordered[np.clip(places, 0, len(ordered) - 1)] + 1, 10, N_CANDIDATES))


def found_from(found: Array) -> Array:
    """Return the first setting from which every setting finds a neighbour, uint8; :data:`NEVER` if there is none.

    ``found`` is (n_settings, ...), whether a setting finds it.
    """
    for_good = np.logical_and.accumulate(found[::-1], axis=0)
    first = len(found) - for_good.sum(axis=0)
    return np.where(first < len(found), first, NEVER).astype(np.uint8)


@dataclass(frozen=True)
class Setting:
    """Setting of one stratum: regions and candidates to visit, and the expected recall."""

    n_regions: int
    n_entries: int
    n_candidates: int  # to rescore; 0 for none
    recall: float
    recall_low: float


@dataclass(frozen=True, eq=False)
class RecallCalibration:
    """Calibration of recall: the settings at which the neighbours of calibration queries are found."""

    generation: int  # of the regions
    of_signals: bool  # whether recall refers to exact neighbours instead of the exhaustive search over codes
    own: bool  # whether the queries were entries of the index
    path: Int64  # (n_settings,) regions
    candidates: Int64  # (n_settings,) to rescore; zeros if recall refers to codes
    edges: Float64  # (N_STRATA - 1,) best region scores between strata
    least: float  # smallest best region score of the calibration queries
    strata: Array  # (n_queries,) uint8
    found: Array  # (n_queries, N_NEIGHBORS) uint8, first setting that finds a neighbour
    entries: Float64  # (N_STRATA, n_settings) mean number of living entries visited

    @classmethod
    def of(
        cls,
        *,
        generation: int,
        of_signals: bool,
        own: bool,
        path: Int64,
        candidates: Int64,
        best: Float32,
        found: Array,
        visited: Float64,
    ) -> RecallCalibration:
        """Return the calibration of these queries.

        ``best`` are their best region scores, ``visited`` (n_queries, n_settings) the living entries that a setting
        visits.
        """
        edges = np.quantile(best.astype(np.float64), np.arange(1, N_STRATA) / N_STRATA)
        strata = np.searchsorted(edges, best, side="right").astype(np.uint8)
        entries = np.array(
            [visited[strata == one].mean(axis=0) if (strata == one).any() else visited.mean(axis=0) for one in range(5)]
        )
        least = float(best.min())
        return cls(generation, of_signals, own, path, candidates, edges, least, strata, found, entries)

    def to_table(self) -> dict[str, Array]:
        """Return the calibration as arrays, which :meth:`from_table` reads."""
        numbers = np.array([self.generation, self.of_signals, self.own], np.int64)
        arrays: dict[str, Array] = {"numbers": numbers, "path": self.path, "candidates": self.candidates}
        arrays |= {"edges": self.edges, "least": np.array([self.least]), "strata": self.strata}
        return arrays | {"found": self.found, "entries": self.entries}

    @classmethod
    def from_table(cls, table: Mapping[str, Array]) -> RecallCalibration:
        """Return the calibration stored in a table; raise ValueError if its arrays are inconsistent."""
        names = ("numbers", "path", "candidates", "edges", "least", "strata", "found", "entries")
        try:
            numbers, path, candidates, edges, least, strata, found, entries = (table[name] for name in names)
        except KeyError as error:
            raise ValueError(f"the calibration of recall has no {error.args[0]}") from None
        count, n_queries = len(path), len(strata)
        shapes = [array.shape for array in (numbers, path, candidates, edges, least, found, entries)]
        wanted = [(3,), (count,), (count,), (N_STRATA - 1,), (1,), (n_queries, N_NEIGHBORS), (N_STRATA, count)]
        if shapes != wanted or not 0 < count < NEVER or not n_queries:
            raise ValueError(f"arrays of the calibration of recall have shapes {shapes}, {wanted} expected")
        if (np.diff(path) <= 0).any() or path[0] < 1 or (strata >= N_STRATA).any() or (np.diff(edges) < 0).any():
            raise ValueError("settings and strata must be in order")
        if not all(np.isfinite(values).all() and (values >= 0).all() for values in (entries, candidates)):
            raise ValueError("numbers of entries must be finite and at least 0")
        generation, of_signals, own = (int(number) for number in numbers)
        return cls(
            generation, bool(of_signals), bool(own), path, candidates, edges, float(least[0]), strata, found, entries
        )

    @property
    def recall_of(self) -> str:
        """Reference of the recall: "signals" (exact neighbours) or "codes" (exhaustive search over codes)."""
        return "signals" if self.of_signals else "codes"

    def stratum(self, best: Float32) -> Int64:
        """Return the stratum of each query by its best region score."""
        return np.searchsorted(self.edges, best, side="right")

    @lazy
    def _known(self) -> dict[tuple[int, float], list[Setting | None]]:
        return {}

    @lazy
    def derived(self) -> dict[Any, Any]:
        """Cache of values that searches derive from the calibration."""
        return {}

    def settings(self, k: int, asked: float) -> list[Setting | None]:
        """Return the cheapest setting of each stratum that reaches a recall@k; None if no setting does."""
        known = self._known.get((k, asked))
        if known is None:
            known = self._known[k, asked] = [self._setting(stratum, k, asked) for stratum in range(N_STRATA)]
        return known

    def _setting(self, stratum: int, k: int, asked: float) -> Setting | None:
        recalls = self._recalls(stratum, k)
        count = recalls.shape[1]
        risks = (count * (1 - recalls.mean(axis=1)) + 1) / (count + 1) if count else np.ones(len(self.path))
        enough = np.flatnonzero(risks <= (1 - RESERVE) * (1 - asked) + 1e-12)
        return None if not enough.size else self._at(stratum, int(enough[0]), recalls[enough[0]], k)

    def at_probes(self, stratum: int, k: int, n_regions: int) -> Setting | None:
        """Return the last setting that visits at most ``n_regions`` regions; None if there is none."""
        place = int(np.searchsorted(self.path, n_regions, side="right")) - 1
        return None if place < 0 else self._at(stratum, place, self._recalls(stratum, k)[place], k)

    def _recalls(self, stratum: int, k: int) -> Float64:
        """Return the recall of each calibration query at each setting, (n_settings, n_queries)."""
        found = self.found[self.strata == stratum][:, :k]
        settings = np.arange(len(self.path))[:, np.newaxis, np.newaxis]
        return np.asarray((found[np.newaxis] <= settings).mean(axis=2))

    def _at(self, stratum: int, place: int, recalls: Float64, k: int) -> Setting:
        n_entries = int(np.ceil(self.entries[stratum, place]))
        n_candidates = max(k, int(self.candidates[place])) if self.of_signals else 0
        mean = float(recalls.mean()) if recalls.size else 0.0
        return Setting(int(self.path[place]), n_entries, n_candidates, mean, lower_bound(mean, len(recalls)))


def lower_bound(mean: float, count: int, level: float = LOW_LEVEL) -> float:
    """Return a one-sided lower bound of a mean recall, as if each query's recall were 0 or 1 (Clopper-Pearson)."""
    from scipy.special import betaincinv

    successes = np.floor(mean * count)
    return float(betaincinv(successes, count - successes + 1, level)) if successes > 0 else 0.0


BLOCK = 512  # queries per block; all signals are read once per block
EXACT_PRODUCTS = 10**12  # maximum number of products in the search for exact neighbours


def n_calibration(snapshot: Snapshot, n_features: int, *, exact: bool) -> int:
    """Return the number of calibration queries, which is smaller if many signals must be compared exactly."""
    affordable = EXACT_PRODUCTS // max(1, len(snapshot) * n_features) if exact else N_QUERIES
    return int(np.clip(affordable, MIN_QUERIES, N_QUERIES))


def calibrate_recall(
    recipe: Recipe,
    snapshot: Snapshot,
    regions: Regions,
    queries: Array,
    *,
    own_ids: Int64 | None,
    originals: KeptOriginals | None,
    progress: Callable[[int, int], None] | None = None,
) -> RecallCalibration:
    """Compare queries with all entries and record which settings find their neighbours.

    ``own_ids`` are the ids of queries that are entries themselves, and are left out of their own search.
    """
    path, counts = region_path(len(regions)), regions.order.counts(snapshot)
    assert counts is not None  # all entries are assigned when regions are learned
    n_extra = 0 if own_ids is None else 1
    n_listed = N_NEIGHBORS if originals is None else N_CANDIDATES
    best, visited, near, by_code, listed = [], [], [], [], []
    for start in range(0, len(queries), BLOCK):
        part = slice(start, min(start + BLOCK, len(queries)))
        units, _ = unit_queries(recipe, queries[part])
        scores = regions.scores(units)
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(len(regions))[np.newaxis], axis=1)
        visited.append(np.cumsum(counts[order], axis=1)[:, path - 1])
        best.append(scores.max(axis=1))
        comparison = recipe.prepare(queries, part=part)
        n_wanted = min(n_listed + n_extra, len(snapshot))
        hits = rank_ranges(comparison, snapshot, living_ranges(snapshot), n_wanted)
        rows = _without_own(hits.rows.reshape(len(units), -1), snapshot, None if own_ids is None else own_ids[part])
        if originals is None:
            near.append(_ranks_of(snapshot, rows[:, :N_NEIGHBORS], ranks))
        else:
            n_exact = min(N_NEIGHBORS + n_extra, len(snapshot))
            exact = originals.best_rows(snapshot, queries[part], n_exact, metric=recipe.metric)
            exact = _without_own(exact, snapshot, None if own_ids is None else own_ids[part])
            near.append(_ranks_of(snapshot, exact, ranks))
            listed.append(_ranks_of(snapshot, rows, ranks))
            by_code.append(_places(exact, rows))
        if progress is not None:
            progress(part.stop, len(queries))
    region_ranks = _filled(np.concatenate(near), len(regions))
    scores_best, seen = np.concatenate(best), np.concatenate(visited).astype(np.float64)
    if originals is None:
        found, candidates = region_ranks[np.newaxis] < path[:, np.newaxis, np.newaxis], np.zeros(len(path), np.int64)
        kept = slice(None)
    else:
        code_ranks = _filled(np.concatenate(by_code), n_listed)
        n_pilot = int(PILOT_SHARE * len(queries))  # they determine the path; the others calibrate the settings on it
        kept = slice(n_pilot, None)
        candidates = candidate_path(region_ranks[:n_pilot, :10], code_ranks[:n_pilot, :10], path)
        inside = np.concatenate(listed)[kept]
        found = _found_at(region_ranks[kept], code_ranks[kept], inside, path, candidates)
    return RecallCalibration.of(
        generation=regions.generation,
        of_signals=originals is not None,
        own=own_ids is not None,
        path=path,
        candidates=candidates,
        best=scores_best[kept],
        found=found_from(found if originals is not None else found[:, kept]),
        visited=seen[kept],
    )


def _without_own(rows: Int64, snapshot: Snapshot, own: Int64 | None) -> Int64:
    """Return the rows of each query without the query's own row, or without the last row if that is not listed."""
    if own is None:
        return rows
    ids = snapshot.gather("ids", rows.ravel()).reshape(rows.shape)
    is_own = ids == own[:, np.newaxis]
    is_own[~is_own.any(axis=1), -1] = True
    return np.asarray(rows[~is_own].reshape(len(rows), -1), np.int64)


def _ranks_of(snapshot: Snapshot, rows: Int64, ranks: Int64) -> Int64:
    """Return the rank of each entry's region in the order in which the query visits regions."""
    regions = snapshot.gather("regions", rows.ravel()).astype(np.int64).reshape(rows.shape)
    return np.take_along_axis(ranks, regions, axis=1)


def _places(rows: Int64, listed: Int64) -> Int64:
    """Return the position of each row in the list of its query; the length of the list if it is missing."""
    places = np.full(rows.shape, listed.shape[1], np.int64)
    for at, (some, known) in enumerate(zip(rows, listed, strict=True)):
        order = np.argsort(known)
        found = np.minimum(np.searchsorted(known, some, sorter=order), len(known) - 1)
        same = known[order[found]] == some
        places[at, same] = order[found[same]]
    return places


def _filled(ranks: Int64, never: int) -> Int64:
    """Pad ranks to N_NEIGHBORS neighbours; the added ones, which a small index lacks, are never found."""
    missing = N_NEIGHBORS - ranks.shape[1]
    return np.pad(ranks, ((0, 0), (0, max(0, missing))), constant_values=never)


def _found_at(region_ranks: Int64, code_ranks: Int64, listed: Int64, path: Int64, candidates: Int64) -> Array:
    """Return whether each setting finds each neighbour: it visits the region and the entry is among the candidates."""
    found = np.empty((len(path), *region_ranks.shape), bool)
    for setting, (n_regions, n_candidates) in enumerate(zip(path, candidates, strict=True)):
        before = np.cumsum(np.pad(listed < n_regions, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
        ahead = np.take_along_axis(before, np.minimum(code_ranks, listed.shape[1]), axis=1)
        inside = (region_ranks < n_regions) & (code_ranks < listed.shape[1])
        found[setting] = inside & (ahead < n_candidates)
    return found


def sample_rows(snapshot: Snapshot, n_rows: int, rng: np.random.Generator) -> Int64:
    """Return the rows of a random sample of live entries, ascending."""
    living = np.flatnonzero(np.concatenate([segment.living for segment in snapshot.segments]))
    return np.sort(rng.choice(living, min(n_rows, len(living)), replace=False))


def queries_of(recipe: Recipe, vectors: Float32) -> Float32:
    """Return decoded codes as queries, with the mean added that the recipe subtracts from queries."""
    return vectors if recipe.center is None else vectors + recipe.center


CALL_COST, QUERY_COST, REGION_COST = 200_000.0, 20_000.0, 11.0
"""Cost of choosing regions in nanoseconds: per search, per query, and per query and region."""

ORIGINAL_COST, ORIGINAL_QUERY_COST = 8.0, 0.1
"""Cost of comparing an original with a batch in nanoseconds per feature: to read it, and per query.

Measured with 50,000 originals of 384 features in float16: 17 and 0.13 (AVX2, 2.5 GHz). The constants are lower, because
other processors are faster.
"""

MOST_KNOWN = 64
"""Maximum number of cached settings."""

NOT_ASKED = "neither recall nor probes was asked for"
FEW = f"fewer than {MIN_ENTRIES:,} entries are compared faster than regions are chosen"
NO_REGIONS = "no regions are learned; call learn_regions()"
UNASSIGNED = "some entries have no region; call learn_regions() again"
FEW_PASS = "too few entries pass the filter"
UNLIKE = "the query is farther from all regions than any calibration query"
TOO_MANY = "this recall needs more than a third of the regions"
LARGE_K = f"recall is calibrated for k up to {N_NEIGHBORS}"
FASTER = "comparing all entries takes less time for this batch"


@dataclass(frozen=True, eq=False)
class VisitReport:
    """Share visited and predicted recall of each query in a block."""

    visited: Float64  # share of the entries
    recall: Float64  # predicted
    recall_low: Float64  # one-sided 95% lower bound of it; nan if only an estimate is known
    exhaustive: Array  # strings: reason why all entries were visited, empty if they were not

    @classmethod
    def everything(cls, n_queries: int, reason: str) -> VisitReport:
        """Return the report of a search that visits all entries."""
        ones = np.ones(n_queries)
        return cls(ones, ones.copy(), ones.copy(), np.full(n_queries, reason, object))

    @classmethod
    def joined(cls, parts: list[VisitReport]) -> VisitReport:
        """Concatenate the reports of consecutive blocks."""
        parts = parts or [cls.everything(0, "")]
        names = ("visited", "recall", "recall_low", "exhaustive")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class RegionEntries(Protocol):
    """Entries that a search may visit by region, on this machine or on a cluster."""

    def __len__(self) -> int: ...
    def nearest(self, scan: QueryBlock, k: int) -> Hits:
        """Return the k best entries of each query, measured."""

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        """Return the number of entries in each region; None if some entries have no region."""

    def visit(self, scan: QueryBlock, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured."""

    def nearest_signals(self, scan: QueryBlock, queries: Array, which: Int64, k: int) -> Hits:
        """Return the k nearest entries of the queries ``which`` by original signals."""


@dataclass(frozen=True, eq=False)
class Strata:
    """Settings and reported values of the strata, one value per stratum."""

    n_regions: Int64  # 0 for all entries
    n_entries: Int64  # to visit at least
    n_found: Int64  # entries to find before rescoring
    recall: Float64
    recall_low: Float64
    reasons: Array  # strings: reason why all entries are visited

    @classmethod
    def of(cls, settings: list[tuple[Setting | None, str]], n_found: list[int]) -> Strata:
        """Return strata from pairs of a setting and a reason; a setting of None visits all entries."""
        known = [Setting(0, 0, 0, 1.0, 1.0) if one is None else one for one, _ in settings]
        return cls(
            np.array([one.n_regions for one in known], np.int64),
            np.array([max(one.n_entries, wanted) for one, wanted in zip(known, n_found, strict=True)], np.int64),
            np.array(n_found, np.int64),
            np.array([one.recall for one in known]),
            np.array([one.recall_low for one in known]),
            np.array([reason for _, reason in settings], object),
        )


@dataclass(frozen=True, eq=False)
class RegionSearch:
    """Search for a recall, or with a fixed number of regions."""

    recipe: Recipe
    entries: RegionEntries  # that are considered
    regions: Regions | None
    calibration: RecallCalibration | None
    originals: ExactSignals | None  # None if recall refers to codes
    k: int
    recall: float | None
    probes: int | None
    is_filtered: bool

    @property
    def recall_of(self) -> str:
        """Reference of the recall: exact neighbours ("signals") or the exhaustive search over codes ("codes")."""
        return "codes" if self.originals is None else "signals"

    def find(self, scan: QueryBlock, queries: Array) -> tuple[Hits, VisitReport]:
        """Return the nearest entries of each query, measured, and what was visited."""
        reason = self._reason
        if not reason and self.probes is None and self._choosing_is_slower(scan):
            reason = FASTER
        if reason:
            return self._everything(scan, queries), VisitReport.everything(len(queries), reason)
        return self._visit(scan, queries)

    @lazy
    def _reason(self) -> str:
        """Reason why no query can visit regions; an empty string if queries can."""
        if self.regions is None:
            return FEW if len(self.entries) < MIN_ENTRIES else NO_REGIONS
        if self.probes is None and self.k > N_NEIGHBORS:
            return LARGE_K
        if self.probes is None and self.calibration is None:
            return NO_REGIONS
        if len(self.entries) and self._counts is not None:
            return ""
        return (
            FEW_PASS if self.is_filtered else UNASSIGNED if len(self.entries) else FEW
        )  # gathered entries have no regions

    @lazy
    def _counts(self) -> Int64 | None:
        assert self.regions is not None
        return self.entries.region_counts(self.regions.order)

    def _everything(self, scan: QueryBlock, queries: Array) -> Hits:
        if self.originals is None or not len(self.entries):
            return self.entries.nearest(scan, self.k)
        return self.entries.nearest_signals(scan, queries, np.arange(len(queries)), self.k)

    def _visit(self, scan: QueryBlock, queries: Array) -> tuple[Hits, VisitReport]:
        regions, counts, strata, known = self.regions, self._counts, self._strata, self.calibration
        assert regions is not None
        assert counts is not None
        units, _ = unit_queries(self.recipe, queries)
        edges = np.empty(0) if known is None else known.edges
        least = -np.inf if known is None or self.probes is not None else known.least
        rule = RegionRule(edges, strata.n_regions, strata.n_entries, least)
        best, starts, chosen = regions.choose(rule, counts, units)
        places = np.searchsorted(edges, best, side="right")
        is_wide, reasons = starts[1:] == starts[:-1], strata.reasons[places]  # a copy
        reasons[best < least] = UNLIKE
        if self.probes is None and self._is_slower(scan, chosen, is_wide):
            reasons[~is_wide] = FASTER
            is_wide = np.ones(len(best), bool)
        if is_wide.all():
            visit_report = VisitReport.everything(len(queries), "")
            return self._everything(scan, queries), replace(visit_report, exhaustive=reasons)
        starts, chosen = _with_all(starts, chosen, is_wide, len(regions))
        n_found = np.where(is_wide, self._n_found(None), strata.n_found[places])
        hits = self.entries.visit(scan, RegionVisits(regions.order, starts, chosen), int(n_found.max()))
        if self.originals is not None:
            hits = self._rescored(scan, queries, hits.first(n_found), is_wide)
        sums = np.append(0, np.cumsum(counts[chosen]))
        shares = (sums[starts[1:]] - sums[starts[:-1]]) / len(self.entries)
        return hits, self._report(strata, places, is_wide, shares, reasons)

    def _rescored(self, scan: QueryBlock, queries: Array, hits: Hits, is_wide: Booleans) -> Hits:
        """Rank candidates by original signals; wide queries compare all entries, so that their result is exact."""
        assert self.originals is not None
        wide = np.flatnonzero(is_wide)
        narrow = hits[~is_wide[hits.queries]] if wide.size else hits
        found = rank_exactly(scan, narrow, self.originals, queries, self.k)
        if not wide.size:
            return found
        both = Hits.joined([found, self.entries.nearest_signals(scan, queries, wide, self.k)])
        return both.ordered_by_score()

    @lazy
    def _strata(self) -> Strata:
        known: dict[Any, Strata] = {} if self.calibration is None else self.calibration.derived
        asked = self.k, self.recall, self.probes, len(self.entries), self.originals is None, self.is_filtered
        found = known.get(asked)
        if found is None:
            settings = [self._setting(stratum) for stratum in range(1 if self.calibration is None else N_STRATA)]
            found = Strata.of(settings, [self._n_found(one) for one, _ in settings])
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[asked] = found
        return found

    def _setting(self, stratum: int) -> tuple[Setting | None, str]:
        """Return the setting of a stratum, and the reason if it is None and queries visit all entries."""
        known = self.calibration
        if self.probes is not None:
            like = None if known is None or self.k > N_NEIGHBORS else known.at_probes(stratum, self.k, self.probes)
            recall, low = (np.nan, np.nan) if like is None else (like.recall, like.recall_low)
            n_candidates = 0 if self.originals is None or like is None else like.n_candidates
            return Setting(self.probes, 0, n_candidates, recall, low), ""
        assert known is not None
        assert self.recall is not None
        setting = known.settings(self.k, self.recall)[stratum]
        if setting is None:
            return None, TOO_MANY
        if len(self.entries) < 2 * setting.n_entries:
            return None, FEW_PASS if self.is_filtered else TOO_MANY
        return setting, ""

    def _n_found(self, setting: Setting | None) -> int:
        """Return the number of entries to find per query before rescoring."""
        if self.originals is None:
            wanted = self.k
        else:
            wanted = max(self.k + SPARE, 0 if setting is None else setting.n_candidates)
        return min(wanted, len(self.entries))

    def _is_slower(self, scan: QueryBlock, chosen: Int32, is_wide: Booleans) -> bool:
        """Return whether visiting regions is slower than comparing the whole batch with all entries."""
        assert self.regions is not None
        assert self._counts is not None
        n_queries, n_wide, total = len(is_wide), int(is_wide.sum()), int(self._counts[chosen].sum())
        if n_wide:
            n_visited, total = len(self.entries), total + n_wide * len(self.entries)
        elif n_queries == 1:
            n_visited = total
        else:
            n_visited = int(self._counts[np.bincount(chosen, minlength=len(self.regions)) > 0].sum())
        visiting = scan.engine.visit_cost(scan.comparison, n_visited, total)
        return self._choosing(n_queries) + visiting > self._comparing(scan)

    def _choosing_is_slower(self, scan: QueryBlock) -> bool:
        """Return whether visits are expected to be slower, so that no regions need to be chosen.

        A batch is expected to visit as many entries as the calibration queries, with a fifth of the queries in each
        stratum; a single query may be in the stratum that visits fewest.
        """
        assert self.regions is not None
        strata, n_queries, n_entries = self._strata, len(scan.comparison), len(self.entries)
        shares = np.maximum(strata.n_regions / len(self.regions), strata.n_entries / n_entries)
        shares = np.where(strata.n_regions > 0, np.minimum(shares, 1.0), 1.0)
        share = float(shares.min() if n_queries == 1 else shares.mean())
        if not strata.n_regions.any():
            share = 0.0  # the choice decides nothing but the reason that is reported
        n_visited = int(n_entries * (1 - (1 - share) ** n_queries))
        visiting = scan.engine.visit_cost(scan.comparison, n_visited, int(n_entries * share * n_queries))
        return self._choosing(n_queries) + visiting > self._comparing(scan)

    def _comparing(self, scan: QueryBlock) -> float:
        """Return the cost of comparing all entries in nanoseconds; those with originals are compared by these."""
        if self.originals is None:
            return scan.engine.scan_cost(scan.comparison, len(self.entries))
        each = ORIGINAL_COST + ORIGINAL_QUERY_COST * len(scan.comparison)
        return len(self.entries) * self.originals.n_features * each

    def _choosing(self, n_queries: int) -> float:
        """Return the cost of choosing regions, and of reading originals of candidates, in nanoseconds."""
        assert self.regions is not None
        each = QUERY_COST + len(self.regions) * REGION_COST
        if self.originals is not None:
            each += float(self._strata.n_found.mean()) * self.originals.n_features * ORIGINAL_COST
        return CALL_COST + n_queries * each

    def _report(self, strata: Strata, places: Int64, is_wide: Booleans, shares: Float64, reasons: Array) -> VisitReport:
        recalls = np.where(is_wide, 1.0, strata.recall[places])
        lows = np.full(len(places), np.nan) if self.is_filtered else strata.recall_low[places]  # an estimate, no bound
        return VisitReport(shares, recalls, np.where(is_wide, 1.0, lows), reasons)


def _with_all(starts: Int64, chosen: Int32, is_wide: Booleans, n_regions: int) -> tuple[Int64, Int32]:
    """Add all regions to wide queries, which have no visits yet."""
    if not is_wide.any():
        return starts, chosen
    everything = np.arange(n_regions, dtype=np.int32)
    parts = [
        everything if wide else chosen[begin:end]
        for wide, begin, end in zip(is_wide.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]
    return np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64), np.concatenate(parts)
