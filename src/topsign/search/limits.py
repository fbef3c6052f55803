"""The limit of a range search: how close an entry must be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._checks import check_choice, check_false_alarm, check_real
from ..families import SCORINGS


@dataclass(frozen=True)
class RangeLimit:
    """Limit of a range search: a score, a distance, or a significance level."""

    value: float
    is_level: bool = False  # whether the value is the probability of a false alarm in a search
    n_entries: int = 0  # entries of the whole search, if it is a level

    @classmethod
    def checked(
        cls, *, radius: float | None, threshold: float | None, false_alarm: float | None, scoring: str
    ) -> RangeLimit:
        """Return the limit that the arguments of a range search ask for."""
        given = {"radius": radius, "threshold": threshold, "false_alarm": false_alarm}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ValueError(
                "give exactly one of radius, threshold and false_alarm, got " + (" and ".join(named) or "none")
            )
        check_choice(scoring, "scoring", SCORINGS)
        goes_with = {"radius": "hamming", "threshold": "asymmetric"}.get(named[0], scoring)
        if scoring != goes_with:
            raise ValueError(f'{named[0]} goes with scoring="{goes_with}", got scoring="{scoring}"')
        if false_alarm is not None:
            return cls(check_false_alarm(false_alarm), is_level=True)
        if radius is not None:
            return cls(check_real(radius, "radius", minimum=0, maximum=1))
        return cls(check_real(threshold, "threshold"))

    def for_entries(self, n_entries: int) -> RangeLimit:
        """Return the same limit for a search over ``n_entries`` entries, which may be divided among workers."""
        return replace(self, n_entries=n_entries)
