"""Searches that visit regions: the choice of regions for each query, and the values reported in results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

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
class Visited:
    """Share visited and predicted recall of each query in a block."""

    visited: Float64  # share of the entries
    recall: Float64  # predicted
    recall_low: Float64  # one-sided 95% lower bound of it; nan if only an estimate is known
    exhaustive: Array  # strings: reason why all entries were visited, empty if they were not

    @classmethod
    def everything(cls, n_queries: int, reason: str) -> Visited:
        """Return the report of a search that visits all entries."""
        ones = np.ones(n_queries)
        return cls(ones, ones.copy(), ones.copy(), np.full(n_queries, reason, object))

    @classmethod
    def joined(cls, parts: list[Visited]) -> Visited:
        """Concatenate the reports of consecutive blocks."""
        parts = parts or [cls.everything(0, "")]
        names = ("visited", "recall", "recall_low", "exhaustive")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class RegionEntries(Protocol):
    """Entries that a search may visit by region, on this machine or on a cluster."""

    def __len__(self) -> int: ...
    def nearest(self, scan: Scan, k: int) -> Hits:
        """Return the k best entries of each query, measured."""

    def region_counts(self, order: RegionOrder) -> Int64 | None:
        """Return the number of entries in each region; None if some entries have no region."""

    def visit(self, scan: Scan, visits: RegionVisits, k: int) -> Hits:
        """Return the k best entries of the regions that each query visits, measured."""

    def nearest_signals(self, scan: Scan, queries: Array, which: Int64, k: int) -> Hits:
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
        is_wide, reasons = starts[1:] == starts[:-1], strata.reasons[places]  # a copy
        reasons[best < least] = UNLIKE
        if self.probes is None and self._is_slower(scan, chosen, is_wide):
            reasons[~is_wide] = FASTER
            is_wide = np.ones(len(best), bool)
        if is_wide.all():
            said = Visited.everything(len(queries), "")
            return self._everything(scan, queries), replace(said, exhaustive=reasons)
        starts, chosen = _with_all(starts, chosen, is_wide, len(regions))
        n_found = np.where(is_wide, self._n_found(None), strata.n_found[places])
        hits = self.entries.visit(scan, RegionVisits(regions.order, starts, chosen), int(n_found.max()))
        if self.originals is not None:
            hits = self._rescored(scan, queries, hits.first(n_found), is_wide)
        sums = np.append(0, np.cumsum(counts[chosen]))
        shares = (sums[starts[1:]] - sums[starts[:-1]]) / len(self.entries)
        return hits, self._said(strata, places, is_wide, shares, reasons)

    def _rescored(self, scan: Scan, queries: Array, hits: Hits, is_wide: Booleans) -> Hits:
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

    def _is_slower(self, scan: Scan, chosen: Int32, is_wide: Booleans) -> bool:
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

    def _choosing_is_slower(self, scan: Scan) -> bool:
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

    def _comparing(self, scan: Scan) -> float:
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

    def _said(self, strata: Strata, places: Int64, is_wide: Booleans, shares: Float64, reasons: Array) -> Visited:
        recalls = np.where(is_wide, 1.0, strata.recall[places])
        lows = np.full(len(places), np.nan) if self.is_filtered else strata.recall_low[places]  # an estimate, no bound
        return Visited(shares, recalls, np.where(is_wide, 1.0, lows), reasons)


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
