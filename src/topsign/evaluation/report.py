"""Report of an evaluation: measurements, and the recommendation as text, commands and code."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .configurations import Configuration
from .data import Isotropy
from .source import ORIGINALS, SearchSettings, SignalSource

K = 10
"""Number of neighbours to which the target recall refers."""

SAME_TIME = 1.25
"""Times whose ratio is below this are treated as equal, because measurements vary by as much."""


@dataclass(frozen=True)
class Recall:
    """Fraction of the true k nearest neighbours that are found, with its 95% interval over queries."""

    k: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.share:.1%} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True)
class Option:
    """Configuration with a number of candidates that are rescored by the original signals."""

    configuration: Configuration
    factor: int | None  # rescored candidates per neighbour; None without rescoring
    bytes_per_entry: float  # resident: code and id, plus the shared data divided by the number of entries
    measured: Recall  # recall@10 among the entries of the sample
    expected: Recall  # recall@10 among all signals, extrapolated if the sample is smaller
    milliseconds: float  # per query in a batch on all threads, among the entries of the sample
    originals: str | None = None  # type of stored originals
    recall: float | None = None  # recall requested from a search of regions
    disk_bytes: float = 0.0  # of stored originals, per entry

    @property
    def name(self) -> str:
        """Name for tables and sentences."""
        return f"{self.configuration.name}, {self.how}"

    @property
    def how(self) -> str:
        """Description of how candidates are found and ordered."""
        kept = f" by {self.originals} originals" if self.originals is not None else ""
        if self.recall is not None:
            return f"regions searched for a recall of {self.recall:g}, rescored{kept}"
        return "by codes only" if self.factor is None else f"{self.factor * K} candidates rescored{kept}"

    @property
    def search(self) -> SearchSettings:
        """Build and search parameters."""
        originals = self.originals or (None if self.factor is None else ORIGINALS)
        return SearchSettings(self.factor, originals, self.recall)

    def meets(self, target: float) -> bool:
        """Return whether the whole interval of the expected recall reaches the target."""
        return self.expected.low >= target


@dataclass(frozen=True)
class Candidate:
    """Measurements of one configuration."""

    configuration: Configuration
    bytes_per_entry: float
    recall: list[Recall]  # by codes only, of the 1, 10 and 100 nearest
    options: list[Option]

    @property
    def name(self) -> str:
        """Name for tables."""
        return self.configuration.name

    def option(self, factor: int | None) -> Option:
        """Return the option with this number of candidates per neighbour."""
        return next(one for one in self.options if one.factor == factor)


@dataclass(frozen=True)
class FalseAlarmRow:
    """Fraction of searches for held-out signals that have a match, for each requested false-alarm rate."""

    null: str
    rates: list[float]


@dataclass(frozen=True)
class Evaluation:
    """Results of :func:`evaluate`."""

    n_signals: int  # number of entries for which the recommendation holds
    n_entries: int
    n_queries: int
    n_features: int
    own_queries: bool
    metric: str
    target_recall: float
    isotropy: Isotropy
    notes: list[str]
    n_nested: int | None  # entries of each nested sample, None if there is none
    candidates: list[Candidate]
    stored: list[Option]  # the best option with stored originals of each type, and with regions
    best: Option
    second: Option | None
    false_alarms: list[FalseAlarmRow]
    levels: list[float]
    n_judged: int  # number of queries with which false-alarm rates are measured
    random_state: int
    seconds: float
    source: SignalSource = SignalSource()  # noqa: RUF009  # frozen

    @property
    def met(self) -> bool:
        """Whether the recommended option meets the target."""
        return self.best.meets(self.target_recall)

    @property
    def extrapolated(self) -> bool:
        """Whether the recommendation is for more entries than were measured."""
        return self.n_signals > self.n_entries

    def of(self, source: SignalSource) -> Evaluation:
        """Return the same evaluation with file names for its commands."""
        return replace(self, source=source)

    def command(self) -> str:
        """Return the shell commands that build and search the recommended index."""
        return self.source.commands(self.best.configuration, self.best.search, k=K, random_state=self.random_state)

    def python(self) -> str:
        """Return the Python code that builds and searches the recommended index."""
        return self.source.python(
            self.best.configuration, self.best.search, n_features=self.n_features, k=K, random_state=self.random_state
        )

    def recommendation(self) -> str:
        """Return the recommendation and its expected performance in a few sentences."""
        best = self.best
        saved = 4 * self.n_features / best.bytes_per_entry
        met = "" if self.met else f"No configuration meets a recall of {self.target_recall:.0%}; the closest is: "
        text = (
            f"{met}{best.name}. It takes {best.bytes_per_entry:.0f} resident bytes per entry ({saved:.1f} times fewer "
            f"than float32) and finds {best.measured} of the true {K} nearest among {self.n_entries:,} entries, in "
            f"{best.milliseconds:.2f} ms per query."
        )
        if self.extrapolated:
            text += f" Among {self.n_signals:,} entries the expected recall is {best.expected} (extrapolated)."
        if best.originals is not None:
            text += f" Originals take {best.disk_bytes:,.0f} bytes per entry on disk."
        return text

    def alternative(self) -> str | None:
        """Return the second best option and the reason why it is not the first, or None if there is no other."""
        if self.second is None:
            return None
        best, other = self.best, self.second
        found = f"Second: {other.name}, {other.bytes_per_entry:.0f} bytes, {other.expected}, "
        found += f"{other.milliseconds:.2f} ms"
        found += f", {other.disk_bytes:,.0f} bytes on disk: " if other.disk_bytes else ": "
        if not other.meets(self.target_recall):
            return found + ("it may miss the target." if self.met else "its recall is lower.")
        more = other.bytes_per_entry / best.bytes_per_entry - 1
        if abs(more) < 0.005:
            larger = other.disk_bytes > best.disk_bytes
            return found + ("equally small, but larger on disk." if larger else "equally small, but slower.")
        if other.milliseconds < best.milliseconds:
            return found + f"faster, but {more:.0%} larger."
        return found + f"{more:.0%} larger, and not faster."

    def false_alarm_advice(self) -> str | None:
        """Return advice on calibration before p-values are used, or None if none is needed."""
        plain = self.false_alarms[0] if self.false_alarms else None
        if plain is None or plain.rates[-1] <= 2 * self.levels[-1]:
            return None
        return (
            f"Call index.calibrate() before using p-values: without it, {plain.rates[-1]:.0%} of searches for held-out "
            f"signals had a match at a false-alarm rate of {self.levels[-1]:.0%}."
        )


def choose(options: list[Option], target: float) -> tuple[Option, Option | None]:
    """Return the best option that meets the target, and the second best.

    Options are ordered by resident bytes, then by time, and at about equal times by bytes on disk. The second best is
    the fastest option that is faster than the best, or else the next in this order, or, if no other option meets the
    target, the one with the highest recall. If no option meets the target, the two with the highest recall are
    returned.
    """

    def cost(one: Option) -> tuple[float, float, float, float]:
        return (
            one.bytes_per_entry,
            round(math.log(max(one.milliseconds, 1e-9)) / math.log(SAME_TIME)),
            one.disk_bytes,
            one.milliseconds,
        )

    enough = sorted((one for one in options if one.meets(target)), key=cost)
    if not enough:
        ranked = sorted(options, key=lambda one: -one.expected.low)
        return ranked[0], ranked[1] if len(ranked) > 1 else None
    best, others = enough[0], enough[1:]
    faster = min(others, key=lambda one: one.milliseconds, default=None)
    if faster is not None and faster.milliseconds < best.milliseconds:
        return best, faster
    others = [one for one in others if one.configuration != best.configuration] or others
    rest = sorted((one for one in options if one not in enough), key=lambda one: -one.expected.low)
    return best, next(iter([*others, *rest]), None)
