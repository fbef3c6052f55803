"""Searching: the verbs ``search`` and ``within``, the same for entries in this process and on a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Int64
from .._checks import check_choice, check_count, check_flag
from .._named import named
from ..theory import SCORINGS
from .filters import Where
from .nulls import Nulls
from .results import Matches, Neighbors, Note
from .search import Hits, LearnedSignificance, Originals, Population, Reach, Scan, Source, rank_exactly

Entries = TypeVar("Entries", bound=Population)
Found = TypeVar("Found", Neighbors, Matches)


class Searching(Nulls, Generic[Entries]):
    """Methods of an index that find entries. Where these are, and who compares them, subclasses say."""

    @abstractmethod
    def _whole(self) -> Entries:
        """All entries of this moment."""

    @abstractmethod
    def _considered(self, whole: Entries, among: npt.ArrayLike | None, where: Where | None) -> Entries:
        """The entries that a search compares: those of ``among`` that fulfil ``where``."""

    @abstractmethod
    def _scans(
        self,
        queries: Array,
        *,
        scoring: str,
        adaptive_bits: int | None,
        n_threads: int | None,
        significance: LearnedSignificance | None,
    ) -> Iterator[tuple[slice, Scan]]:
        """Blocks of prepared queries, each with its scan."""

    @abstractmethod
    def _nearest(self, entries: Entries, scan: Scan, k: int) -> Hits:
        """The k best entries of each query, measured."""

    @abstractmethod
    def _within(self, entries: Entries, scan: Scan, reach: Reach) -> Hits:
        """Every entry that is close enough, measured."""

    @abstractmethod
    def _user_ids(self, whole: Entries, numbers: Int64) -> Any:
        """Numbers of entries as the ids that the user gave; -1 becomes None beside texts."""

    @abstractmethod
    def _notes(self, whole: Entries, numbers: Int64) -> list[Note]:
        """Metadata of the entries with these numbers."""

    @named
    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        where: Where | None = None,
        rescore: Source | None = None,
        rescore_factor: int = 4,
        with_metadata: bool = False,
        n_threads: int | None = None,
    ) -> Neighbors:
        """The k nearest entries of each query, in the index as it is at the call.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features) or (n_features,)
        k : int
            Where fewer entries are considered, ids of -1 and nan fill the rest.
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
            Consider only entries whose metadata fulfil this condition, ``"year >= 2020 and lang in ('en', 'it')"`` or
            a dict of equalities; see :mod:`topsign.index.filters`. The k best of those are found, exactly.
        with_metadata : bool
            Give the metadata of the entries found with them, as ``metadata`` of the result.
        rescore : array, memory map or callable, optional
            The original signals: row i is that of id i, or ``rescore(ids)`` returns one row per id, called once per
            query. The best ``k * rescore_factor`` entries by code are then ordered by their exact score, and
            scores and p-values are exact.

        Notes
        -----
        P-values are those of one comparison with an independent impostor: see :func:`topsign.theory.match_pvalue`,
        which they follow within 2e-5 from 1,000 features on, and :func:`topsign.theory.correct_pvalues` for having
        searched many. A zero query is related to nothing: it scores 0 with a p-value of 1.
        """
        k, factor = check_count(k, "k"), check_count(rescore_factor, "rescore_factor")
        queries = self._checked(queries, "queries")
        check_choice(scoring, "scoring", SCORINGS)
        whole = self._whole()
        entries = self._considered(whole, among, where)
        originals = None if rescore is None else self._originals(rescore, whole)
        found = Neighbors.empty(len(queries), k, len(entries))
        if adaptive_bits is None:
            self._warn_once(entries, queries, scoring, n_entries=len(whole))
        for block, scan in self._scans(
            queries,
            scoring=scoring,
            adaptive_bits=adaptive_bits,
            n_threads=n_threads,
            significance=self._significance(),
        ):
            if originals is None:
                hits = self._nearest(entries, scan, k)
            else:
                hits = rank_exactly(scan, self._nearest(entries, scan, k * factor), originals, queries[block], k)
            hits.fill(found, block)
        return self._finished(found, whole, with_metadata)

    @named
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
        """Every match of each query, in the index as it is at the call.

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
            Return the matches of ``false_alarm`` even where more than 1% of random pairs are among them, which
            otherwise raises: such a null does not fit the signals.
        queries, scoring, adaptive_bits, among, where, with_metadata
            As in :meth:`search`. Exactly one of radius, threshold and false_alarm must be given.
        """
        reach = Reach.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        queries = self._checked(queries, "queries")
        whole = self._whole()
        entries = self._considered(whole, among, where)
        reach = reach.for_entries(len(entries))
        if reach.is_level and adaptive_bits is None:
            self._check_level(entries, queries, scoring, reach.limit, force=check_flag(force, "force"))
        scans = self._scans(
            queries,
            scoring=scoring,
            adaptive_bits=adaptive_bits,
            n_threads=n_threads,
            significance=self._significance(),
        )
        parts = (self._within(entries, scan, reach).matches(block.stop - block.start) for block, scan in scans)
        return self._finished(Matches.concatenate(parts, len(entries)), whole, with_metadata)

    def _originals(self, rescore: Source, whole: Entries) -> Originals:
        """Original signals by the ids that the user gave."""
        if whole.has_names:
            if not callable(rescore):
                raise TypeError("rescore must be a callable that takes ids, since those of this index are texts")
            fetch: Any = rescore
            rescore = lambda numbers: fetch(self._user_ids(whole, numbers))  # noqa: E731
        mean = (
            None if self.recipe.family == "trellis" else self.recipe.mean
        )  # trellis codes compare signals as they are
        return Originals(rescore, n_features=self.recipe.n_features, mean=mean)

    def _finished(self, found: Found, whole: Entries, with_metadata: bool) -> Found:
        """What was found with the ids that the user gave, and metadata where it was asked for."""
        notes = None
        if check_flag(with_metadata, "with_metadata"):
            notes = np.full(found.ids.shape, None, object)
            known = found.ids >= 0
            for at, note in zip(np.argwhere(known), self._notes(whole, found.ids[known]), strict=True):
                notes[tuple(at)] = note
        if notes is None and not whole.has_names:
            return found
        return replace(found, ids=self._user_ids(whole, found.ids), metadata=notes)
