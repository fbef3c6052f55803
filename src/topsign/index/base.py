"""BaseIndex: the searching methods of an index, the same for entries on this machine and on a cluster."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Int64
from .._checks import as_signals, check_choice, check_count, check_flag
from .._random import RandomState
from ..families import SCORINGS, Null, Recipe
from ..search import SMALL_QUERY_BYTES, Calibration, Engine, PairLimit, Progress, RangeLimit, Scan, Source
from ..store import Store
from ..theory import LikelihoodRatioModel
from .deferred import DeferredIndex
from .entries import Entries, Entry
from .entry_set import EntrySet
from .evidence import KEY as EVIDENCE
from .evidence import learn_evidence
from .filters import Where
from .ids import Ids, rows_of
from .learned import LearnedIndex
from .nearest import find_nearest, originals_for
from .null_check import NullCheck, check_codes, check_pairs
from .pairing import find_groups, find_pairs
from .regional import check_visits
from .results import FoundBlock, Matches, Neighbors, Pairs
from .significance import KEY, choose_impostors


class BaseIndex(ABC):
    """Entries known by their ids, and search over them. Subclasses know where the entries are and how they change."""

    def __init__(self, state: LearnedIndex | DeferredIndex, engine: Engine) -> None:
        self._state, self.engine = state, engine
        self._learning = threading.Lock()  # held while the state changes

    @abstractmethod
    def _entries(self) -> EntrySet:
        """Return all entries of this moment."""

    @abstractmethod
    def _scans(self, queries: Array, **options: Any) -> Iterator[tuple[slice, Scan]]:
        """Yield blocks of prepared queries, each with its scan."""

    # Parts

    @property
    def recipe(self) -> Recipe:
        """Everything that codes are made with; NotFittedError before it is learned."""
        return self._state.recipe

    @property
    def store(self) -> Store:
        """Where the entries are kept; for the library's own modules."""
        return self._state.store

    @property
    def family(self) -> str:
        """Family of the codes: "adaptive", "sign", "trellis" or one of your own."""
        return self._state.family

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self._state.n_features

    @property
    def metric(self) -> str:
        """What scores estimate: "correlation" or "inner_product"."""
        return self._state.metric

    @property
    def norms(self) -> bool:
        """Whether norms of signals are kept."""
        return self._state.norms

    @property
    def path(self) -> str | None:
        """The folder of a durable index, None in memory."""
        return self._state.path

    @property
    def originals(self) -> str | None:
        """Type in which the signals themselves are kept: "float32", "float16", "int8" or None."""
        return self._state.originals

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the first table that was added has a column for each; None for other signals.

        Tables that are added or searched later must have the same columns in the same order, else they are refused.
        """
        return self._state.feature_names

    @property
    def calibration(self) -> Calibration | None:
        """Nulls that :meth:`calibrate` learned, None while p-values are those of isotropic signals."""
        return self._state.calibration

    @property
    def evidence(self) -> LikelihoodRatioModel | None:
        """Likelihood ratios of scores that :meth:`calibrate_evidence` learned, None without them."""
        return self._state.evidence

    @property
    def is_fitted(self) -> bool:
        """Whether the recipe is known, so that entries can be searched."""
        return isinstance(self._state, LearnedIndex)

    # Entries

    @property
    def ids(self) -> Ids:
        """Ids of the entries: ascending integers, or texts in the order in which they were added."""
        return self._entries().ids if self.is_fitted else np.empty(0, np.int64)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.store.snapshot)

    def __contains__(self, id: object) -> bool:
        """Return whether an entry has this id."""
        return self.is_fitted and id in self._entries()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the ids of the entries, in the order of :attr:`ids`."""
        return iter(self.ids.tolist())

    def __getitem__(self, id: int | str) -> Entry:
        """Return the entry with this id; KeyError if there is none."""
        if not isinstance(id, (int, np.integer, str)):
            raise TypeError(f"index[id] takes one id, an integer or a text, got {id!r}; index.get(ids) takes several")
        if id not in self:
            raise KeyError(id)
        return self.get([id])[0]

    def get(self, ids: npt.ArrayLike) -> Entries:
        """Return codes and metadata of these entries, or of this one, in the order asked; an unknown id raises."""
        return self._entries().get(ids)

    # Searching

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        where: Where | None = None,
        rescore: Source | bool | None = None,
        rescore_factor: int = 4,
        recall: float | None = None,
        probes: int | None = None,
        with_metadata: bool = False,
        n_threads: int | None = None,
    ) -> Neighbors:
        """Return the k nearest entries of each query, in the index as it is at the call.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features) or (n_features,)
        k : int
            If fewer entries are considered, ids of -1 and nan fill the rest.
        scoring : "asymmetric" or "hamming"
            ``asymmetric`` keeps the query's real projections and orders by the estimated score.
            ``hamming`` orders by the number of differing signs; scores and p-values follow from it.
        adaptive_bits : int in [1, n_pool], optional
            For a :class:`SignIndex`: each query compares only its largest projections, this many of them; distances
            are fractions of these. With ``scoring="asymmetric"`` the score is then an approximation for small
            correlations (with a sixteenth of the pool 0.5% low at 0.1, 4% at 0.3, 12% at 0.5), and the p-value takes
            the sum over the chosen projections as normal.
        among : sequence of ids, optional
            Consider only the entries with these ids.
        where : str or dict, optional
            Consider only entries whose metadata satisfy this condition, ``"year >= 2020 and lang in ('en', 'it')"`` or
            a dict of equalities; see :mod:`topsign.index.filters`. The k best of those are found, exactly.
        with_metadata : bool
            Return the metadata of the entries found with them, as ``metadata`` of the result.
        rescore : array, memory map, callable or True, optional
            The original signals: True for those that the index keeps; or an array, in which row i is that of id i;
            or a callable, of which ``rescore(ids)`` returns one row per id, called once per query. The best
            ``k * rescore_factor`` entries by code are then ordered by their exact score, and
            scores and p-values are exact.
        recall : float in (0, 1), optional
            Visit only as many regions (:meth:`learn_regions`) as this expected recall needs, by calibration on the
            entries: of the exact neighbours if the index keeps originals, else of the search by code. All entries are
            visited if that is faster, or if the recall cannot be promised otherwise; ``exhaustive`` of the result says
            why. Without ``recall`` and ``probes`` a search is exhaustive and exact.
        probes : int, optional
            Visit this many regions instead.

        Notes
        -----
        P-values are those of one comparison with an independent impostor: see :func:`topsign.theory.match_pvalue`,
        which they follow within 2e-5 from 1,000 features on, and :func:`topsign.theory.correct_pvalues` for having
        searched many. They are nan for codes whose null distribution is unknown, until :meth:`calibrate` learns it.
        Raises ValueError, naming the row, for a zero query, which has no direction.
        """
        k, factor = check_count(k, "k"), check_count(rescore_factor, "rescore_factor")
        queries = self._checked(queries, "queries")
        check_choice(scoring, "scoring", SCORINGS)
        whole = self._entries()
        entries = whole.considered(among, where)
        originals = originals_for(rescore, whole, self.recipe, kept=self.originals)
        if adaptive_bits is None:
            self._learned().significance.observe(whole, queries, scoring, self.calibration)
        options: Any = {"scoring": scoring, "adaptive_bits": adaptive_bits, "n_threads": n_threads}
        regional = None
        if recall is not None or probes is not None:
            options["n_bytes"] = SMALL_QUERY_BYTES
            check_visits(recall, probes, whole_code=scoring == "asymmetric" and adaptive_bits is None, rescore=rescore)
            asked: Any = {"k": k, "recall": recall, "probes": probes, "engine": self.engine}
            regional = self._learned().regional.search(whole, entries, **asked)
        scans = self._scans(queries, nulls=self._nulls(), **options)
        found = find_nearest(
            scans, entries, queries, k, originals=originals, rescore_factor=factor, regional=regional
        ).finished(whole, with_metadata=with_metadata)
        by_signals = originals is not None or found.recall_of == "signals"
        weighed = scoring == "asymmetric" and not by_signals and self.metric == "correlation"
        return replace(found, evidence=self.evidence) if weighed else found

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
        n_threads: int | None = None,
    ) -> Matches:
        """Return every match of each query, in the index as it is at the call.

        Parameters
        ----------
        radius : float in [0, 1]
            With ``scoring="hamming"``: entries at this distance or nearer, a fraction of the signs.
        threshold : float
            With ``scoring="asymmetric"``: entries that score at least this.
        false_alarm : float in (0, 1)
            Entries significant at this level for the whole search: with N entries considered, those whose p-value
            is at most ``1 - (1 - false_alarm) ** (1 / N)``.
        force : bool
            Return the matches of ``false_alarm`` even if more than 1% of random pairs are among them, which
            otherwise raises: such a null does not fit the signals.
        queries, scoring, adaptive_bits, among, where, with_metadata
            As in :meth:`search`. Exactly one of radius, threshold and false_alarm must be given.
        """
        limit = RangeLimit.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        queries = self._checked(queries, "queries")
        whole = self._entries()
        entries = whole.considered(among, where)
        limit = limit.for_entries(len(entries))
        if limit.is_level and adaptive_bits is None:
            calibration, force = self.calibration, check_flag(force, "force")
            self._learned().significance.check_level(entries, queries, scoring, calibration, limit.value, force=force)
            if calibration is not None:
                self._learned().significance.observe(whole, queries, scoring, calibration)
        scans = self._scans(
            queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=n_threads, nulls=self._nulls()
        )
        blocks = [FoundBlock(block, entries.within(scan, limit), scan.light()) for block, scan in scans]
        return Matches.of_blocks(blocks, entries).finished(whole, with_metadata=with_metadata)

    def pairs(
        self,
        *,
        false_alarm: float | None = None,
        threshold: float | None = None,
        k: int | None = None,
        max_pairs: int | None = None,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Pairs:
        """Return pairs of entries that resemble each other, each once: near-duplicates, found by their codes.

        Parameters
        ----------
        false_alarm : float in (0, 1)
            Pairs significant at this level for the whole index: with P pairs of entries, those whose p-value is at
            most ``1 - (1 - false_alarm) ** (1 / P)``. Only for codes whose pairs have a known law (adaptive, sign).
        threshold : float in [-1, 1]
            Pairs whose score is at least this: the estimated correlation, or the cosine of two reconstructions.
        k : int
            Pairs in which one is among the k entries most like the other.
        max_pairs : int, optional
            Pairs to list at most, by default 10 million. If there are more, ValueError states their number;
            :meth:`groups` needs no list.
        progress : callable, optional
            Called with the number of entries compared with all others, and of all entries.
        """
        whole = self._entries()
        limit = PairLimit.checked(self.recipe, len(whole), false_alarm=false_alarm, threshold=threshold, k=k)
        return find_pairs(whole, limit, max_pairs=max_pairs, n_threads=n_threads, progress=progress)

    def groups(
        self,
        *,
        false_alarm: float | None = None,
        threshold: float | None = None,
        k: int | None = None,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> list[list[Any]]:
        """Return ids of entries that pairs connect, as lists of two or more, the largest first; see :meth:`pairs`.

        Pairs are not listed, so that an index of many equal or similar entries needs little memory.
        """
        whole = self._entries()
        limit = PairLimit.checked(self.recipe, len(whole), false_alarm=false_alarm, threshold=threshold, k=k)
        return find_groups(whole, limit, n_threads=n_threads, progress=progress)

    # Significance

    def calibrate(
        self,
        impostors: npt.ArrayLike | None = None,
        *,
        ids: npt.ArrayLike | None = None,
        false_alarm: float = 0.01,
        random_state: RandomState = 0,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Calibration:
        """Learn the null distribution of scores, which p-values, E-values and ``within(false_alarm=)`` then use.

        Every impostor is searched for, and the best scores of these searches are kept. A later search for an impostor
        is a false alarm if it beats an order statistic of them (split conformal prediction): its probability is at
        most the level asked for, whatever the distribution of the signals.

        Parameters
        ----------
        impostors : array of shape (n_signals, n_features), optional
            Signals known not to match any entry, like those that will be searched for. Without them, the index's own
            signals are searched for, each without its own entry; near-duplicates among them can only raise thresholds.
        ids : sequence of ids, optional
            If the signals given are entries of the index: the ids of those entries. A signal is not compared with
            itself.
        false_alarm : float in (0, 1)
            The smallest level that will be asked for without a model of the tail. It takes about ``1.5 / false_alarm``
            signals; smaller levels, down to a tenth of one over their number, rest on a generalised Pareto tail.
        progress : callable, optional
            Called with the number of signals searched for, and of all.

        ValueError if the level cannot be promised: too few signals, impostors that are entries of the index, or so
        many near-duplicates among the index's own signals that copies of entries would not be found.

        Notes
        -----
        The calibration is stored with the index. It holds for impostors like those given. If the index grows, levels
        are shared among all entries until it is calibrated again. Searches compare their queries, and random entries,
        with it, and warn once if they have drifted.
        """
        given = None if impostors is None else self._checked(impostors, "impostors")
        own = None if ids is None else self._internal_ids(ids)
        learned = self._learned().significance.learn(
            self._entries(),
            *choose_impostors(given, own, self._learned().own_signals()),
            false_alarm=false_alarm,
            random_state=random_state,
            n_threads=n_threads,
            progress=progress,
        )
        self._learned().keep_record(KEY, learned.to_json())
        return learned

    def calibrate_evidence(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike,
        impostors: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> LikelihoodRatioModel:
        """Learn likelihood ratios of scores from signals that match entries; stored with the index as :attr:`evidence`.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features)
            Signals known to match entries, a few dozen or more.
        ids : sequence of n_signals ids
            The entry that each of them matches.
        impostors : array of shape (n_impostors, n_features), optional
            Signals that match none of these entries. Without them, each signal is an impostor of the other entries.
        """
        known, chosen = self._checked(signals, "signals"), self._internal_ids(ids)
        if len(known) != len(chosen):
            raise ValueError(f"ids must be one per signal, got {len(chosen)} for {len(known)} signals")
        others = None if impostors is None else self._checked(impostors, "impostors")
        entries = self._entries().considered(np.unique(np.asarray(ids)), None)
        model = learn_evidence(self.recipe, entries, known, chosen, others, n_threads=n_threads)
        self._learned().keep_record(EVIDENCE, model.to_json())
        return model

    def check_null(self, queries: npt.ArrayLike | None = None, *, scoring: str = "asymmetric") -> NullCheck:
        """Compare a sample of random pairs with the null in use.

        Pairs are those of queries with entries. Without queries, those of signals added by this object, or else of
        entries with each other by their codes, which the null of isotropic signals is compared to.
        """
        whole, sample, own = self._entries(), self._learned().own_signals(), None
        if queries is not None:
            signals: Array = self._checked(queries, "queries")
        elif sample is not None:
            signals, own = sample
        else:
            return check_codes(self.recipe, whole)
        return check_pairs(self.recipe, whole, signals, scoring, self._nulls(), own)

    # Shared

    def _learned(self) -> LearnedIndex:
        """Return the state of an index that has its recipe; NotFittedError before."""
        return self._state if isinstance(self._state, LearnedIndex) else self._state.recipe

    def _internal_ids(self, ids: npt.ArrayLike) -> Int64:
        """Return the internal ids of entries; an unknown one raises."""
        snapshot = self.store.snapshot
        return snapshot.gather("ids", rows_of(snapshot, ids)).astype(np.int64)

    def _checked(self, signals: npt.ArrayLike, name: str) -> Array:
        """Return signals as rows, of the features of this index."""
        return as_signals(signals, n_features=self.recipe.n_features, name=name, feature_names=self.feature_names)

    def _nulls(self) -> dict[str, Null] | None:
        return None if self.calibration is None else self.calibration.for_scans()
