"""BaseIndex: the verbs of an index, the same for entries on this machine and on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Int64
from .._checks import as_signals, check_choice, check_count, check_flag
from .._files import Record
from .._random import RandomState
from ..families import SCORINGS, Null, Recipe
from ..search import (
    Calibration,
    KeptOriginals,
    Originals,
    PairLimit,
    Progress,
    RangeLimit,
    RegionSearch,
    Scan,
    Source,
    Visited,
    rank_exactly,
)
from ..signals import from_table
from ..store import Note
from ..theory import LikelihoodRatioModel
from .entries import Entries, Entry
from .entry_set import EntrySet
from .evidence import KEY as EVIDENCE
from .evidence import learn_evidence
from .filters import Where
from .ids import Ids
from .null_check import NullCheck, check_codes, check_pairs
from .pairing import find_groups, find_pairs
from .regional import check_visits
from .results import FoundBlock, Matches, Neighbors, Pairs
from .significance import KEY, Significance

Found = TypeVar("Found", Neighbors, Matches)


class BaseIndex(ABC):
    """Entries known by their ids, and exact search over them. Subclasses know where the entries are."""

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """Everything that codes are made with."""

    @property
    @abstractmethod
    def significance(self) -> Significance:
        """Calibration and checks of the null in use."""

    @property
    @abstractmethod
    def calibration(self) -> Calibration | None:
        """Nulls that :meth:`calibrate` learned, None while p-values are those of isotropic signals."""

    @property
    @abstractmethod
    def evidence(self) -> LikelihoodRatioModel | None:
        """Likelihood ratios of scores that :meth:`calibrate_evidence` learned, None without them."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the first table that was added has a column for each; None for other signals.

        Tables that are added or searched later must have the same columns in the same order, else they are refused.
        """
        return None

    @property
    def originals(self) -> str | None:
        """Type in which the signals themselves are kept: "float32", "float16", "int8" or None."""
        return None

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features

    @property
    def metric(self) -> str:
        """What scores estimate: "correlation" or "inner_product"."""
        return self.recipe.metric

    # What subclasses know

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """Ids of the entries: ascending integers, or texts in the order in which they were added."""

    @abstractmethod
    def __contains__(self, id: object) -> bool:
        """Return whether an entry has this id."""

    @abstractmethod
    def get(self, ids: npt.ArrayLike) -> Entries:
        """Return codes and metadata of these entries, or of this one, in the order asked; an unknown id raises."""

    @abstractmethod
    def _write(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        n_threads: int | None,
        device: str | None,
        replacing: bool,
    ) -> Ids:
        """Add signals; entries with the same ids are replaced, or refused."""

    @abstractmethod
    def _entries(self) -> EntrySet:
        """Return all entries of this moment."""

    @abstractmethod
    def _scans(self, queries: Array, **options: Any) -> Iterator[tuple[slice, Scan]]:
        """Yield blocks of prepared queries, each with its scan."""

    @abstractmethod
    def _keep_source(self, name: str, record: Record) -> None:
        """Store a record with the index."""

    def _own_signals(self) -> tuple[Array, Int64] | None:
        """Return signals that this object has added, and their internal ids, -1 for removed ones; None if none."""
        return None

    def _internal_ids(self, ids: npt.ArrayLike) -> Int64:
        """Return the internal ids of entries; an unknown one raises."""
        raise ValueError("ids= goes with an index of one machine; give impostors that are no entries")

    # Entries

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

    def upsert(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        device: str | None = None,
    ) -> Ids:
        """Add signals, and replace the entries whose ids are in the index already, all in one transaction.

        Entries that are replaced lose their metadata unless some is given. Parameters are those of :meth:`add`.
        """
        return self._write(signals, ids=ids, metadata=metadata, n_threads=n_threads, device=device, replacing=True)

    def add_table(
        self,
        table: Any,
        *,
        vector_column: str | None = None,
        id_column: str | None = None,
        metadata_columns: Sequence[str] = (),
        upsert: bool = False,
        n_threads: int | None = None,
        device: str | None = None,
    ) -> Ids:
        """Add the rows of a pandas or Polars frame or an Arrow table; with ``upsert`` replace those of known ids.

        Parameters
        ----------
        vector_column : str, optional
            The column of lists that holds the vectors; by default the only one. Without any, all numeric columns
            that are neither ids nor metadata are the features; later tables must have the same, in the same order.
        id_column : str, optional
            The column of ids, texts or integers.
        metadata_columns : sequence of str
            Columns that become the metadata of each entry.
        """
        found = from_table(table, vector_column=vector_column, id_column=id_column, metadata_columns=metadata_columns)
        if upsert and found.ids is None:
            raise ValueError("upsert needs id_column: entries are replaced by their ids")
        return self._write(
            found.signals,
            ids=found.ids,
            metadata=found.metadata,
            n_threads=n_threads,
            device=device,
            replacing=upsert,
        )

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
            ``asymmetric`` keeps the query's real projections and orders by the estimated score, a float32.
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
        originals = None if rescore is None or rescore is False else self._originals(rescore, whole)
        if adaptive_bits is None:
            self.significance.observe(whole, queries, scoring, self.calibration)
        scans = self._scans(
            queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=n_threads, nulls=self._nulls()
        )
        regional = None
        if recall is not None or probes is not None:
            check_visits(recall, probes, whole_code=scoring == "asymmetric" and adaptive_bits is None, rescore=rescore)
            regional = self._region_search(whole, entries, k=k, recall=recall, probes=probes)
        blocks, visited = [], []
        for block, scan in scans:
            if regional is not None:
                hits, said = regional.find(scan, queries[block])
                visited.append(said)
            elif originals is None:
                hits = entries.nearest(scan, k)
            else:
                hits = rank_exactly(scan, entries.nearest(scan, k * factor), originals, queries[block], k)
            blocks.append(FoundBlock(block, hits, scan.light()))
        found = Neighbors.of_blocks(blocks, entries, len(queries), k)
        if regional is not None:
            found = found.with_visited(Visited.joined(visited), regional.recall_of)
        by_signals = originals is not None or (regional is not None and regional.recall_of == "signals")
        found = self._finished(found, whole, with_metadata)
        weighed = scoring == "asymmetric" and not by_signals and self.metric == "correlation"
        return replace(found, evidence=self.evidence) if weighed else found

    def _region_search(
        self, whole: Any, entries: Any, *, k: int, recall: float | None, probes: int | None
    ) -> RegionSearch:
        """Return the search that visits regions of these entries."""
        raise ValueError("recall and probes go with an index of one machine, not with a cluster")

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
            self.significance.check_level(entries, queries, scoring, calibration, limit.value, force=force)
            if calibration is not None:
                self.significance.observe(whole, queries, scoring, calibration)
        scans = self._scans(
            queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=n_threads, nulls=self._nulls()
        )
        blocks = [FoundBlock(block, entries.within(scan, limit), scan.light()) for block, scan in scans]
        return self._finished(Matches.of_blocks(blocks, entries), whole, with_metadata)

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

        Raises
        ------
        ValueError
            If the level cannot be promised: too few signals, impostors that are entries of the index, or so many
            near-duplicates among the index's own signals that copies of entries would not be found.

        Notes
        -----
        The calibration is stored with the index. It holds for impostors like those given. If the index grows, levels
        are shared among all entries until it is calibrated again. Searches compare their queries, and random entries,
        with it, and warn once if they have drifted.
        """
        whole, sample, own = self._entries(), self._own_signals(), None
        if impostors is not None:
            queries: Array = self._checked(impostors, "impostors")
            own = None if ids is None else self._internal_ids(ids)
            if own is not None and len(own) != len(queries):
                raise ValueError(f"ids must be one per signal, got {len(own)} for {len(queries)} signals")
        elif ids is not None:
            raise ValueError("ids are those of signals of entries; give these signals too")
        elif sample is None:
            raise ValueError(
                "this index keeps no sample of its signals to calibrate with; give impostors=, signals that match no "
                "entry, or signals of some entries with their ids="
            )
        else:
            queries, own = sample
        learned = self.significance.learn(
            whole,
            queries,
            own,
            false_alarm=false_alarm,
            random_state=random_state,
            n_threads=n_threads,
            progress=progress,
        )
        self._keep_source(KEY, learned.to_json())
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
        self._keep_source(EVIDENCE, model.to_json())
        return model

    def check_null(self, queries: npt.ArrayLike | None = None, *, scoring: str = "asymmetric") -> NullCheck:
        """Compare a sample of random pairs with the null in use.

        Pairs are those of queries with entries. Without queries, those of signals added by this object, or else of
        entries with each other by their codes, which the null of isotropic signals is compared to.
        """
        whole, sample, own = self._entries(), self._own_signals(), None
        if queries is not None:
            signals: Array = self._checked(queries, "queries")
        elif sample is not None:
            signals, own = sample
        else:
            return check_codes(self.recipe, whole)
        return check_pairs(self.recipe, whole, signals, scoring, self._nulls(), own)

    # Shared

    def _checked(self, signals: npt.ArrayLike, name: str) -> Array:
        """Return signals as rows, of the features of this index."""
        return as_signals(signals, n_features=self.recipe.n_features, name=name, feature_names=self.feature_names)

    def _nulls(self) -> dict[str, Null] | None:
        return None if self.calibration is None else self.calibration.for_scans()

    def _originals(self, rescore: Source | bool, whole: EntrySet) -> Originals | KeptOriginals:
        """Return original signals by the ids that the user gave, or those that the index keeps."""
        if rescore is True:
            if self.originals is None:
                raise ValueError(
                    "rescore=True needs signals that the index keeps; make it with originals=, or give the signals"
                )
            return whole.originals()
        if whole.has_names:
            if not callable(rescore):
                raise TypeError("rescore must be a callable that takes ids, since those of this index are texts")
            fetch: Any = rescore
            rescore = lambda ids: fetch(whole.user_ids(ids))  # noqa: E731
        return Originals(rescore, n_features=self.recipe.n_features, mean=self.recipe.center)

    def _finished(self, found: Found, whole: EntrySet, with_metadata: bool) -> Found:
        """Return what was found with the ids that the user gave, and metadata if it was asked for."""
        notes = None
        if check_flag(with_metadata, "with_metadata"):
            notes = np.full(found.ids.shape, None, object)
            known = found.ids >= 0
            for at, note in zip(np.argwhere(known), whole.notes(found.ids[known]), strict=True):
                notes[tuple(at)] = note
        if notes is None and not whole.has_names:
            return found
        return replace(found, ids=whole.user_ids(found.ids), metadata=notes)
