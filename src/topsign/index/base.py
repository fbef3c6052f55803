"""BaseIndex: the methods of an index that read its entries."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Int64
from .._checks import as_signals, check_choice, check_count, check_flag, suggests_keywords
from .._files import Record
from .._random import RandomState
from ..errors import StorageError
from ..families import SCORINGS, Null, Recipe
from ..search.engine import ENGINE, Engine
from ..search.originals import ExactSignals, Originals, Source, rank_exactly
from ..search.pairs import PairLimit, find_groups, find_pairs
from ..search.query_block import SMALL_QUERY_BYTES, QueryBlock, RangeLimit, query_blocks
from ..search.recall import VisitReport
from ..search.regions import Progress
from ..significance import ScoreCalibration
from ..store.folder_store import Store
from .addition import FEATURES, DeferredIndex
from .entries import Entries, Entry, EntrySet, Ids, LocalEntries, rows_of
from .filters import Where
from .regions import IndexRegions, RecallCheck
from .results import FoundBlock, Matches, Neighbors, Pairs
from .significance import (
    KEY,
    PAIRS,
    IndexCalibration,
    NullCheck,
    Significance,
    check_codes,
    check_pairs,
    choose_impostors,
    kept_sample,
    learn_calibration,
)


class LearnedIndex:
    """A recipe and a store, which follow a :class:`topsign.index.addition.DeferredIndex`."""

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.recipe, self.store = recipe, store
        self.significance, self.regions = Significance(recipe), IndexRegions(recipe, store)
        self._calibration: tuple[Record, IndexCalibration] | None = None  # the last record that was parsed

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features if the store keeps any, otherwise None; StorageError if they are damaged."""
        sources, n_features = self.store.now.sources, self.recipe.n_features
        if FEATURES not in sources:
            return None
        names = sources[FEATURES].get("names")
        if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
            problem = f"damaged: {n_features} names of features expected"
            raise StorageError(self.store.path or "memory", FEATURES, problem)
        return tuple(names)

    @property
    def calibration(self) -> IndexCalibration | None:
        """Null distributions learned by ``calibrate``, parsed once, or None."""
        record = self.store.now.sources.get(KEY)
        if record is None:
            return None
        known = self._calibration
        if known is None or known[0] is not record:
            self._calibration = known = record, IndexCalibration.from_json(record, self.store.path or "memory")
        return known[1]


@dataclass(frozen=True)
class IndexCheck:
    """Report of :meth:`topsign.Index.check`: the null of its scores, recall, and drift."""

    null: NullCheck
    recall: RecallCheck | None  # None without regions
    drift: float | None
    """Energy of the last 1,000 codes relative to that of the learning sample: below 0.9 learn a new recipe. None for
    codes that learn nothing."""

    def __str__(self) -> str:
        lines = [f"null: {self.null}"]
        lines += [] if self.recall is None else [f"recall: {self.recall}"]
        lines += [] if self.drift is None else [f"drift: codes keep {self.drift:.2f} times the energy of the sample"]
        return "\n".join(lines)


RECENT = 1000  # entries whose drift is checked

RESCORED = 4
"""Candidates per neighbour that are rescored by default."""

MAX_PLACES = 2**26
"""Places of results, most of which may be empty because k exceeds the number of entries."""


def originals_for(
    rescore: Source | bool | int, entries: EntrySet, recipe: Recipe, k: int, *, kept: str | None
) -> tuple[ExactSignals, int]:
    """Return the signals to rescore with (those that the user gave, or that the index keeps), and how many."""
    candidates = k * RESCORED if rescore is True or not isinstance(rescore, (int, np.integer)) else int(rescore)
    if candidates < k:
        raise ValueError(f"rescore={candidates} candidates are fewer than k={k}; rescore more, or lower k")
    if isinstance(rescore, (int, np.integer)):
        if kept is None:
            raise ValueError(
                f"rescore={rescore} needs signals that the index keeps; make it with originals=, or give the signals"
            )
        return entries.originals(), candidates
    if entries.has_text_ids:
        if not callable(rescore):
            raise TypeError("rescore must be a callable that takes ids, since those of this index are texts")
        fetch: Any = rescore
        rescore = lambda ids: fetch(entries.user_ids(ids))  # noqa: E731
    return Originals(rescore, n_features=recipe.n_features, mean=recipe.center), candidates


@suggests_keywords
class BaseIndex:
    """Entries with ids, and search. Subclasses define where entries are stored and how they change."""

    def __init__(self, state: LearnedIndex | DeferredIndex, engine: Engine) -> None:
        self._state, self._engine = state, engine
        self._learning = threading.Lock()  # held while the state changes

    def _entries(self) -> EntrySet:
        """Return a snapshot of all entries."""
        state = self._learned()
        now = state.store.now
        return LocalEntries(state.recipe, now.snapshot, now.tables)

    def _query_blocks(self, queries: Array, **options: Any) -> Iterator[tuple[slice, QueryBlock]]:
        """Yield the rows of each block of queries, and the prepared queries."""
        return query_blocks(self._state.recipe, queries, engine=self._engine, **options)

    # Parts

    @property
    def recipe(self) -> Recipe:
        """Recipe of the codes; raises NotFittedError before it is learned."""
        return self._state.recipe

    @property
    def _store(self) -> Store:
        return self._state.store

    @property
    def family(self) -> str:
        """Family of the codes: "adaptive", "grouped", "sign", "trellis" or one of your own."""
        return self._known.family

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self._known.n_features

    @property
    def metric(self) -> str:
        """Quantity that scores estimate: "correlation" or "inner_product"."""
        return self._known.metric

    @property
    def path(self) -> str | None:
        """Folder of a durable index, or None in memory."""
        return self._place.path

    @property
    def originals(self) -> str | None:
        """Type of the kept originals: "float32", "float16", "int8" or None."""
        return self._place.originals

    @property
    def calibration(self) -> ScoreCalibration | None:
        """Null distribution learned by :meth:`calibrate`, or None if p-values assume isotropic signals."""
        known = self._state.calibration
        return None if known is None else known.scores

    # Entries

    @property
    def ids(self) -> Ids:
        """Ids of the entries: ascending integers, or strings in the order of addition."""
        return self._entries().ids if isinstance(self._state, LearnedIndex) else np.empty(0, np.int64)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._store.snapshot)

    def __contains__(self, id: object) -> bool:
        """Return whether an entry has this id."""
        return isinstance(self._state, LearnedIndex) and id in self._entries()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the ids of the entries, in the order of :attr:`ids`."""
        return iter(self.ids.tolist())

    def __getitem__(self, id: int | str) -> Entry:
        """Return the entry with this id; raise KeyError if there is none."""
        if not isinstance(id, (int, np.integer, str)):
            raise TypeError(f"index[id] needs one id (integer or string), got {id!r}; use index.get(ids) for several")
        entries = self._entries() if isinstance(self._state, LearnedIndex) else None
        if entries is None or id not in entries:
            raise KeyError(id)
        return entries.get([id])[0]

    def get(self, ids: npt.ArrayLike) -> Entries:
        """Return codes and metadata of one or several entries in the given order; unknown ``ids`` raise."""
        return self._entries().get(ids)

    # Searching

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        recall: float | None = None,
        where: Where | None = None,
        among: npt.ArrayLike | None = None,
        scoring: str = "asymmetric",
        rescore: Source | bool | int | None = None,
        adaptive_bits: int | None = None,
        with_metadata: bool = False,
    ) -> Neighbors:
        """Return the k nearest entries of each query in the current snapshot.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features) or (n_features,)
            One row each.
        k : int
            Number of neighbours. If fewer entries are considered, the rest is filled with id -1 and nan.
        recall : float in (0, 1), optional
            Visit only as many regions (:meth:`learn_regions`) as this expected recall requires according to the
            calibration. The recall refers to the exact neighbours if the index keeps originals, otherwise to the
            exhaustive search over codes. All entries are visited if that is faster, or if the recall cannot be promised
            otherwise; ``exhaustive`` of the result gives the reason. Without ``recall`` a search is exhaustive and
            exact.
        where : str or dict, optional
            Search only entries whose metadata satisfy this condition, ``"year >= 2020 and lang in ('en', 'it')"`` or
            a dict of equalities; ``help("topsign.index.filters")`` lists the operators. The result is exact.
        among : sequence of ids, optional
            Search only the entries with these ids.
        scoring : "asymmetric" or "hamming"
            ``asymmetric`` uses the query's real-valued projections and orders by the estimated score.
            ``hamming`` orders by the number of differing signs, from which scores and p-values are derived.
        rescore : True, int, array, memory map or callable, optional
            Order the best entries by their exact score, with which p-values are exact, too. True rescores ``4 * k``
            entries with the originals that the index keeps, an integer that many. An array whose row i is the signal
            with id i, or a callable ``rescore(ids)`` that returns one row per id and is called once per query, takes
            the place of kept originals.
        adaptive_bits : int in [1, n_pool], optional
            With sign codes each query compares only its largest projections, this many of them; distances
            are fractions of these. With ``scoring="asymmetric"`` the score is then an approximation for small
            correlations (with a sixteenth of the pool 0.5% low at 0.1, 4% at 0.3, 12% at 0.5), and the p-value takes
            the sum over the chosen projections as normal. P-values then assume isotropic signals, even if the index is
            calibrated.
        with_metadata : bool
            Whether the result includes the metadata of its entries.

        Notes
        -----
        P-values are those of one comparison with an independent impostor; from 1,000 features on, they are within 2e-5
        of :func:`topsign.significance.match_pvalue`. :func:`topsign.significance.correct_pvalues` corrects them for
        many comparisons. They are nan for codes whose null distribution is unknown, until :meth:`calibrate` learns it.
        Raises ValueError, naming the row, for a zero query, which has no direction.
        """
        k = check_count(k, "k")
        queries = self._checked(queries, "queries")
        check_choice(scoring, "scoring", SCORINGS)
        whole = self._entries()
        entries = whole.filtered(among, where, gather=recall is None)
        state, originals, candidates = self._learned(), None, k
        calibration = state.calibration
        if rescore is not None and rescore is not False:
            originals, candidates = originals_for(rescore, whole, state.recipe, k, kept=self.originals)
        if adaptive_bits is None:
            state.significance.observe(whole, queries, scoring, calibration)
        options: Any = {"scoring": scoring, "adaptive_bits": adaptive_bits}
        region_search = None
        if recall is not None:
            options["n_bytes"] = SMALL_QUERY_BYTES
            if scoring != "asymmetric" or adaptive_bits is not None:
                raise ValueError(
                    'recall is calibrated for scoring="asymmetric" without adaptive_bits; leave recall=None with others'
                )
            if originals is not None:
                raise ValueError("rescore does not go with recall, which uses kept originals as it requires")
            region_search = state.regions.search(whole, entries, k=k, recall=recall)
            if self._engine is ENGINE and calibration is None and getattr(self.recipe, "null", None) is None:
                plan, recipe = region_search.plan(), cast(Any, state.recipe)
                if plan is not None and (planned := plan.find(queries)) is not None:
                    neighbors = Neighbors._planned(plan, *planned, k, recipe.angles)
                    return neighbors._finished(whole, with_metadata=with_metadata)
        nulls = None if calibration is None else self._nulls()
        scans = self._query_blocks(queries, nulls=nulls, **options)
        if k > len(entries) and k * len(queries) > MAX_PLACES:
            raise ValueError(
                f"k={k} gives {k * len(queries):,} places to {len(queries):,} queries, but only {len(entries):,} "
                "entries are considered, so that most places would be empty; give a k of at most that number"
            )
        blocks, visited = [], []
        for block, scan in scans:
            if region_search is not None:
                hits, visit_report = region_search.find(scan, queries[block])
                visited.append(visit_report)
            else:
                hits = entries.nearest(scan, candidates)
                if originals is not None:
                    hits = rank_exactly(scan, hits, originals, queries[block], k)
            blocks.append(FoundBlock(block, hits, scan.light()))
        found = Neighbors._of_blocks(blocks, entries, len(queries), k)
        if region_search is not None:
            found = replace(found, _visit_report=VisitReport.joined(visited), recall_of=region_search.recall_of)
        return found._finished(whole, with_metadata=with_metadata)

    def within(
        self,
        queries: npt.ArrayLike,
        *,
        radius: float | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        where: Where | None = None,
        with_metadata: bool = False,
        force: bool = False,
    ) -> Matches:
        """Return all matches of each query in the current snapshot.

        Parameters
        ----------
        radius : float in [0, 1]
            With ``scoring="hamming"``: maximum distance, a fraction of the signs.
        threshold : float
            With ``scoring="asymmetric"``: minimum score.
        false_alarm : float in (0, 1)
            Probability that a search for an impostor returns any match. With N considered entries, matches have
            p-values of at most ``1 - (1 - false_alarm) ** (1 / N)``.
        force : bool
            Return matches even if more than 1% of random pairs match at ``false_alarm``. By default this raises,
            because the null distribution does not fit the signals.
        queries, scoring, adaptive_bits, among, where, with_metadata
            As in :meth:`search`. Exactly one of radius, threshold and false_alarm must be given.
        """
        limit = RangeLimit.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        if check_flag(force, "force") and false_alarm is None:
            raise ValueError("force goes with false_alarm: matches within another limit are never refused")
        if force and adaptive_bits is not None:
            raise ValueError("force has no effect with adaptive_bits, whose matches are never refused; omit it")
        queries = self._checked(queries, "queries")
        whole = self._entries()
        entries = whole.filtered(among, where)
        limit = replace(limit, n_entries=len(entries))
        if limit.is_level and adaptive_bits is None:
            calibration = self._state.calibration
            self._learned().significance.check_level(entries, queries, scoring, calibration, limit.value, force=force)
            if calibration is not None:
                self._learned().significance.observe(whole, queries, scoring, calibration)
        options: Any = {"scoring": scoring, "adaptive_bits": adaptive_bits}
        scans = self._query_blocks(queries, nulls=self._nulls(), **options)
        blocks = [FoundBlock(block, entries.within(scan, limit), scan.light()) for block, scan in scans]
        return Matches._of_blocks(blocks, entries)._finished(whole, with_metadata=with_metadata)

    def pairs(
        self,
        *,
        false_alarm: float | None = None,
        threshold: float | None = None,
        k: int | None = None,
        max_pairs: int | None = None,
        progress: Progress | None = None,
    ) -> Pairs:
        """Return pairs of similar entries (near-duplicates), found by their codes, each pair once.

        Parameters
        ----------
        false_alarm : float in (0, 1)
            Probability of any false pair in the whole index (family-wise rate). After :meth:`calibrate`, each entry is
            a search among the others at this rate over their number, with a Pareto tail; the rate is refused if it is
            too far beyond the sample. Without it, pairs of isotropic signals are assumed, which only families with a
            known null distribution of pairs (adaptive, grouped, sign) have.
        threshold : float in [-1, 1]
            Minimum score: the estimated correlation, or the cosine of the two reconstructions.
        k : int
            Return pairs in which one entry is among the k nearest of the other.
        max_pairs : int, optional
            Maximum number of pairs, 10 million by default. If there are more, a ValueError states their number;
            :meth:`groups` has no such limit.
        progress : callable, optional
            Called with the number of compared entries and the number of all entries.
        """
        whole, null, limit = self._pair_limit(false_alarm=false_alarm, threshold=threshold, k=k)
        found = find_pairs(whole, limit, max_pairs=max_pairs, progress=progress)
        first, second = (whole.user_ids(ids) for ids in found[:2])
        logs = (null or limit.pairing).log10_p_values(found[2])
        return Pairs(first, second, limit.pairing.scores(found[2]), logs)

    def groups(
        self,
        *,
        false_alarm: float | None = None,
        threshold: float | None = None,
        k: int | None = None,
        progress: Progress | None = None,
    ) -> list[list[Any]]:
        """Return the connected components of :meth:`pairs` as lists of ids, the largest first.

        With ``false_alarm``, no two entries are joined falsely in the whole index, but with this probability.

        ``threshold``, ``k`` and ``progress`` are as for :meth:`pairs`. Pairs are not stored, so memory stays bounded
        for many equal or similar entries.
        """
        whole, _, limit = self._pair_limit(false_alarm=false_alarm, threshold=threshold, k=k)
        return find_groups(whole, limit, progress=progress)

    def _pair_limit(self, **given: Any) -> tuple[EntrySet, Null | None, PairLimit]:
        """Return all entries, the null distribution of their pairs if it is known, and the limit that was given."""
        whole, null = self._entries(), (self._nulls() or {}).get(PAIRS)
        return whole, null, PairLimit.checked(self.recipe, len(whole), null=null, **given)

    # Significance

    def calibrate(
        self,
        impostors: npt.ArrayLike | None = None,
        *,
        ids: npt.ArrayLike | None = None,
        false_alarm: float = 0.01,
        random_state: RandomState = 0,
        progress: Progress | None = None,
    ) -> ScoreCalibration:
        """Learn the null distribution of scores for p-values, E-values and ``within(false_alarm=)``.

        The index is searched for each impostor, and the best scores are stored. The threshold is an order statistic of
        these scores (split conformal prediction), so the probability that a search for an impostor returns a match is
        at most the requested level for any distribution of the signals.

        Parameters
        ----------
        impostors : array of shape (n_signals, n_features), optional
            Signals that match no entry, similar to future queries. Without them, the originals that the index keeps are
            used, each without its own entry; near-duplicates among them can only raise thresholds.
        ids : sequence of ids, optional
            Ids of the given signals, if they are entries of the index. A signal is not compared with itself.
        false_alarm : float in (0, 1)
            Smallest level that will be used without a model of the tail. It needs about ``1.5 / false_alarm`` signals.
            Smaller levels, down to 0.1 divided by the number of signals, use a generalised Pareto tail.
        progress : callable, optional
            Called with the number of finished searches and the number of all searches.
        random_state : int
            Seed of the sample.

        Raises
        ------
        ValueError
            If the level cannot be promised: no impostors and no originals, too few signals, impostors that are entries
            of the index, or so many near-duplicates among the index's own signals that copies of entries would not be
            found.

        Notes
        -----
        The calibration is stored with the index and holds for impostors from the same distribution. Once the index
        has grown, thresholds follow the line, or the union bound, of :class:`topsign.significance.ScoreCalibration`.
        Searches test queries and
        random entries for drift and warn once, and again if the index has doubled.
        """
        given = None if impostors is None else self._checked(impostors, "impostors")
        own = None if ids is None else self._internal_ids(ids)
        state = self._learned()
        signals = choose_impostors(given, own, kept_sample(state.store.snapshot))
        options: Any = {"rng": np.random.default_rng(random_state), "progress": progress}
        learned = learn_calibration(state.recipe, self._entries(), *signals, false_alarm=false_alarm, **options)
        state.store.apply(lambda change: change.keep_source(KEY, learned.to_json()))
        return learned.scores

    def check(self, queries: npt.ArrayLike | None = None, *, k: int = 10, recall: float | None = 0.95) -> IndexCheck:
        """Check what the index promises with ``queries``, or without them with its own entries, and return one report.

        The report compares scores of random pairs with the null distribution in use, measures the recall that
        ``search`` for ``k`` entries achieves with this ``recall`` if there are regions and ``recall`` is not None, and
        the drift of the entries if the recipe was learned from signals.
        """
        given = None if queries is None else self._checked(queries, "queries")
        whole, state = self._entries(), self._learned()
        signals, own = (given, None) if given is not None else kept_sample(state.store.snapshot) or (None, None)
        if signals is None:
            null = check_codes(self.recipe, whole)
        else:
            null = check_pairs(self.recipe, whole, signals, "asymmetric", self._nulls(), own)
        achieved, snapshot = None, state.store.snapshot
        if recall is not None and state.regions.regions(whole.tables) is not None:
            achieved = state.regions.check(self.search, given, k=check_count(k, "k"), recall=recall)
        recent = snapshot.last(RECENT)
        drift = self.recipe.energy_ratio(snapshot.gather("codes", recent)) if recent.size else None
        return IndexCheck(null, achieved, drift)

    # Shared

    @property
    def _known(self) -> Recipe | DeferredIndex:
        """Recipe, or the parameters with which it will be learned."""
        return self._state.recipe if isinstance(self._state, LearnedIndex) else self._state

    @property
    def _place(self) -> Store | DeferredIndex:
        """Store, or the parameters with which it will be created."""
        return self._state.store if isinstance(self._state, LearnedIndex) else self._state

    def _nulls(self) -> Mapping[str, Null] | None:
        """Return the null distributions by scoring for the present number of entries; None without calibration."""
        state = self._learned()
        return state.significance.nulls(state.calibration, len(self._entries()))

    def _learned(self) -> LearnedIndex:
        """Return the state of an index that has its recipe; NotFittedError before."""
        return self._state if isinstance(self._state, LearnedIndex) else self._state.recipe

    def _internal_ids(self, ids: npt.ArrayLike) -> Int64:
        """Return the internal ids of entries; an unknown one raises."""
        snapshot = self._store.snapshot
        return snapshot.gather("ids", rows_of(snapshot, ids)).astype(np.int64)

    def _checked(self, signals: npt.ArrayLike, name: str) -> Array:
        """Return signals as rows, of the features of this index."""
        state = self._learned()
        names = state.feature_names
        return as_signals(signals, n_features=state.recipe.n_features, name=name, feature_names=names)
