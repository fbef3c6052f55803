"""Significance of an index: its calibration, and the checks that searches make of the null in use."""

from __future__ import annotations

import numpy as np

from .._arrays import Array, Int64
from .._checks import check_count
from .._random import RandomState
from .._warning import warn
from ..errors import CalibrationWarning
from ..families import Null, Recipe
from ..search import Calibration, Population, learn_calibration
from .null_check import CAUSE, FLOOD, MIN_ENTRIES, MIN_PAIRS, check_pairs

KEY = "topsign:calibration"
"""Name under which a store keeps the calibration among its sources."""


class Significance:
    """P-values of one recipe: those of the family, or of a calibration once there is one."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._n_checked = 0  # entries there were at the last check of the null, 0 before the first
        self._known: tuple[Calibration | None, dict[str, Null] | None] = (None, None)

    def nulls(self, calibration: Calibration | None) -> dict[str, Null] | None:
        """Return the nulls of a calibration by scoring, None without one."""
        if calibration is not self._known[0]:
            made = None if calibration is None else calibration.for_recipe(self._recipe)
            self._known = calibration, made
        return self._known[1]

    def learn(
        self,
        entries: Population,
        queries: Array,
        own_ids: Int64 | None,
        *,
        n_pairs: int,
        random_state: RandomState,
        n_threads: int | None,
    ) -> Calibration:
        """Learn a calibration from impostors, or from signals of entries with their ids."""
        n_pairs = check_count(n_pairs, "n_pairs", minimum=1000)
        if len(queries) * len(entries) < 1000:
            raise ValueError(f"a null takes at least 1000 pairs, got {len(queries)} signals and {len(entries)} entries")
        rng = np.random.default_rng(random_state)
        learned = learn_calibration(
            self._recipe, entries, queries, n_pairs=n_pairs, rng=rng, own_ids=own_ids, n_threads=n_threads
        )
        self._n_checked = 0
        return learned

    def warn_once(
        self, entries: Population, queries: Array, scoring: str, calibration: Calibration | None, *, n_entries: int
    ) -> None:
        """Warn if the null in use does not fit: at the first search, and when the index has doubled since."""
        if len(entries) < MIN_ENTRIES or not len(queries) or n_entries < 2 * self._n_checked:
            return
        self._n_checked = n_entries
        found = check_pairs(self._recipe, entries, queries, scoring, self.nulls(calibration))
        if not found.trusted:
            warn(f"{found}: {CAUSE}; {self._remedy(calibration, n_entries)}", CalibrationWarning)

    def check_level(
        self,
        entries: Population,
        queries: Array,
        scoring: str,
        calibration: Calibration | None,
        level: float,
        *,
        force: bool,
    ) -> None:
        """Refuse a range search that no p-value can satisfy, or that would return a flood of pairs."""
        if calibration is not None and level <= calibration.floor:
            raise ValueError(
                f"false_alarm asks for p-values of at most {level:.2g} per entry, but the null was learned from too "
                f"few pairs to support p-values below {calibration.floor:.2g}; calibrate with more n_pairs, or search "
                "fewer entries"
            )
        if force or len(entries) < MIN_ENTRIES:
            return
        found = check_pairs(self._recipe, entries, queries, scoring, self.nulls(calibration), level=level)
        if found.n_pairs >= MIN_PAIRS and found.share > FLOOD:
            raise ValueError(
                f"{found.share:.1%} of {found.n_pairs:,} random pairs of queries and entries are significant at this "
                f"false_alarm, so that {found.share * len(entries):,.0f} of {len(entries):,} entries would be "
                f"returned per query: {CAUSE}; {self._remedy(calibration, len(entries))}, or take force=True to have "
                "them all the same"
            )

    def _remedy(self, calibration: Calibration | None, n_entries: int) -> str:
        if calibration is not None:
            then = calibration.n_entries
            grown = (
                f" (the null was learned with {then:,} entries, there are {n_entries:,})" if then < n_entries else ""
            )
            return f"calibrate the index again, with signals like these{grown}"
        learn = "learn the null of its scores by index.calibrate()"
        return learn if self._recipe.center is not None else f"make the index with center=True, or {learn}"
