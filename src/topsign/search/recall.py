"""Calibration of recall: how many regions a search must visit to reach a requested recall.

Conformal risk control (Angelopoulos et al., arXiv 2208.02814) in strata of the contrast of the query: the difference
between its best and its 16th best region score, which is small if its neighbours are scattered. Settings, the number of
regions and of candidates to rescore, lie on one path ordered by cost. Of a stratum of m calibration queries the first
setting is taken with ``(m * (1 - mean recall) + 1) / (m + 1) <= 0.85 * (1 - asked)``. In expectation over queries that
are exchangeable with those of the calibration, the recall is then at least the one asked for. The factor is a reserve
for other queries: without it, searches for verbs in an index of nouns reached .882 of a recall@1 of .90. The 1 in the
numerator costs the most if m is small, so strata are merged, from that of the hardest queries on, until it takes at
most a quarter of the permitted loss; the mean recall of each of them must suffice, too. If no setting suffices, all
codes are compared, and a number of candidates that is calibrated in the same way is rescored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from .. import kernels
from .._arrays import Array, Booleans, Float32, Float64, Int64
from .._lazy import lazy
from ..families import Comparison, Recipe, unit_queries
from ..families.comparison import CodeComparison
from ..kernels import OriginalRows, RegionCodes, RegionHits, RegionPlan, RegionRule, Visits
from ..store.segments import Snapshot
from .engine import ENGINE, Hits
from .originals import ExactSignals, KeptOriginals, exact_p_values, rank_exactly, round_scores
from .query_block import QueryBlock
from .regions import MIN_ENTRIES, RegionOrder, Regions, RegionVisits

N_QUERIES = 2000  # calibration queries
N_NEIGHBORS = 100  # neighbours per calibration query, and the largest k that recall is calibrated for
N_CANDIDATES = 1000  # maximum number of candidates to rescore
MIN_QUERIES = 200
SHARES = (0.05, 0.2, 0.4, 0.6, 0.8)  # quantiles of the contrast between strata; the smallest are the hardest queries
N_STRATA = len(SHARES) + 1
MOST_REGIONS = 1 / 3  # a search that needs more than this share of the regions compares all codes
NEVER = 255
GROWTH = 1.12  # ratio of the numbers of regions of consecutive settings
PILOT_SHARE = 0.25  # share of the calibration queries that determine the path if candidates are rescored
RESERVE = 0.15  # share of the permitted loss held back for queries that differ from the entries
PENALTY = 0.25  # share of the permitted loss that strata may lose because their queries are few
LOW_LEVEL = 0.05  # significance level of recall_low
COARSE_LEVELS = ((1 / 64, 1 / 4), (1 / 16, 1 / 2), (1.0, 1.0))
"""Shares of the regions up to which a setting scores the regions of this share of the coarse means."""


def region_path(n_regions: int) -> Int64:
    """Return the number of regions of each setting: ascending, at most a third of all regions, at most 100 settings."""
    most = max(1, int(n_regions * MOST_REGIONS))
    steps = np.unique(np.rint(GROWTH ** np.arange(200)).astype(np.int64))
    return np.unique(np.append(steps[steps < most], most))


def coarse_path(path: Int64, n_regions: int, n_coarse: int) -> Int64:
    """Return the number of nearest coarse means whose regions each setting scores."""
    shares = np.array([next(share for least, share in COARSE_LEVELS if one <= least * n_regions) for one in path])
    return np.asarray(np.maximum(np.ceil(shares * n_coarse), min(n_coarse, 8)), np.int64)


def candidate_path(lost: Float64, code_ranks: Int64) -> Int64:
    """Return the number of candidates of each setting, so that they miss no more neighbours than the regions do.

    ``lost`` is the share of neighbours whose regions a setting does not visit; ``code_ranks`` are those of the
    neighbours in the search by code.
    """
    ordered = np.sort(code_ranks.ravel())
    places = np.ceil((1 - lost) * len(ordered)).astype(np.int64) - 1
    return np.maximum.accumulate(np.clip(ordered[np.clip(places, 0, len(ordered) - 1)] + 1, 10, N_CANDIDATES))


CANDIDATES = np.unique(np.rint(10 * 1.25 ** np.arange(21)).astype(np.int64).clip(max=N_CANDIDATES))
"""Numbers of candidates that a search of all codes may rescore."""


def found_from(found: Array) -> Array:
    """Return the first setting from which every setting finds a neighbour, uint8; :data:`NEVER` if there is none.

    ``found`` is (n_settings, ...), whether a setting finds it.
    """
    for_good = np.logical_and.accumulate(found[::-1], axis=0)
    first = len(found) - for_good.sum(axis=0)
    return np.where(first < len(found), first, NEVER).astype(np.uint8)


def merge_strata(counts: Int64, least: float) -> Int64:
    """Return the number of the group of each stratum: consecutive strata with ``least`` queries, if there are so many.

    ``counts`` are the queries of each stratum. The last group takes the strata that are left.
    """
    groups, number, size = np.zeros_like(counts), 0, 0
    for stratum, count in enumerate(counts):
        groups[stratum], size = number, size + count
        if size >= least:
            number, size = number + 1, 0
    return np.minimum(groups, max(0, number - 1))


@dataclass(frozen=True)
class Setting:
    """Setting of one stratum: regions and candidates to visit, and the expected recall."""

    n_regions: int  # 0 for all entries
    n_entries: int
    n_coarse: int
    n_candidates: int  # to rescore; 0 for none
    recall: float
    n_queries: int = 0  # that the recall is the mean of; 0 if it is no mean

    @property
    def recall_low(self) -> float:
        """One-sided 95% lower bound of the recall, as if that of each query were 0 or 1 (Clopper-Pearson)."""
        from scipy.special import betaincinv  # takes as long to import as thousands of searches

        successes = np.floor(self.recall * self.n_queries)
        if not self.n_queries or not successes > 0:
            return 0.0 if self.n_queries else self.recall
        return float(betaincinv(successes, self.n_queries - successes + 1, LOW_LEVEL))


EVERYTHING = Setting(0, 0, 1, 0, 1.0)


@dataclass(frozen=True, eq=False)
class RecallCalibration:
    """Calibration of recall: the settings at which the neighbours of calibration queries are found."""

    generation: int  # of the regions
    of_signals: bool  # whether recall refers to exact neighbours instead of the exhaustive search over codes
    own: bool  # whether the queries were entries of the index
    path: Int64  # (n_settings,) regions
    coarse: Int64  # (n_settings,) coarse means whose regions are scored
    candidates: Int64  # (n_settings,) to rescore; zeros if recall refers to codes
    edges: Float64  # (N_STRATA - 1,) contrasts between strata
    least: float  # smallest best region score of the calibration queries
    strata: Array  # (n_queries,) uint8
    found: Array  # (n_queries, N_NEIGHBORS) uint8, first setting that finds a neighbour
    code_ranks: Array  # (n_queries, N_NEIGHBORS) uint16, rank of a neighbour in the search by code; zeros of codes
    entries: Float64  # (N_STRATA, n_settings) mean number of living entries visited

    def to_table(self) -> dict[str, Array]:
        """Return the calibration as arrays, which :meth:`from_table` reads."""
        numbers = np.array([self.generation, self.of_signals, self.own], np.int64)
        arrays: dict[str, Array] = {"numbers": numbers, "path": self.path, "coarse": self.coarse}
        arrays |= {"candidates": self.candidates, "edges": self.edges, "least": np.array([self.least])}
        return arrays | {name: getattr(self, name) for name in ("strata", "found", "code_ranks", "entries")}

    @classmethod
    def from_table(cls, table: Mapping[str, Array]) -> RecallCalibration:
        """Return the calibration stored in a table; raise ValueError if its arrays are inconsistent."""
        names = ("path", "coarse", "candidates", "edges", "strata", "found", "code_ranks", "entries")
        try:
            arrays = {name: table[name] for name in names}
            numbers, least = table["numbers"], table["least"]
        except KeyError as error:
            raise ValueError(f"the calibration of recall has no {error.args[0]}") from None
        path, strata = arrays["path"], arrays["strata"]
        count, n_queries = path.size, strata.size
        shapes = [array.shape for array in (numbers, least, *arrays.values())]
        listed = (n_queries, N_NEIGHBORS)
        wanted = [(3,), (1,), *3 * [(count,)], (N_STRATA - 1,), (n_queries,), listed, listed, (N_STRATA, count)]
        if shapes != wanted or not 0 < count < NEVER or not n_queries:
            raise ValueError(f"arrays of the calibration of recall have shapes {shapes}, {wanted} expected")
        if (np.diff(path) <= 0).any() or path[0] < 1 or (strata >= N_STRATA).any():
            raise ValueError("settings and strata must be in order")
        if (np.diff(arrays["edges"]) < 0).any() or (arrays["coarse"] < 1).any():
            raise ValueError("settings and strata must be in order")
        if not all(np.isfinite(arrays[name]).all() and (arrays[name] >= 0).all() for name in ("entries", "candidates")):
            raise ValueError("numbers of entries must be finite and at least 0")
        generation, of_signals, own = (int(number) for number in numbers)
        return cls(generation, bool(of_signals), bool(own), least=float(least[0]), **arrays)

    @property
    def recall_of(self) -> str:
        """Reference of the recall: "signals" (exact neighbours) or "codes" (exhaustive search over codes)."""
        return "signals" if self.of_signals else "codes"

    @lazy
    def _known(self) -> dict[tuple[int, float], list[tuple[Setting | None, Setting | None]]]:
        return {}

    @lazy
    def derived(self) -> dict[Any, Any]:
        """Cache of values that searches derive from the calibration."""
        return {}

    def settings(self, k: int, asked: float) -> list[tuple[Setting | None, Setting | None]]:
        """Return the cheapest settings of each stratum that reach a recall@k: one of regions, and one of all codes.

        None if no setting does.
        """
        known = self._known.get((k, asked))
        if known is None:
            known = self._known[k, asked] = [self._settings(stratum, k, asked) for stratum in range(N_STRATA)]
        return known

    def _settings(self, stratum: int, k: int, asked: float) -> tuple[Setting | None, Setting | None]:
        allowed = (1 - RESERVE) * (1 - asked) + 1e-12
        merged = merge_strata(np.bincount(self.strata, minlength=N_STRATA), 1 / (PENALTY * allowed) - 1)
        deciding = merged[self.strata] == merged[stratum]
        recalls, is_own = self._recalls(deciding, k), self.strata[deciding] == stratum
        place = _first_enough(recalls, is_own, allowed)
        visiting = None if place is None else self._at(stratum, place, recalls[place, is_own], k)
        if not self.of_signals:
            return visiting, EVERYTHING
        tried = CANDIDATES[k <= CANDIDATES]
        recalls = np.array([(self.code_ranks[deciding, :k] < one).mean(axis=1) for one in tried])
        place = _first_enough(recalls, is_own, allowed)
        whole = None if place is None else self._setting(0, 0, 1, int(tried[place]), recalls[place, is_own])
        return visiting, whole

    def _recalls(self, chosen: Booleans, k: int) -> Float64:
        """Return the recall of chosen calibration queries at each setting, (n_settings, n_queries)."""
        settings = np.arange(len(self.path))[:, np.newaxis, np.newaxis]
        return np.asarray((self.found[chosen, :k] <= settings).mean(axis=2))

    def _at(self, stratum: int, place: int, recalls: Float64, k: int) -> Setting:
        n_entries = int(np.ceil(self.entries[stratum, place]))
        n_candidates = max(k, int(self.candidates[place])) if self.of_signals else 0
        return self._setting(int(self.path[place]), n_entries, int(self.coarse[place]), n_candidates, recalls)

    @staticmethod
    def _setting(n_regions: int, n_entries: int, n_coarse: int, n_candidates: int, recalls: Float64) -> Setting:
        mean = float(recalls.mean()) if recalls.size else 0.0
        return Setting(n_regions, n_entries, n_coarse, n_candidates, mean, len(recalls))


def _first_enough(recalls: Float64, is_own: Booleans, allowed: float) -> int | None:
    """Return the first setting whose expected loss is allowed; that of a stratum's own queries must be so, too."""
    count = recalls.shape[1]
    losses = 1 - (recalls[:, is_own] if is_own.any() else recalls).mean(axis=1) if count else np.ones(len(recalls))
    risks = (count * (1 - recalls.mean(axis=1)) + 1) / (count + 1) if count else losses
    enough = np.flatnonzero(np.maximum(risks, losses) <= allowed)
    return int(enough[0]) if enough.size else None


BLOCK = 256  # queries per block
EXACT_PRODUCTS = 10**12  # maximum number of products in the search for exact neighbours


def n_calibration(snapshot: Snapshot, n_features: int, *, exact: bool) -> int:
    """Return the number of calibration queries, which is smaller if many signals must be compared exactly."""
    affordable = EXACT_PRODUCTS // max(1, len(snapshot) * n_features) if exact else N_QUERIES
    return int(np.clip(affordable, MIN_QUERIES, N_QUERIES))


class RegionRanks:
    """Ranks of regions for a block of unit queries, if only those of some nearest coarse means are scored."""

    def __init__(self, regions: Regions, units: Float32) -> None:
        scores, coarse = regions.fine.scores(units), regions.coarse_rows.scores(units)
        self._order = np.argsort(-scores, axis=1, kind="stable")  # as kernels choose: the lower of equal ones first
        coarse_order, ranks = np.argsort(-coarse, axis=1, kind="stable"), np.empty(coarse.shape, np.int64)
        np.put_along_axis(ranks, coarse_order, np.arange(coarse.shape[1])[np.newaxis], axis=1)
        self._parent_ranks = np.take_along_axis(ranks[:, regions.parents], self._order, axis=1)
        self._n_regions = len(regions)

    def ranks(self, n_coarse: int) -> Int64:
        """Return the rank of each region among those that are scored; the number of regions for others."""
        allowed = self._parent_ranks < n_coarse
        ranks = np.where(allowed, np.cumsum(allowed, axis=1) - 1, self._n_regions)
        found = np.empty_like(ranks)
        np.put_along_axis(found, self._order, ranks, axis=1)
        return found

    def visited(self, n_coarse: int, path: Int64, counts: Int64) -> Int64:
        """Return the number of entries in the nearest regions, (n_queries, len(path))."""
        allowed = self._parent_ranks < n_coarse
        totals, numbers = np.cumsum(counts[self._order] * allowed, axis=1), np.cumsum(allowed, axis=1)
        places = [np.minimum(np.searchsorted(row, path), len(row) - 1) for row in numbers]
        return np.take_along_axis(totals, np.array(places), axis=1)


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
    path, placed = region_path(len(regions)), regions.order.codes(snapshot)
    assert placed is not None  # all entries are assigned when regions are learned
    counts, coarse = placed[1], coarse_path(path, len(regions), len(regions.coarse))
    levels, of_setting = np.unique(coarse, return_inverse=True)
    n_extra, n_listed = 0 if own_ids is None else 1, N_NEIGHBORS if originals is None else N_CANDIDATES
    best, contrasts, visited, near, by_code, listed = [], [], [], [], [], []
    for start in range(0, len(queries), BLOCK):
        part = slice(start, min(start + BLOCK, len(queries)))
        own = None if own_ids is None else own_ids[part]
        comparison = recipe.prepare(queries, part=part)
        units = units_of(recipe, comparison, queries[part])
        ranks, nearest = RegionRanks(regions, units), regions.choose(units, int(levels[0]))
        best.append(nearest.best)
        contrasts.append(nearest.contrasts)
        found = [ranks.visited(int(level), path[of_setting == at], counts) for at, level in enumerate(levels)]
        visited.append(np.concatenate(found, axis=1))
        hits = ENGINE.rank(comparison, snapshot, n_listed + n_extra)
        rows = _without_own(hits.rows.reshape(part.stop - start, -1), snapshot, own)
        exact = rows[:, :N_NEIGHBORS]
        if originals is not None:
            n_exact = min(N_NEIGHBORS + n_extra, len(snapshot))
            exact = originals.best(snapshot, queries[part], n_exact, metric=recipe.metric).rows
            exact = _without_own(exact, snapshot, own)
            by_code.append(_places(exact, rows))
        of_level = [ranks.ranks(int(level)) for level in levels]
        near.append(np.stack([_ranks_of(snapshot, exact, one) for one in of_level]))
        if originals is not None:
            listed.append(np.stack([_ranks_of(snapshot, rows, one) for one in of_level]).astype(np.uint16))
        if progress is not None:
            progress(part.stop, len(queries))
    region_ranks = _filled(np.concatenate(near, axis=1), len(regions))[of_setting]
    inside, kept = region_ranks < path[:, np.newaxis, np.newaxis], slice(None)
    candidates, code_ranks = np.zeros(len(path), np.int64), np.zeros(inside.shape[1:], np.int64)
    if originals is not None:
        code_ranks = _filled(np.concatenate(by_code), n_listed)
        n_pilot = int(PILOT_SHARE * len(queries))  # they determine the path; the others calibrate the settings on it
        kept = slice(n_pilot, None)
        candidates = candidate_path(1 - inside[:, :n_pilot, :10].mean(axis=(1, 2)), code_ranks[:n_pilot, :10])
        ranks_listed = np.concatenate(listed, axis=1)
        for setting, (n_regions, n_candidates) in enumerate(zip(path, candidates, strict=True)):
            ahead = _ahead(ranks_listed[of_setting[setting]] < n_regions, code_ranks)
            inside[setting] &= (code_ranks < ranks_listed.shape[2]) & (ahead < n_candidates)
    contrast, seen = np.concatenate(contrasts)[kept], np.concatenate(visited)[kept].astype(np.float64)
    edges = np.quantile(contrast.astype(np.float64), SHARES)
    strata = np.searchsorted(edges, contrast, side="right").astype(np.uint8)
    means = [seen[strata == one] if (strata == one).any() else seen for one in range(N_STRATA)]
    return RecallCalibration(
        generation=regions.generation,
        of_signals=originals is not None,
        own=own_ids is not None,
        path=path,
        coarse=coarse,
        candidates=candidates,
        edges=edges,
        least=float(np.concatenate(best)[kept].min()),
        strata=strata,
        found=found_from(inside[:, kept]),
        code_ranks=code_ranks[kept].astype(np.uint16),
        entries=np.array([one.mean(axis=0) for one in means]),
    )


def units_of(recipe: Recipe, comparison: Comparison, queries: Array) -> Float32:
    """Return queries as unit vectors, which most comparisons know."""
    known: Float32 | None = getattr(comparison, "units", None)
    return unit_queries(recipe, queries)[0] if known is None else known


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
    missing = max(0, N_NEIGHBORS - ranks.shape[-1])
    return np.pad(ranks, [*(ranks.ndim - 1) * [(0, 0)], (0, missing)], constant_values=never)


def _ahead(visited: Booleans, code_ranks: Int64) -> Int64:
    """Return how many of the listed candidates that are visited precede each neighbour, by its rank in the list."""
    before = np.cumsum(np.pad(visited, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
    return np.asarray(np.take_along_axis(before, np.minimum(code_ranks, visited.shape[1]), axis=1), np.int64)


def sample_rows(snapshot: Snapshot, n_rows: int, rng: np.random.Generator) -> Int64:
    """Return the rows of a random sample of live entries, ascending."""
    living = np.flatnonzero(np.concatenate([segment.living for segment in snapshot.segments]))
    return np.sort(rng.choice(living, min(n_rows, len(living)), replace=False))


def queries_of(recipe: Recipe, vectors: Float32) -> Float32:
    """Return decoded codes as queries, with the mean added that the recipe subtracts from queries."""
    return vectors if recipe.center is None else vectors + recipe.center


EXACT_ENTRIES = 2000
"""Number of entries that pass a filter up to which all of them are compared by their originals."""

MOST_KNOWN = 64
"""Maximum number of cached settings."""

NOT_ASKED = "recall was not asked for"
FEW = f"fewer than {MIN_ENTRIES:,} entries get no regions by default, because they save little time"
NO_REGIONS = "no regions are learned; call learn_regions()"
UNASSIGNED = "some entries have no region; call learn_regions() again"
FEW_PASS = "few entries pass the filter"
UNLIKE = "the query is farther from all regions than any calibration query, so that its recall is unknown"
TOO_MANY = "this recall needs more than a third of the regions, so all codes were compared"
ALL_SIGNALS = "no number of candidates promises this recall, so all originals were compared"
LARGE_K = f"recall is calibrated for k up to {N_NEIGHBORS}"


@dataclass(frozen=True, eq=False)
class LocalRegions:
    """Entries in the order of their regions in the memory of this process."""

    snapshot: Snapshot
    codes: RegionCodes
    originals: OriginalRows | None


class RegionEntries(Protocol):
    """Entries that a search may visit by region, on this machine or on a cluster."""

    def __len__(self) -> int: ...
    def nearest(self, scan: QueryBlock, k: int) -> Hits:
        """Return the k best entries of each query, measured."""

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        """Return the number of entries in each region; None if some entries have no region."""

    def local_regions(self, order: RegionOrder) -> LocalRegions | None:
        """Return the entries if they are in the memory of this process."""

    def visit(self, scan: QueryBlock, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured."""

    def nearest_signals(self, scan: QueryBlock, queries: Array, which: Int64, k: int) -> Hits:
        """Return the k nearest entries of ``queries``, which are number ``which``, by original signals."""


@dataclass(frozen=True, eq=False)
class Strata:
    """Settings of all strata, the last of which is for unlike queries, and reasons that searches report."""

    settings: Sequence[Setting | None]  # None compares all originals
    reasons: Array  # strings: reason why all entries are compared
    is_filtered: bool = False

    def rule(self, edges: Float64, base_coarse: int, least: float, n_found: int) -> RegionRule:
        """Return the rule that kernels follow; ``n_found`` entries are found for each query."""
        known = [EVERYTHING if one is None else one for one in self.settings]
        n_entries = [max(one.n_entries, one.n_candidates, n_found) for one in known]
        n_candidates = [max(one.n_candidates, n_found) for one in known]
        numbers = [[one.n_regions for one in known], n_entries, [one.n_coarse for one in known], n_candidates]
        n_regions, entries, n_coarse, candidates = np.array(numbers, np.int64)
        return RegionRule(edges, n_regions, entries, n_coarse, candidates, base_coarse, least)

    @lazy
    def by_signals(self) -> Booleans:
        """Whether all originals are compared."""
        return np.array([one is None for one in self.settings])

    @lazy
    def recall(self) -> Float64:
        """Predicted recall; nan if it is unknown."""
        return np.array([1.0 if one is None else one.recall for one in self.settings])

    @lazy
    def recall_low(self) -> Float64:
        """Lower bound of it; nan if only an estimate is known."""
        return np.array([np.nan if self.is_filtered else (one or EVERYTHING).recall_low for one in self.settings])


@dataclass(frozen=True, eq=False)
class VisitReport:
    """Share visited and stratum of each query in a block; from the strata follows what is predicted."""

    visited: Float64  # share of the entries
    places: Array  # stratum of each query
    strata: Strata

    @classmethod
    def everything(cls, n_queries: int, reason: str) -> VisitReport:
        """Return the report of a search that compares all entries exactly."""
        strata = Strata([EVERYTHING], np.array([reason], object))
        return cls(np.ones(n_queries), np.zeros(n_queries, np.int32), strata)

    @classmethod
    def joined(cls, parts: list[VisitReport]) -> VisitReport:
        """Concatenate the reports of consecutive blocks of one search."""
        parts = parts or [cls.everything(0, "")]
        visited, places = ([getattr(part, name) for part in parts] for name in ("visited", "places"))
        return cls(np.concatenate(visited), np.concatenate(places), parts[0].strata)

    @property
    def recall(self) -> Float64:
        """Predicted recall; nan if it is unknown."""
        return self.strata.recall[self.places]

    @property
    def recall_low(self) -> Float64:
        """One-sided 95% lower bound of it; nan if only an estimate is known."""
        return self.strata.recall_low[self.places]

    @property
    def exhaustive(self) -> Array:
        """Strings: reason why all entries were compared, empty if they were not."""
        return self.strata.reasons[self.places]


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """A search for a recall that is one call of the kernels."""

    planned: RegionPlan
    n_found: int  # entries that are found for each query
    n_entries: int
    strata: Strata

    def find(self, queries: Array) -> tuple[Float64, RegionHits, VisitReport] | None:
        """Return scores, hits and what was visited; None if a query cannot be used, which other searches refuse."""
        if queries.dtype == np.float32 and queries.flags.c_contiguous:
            signals = queries
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                signals = np.ascontiguousarray(queries, np.float32)
        found = kernels.active().search_plan(self.planned, signals, self.n_found)
        if found is None:
            return None
        report = VisitReport(found.visited / self.n_entries, found.strata, self.strata)
        if self.planned.originals is None:
            return found.values.astype(np.float64), found, report
        return round_scores(found.correlations), found, report


@dataclass(frozen=True, eq=False)
class RegionSearch:
    """Search for a recall."""

    recipe: Recipe
    entries: RegionEntries  # that are considered
    regions: Regions | None
    calibration: RecallCalibration | None
    originals: ExactSignals | None  # None if recall refers to codes
    k: int
    recall: float
    is_filtered: bool

    @property
    def recall_of(self) -> str:
        """Reference of the recall: exact neighbours ("signals") or the exhaustive search over codes ("codes")."""
        return "codes" if self.originals is None else "signals"

    def plan(self) -> SearchPlan | None:
        """Return how kernels search for trellis codes in the memory of this process; None for other searches.

        It is kept with the snapshot, unless that is filtered.
        """
        derived, key = getattr(self.entries, "derived", {}), ("plan", self.k, self.recall)
        known = derived.get(key)
        if known is not None and known[0] is self.regions and known[1] is self.calibration:
            found: SearchPlan = known[2]
            return found
        made = self._made_plan()
        if made is not None:
            derived[key] = self.regions, self.calibration, made
        return made

    def _made_plan(self) -> SearchPlan | None:
        local = None if self._reason or self.regions is None else self.entries.local_regions(self.regions.order)
        preparation = getattr(self.recipe, "preparation", None)
        if local is None or preparation is None or self.recipe.metric != "correlation":
            return None
        if self._strata.by_signals.any() or (self.originals is not None and local.originals is None):
            return None
        assert self.regions is not None
        assert self._counts is not None
        assert self.recipe.scorer is not None
        kept = None if self.originals is None else local.originals
        parts = local.codes, self.regions.model, self._counts, self._rule, kept
        planned = RegionPlan(preparation, self.recipe.scorer, *parts)
        return SearchPlan(planned, self._n_found, len(self.entries), self._strata)

    def find(self, scan: QueryBlock, queries: Array) -> tuple[Hits, VisitReport]:
        """Return the nearest entries of each query, measured, and what was visited."""
        if self._reason:
            return self._everything(scan, queries), VisitReport.everything(len(queries), self._reason)
        assert self.regions is not None
        units, strata = units_of(self.recipe, scan.comparison, queries), self._strata
        local = self.entries.local_regions(self.regions.order) if scan.engine is ENGINE else None
        has_all = local is not None and (self.originals is None or local.originals is not None)
        if local is not None and has_all and type(scan.comparison) is CodeComparison:
            hits, places, visited = self._search(scan, queries, units, local)
        else:
            hits, places, visited = self._visit(scan, queries, units)
        wide = np.flatnonzero(strata.by_signals[places])
        if wide.size:
            narrow = hits[~strata.by_signals[places][hits.queries]]
            exact = self.entries.nearest_signals(scan, queries[wide], wide, self.k)
            hits = Hits.joined([narrow, exact]).ordered_by_score()
        return hits, VisitReport(visited / len(self.entries), places, strata)

    @lazy
    def _reason(self) -> str:
        """Reason why no query can visit regions; an empty string if queries can."""
        if self.regions is None:
            return FEW if len(self.entries) < MIN_ENTRIES else NO_REGIONS
        if self.k > N_NEIGHBORS:
            return LARGE_K
        if self.calibration is None:
            return NO_REGIONS
        if not len(self.entries):
            return FEW_PASS if self.is_filtered else FEW
        return UNASSIGNED if self._counts is None else ""

    @lazy
    def _counts(self) -> Int64 | None:
        assert self.regions is not None
        return self.entries.region_counts(self.regions.order)

    def _everything(self, scan: QueryBlock, queries: Array) -> Hits:
        if self.originals is None or not len(self.entries):
            return self.entries.nearest(scan, self.k)
        return self.entries.nearest_signals(scan, queries, np.arange(len(queries)), self.k)

    def _search(
        self, scan: QueryBlock, queries: Array, units: Float32, local: LocalRegions
    ) -> tuple[Hits, Array, Int64]:
        """Return hits, strata and numbers of entries visited: all in one call."""
        assert self.regions is not None
        assert self._counts is not None
        comparison: Any = scan.comparison
        originals = None if self.originals is None else local.originals
        signals = None if originals is None else np.ascontiguousarray(queries, np.float32)
        found = kernels.active().search_regions(
            comparison.scorer,
            local.codes,
            self.regions.model,
            self._counts,
            self._rule,
            units,
            comparison.rounded,
            min(self.k, len(self.entries)),
            originals=originals,
            signals=signals,
        )
        rows, ids, values = found.rows.ravel(), found.ids.ravel(), found.values.ravel()
        hits = Hits(np.repeat(np.arange(len(units)), found.rows.shape[1]), rows, ids, values)
        if (rows < 0).any():
            hits = hits[rows >= 0]
        if originals is None or scan.null is not None:
            hits = scan.measure(local.snapshot, hits)
        if originals is not None:
            exact = [one.ravel()[rows >= 0] for one in (found.inner, found.correlations)]
            scores = round_scores(exact[0] if originals.is_inner else exact[1])
            logs = hits.log10_p_values if len(hits.log10_p_values) else np.full(len(scores), np.nan)
            hits = replace(
                hits, scores=scores, log10_p_values=exact_p_values(scan, self.recipe.n_features, logs, exact[1])
            )
        return hits, found.strata, found.visited

    def _visit(self, scan: QueryBlock, queries: Array, units: Float32) -> tuple[Hits, Array, Int64]:
        """Return the same of entries elsewhere: regions are chosen here and visited there."""
        regions, counts, rule = self.regions, self._counts, self._rule
        assert regions is not None
        assert counts is not None
        choice = kernels.active().choose_regions(regions.model, counts, rule, units)
        is_wide = rule.n_regions[choice.strata] == 0
        visits = _with_all(choice.visits, is_wide, len(regions))
        n_found = np.minimum(
            rule.n_candidates[choice.strata] if self.originals is not None else self.k, len(self.entries)
        )
        hits = self.entries.visit(scan, RegionVisits(regions.order, visits), int(np.max(n_found)))
        if self.originals is not None:
            hits = rank_exactly(scan, hits.first(n_found), self.originals, queries, self.k)
        sums = np.append(0, np.cumsum(counts[visits.regions]))
        return hits, choice.strata, sums[visits.starts[1:]] - sums[visits.starts[:-1]]

    @property
    def _strata(self) -> Strata:
        return self._settled[0]

    @property
    def _rule(self) -> RegionRule:
        return self._settled[1]

    @lazy
    def _settled(self) -> tuple[Strata, RegionRule]:
        """Settings of the strata and the rule for kernels; kept with the calibration."""
        calibration = self.calibration
        assert calibration is not None
        known: dict[Any, tuple[Strata, RegionRule]] = calibration.derived
        asked = self.k, self.recall, len(self.entries), self.originals is None, self.is_filtered
        if (found := known.get(asked)) is not None:
            return found
        settings = [self._setting(stratum) for stratum in range(N_STRATA)]
        n_candidates = 0 if self.originals is None else min(N_CANDIDATES, len(self.entries))
        unknown = np.nan if n_candidates and n_candidates < len(self.entries) else 1.0
        settings.append((Setting(0, 0, 1, n_candidates, unknown), UNLIKE))
        reasons = np.array([reason for _, reason in settings], object)
        strata = Strata([one for one, _ in settings], reasons, self.is_filtered)
        if len(known) >= MOST_KNOWN:
            known.clear()
        rule = strata.rule(calibration.edges, int(calibration.coarse[0]), calibration.least, self._n_found)
        found = known[asked] = strata, rule
        return found

    @property
    def _n_found(self) -> int:
        return min(self.k, len(self.entries))

    def _setting(self, stratum: int) -> tuple[Setting | None, str]:
        """Return the setting of a stratum, None for a comparison of all originals, and the reason."""
        assert self.calibration is not None
        visiting, whole = self.calibration.settings(self.k, self.recall)[stratum]
        if visiting is not None and len(self.entries) >= 2 * visiting.n_entries:
            return self._grown(visiting), ""
        reason = FEW_PASS if self.is_filtered and visiting is not None else TOO_MANY
        if self.originals is not None and len(self.entries) <= EXACT_ENTRIES:
            return Setting(0, 0, 1, len(self.entries), 1.0), reason
        return (None, ALL_SIGNALS) if whole is None else (self._grown(whole), reason)

    def _grown(self, setting: Setting) -> Setting:
        """Return a setting with as many more candidates as there are more entries than were calibrated."""
        assert self.regions is not None
        growth = max(1.0, len(self.entries) / self.regions.n_learned)
        return replace(setting, n_candidates=int(np.ceil(setting.n_candidates * growth)))


def _with_all(visits: Visits, is_wide: Booleans, n_regions: int) -> Visits:
    """Add all regions to wide queries, which have no visits yet."""
    if not is_wide.any():
        return visits
    everything, ends = np.arange(n_regions, dtype=np.int32), visits.starts.tolist()
    parts = [
        everything if wide else visits.regions[begin:end]
        for wide, begin, end in zip(is_wide.tolist(), ends[:-1], ends[1:], strict=True)
    ]
    return Visits(np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64), np.concatenate(parts))
