"""Significance of an index: its calibration, and the checks that searches make of the null in use."""

from __future__ import annotations

import math

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._checks import check_false_alarm
from .._random import RandomState
from .._rows import take_rows
from .._warning import warn
from ..errors import CalibrationWarning
from ..families import Recipe
from ..families.null_distributions import entry_level
from ..search import Calibration, Population, Progress, bulk_of_queries, learn_calibration
from .null_check import CAUSE, FLOOD, MIN_ENTRIES, MIN_PAIRS, check_pairs

KEY = "topsign:calibration"
"""Name under which a store keeps the calibration among its sources."""

WINDOW, MAX_JUDGED = 64, 512
"""Queries that are judged together for drift, at least and at most; searches of fewer wait for others."""

DRIFT_LEVEL, DRIFT_MARGIN = 1e-6, 0.1
"""Significance of a drift warning, and the difference of two distributions that is too small to matter."""


class Significance:
    """P-values of one recipe: those of the family, or of a calibration once there is one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._n_checked = 0  # entries there were at the last check of the null, 0 before the first
        self._recent: list[Float32] = []  # queries that are not judged yet
        self._warned: tuple[Calibration, int] | None = None  # last warning of drift: calibration and number of entries

    def learn(
        self,
        entries: Population,
        queries: Array,
        own_ids: Int64 | None,
        *,
        false_alarm: float,
        random_state: RandomState,
        n_threads: int | None,
        progress: Progress | None,
    ) -> Calibration:
        """Learn a calibration from impostors, or from signals of entries with their ids."""
        learned = learn_calibration(
            self._recipe,
            entries,
            queries,
            own_ids=own_ids,
            false_alarm=check_false_alarm(false_alarm),
            rng=np.random.default_rng(random_state),
            n_threads=n_threads,
            progress=progress,
        )
        self._n_checked, self._recent, self._warned = 0, [], None
        return learned

    def observe(self, entries: Population, queries: Array, scoring: str, calibration: Calibration | None) -> None:
        """Warn if the null in use does not fit the queries and entries of searches; warn again if the index doubles.

        The null of isotropic signals is checked at the first search and when the index has doubled since. A calibration
        is compared with every 64 queries, together with random entries of now, so that drift of either is noticed.
        """
        n_entries = len(entries)
        if n_entries < MIN_ENTRIES or not len(queries):
            return
        if calibration is None:
            if n_entries >= 2 * self._n_checked:
                self._n_checked = n_entries
                found = check_pairs(self._recipe, entries, queries, scoring, None)
                if not found.trusted:
                    warn(f"{found}: {CAUSE}; {self._remedy(None, n_entries)}", CalibrationWarning)
        elif self._warned is None or calibration is not self._warned[0] or n_entries >= 2 * self._warned[1]:
            self._observe_drift(entries, queries, calibration)

    def _observe_drift(self, entries: Population, queries: Array, calibration: Calibration) -> None:
        some = np.asarray(take_rows(queries, np.arange(min(len(queries), MAX_JUDGED))), np.float32)
        recent = [*self._recent, some]  # threads that search at the same time may lose some of each other's
        enough = sum(map(len, recent)) >= WINDOW
        self._recent = [] if enough else recent
        if not enough:
            return
        judged = np.concatenate(recent)
        distance = drift_distance(bulk_of_queries(self._recipe, entries, judged), calibration.bulk)
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
        entries: Population,
        queries: Array,
        scoring: str,
        calibration: Calibration | None,
        false_alarm: float,
        *,
        force: bool,
    ) -> None:
        """Refuse a range search at a level that is not supported, or that would return a flood of pairs."""
        n_entries = len(entries)
        if calibration is not None:
            grown = max(1.0, n_entries / calibration.n_entries)
            if false_alarm < calibration.floor * grown:
                needed = math.ceil(calibration.n_queries * calibration.floor * grown / false_alarm)
                raise ValueError(
                    f"false_alarm={false_alarm:g} is below {calibration.floor * grown:.2g}, the least that "
                    f"{calibration.n_queries:,} impostors support; calibrate with about {needed:,}, or ask for more"
                )
        if force or n_entries < MIN_ENTRIES:
            return
        nulls = None if calibration is None else calibration.for_scans()
        level = entry_level(false_alarm, n_entries)
        found = check_pairs(self._recipe, entries, queries, scoring, nulls, level=level)
        if found.n_pairs >= MIN_PAIRS and found.share > FLOOD:
            raise ValueError(
                f"{found.share:.1%} of {found.n_pairs:,} random pairs of queries and entries are significant at this "
                f"false_alarm, so that {found.share * n_entries:,.0f} of {n_entries:,} entries would be "
                f"returned per query: {CAUSE}; {self._remedy(calibration, n_entries)}, or take force=True to have "
                "them all the same"
            )

    def _remedy(self, calibration: Calibration | None, n_entries: int) -> str:
        if calibration is not None:
            then = calibration.n_entries
            grown = f" (it was calibrated with {then:,} entries, there are {n_entries:,})" if then < n_entries else ""
            return f"calibrate the index again, with signals like these{grown}"
        learn = "learn the null of its scores by index.calibrate()"
        return learn if self._recipe.center is not None else f"make the index with center=True, or {learn}"


def choose_impostors(
    given: Array | None, own_ids: Int64 | None, sample: tuple[Array, Int64] | None
) -> tuple[Array, Int64 | None]:
    """Return the signals to calibrate with, and the ids of their own entries: those given, else the index's sample."""
    if given is not None:
        if own_ids is not None and len(own_ids) != len(given):
            raise ValueError(f"ids must be one per signal, got {len(own_ids)} for {len(given)} signals")
        return given, own_ids
    if own_ids is not None:
        raise ValueError("ids are those of signals of entries; give these signals too")
    if sample is None:
        raise ValueError(
            "this index keeps no sample of its signals to calibrate with; give impostors=, signals that match no "
            "entry, or signals of some entries with their ids="
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
