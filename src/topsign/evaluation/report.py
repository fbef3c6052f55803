"""The report of an evaluation: what was measured, and the recommendation in words and calls."""

from __future__ import annotations

from dataclasses import dataclass

from .configurations import Configuration
from .data import Isotropy

RESCORE_FACTOR = 10


@dataclass(frozen=True)
class Recall:
    """Share of the true k nearest among the k found, with its 95% bootstrap interval over queries."""

    k: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Candidate:
    """One kind and size of code, measured."""

    configuration: Configuration
    center: bool  # whether the mean is removed, from the exact neighbours too
    bytes_per_entry: float  # as stored: code, norm, scale and id, and the share of what all entries have in common
    recall: list[Recall]
    rescored: list[Recall]  # ordered by the original signals: of 100 candidates, of 400 for the 100 nearest
    milliseconds: float  # per query, a batch on all threads
    rescored_milliseconds: float

    @property
    def name(self) -> str:
        """As tables show it."""
        return self.configuration.name

    def command(self, signals: str) -> str:
        """The shell command that builds such an index."""
        return f"topsign build {signals} -o index.topsign {self.configuration.options()}"


@dataclass(frozen=True)
class CalibrationRow:
    """Shares of random pairs below each level, which would be the level itself for a right null."""

    null: str
    shares: list[float]


@dataclass(frozen=True)
class Evaluation:
    """Everything measured; see :func:`evaluate`."""

    n_signals: int
    n_entries: int
    n_queries: int
    n_features: int
    own_queries: bool
    isotropy: Isotropy
    notes: list[str]
    candidates: list[Candidate]
    calibration: list[CalibrationRow]
    levels: list[float]
    n_pairs: int
    best: Candidate  # of the codes with p-values, adaptive and sign
    smaller: Candidate | None  # a trellis code that reaches the same in fewer bytes
    seconds: float

    @property
    def center(self) -> bool:
        """Whether centring is recommended: it is what the candidates were measured with."""
        return self.best.center

    @property
    def calibrate(self) -> bool:
        """Whether a learned null is recommended: p-values are off by more than a factor of two at 1e-3 without."""
        shares = {row.null: row.shares for row in self.calibration}["centred" if self.center else "as they are"]
        return not 0.5 <= shares[2] / self.levels[2] <= 2

    def command(self, signals: str = "signals.npy") -> str:
        """The shell command that builds the recommended index."""
        return self.best.command(signals) + (" --calibrate" if self.calibrate else "")

    def python(self) -> str:
        """Python calls that build the recommended index."""
        lines = [f"index = {self.best.configuration.constructor(self.n_features)}", "index.add(signals)"]
        lines += ["index.calibrate()"] if self.calibrate else []
        return "\n".join([*lines, f"index.search(queries, k=10, rescore=signals, rescore_factor={RESCORE_FACTOR})"])

    def recommendation(self) -> str:
        """The recommendation and the numbers it will give, in a sentence."""
        best = self.best
        plain, exact = ({one.k: one for one in part} for part in (best.recall, best.rescored))
        return (
            f"{best.name}{', centred' if self.center else ''}: {best.bytes_per_entry:.0f} bytes per entry "
            f"({4 * self.n_features / best.bytes_per_entry:.1f} times less than float32); of the true 10 nearest it "
            f"finds {plain[10].share:.1%} [{plain[10].low:.1%}, {plain[10].high:.1%}] by codes alone and "
            f"{exact[10].share:.1%} [{exact[10].low:.1%}, {exact[10].high:.1%}] when {10 * RESCORE_FACTOR} candidates "
            f"are rescored, on {self.n_entries:,} entries in {best.milliseconds:.2f} ms per query."
        )

    def alternative(self) -> str | None:
        """The smaller trellis code in a sentence, where there is one."""
        if self.smaller is None:
            return None
        plain, exact = (
            next(one for one in part if one.k == 10) for part in (self.smaller.recall, self.smaller.rescored)
        )
        return (
            f"Without p-values, {self.smaller.name} takes {self.smaller.bytes_per_entry:.0f} bytes per entry and finds "
            f"{plain.share:.1%} by codes alone, {exact.share:.1%} rescored, of the 10 nearest"
            + (" of the signals as they are" if self.best.center else "")
            + f": {self.smaller.configuration.constructor(self.n_features)}"
        )
