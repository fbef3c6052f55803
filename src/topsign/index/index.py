"""Index: the type that all indexes share, and ``open_index``."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Int64
from .._checks import MAX_ID, as_signals, check_count, check_flag, check_ids, check_metadata
from .._files import Record
from ..encoding import encode
from ..errors import StorageError
from ..projections import Projection
from ..recipe import Recipe
from .results import Codes, Entries, Matches, Neighbors, Note
from .search import Originals, Reach, Source, make_scans, rank_exactly
from .storage import MemoryStore, Snapshot, Store, make_segments
from .storage.stores import Path, check_equal, open_file, store_for_recipe


class Index(ABC, Generic[Codes]):
    """Entries known by their ids, and exact search over them. :class:`AdaptiveIndex` and :class:`SignIndex` are two.

    Searching methods read one snapshot from beginning to end and take no lock; ``add`` and ``remove`` take turns and
    put a new snapshot in its place. All methods are safe from any thread.
    """

    family: ClassVar[str]  # of the codes, see Recipe
    families: ClassVar[dict[str, type[Index[Any]]]] = {}

    recipe: Recipe  # what the codes are made with
    store: Store  # where the entries are kept; for the library's own modules

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Index.families[cls.family] = cls

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.recipe, self.store = recipe, store

    @classmethod
    def from_recipe(cls, recipe: Recipe, *, path: Path | None = None, timeout: float | None = None) -> Index[Any]:
        """An index without entries whose codes are made with this recipe, in a new file where a path is given."""
        if path is not None and os.path.lexists(path):
            raise StorageError(path, "file", "exists already; choose another name, or remove it first")
        store = store_for_recipe(recipe, path=path, timeout=timeout)
        if not isinstance(store, MemoryStore):
            check_equal(store, recipe)
        return _index_on(recipe, store)

    @property
    def path(self) -> str | None:
        """The file of a durable index, None in memory."""
        return self.store.path

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
    def ids(self) -> Int64:
        """Ids of the entries, ascending."""
        return self.store.snapshot.ids

    @property
    def sources(self) -> dict[str, Record]:
        """Records given to :meth:`add` as ``source``, by name."""
        return dict(self.store.sources)

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.store.snapshot)

    def __contains__(self, id: object) -> bool:
        """Whether an entry has this id."""
        try:
            wanted = operator.index(id)  # type: ignore[arg-type]
        except TypeError:
            return False
        return 0 <= wanted <= MAX_ID and bool(self.store.snapshot.locate(np.array([wanted]))[0] >= 0)

    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> Int64:
        """Adds signals, one entry each, and returns their ids.

        Searches see all of the new entries or none; threads and processes that add or remove take turns. In a durable
        index all of the entries are on disk when this returns, or none of them ever is.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features) or (n_features,)
            Read block by block, so that a memory map larger than memory is fine. A zero signal raises.
        ids : sequence of n_signals integers in [0, 2**63), optional
            Must differ from each other and from those in the index; those of removed entries are free again. Without
            them, the integers after the largest id ever used.
        metadata : sequence of n_signals dicts or None, optional
            JSON objects, one per signal; :meth:`get` returns them.
        rows : slice, optional
            Add only these rows of the signals; errors still name rows of the whole. ``ids`` and ``metadata`` are those
            of the rows added.
        source : (name, record), optional
            A name and a JSON record that :attr:`sources` keeps, stored in the same transaction as the entries: how
            far a file has been read, so that an interrupted job can resume without duplicates.

        Raises
        ------
        ValueError, TypeError
            Before anything is added.
        StorageError
            Where a durable index cannot be written or is damaged; nothing is added.
        """
        signals = as_signals(signals, n_features=self.n_features)
        first, end, _ = (rows or slice(None)).indices(len(signals))
        n_signals, threads = end - first, kernels.n_threads(n_threads)
        texts = check_metadata(metadata, n_signals)
        with self.store.change() as change:
            new = change.free_ids(n_signals) if ids is None else change.check_new(check_ids(ids), n_signals)
            for part in change.parts(n_signals):
                here = slice(first + part.start, first + part.stop)
                made = encode(self.recipe, signals, part=here, n_threads=threads)
                change.add(make_segments(new[part].copy(), made.codes, made.norms, made.scales, texts and texts[part]))
            change.next_id = max(change.next_id, int(new.max(initial=-1)) + 1)
            change.sources.update([source] if source else [])
        return new

    def remove(self, ids: npt.ArrayLike) -> None:
        """Removes entries; an unknown id raises before any is removed.

        Searches see all of the entries or none; threads and processes that add or remove take turns. In a durable
        index the entries are gone for good when this returns; :meth:`compact` frees their bytes.
        """
        wanted = check_ids(ids)
        with self.store.change() as change:
            change.snapshot = change.snapshot.remove(change.snapshot.places(wanted))

    def get(self, ids: npt.ArrayLike) -> Entries[Codes]:
        """Codes and metadata of these entries, in the order asked; an unknown id raises."""
        snapshot, wanted = self.store.snapshot, check_ids(ids)
        places = snapshot.places(wanted)
        return Entries(wanted, self._codes(snapshot, places), snapshot.notes(places))

    @abstractmethod
    def _codes(self, snapshot: Snapshot, places: Int64) -> Codes:
        """The codes of the entries at these places."""

    def search(
        self,
        queries: npt.ArrayLike,
        *,
        k: int = 10,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        among: npt.ArrayLike | None = None,
        rescore: Source | None = None,
        rescore_factor: int = 4,
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
        among : sequence of int, optional
            Consider only the entries with these ids.
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
        originals = None if rescore is None else Originals(rescore, n_features=self.n_features)
        snapshot = self._considered(among)
        found = Neighbors.empty(len(queries), k)
        for block, scan in make_scans(
            self.recipe, queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=n_threads
        ):
            if originals is None:
                hits = scan.nearest(snapshot, k)
            else:
                hits = rank_exactly(scan, snapshot, k * factor, originals, queries[block], k)
            hits.fill(found, block)
        return found

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
        queries, scoring, adaptive_bits, among
            As in :meth:`search`. Exactly one of radius, threshold and false_alarm must be given.
        """
        reach = Reach.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        snapshot = self._considered(among)
        reach = reach.for_entries(len(snapshot))
        scans = make_scans(self.recipe, queries, scoring=scoring, adaptive_bits=adaptive_bits, n_threads=n_threads)
        return Matches.concatenate(
            scan.within(snapshot, reach).matches(block.stop - block.start) for block, scan in scans
        )

    def _considered(self, among: npt.ArrayLike | None) -> Snapshot:
        snapshot = self.store.snapshot
        return snapshot if among is None else snapshot.among(snapshot.places(check_ids(among, "among"), "among"))

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
    return _index_on(store.recipe, store)


def _index_on(recipe: Recipe, store: Store) -> Index[Any]:
    """The index of the recipe's family on this store."""
    index: Index[Any] = object.__new__(Index.families[recipe.family])
    Index.__init__(index, recipe, store)
    return index
