"""Nulls of an index: calibration from impostors, and the check whether p-values can be trusted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Float64, Int64
from .._checks import as_signals, check_count
from .._named import named
from .._random import RandomState
from .._rows import take_rows
from .._warning import warn
from ..errors import CalibrationWarning
from ..recipe import Recipe
from .search import Calibration, LearnedSignificance, Population, isotropic_law, learn_calibration, make_scans
from .search.significance import sample_pvalues

KEY = "topsign:calibration"
"""Name under which a store keeps the calibration among its sources."""

LEVEL, TOO_MANY = 1e-3, 10
N_PAIRS, MIN_PAIRS, MIN_ENTRIES = 8192, 2000, 200
FLOOD = 0.01
"""Share of all pairs above which a range search by significance is refused."""


@dataclass(frozen=True)
class NullCheck:
    """Share of random pairs whose p-value is at most ``level``, which is what it would be for a right null."""

    share: float
    n_pairs: int
    level: float = LEVEL
    by_codes: bool = False  # two codes were compared, not a signal and a code

    @property
    def trusted(self) -> bool:
        """False where ten times the nominal share falls below the level."""
        return self.n_pairs < MIN_PAIRS or self.share <= TOO_MANY * self.level

    def __str__(self) -> str:
        pairs = "pairs of entries" if self.by_codes else "pairs of queries and entries"
        return (
            f"{self.share:.2%} of {self.n_pairs:,} random {pairs} have p-values below {self.level:g}, where "
            f"{self.level:.2%} is nominal"
        )


CAUSE = "the signals are not isotropic, so that p-values and false_alarm mean little"


class Nulls(ABC):
    """Methods of an index that concern its null."""

    recipe: Recipe
    _n_checked: int = 0  # entries there were at the last check of the null, 0 before the first

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where the first table that was added has a column for each; None for other signals.

        Tables that are added or searched later must have the same columns in the same order, else they are refused.
        """
        return None

    def _checked(self, signals: npt.ArrayLike, name: str) -> Array:
        """Signals as rows, of the features of this index."""
        return as_signals(signals, n_features=self.recipe.n_features, name=name, feature_names=self.feature_names)

    @property
    @abstractmethod
    def calibration(self) -> Calibration | None:
        """Nulls that :meth:`calibrate` learned, None while p-values are those of isotropic signals."""

    @abstractmethod
    def _keep_calibration(self, learned: Calibration) -> None:
        """Stores a calibration with the index."""

    @abstractmethod
    def _whole(self) -> Population:
        """All entries of this moment."""

    def _own_signals(self) -> tuple[Array, Int64] | None:
        """Signals that this object has added, and their numbers, -1 for removed ones; None where there are none."""
        return None

    def _numbers_of(self, ids: npt.ArrayLike) -> Int64:
        """Numbers of entries with these ids; an unknown one raises."""
        raise ValueError("ids= goes with an index of one machine; give impostors that are no entries")

    @named
    def calibrate(
        self,
        impostors: npt.ArrayLike | None = None,
        *,
        ids: npt.ArrayLike | None = None,
        n_pairs: int = 500_000,
        random_state: RandomState = 0,
        n_threads: int | None = None,
    ) -> Calibration:
        """Learns the null of scores, which p-values, E-values and ``within(false_alarm=)`` then use.

        Parameters
        ----------
        impostors : array of shape (n_signals, n_features), optional
            Signals known not to match any entry, as different as those that will be searched for; a few hundred or
            more. Without them, signals that were added by this object are compared with other entries, and
            outliers, which may be duplicates or true matches, are trimmed.
        ids : sequence of ids, optional
            Where the signals given are entries of the index themselves (of a file that was opened, say, which keeps
            codes alone): the ids of those entries. A signal is not compared with itself, and outliers are trimmed.
        n_pairs : int
            Pairs of a signal and an entry to learn from: p-values are never smaller than a tenth of one over their
            effective number.

        Notes
        -----
        The null is stored with the index, in its file where it has one. It stays as entries are added; calibrate again
        when their nature changes. The first search checks it, see :meth:`check_null`, and so does the first one after
        the index has doubled since.
        """
        n_pairs = check_count(n_pairs, "n_pairs", minimum=1000)
        rng = np.random.default_rng(random_state)
        whole, sample, own = self._whole(), self._own_signals(), None
        if impostors is not None:
            queries: Array = self._checked(impostors, "impostors")
            own = None if ids is None else self._numbers_of(ids)
            if own is not None and len(own) != len(queries):
                raise ValueError(f"ids must be one per signal, got {len(own)} for {len(queries)} signals")
        elif ids is not None:
            raise ValueError("ids are those of signals of entries; give these signals too")
        elif sample is None:
            raise ValueError(
                "an index keeps codes, not signals, so that a null cannot be learned from its own entries after it was "
                "opened; give impostors=, signals that match no entry, or signals of some entries with their ids="
            )
        else:
            queries, own = sample
        if len(queries) * len(whole) < 1000:
            raise ValueError(f"a null takes at least 1000 pairs, got {len(queries)} signals and {len(whole)} entries")
        learned = learn_calibration(
            self.recipe, whole, queries, n_pairs=n_pairs, rng=rng, own_ids=own, n_threads=n_threads
        )
        self._keep_calibration(learned)
        self._n_checked = 0
        return learned

    @named
    def check_null(self, queries: npt.ArrayLike | None = None, *, scoring: str = "asymmetric") -> NullCheck:
        """Compares a sample of random pairs with the null in use.

        Pairs are those of queries with entries. Without queries, those of signals added by this object, or else of
        entries with each other by their codes alone, which the theoretical null for isotropic signals is compared to.
        """
        whole, sample, own = self._whole(), self._own_signals(), None
        if queries is not None:
            signals: Array = self._checked(queries, "queries")
        elif sample is not None:
            signals, own = sample
        else:
            return _check_codes(self.recipe, whole)
        return _check_pairs(self.recipe, whole, signals, scoring, self._significance(), own)

    def _significance(self) -> LearnedSignificance | None:
        """The learned significance, where the index is calibrated."""
        calibration = self.calibration
        if calibration is None:
            return None
        law = isotropic_law(self.recipe, self.recipe.layout.n_bits)
        return LearnedSignificance(law.n_bits, law.n_pool, law.n_features, law.projection, law.norms, calibration)

    def _warn_once(self, entries: Population, queries: Array, scoring: str, *, n_entries: int) -> None:
        """At the first search, and when the index has doubled since: a warning where the null in use does not fit."""
        if len(entries) < MIN_ENTRIES or not len(queries) or n_entries < 2 * self._n_checked:
            return
        self._n_checked = n_entries
        found = _check_pairs(self.recipe, entries, queries, scoring, self._significance())
        if not found.trusted:
            warn(f"{found}: {CAUSE}; {self._remedy(n_entries)}", CalibrationWarning)

    def _remedy(self, n_entries: int) -> str:
        if self.calibration is not None:
            then = self.calibration.n_entries
            grown = (
                f" (the null was learned with {then:,} entries, there are {n_entries:,})" if then < n_entries else ""
            )
            return f"calibrate the index again, with signals like these{grown}"
        learn = "learn the null of its scores by index.calibrate()"
        return learn if self.recipe.mean is not None else f"make the index with center=True, or {learn}"

    def _check_level(self, entries: Population, queries: Array, scoring: str, level: float, *, force: bool) -> None:
        """Refuses a range search that no p-value can satisfy, or that would return a flood of pairs."""
        calibration = self.calibration
        if calibration is not None and level <= calibration.floor:
            raise ValueError(
                f"false_alarm asks for p-values of at most {level:.2g} per entry, but the null was learned from too "
                f"few pairs to support p-values below {calibration.floor:.2g}; calibrate with more n_pairs, or search "
                "fewer entries"
            )
        if force or len(entries) < MIN_ENTRIES:
            return
        found = _check_pairs(self.recipe, entries, queries, scoring, self._significance(), level=level)
        if found.n_pairs >= MIN_PAIRS and found.share > FLOOD:
            raise ValueError(
                f"{found.share:.1%} of {found.n_pairs:,} random pairs of queries and entries are significant at this "
                f"false_alarm, so that {found.share * len(entries):,.0f} of {len(entries):,} entries would be "
                f"returned per query: {CAUSE}; {self._remedy(len(entries))}, or take force=True to have them all the "
                "same"
            )


def _check_pairs(
    recipe: Recipe,
    entries: Population,
    queries: Array,
    scoring: str,
    significance: LearnedSignificance | None,
    own_ids: npt.NDArray[np.int64] | None = None,
    *,
    level: float = LEVEL,
) -> NullCheck:
    """P-values of a few queries with random entries; queries that are entries are not compared with themselves."""
    if not len(entries) or not len(queries):
        return NullCheck(0.0, 0, level)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(queries))[:32])
    some = entries.sample(min(len(entries), N_PAIRS // len(rows)), rng)
    n_below = n_pairs = 0
    scans = make_scans(recipe, take_rows(queries, rows), scoring=scoring, significance=significance)
    for block, scan in scans:
        hits = scan.measure(some, scan.rank(some, len(some)))
        kept = np.ones(len(hits.ids), bool) if own_ids is None else hits.ids != own_ids[rows][block][hits.rows]
        n_pairs += int(kept.sum())
        n_below += int((hits.p_values[kept] <= level).sum())
    return NullCheck(n_below / max(1, n_pairs), n_pairs, level)


def _check_codes(recipe: Recipe, entries: Population) -> NullCheck:
    """P-values of pairs of entries by their codes alone, for isotropic signals.

    Signs that both of two adaptive codes keep agree or differ with equal chance; their number is about Poisson, so the
    difference of agreements and disagreements follows Skellam's law. Signs of a whole pool differ binomially.
    """
    n_entries = min(len(entries), math.isqrt(2 * N_PAIRS))
    if n_entries < 2:
        return NullCheck(0.0, 0, by_codes=True)
    some = entries.sample(n_entries, np.random.default_rng(0))
    codes = some.gather("codes", some.locate(some.ids))
    first, second = np.triu_indices(len(codes), 1)
    p_values = _code_pvalues(recipe, codes)[first, second]
    return NullCheck(float(np.mean(p_values <= LEVEL)), len(first), by_codes=True)


def _code_pvalues(recipe: Recipe, codes: Array) -> Float64:
    from scipy.stats import binom, skellam  # takes long to import

    if recipe.family == "sign":
        signs = np.unpackbits(codes, axis=1, count=recipe.n_pool, bitorder="little").astype(np.float32) * 2 - 1
        mismatches = (recipe.n_pool - signs @ signs.T) / 2
        return np.asarray(binom.cdf(np.rint(mismatches), recipe.n_pool, 0.5))
    from ..codes import AdaptiveCodes, reconstruct

    if recipe.family == "trellis":
        signals = reconstruct(recipe, codes).astype(np.float64)
        return sample_pvalues(signals @ signals.T, recipe.n_features)

    signs = AdaptiveCodes.unchecked(recipe.layout, codes).to_sparse().toarray().astype(np.float32)
    shared = recipe.n_bits**2 / recipe.n_pool
    return np.asarray(skellam.sf(np.rint(signs @ signs.T) - 1, shared / 2, shared / 2))
