"""Index: the type that all indexes share, and ``open_index``."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .._checks import as_signals, check_choice, check_count, check_flag
from .._files import Record
from ..errors import StorageError
from ..projections import Projection
from ..recipe import Recipe
from ..theory import SCORINGS
from .centering import Centering
from .entries import EntryVerbs, Ids
from .filters import Where, select
from .nulls import KEY, Nulls
from .pairs import PairFinding
from .results import Codes, Matches, Neighbors
from .search import Engine, KernelEngine, Originals, Reach, Source, make_scans, rank_exactly
from .storage import MemoryStore, Snapshot, Store, make_segments, merge_segments
from .storage.stores import Path, check_equal, open_file, store_for_recipe

Found = TypeVar("Found", Neighbors, Matches)


class Index(Nulls, Centering, EntryVerbs[Codes], PairFinding):
    """Entries known by their ids, and exact search over them. :class:`AdaptiveIndex` and :class:`SignIndex` are two.

    Searching methods read one snapshot from beginning to end and take no lock; ``add`` and ``remove`` take turns and
    put a new snapshot in its place. All methods are safe from any thread.
    """

    family: ClassVar[str]  # of the codes, see Recipe
    families: ClassVar[dict[str, type[Index[Any]]]] = {}

    engine: Engine = KernelEngine()  # what finds the entries

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Index.families[cls.family] = cls

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.recipe, self.store = recipe, store
        self._learning = threading.Lock()

    def _write(self, signals: npt.ArrayLike, *, rows: slice | None, **options: Any) -> Ids:
        values = as_signals(signals, n_features=self.n_features)
        first, end, _ = (rows or slice(None)).indices(len(values))
        if self._unlearned is not None and end > first:
            self._learn_mean(values, slice(first, end))
        new = super()._write(values, rows=rows, **options)
        with self._learning:
            self._offer_sample(new, values, first)
        return new

    @classmethod
    def from_recipe(cls, recipe: Recipe, *, path: Path | None = None, timeout: float | None = None) -> Index[Any]:
        """An index without entries whose codes are made with this recipe, in a new file where a path is given."""
        if path is not None and os.path.lexists(path):
            raise StorageError(path, "file", "exists already; choose another name, or remove it first")
        store = store_for_recipe(recipe, path=path, timeout=timeout)
        if not isinstance(store, MemoryStore):
            check_equal(store, recipe)
        return index_on(recipe, store)

    @property
    def path(self) -> str | None:
        """The file of a durable index, None in memory."""
        return self._waiting_path() or self.store.path

    @property
    def header(self) -> Record:
        """Header of the file of a durable index: its format, the library's version, and the recipe; else the recipe."""
        return dict(getattr(self.store, "header", None) or self.recipe.to_json())

    @property
    def seed(self) -> int:
        """Seed of the projection."""
        return self.recipe.seed

    @property
    def projection(self) -> Projection:
        """The random operator that all signals go through."""
        return self.recipe.projection

    @property
    def metric(self) -> str:
        """What scores estimate: "correlation" or "inner_product"."""
        return self.recipe.metric

    @property
    def norms(self) -> bool:
        """Whether norms and scales are kept."""
        return self.recipe.norms

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.recipe.n_features

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.recipe.n_pool

    @property
    def n_bits(self) -> int:
        """Signs kept for each entry."""
        return self.recipe.layout.n_bits

    @property
    def n_segments(self) -> int:
        """Segments that the entries are kept in."""
        return len(self.store.snapshot.segments)

    @property
    def n_removed(self) -> int:
        """Removed entries whose bytes :meth:`compact` would free."""
        snapshot = self.store.snapshot
        return sum(map(len, snapshot.segments)) - len(snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes of codes and ids, of norms and scales where they are kept, and of metadata."""
        return sum(segment.nbytes for segment in self.store.snapshot.segments)

    @property
    def sources(self) -> dict[str, Record]:
        """Records given to :meth:`add` as ``source``, by name."""
        return {name: record for name, record in self.store.sources.items() if name != KEY}

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
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        whole = self.store.snapshot
        snapshot = self._considered(whole, among, where)
        originals = None if rescore is None else self._originals(rescore, whole)
        found = Neighbors.empty(len(queries), k, len(snapshot))
        law = self._significance()
        if adaptive_bits is None:
            self._warn_once(snapshot, queries, check_choice(scoring, "scoring", SCORINGS))
        for block, scan in make_scans(
            self.recipe,
            queries,
            scoring=scoring,
            adaptive_bits=adaptive_bits,
            n_threads=n_threads,
            significance=law,
            engine=self.engine,
        ):
            if originals is None:
                hits = scan.nearest(snapshot, k)
            else:
                hits = rank_exactly(scan, snapshot, k * factor, originals, queries[block], k)
            hits.fill(found, block)
        return self._finished(found, whole, with_metadata)

    def _originals(self, rescore: Source, snapshot: Snapshot) -> Originals:
        """Original signals by the ids that the user gave."""
        if snapshot.has_names:
            if not callable(rescore):
                raise TypeError("rescore must be a callable that takes ids, since those of this index are texts")
            fetch: Any = rescore
            rescore = lambda numbers: fetch(self._user_ids(snapshot, numbers))  # noqa: E731
        return Originals(rescore, n_features=self.n_features, mean=self.recipe.mean)

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
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        whole = self.store.snapshot
        snapshot = self._considered(whole, among, where)
        reach = reach.for_entries(len(snapshot))
        law = self._significance()
        if reach.is_level and adaptive_bits is None:
            self._check_level(snapshot, queries, scoring, reach.limit, force=check_flag(force, "force"))
        scans = make_scans(
            self.recipe,
            queries,
            scoring=scoring,
            adaptive_bits=adaptive_bits,
            n_threads=n_threads,
            significance=law,
            engine=self.engine,
        )
        parts = (scan.within(snapshot, reach).matches(block.stop - block.start) for block, scan in scans)
        return self._finished(Matches.concatenate(parts, len(snapshot)), whole, with_metadata)

    def _considered(self, whole: Snapshot, among: npt.ArrayLike | None, where: Where | None) -> Snapshot:
        """The entries that a search compares: those of ``among`` that fulfil ``where``."""
        if among is None and where is None:
            return whole
        chosen = [] if among is None else [whole.mask(self._places(whole, among, "among"))]
        chosen += [] if where is None else [select(whole, where)]
        return whole.where(np.logical_and.reduce(chosen))

    def _finished(self, found: Found, snapshot: Snapshot, with_metadata: bool) -> Found:
        """What was found with the ids that the user gave, and metadata where it was asked for."""
        notes = None
        if check_flag(with_metadata, "with_metadata"):
            notes = np.full(found.ids.shape, None, object)
            known = found.ids >= 0
            for at, note in zip(np.argwhere(known), snapshot.notes(snapshot.locate(found.ids[known])), strict=True):
                notes[tuple(at)] = note
        if notes is None and not snapshot.has_names:
            return found
        return replace(found, ids=self._user_ids(snapshot, found.ids), metadata=notes)

    def to(self, device: str, *, memory: int | None = None) -> Any:
        """A searcher of this index with its codes on a CUDA device, "cuda" or "cuda:1": the same answers, faster.

        A :class:`topsign.gpu.GpuIndex`. It searches the entries of now, until its own ``refresh``. At most ``memory``
        bytes stay on the device, by default nine tenths of what is free there; the rest is copied at every search.
        """
        gpu = import_module("topsign.gpu")  # a room above this one, which needs packages of its own
        return gpu.GpuIndex(self, device=device, memory=memory)

    def compact(self) -> None:
        """Frees the bytes of removed entries, and joins small segments, while searches go on.

        A durable index is rewritten part by part in its own file, in transactions that each keep every entry. The file
        does not become shorter: its free pages are used by later additions, once no process reads an older state.
        """
        with self.store.change() as change:
            change.compact()

    def refresh(self) -> bool:
        """Looks for changes by other processes; returns whether there were any.

        A search sees the state at the opening, at the last change by this index, or at its last refresh.
        """
        return self.store.refresh()

    def verify(self) -> None:
        """Reads all of a durable index again: every checksum, every id. Raises StorageError naming what is damaged."""
        self.store.verify()

    def close(self) -> None:
        """Releases the file of a durable index, or the entries in memory; not needed before exit."""
        self.store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """An index in memory pickles with its entries; a durable one as its path, and opens again."""
        if self.store.path is not None:
            return _reopened, (self.store.path, getattr(self.store, "readonly", False))
        segments = [merge_segments([segment]).columns for segment in self.store.snapshot.segments]
        columns = [
            {name: getattr(one, name) for name in ("ids", "codes", "norms", "scales")}
            | {"texts": one.metadata and one.metadata.texts(range(len(one)))}
            | {"names": one.names and one.names.names(range(len(one)))}
            for one in segments
        ]
        return _remade, (self.recipe.to_json(), columns, self.store.next_id, dict(self.store.sources))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(path: Path, *, readonly: bool = False, timeout: float | None = None) -> Index[Any]:
    """Opens the index in a file, as the kind and with the parameters that it was made with.

    Parameters
    ----------
    path : path
    readonly : bool
        Refuse changes; the file and its folder may then be read-only too.
    timeout : float, optional
        Seconds that a change waits for another writer of the file, then TimeoutError; None waits as long as it takes.

    Raises
    ------
    StorageError
        Where there is no index, a damaged one, or one that this version of the library cannot read.
    """
    store = open_file(path, readonly=check_flag(readonly, "readonly"), timeout=timeout)
    return index_on(store.recipe, store)


def index_on(recipe: Recipe, store: Store) -> Index[Any]:
    """The index of the recipe's family on this store."""
    index: Index[Any] = object.__new__(Index.families[recipe.family])
    Index.__init__(index, recipe, store)
    return index


def _reopened(path: str, readonly: bool) -> Any:
    return open_index(path, readonly=readonly)


def _remade(record: Record, columns: list[dict[str, Any]], next_id: int, sources: dict[str, Record]) -> Any:
    index = Index.from_recipe(Recipe.from_json(record, "pickled index"))
    with index.store.change() as change:
        for one in columns:
            reals = one["norms"], one["scales"]
            change.add(make_segments(one["ids"], one["codes"], *reals, one["texts"], one["names"]))
        change.next_id = next_id
        change.sources.update(sources)
    return index
