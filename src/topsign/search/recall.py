"""Calibration of recall: how many regions a search must visit to reach a requested recall.

Conformal risk control (Angelopoulos et al., arXiv 2208.02814) in strata of the query's best region score. Settings, the
number of regions and of candidates to rescore, lie on one path ordered by cost. Of a stratum of m calibration queries
the first setting is taken with ``(m * (1 - mean recall) + 1) / (m + 1) <= 0.85 * (1 - asked)``. In expectation over
queries that are exchangeable with those of the calibration, the recall is then at least the one asked for. The factor
is a reserve for other queries: without it, searches for verbs in an index of nouns reached .882 of a recall@1 of .90.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._lazy import lazy

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
