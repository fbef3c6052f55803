"""Searches that visit regions: which of them each query visits, and what the results say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._arrays import Array, Float32, Float64, Int32, Int64
from ..families import Comparison, Recipe, RegionRanges, Visits, unit_queries
from ..store import Snapshot
from .hits import Hits
from .recall import N_NEIGHBORS, RecallCalibration, Setting
from .regions import MIN_ENTRIES, Regions
from .rescoring import SPARE, KeptOriginals, rank_exactly
from .scan import Scan

CALL_COST, QUERY_COST, REGION_COST = 200_000.0, 50_000.0, 15.0
"""Nanoseconds to choose regions: of a search, of each of its queries, and of each query and region."""

NOT_ASKED = "neither recall nor probes was asked for"
FEW = f"fewer than {MIN_ENTRIES:,} entries are compared faster than regions are chosen"
NO_REGIONS = "no regions are learned; call learn_regions()"
UNASSIGNED = "some entries have no region; call learn_regions() again"
FEW_PASS = "too few entries pass the filter"
UNLIKE = "the query is farther from all regions than any calibration query"
TOO_MANY = "this recall needs more than a third of the regions"
LARGE_K = f"recall is calibrated for k up to {N_NEIGHBORS}"
FASTER = "comparing all entries takes less time for this batch"
DEVICE = "the device compares all entries"


@dataclass(frozen=True, eq=False)
class Visited:
    """What was visited for a block of queries, one value for each."""

    visited: Float64  # share of the entries
    recall: Float64  # predicted
    recall_low: Float64  # one-sided 95% lower bound of it; nan where only an estimate is known
    exhaustive: Array  # texts: why all entries were visited, empty if not

    @classmethod
    def everything(cls, n_queries: int, reason: str) -> Visited:
        """Return what a search says that visits all entries."""
        ones = np.ones(n_queries)
        return cls(ones, ones.copy(), ones.copy(), np.full(n_queries, reason, object))

    @classmethod
    def joined(cls, parts: list[Visited]) -> Visited:
        """Return what consecutive blocks say, as one."""
        parts = parts or [cls.everything(0, "")]
        names = ("visited", "recall", "recall_low", "exhaustive")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class RegionSearch:
    """Searches of one snapshot for a recall, or with a number of regions."""

    recipe: Recipe
    snapshot: Snapshot  # entries that are considered
    regions: Regions | None
    calibration: RecallCalibration | None
    originals: KeptOriginals | None  # if recall is of exact neighbours
    k: int
    recall: float | None
    probes: int | None
    is_filtered: bool
    can_visit: bool = True  # whether the engine can visit regions

    @property
    def recall_of(self) -> str:
        """What recall is of: exact neighbours ("signals"), or the exhaustive search by code ("codes")."""
        return "codes" if self.originals is None else "signals"

    def find(self, scan: Scan, queries: Array) -> tuple[Hits, Visited]:
        """Return the nearest entries of each query, measured, and what was visited."""
        reason = self._reason()
        ranges = None if reason or self.regions is None else self.regions.ranges(self.snapshot)
        if not reason and ranges is None:
            reason = FEW_PASS if self.is_filtered else UNASSIGNED
        if ranges is not None and self.probes is None and self._choosing_is_slower(scan.comparison):
            ranges, reason = None, FASTER
        if ranges is None:
            return self._everything(scan, queries), Visited.everything(len(queries), reason)
        return self._visit(scan, queries, ranges)

    def _reason(self) -> str:
        """Return why no query of this search can visit regions, an empty text if they can."""
        if self.regions is None:
            return FEW if len(self.snapshot) < MIN_ENTRIES else NO_REGIONS
        if not self.can_visit:
            return DEVICE
        if self.probes is None and self.k > N_NEIGHBORS:
            return LARGE_K
        return NO_REGIONS if self.probes is None and self.calibration is None else ""

    def _everything(self, scan: Scan, queries: Array) -> Hits:
        if self.originals is None or not len(self.snapshot):
            return scan.nearest(self.snapshot, self.k)
        everyone = np.arange(len(queries))
        found = self.originals.candidates(scan, self.snapshot, queries, everyone, self.k)
        return self._ranked(scan, queries, *found)

    def _ranked(self, scan: Scan, queries: Array, rows: Int64, values: Array) -> Hits:
        hits = scan.measure(self.snapshot, Hits.ranked(self.snapshot, rows, values))
        return hits if self.originals is None else rank_exactly(scan, hits, self.originals, queries, self.k)

    def _visit(self, scan: Scan, queries: Array, ranges: RegionRanges) -> tuple[Hits, Visited]:
        assert self.regions is not None
        units, _ = unit_queries(self.recipe, queries, n_threads=scan.n_threads)
        scores, counts = self.regions.scores(units, n_threads=scan.n_threads), self.regions.counts(self.snapshot)
        settings, reasons = self._settings(scores)
        k = min(self._n_found(settings), len(self.snapshot))
        chosen = [
            np.arange(len(self.regions), dtype=np.int32)
            if one is None
            else choose_regions(row, counts, one.n_regions, max(one.n_entries, k))
            for one, row in zip(settings, scores, strict=True)
        ]
        if self.probes is None and self._is_slower(scan.comparison, chosen, counts):
            settings, reasons = [None] * len(settings), [reason or FASTER for reason in reasons]
        if all(one is None for one in settings):
            said = Visited.everything(len(queries), "")
            return self._everything(scan, queries), replace(said, exhaustive=np.array(reasons, object))
        starts = np.append(0, np.cumsum([len(one) for one in chosen])).astype(np.int64)
        rows, values = scan.comparison.visit(Visits(ranges, starts, _flat(chosen)), k, n_threads=scan.n_threads)
        wide = np.flatnonzero([one is None for one in settings])
        if self.originals is not None and wide.size:  # by signals, because candidates by code promise nothing
            rows[wide], values[wide] = self.originals.candidates(scan, self.snapshot, queries, wide, k)
        shares = np.array([counts[one].sum() for one in chosen]) / max(1, len(self.snapshot))
        return self._ranked(scan, queries, rows, values), self._said(settings, shares, reasons)

    def _settings(self, scores: Float32) -> tuple[list[Setting | None], list[str]]:
        """Return what each query visits, None for all entries, and why."""
        best = scores.max(axis=1)
        strata = np.zeros(len(best), np.int64) if self.calibration is None else self.calibration.stratum(best)
        settings, reasons = list[Setting | None](), list[str]()
        for score, stratum in zip(best, strata, strict=True):
            setting, reason = self._setting(float(score), int(stratum))
            settings.append(setting)
            reasons.append(reason)
        return settings, reasons

    def _setting(self, best: float, stratum: int) -> tuple[Setting | None, str]:
        known = self.calibration
        if self.probes is not None:
            like = None if known is None or self.k > N_NEIGHBORS else known.at_probes(stratum, self.k, self.probes)
            recall, low = (np.nan, np.nan) if like is None else (like.recall, like.recall_low)
            n_candidates = 0 if self.originals is None or like is None else like.n_candidates
            return Setting(self.probes, 0, n_candidates, recall, low), ""
        assert known is not None
        assert self.recall is not None
        if best < known.least:
            return None, UNLIKE
        setting = known.settings(self.k, self.recall)[stratum]
        if setting is None:
            return None, TOO_MANY
        if len(self.snapshot) < 2 * setting.n_entries:
            return None, FEW_PASS if self.is_filtered else TOO_MANY
        return setting, ""

    def _n_found(self, settings: list[Setting | None]) -> int:
        """Return how many entries are found for each query before rescoring."""
        if self.originals is None:
            return self.k
        return max([self.k + SPARE, *(one.n_candidates for one in settings if one is not None)])

    def _is_slower(self, comparison: Comparison, chosen: list[Int32], counts: Int64) -> bool:
        """Return whether visits take longer than comparing all entries with the whole batch at once."""
        assert self.regions is not None
        visitors = np.bincount(_flat(chosen), minlength=len(self.regions))
        visited = visitors > 0
        mean = float((visitors * counts).sum() / max(1, counts[visited].sum()))
        visiting = float(counts[visited].sum()) * comparison.visit_cost(mean)
        return self._choosing(len(chosen)) + visiting > len(self.snapshot) * comparison.scan_cost(len(chosen))

    def _choosing_is_slower(self, comparison: Comparison) -> bool:
        """Return whether comparing all entries takes less time than choosing regions, before any is chosen."""
        return self._choosing(len(comparison)) > len(self.snapshot) * comparison.scan_cost(len(comparison))

    def _choosing(self, n_queries: int) -> float:
        """Return the nanoseconds that it takes to choose regions."""
        assert self.regions is not None
        return CALL_COST + n_queries * (QUERY_COST + len(self.regions) * REGION_COST)

    def _said(self, settings: list[Setting | None], shares: Float64, reasons: list[str]) -> Visited:
        recalls = np.array([1.0 if one is None else one.recall for one in settings])
        lows = np.array([1.0 if one is None else one.recall_low for one in settings])
        if self.is_filtered:  # an estimate, for which no bound is known
            lows = np.where([one is None for one in settings], 1.0, np.nan)
        return Visited(shares, recalls, lows, np.array(reasons, object))


def choose_regions(scores: Float32, counts: Int64, n_regions: int, n_entries: int) -> Int32:
    """Return the nearest regions: at least so many, and so many that they have ``n_entries`` living entries."""
    n_taken = min(len(scores), 2 * n_regions)  # half of the queries need more regions than their stratum on average
    while True:
        least = np.partition(scores, -n_taken)[-n_taken]
        nearest = np.flatnonzero(scores >= least)
        ordered = nearest[np.lexsort((nearest, -scores[nearest]))]
        reached = np.cumsum(counts[ordered])
        if reached[-1] >= n_entries or n_taken == len(scores):
            last = max(min(n_regions, len(scores)), int(np.searchsorted(reached, n_entries)) + 1)
            return ordered[:last].astype(np.int32)
        n_taken = min(len(scores), 2 * n_taken)


def _flat(chosen: list[Int32]) -> Int32:
    return np.concatenate([np.empty(0, np.int32), *chosen])
