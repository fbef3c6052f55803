"""Searches that visit regions: which of them each query visits, and what the results report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from .._arrays import Array, Booleans, Float64, Int32, Int64
from .._lazy import lazy
from ..families import Recipe, unit_queries
from ..kernels import RegionRule
from .hits import Hits
from .recall import N_NEIGHBORS, N_STRATA, RecallCalibration, Setting
from .region_order import RegionOrder, RegionVisits
from .regions import MIN_ENTRIES, Regions
from .rescoring import SPARE, ExactSignals, rank_exactly
from .scan import Scan

CALL_COST, QUERY_COST, REGION_COST = 200_000.0, 20_000.0, 11.0
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


@dataclass(frozen=True, eq=False)
class Visited:
    """Visited share and predicted recall of a block of queries, one value per query."""

    visited: Float64  # share of the entries
    recall: Float64  # predicted
    recall_low: Float64  # one-sided 95% lower bound of it; nan if only an estimate is known
    exhaustive: Array  # texts: why all entries were visited, empty if not

    @classmethod
    def everything(cls, n_queries: int, reason: str) -> Visited:
        """Return what a search reports that visits all entries."""
        ones = np.ones(n_queries)
        return cls(ones, ones.copy(), ones.copy(), np.full(n_queries, reason, object))

    @classmethod
    def joined(cls, parts: list[Visited]) -> Visited:
        """Return what consecutive blocks report, as one."""
        parts = parts or [cls.everything(0, "")]
        names = ("visited", "recall", "recall_low", "exhaustive")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class RegionEntries(Protocol):
    """Entries that a search may visit by region, on this machine or on a cluster."""

    def __len__(self) -> int: ...
    def nearest(self, scan: Scan, k: int) -> Hits:
        """Return the k best entries of each query, measured."""

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        """Return how many of the entries are in each region; None if some have none."""

    def visit(self, scan: Scan, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured."""

    def nearest_signals(self, scan: Scan, queries: Array, which: Int64, k: int) -> Hits:
        """Return the k entries nearest to some of the queries by the signals that the index keeps."""


@dataclass(frozen=True, eq=False)
class Strata:
    """Settings and reported values of the strata, one value per stratum."""

    n_regions: Int64  # 0 for all entries
    n_entries: Int64  # to visit at least
    n_found: Int64  # entries to find, before they are rescored
    recall: Float64
    recall_low: Float64
    reasons: Array  # texts: why all entries are visited

    @classmethod
    def of(cls, settings: list[tuple[Setting | None, str]], n_found: list[int]) -> Strata:
        """Return the strata with these settings, None for all entries with the reason."""
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
    """Searches for a recall, or with a number of regions."""

    recipe: Recipe
    entries: RegionEntries  # that are considered
    regions: Regions | None
    calibration: RecallCalibration | None
    originals: ExactSignals | None  # if recall is of exact neighbours
    k: int
    recall: float | None
    probes: int | None
    is_filtered: bool

    @property
    def recall_of(self) -> str:
        """Reference of the recall: exact neighbours ("signals") or the exhaustive search over codes ("codes")."""
        return "codes" if self.originals is None else "signals"

    def find(self, scan: Scan, queries: Array) -> tuple[Hits, Visited]:
        """Return the nearest entries of each query, measured, and what was visited."""
        reason = self._reason
        if not reason and self.probes is None and self._choosing_is_slower(scan):
            reason = FASTER
        if reason:
            return self._everything(scan, queries), Visited.everything(len(queries), reason)
        return self._visit(scan, queries)

    @lazy
    def _reason(self) -> str:
        """Why no query of this search can visit regions, an empty text if they can."""
        if self.regions is None:
            return FEW if len(self.entries) < MIN_ENTRIES else NO_REGIONS
        if self.probes is None and self.k > N_NEIGHBORS:
            return LARGE_K
        if self.probes is None and self.calibration is None:
            return NO_REGIONS
        if len(self.entries) and self._counts is not None:
            return ""
        return FEW_PASS if self.is_filtered else UNASSIGNED if len(self.entries) else FEW  # gathered ones have none

    @lazy
    def _counts(self) -> Int64 | None:
        assert self.regions is not None
        return self.entries.region_counts(self.regions.order)

    def _everything(self, scan: Scan, queries: Array) -> Hits:
        if self.originals is None or not len(self.entries):
            return self.entries.nearest(scan, self.k)
        return self.entries.nearest_signals(scan, queries, np.arange(len(queries)), self.k)

    def _visit(self, scan: Scan, queries: Array) -> tuple[Hits, Visited]:
        regions, counts, strata, known = self.regions, self._counts, self._strata, self.calibration
        assert regions is not None
        assert counts is not None
        units, _ = unit_queries(self.recipe, queries, n_threads=max(1, scan.n_threads))
        edges = np.empty(0) if known is None else known.edges
        least = -np.inf if known is None or self.probes is not None else known.least
        rule = RegionRule(edges, strata.n_regions, strata.n_entries, least)
        best, starts, chosen = regions.choose(rule, counts, units, n_threads=max(1, scan.n_threads))
        places = np.searchsorted(edges, best, side="right")
        is_unlike, is_wide = best < least, np.diff(starts) == 0
        reasons = np.where(is_unlike, UNLIKE, strata.reasons[places])
        if self.probes is None and self._is_slower(scan, starts, chosen, is_wide):
            is_wide, reasons = np.ones(len(best), bool), np.where(is_wide, reasons, FASTER)
        if is_wide.all():
            said = Visited.everything(len(queries), "")
            return self._everything(scan, queries), replace(said, exhaustive=reasons.astype(object))
        starts, chosen = _with_all(starts, chosen, is_wide, len(regions))
        n_found = np.where(is_wide, self._n_found(None), strata.n_found[places])
        hits = self.entries.visit(scan, RegionVisits(regions.order, starts, chosen), int(n_found.max()))
        if self.originals is not None:
            hits = self._rescored(scan, queries, hits.first(n_found), is_wide)
        sums = np.append(0, np.cumsum(counts[chosen]))
        shares = (sums[starts[1:]] - sums[starts[:-1]]) / len(self.entries)
        return hits, self._said(strata, places, is_wide, shares, reasons.astype(object))

    def _rescored(self, scan: Scan, queries: Array, hits: Hits, is_wide: Booleans) -> Hits:
        """Return the best candidates by signals; all entries for wide queries, since few by code promise nothing."""
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
        n_strata = 1 if self.calibration is None else N_STRATA
        settings = [self._setting(stratum) for stratum in range(n_strata)]
        return Strata.of(settings, [self._n_found(one) for one, _ in settings])

    def _setting(self, stratum: int) -> tuple[Setting | None, str]:
        """Return what queries of a stratum visit, None for all entries, and why."""
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
        """Return how many entries are found for a query before rescoring."""
        if self.originals is None:
            wanted = self.k
        else:
            wanted = max(self.k + SPARE, 0 if setting is None else setting.n_candidates)
        return min(wanted, len(self.entries))

    def _is_slower(self, scan: Scan, starts: Int64, chosen: Int32, is_wide: Booleans) -> bool:
        """Return whether visits take longer than comparing all entries with the whole batch at once."""
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
        return self._choosing(n_queries) + visiting > scan.engine.scan_cost(scan.comparison, len(self.entries))

    def _choosing_is_slower(self, scan: Scan) -> bool:
        """Return whether comparing all entries takes less time than choosing regions, before any is chosen."""
        comparing = scan.engine.scan_cost(scan.comparison, len(self.entries))
        return self._choosing(len(scan.comparison)) > comparing

    def _choosing(self, n_queries: int) -> float:
        """Return the nanoseconds that it takes to choose regions."""
        assert self.regions is not None
        return CALL_COST + n_queries * (QUERY_COST + len(self.regions) * REGION_COST)

    def _said(self, strata: Strata, places: Int64, is_wide: Booleans, shares: Float64, reasons: Array) -> Visited:
        recalls = np.where(is_wide, 1.0, strata.recall[places])
        lows = np.full(len(places), np.nan) if self.is_filtered else strata.recall_low[places]  # an estimate, no bound
        return Visited(shares, recalls, np.where(is_wide, 1.0, lows), reasons)


def _with_all(starts: Int64, chosen: Int32, is_wide: Booleans, n_regions: int) -> tuple[Int64, Int32]:
    """Return the same visits, with all regions for wide queries, which have none."""
    if not is_wide.any():
        return starts, chosen
    everything = np.arange(n_regions, dtype=np.int32)
    parts = [
        everything if wide else chosen[begin:end]
        for wide, begin, end in zip(is_wide.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]
    return np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64), np.concatenate(parts)
