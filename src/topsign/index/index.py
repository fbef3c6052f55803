"""Index: entries in memory or in a folder, composed of a recipe, a store and an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32, Int64
from .._checks import as_signals, check_choice, check_metadata, names_of_columns
from .._extensions import load_extension
from .._files import Record
from ..families import Recipe
from ..projections import Projected
from ..search import ENGINE, Calibration, Engine, Progress, Scan, make_scans, own_signals, pruned
from ..store import Change, Note, Path, Store, check_absent, save_store, store_for_recipe
from ..theory import LikelihoodRatioModel
from .addition import Addition
from .deferred import DeferredIndex
from .devices import coder_for
from .entries import Entries
from .entry_set import EntrySet, LocalEntries
from .evidence import KEY as EVIDENCE
from .ids import Ids, rows_of
from .learned import LearnedIndex
from .pickling import restored, state_of
from .recall_index import RecallIndex
from .reencoding import CONSTRUCTORS, copy_entries, sample_of
from .regional import Regional
from .significance import KEY, Significance
from .sources import OWN, keep_feature_names, kept_feature_names

RECENT = 1000  # entries that :meth:`Index.drift` looks at


class Index(RecallIndex):
    """Entries known by their ids, and exact search over them: a recipe, a store and an engine.

    :class:`AdaptiveIndex`, :class:`SignIndex` and :class:`TrellisIndex` construct one, :func:`open_index` opens one.
    Searching methods read one snapshot from beginning to end and take no lock; ``add`` and ``remove`` take turns and
    put a new snapshot in its place. All methods are safe from any thread.
    """

    def __init__(self, recipe: Recipe, store: Store, *, engine: Engine = ENGINE) -> None:
        self._take(LearnedIndex(recipe, store), engine)

    def _start(self, recipe_type: type[Recipe], parameters: dict[str, Any], **place: Any) -> None:
        """Construct the index that parameters ask for: an existing one, a new one, or one that learns later.

        ``place`` are path, timeout and originals.
        """
        deferred = DeferredIndex.checked(recipe_type, parameters, **place)
        opened = deferred.open()
        self._take(deferred if opened is None else LearnedIndex(*opened), ENGINE)

    def _take(self, state: LearnedIndex | DeferredIndex, engine: Engine) -> None:
        """Begin in a state: with a recipe, or with the parameters of one that is learned from the first signals."""
        self._state, self.engine, self._learning = state, engine, threading.Lock()
        self._known: dict[str, tuple[Record | None, Any]] = {}  # records that were read, and what they say

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
    def significance(self) -> Significance:
        return self._state.significance

    @property
    def _regional(self) -> Regional:
        return self._state.regional

    def learner(self) -> DeferredIndex:
        """Return the state of an index that has not learned; for the library's own modules."""
        assert self._deferred is not None
        return self._deferred

    @property
    def _deferred(self) -> DeferredIndex | None:
        return self._state if isinstance(self._state, DeferredIndex) else None

    @property
    def is_fitted(self) -> bool:
        """Whether the recipe is known, so that entries can be searched."""
        return self._deferred is None

    @property
    def family(self) -> str:
        """Family of the codes: "adaptive", "sign", "trellis" or one of your own."""
        return self._state.family

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self._state.n_features

    @property
    def path(self) -> str | None:
        """The folder of a durable index, None in memory."""
        return self._state.path

    @property
    def header(self) -> Record:
        """Format and version of the library that wrote a durable index, and the recipe; in memory the recipe."""
        return self.store.header or self.recipe.to_json()

    @property
    def norms(self) -> bool:
        """Whether norms of signals are kept."""
        return self._state.norms

    @property
    def metric(self) -> str:
        return self._state.metric

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
        """Bytes of codes, ids, columns, regions and metadata: what searches by code read."""
        return sum(segment.nbytes for segment in self.store.snapshot.segments)

    @property
    def originals(self) -> str | None:
        return self.store.originals if self._deferred is None else self._deferred.originals

    @property
    def originals_nbytes(self) -> int:
        """Bytes of the kept signals: in files that are mapped and read only for candidates, or in memory."""
        return sum(segment.columns.originals_nbytes for segment in self.store.snapshot.segments)

    @property
    def sources(self) -> dict[str, Record]:
        """Records given to :meth:`add` as ``source``, by name."""
        return {name: record for name, record in self.store.sources.items() if not name.startswith(OWN)}

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return kept_feature_names(self.store.sources, self.n_features, self.path)

    # Learning

    def fit(self, sample: npt.ArrayLike) -> Self:
        """Learn the recipe from signals like those to come; once.

        Raises
        ------
        ValueError
            If the recipe is known already, because codes of two recipes cannot be compared; or if the sample is too
            small.
        """
        values = as_signals(sample, n_features=self.n_features, name="sample")
        names = names_of_columns(sample)
        with self._learning:
            if self._deferred is None:
                raise ValueError("this index has its recipe already; make another index to learn from other signals")
            learned = LearnedIndex(*self._deferred.fit(values))
            if names is not None:
                learned.store.apply(lambda change: keep_feature_names(change, names))
            self._state = learned
        return self

    def drift(self) -> float:
        """Return the energy of recent codes relative to codes of signals like the sample: 1 if the basis fits.

        Of the last 1,000 entries; below 0.9 learning again would pay. nan without entries, and for codes that learn
        nothing.
        """
        snapshot = self.store.snapshot
        rows = snapshot.last(RECENT)
        found = self.recipe.energy_ratio(snapshot.gather("codes", rows)) if rows.size else None
        return float("nan") if found is None else found

    # Entries

    @property
    def ids(self) -> Ids:
        return self._entries().ids if self.is_fitted else np.empty(0, np.int64)

    @property
    def has_text_ids(self) -> bool:
        """Whether the ids of the entries are texts."""
        return bool(self.store.snapshot.has_names)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.store.snapshot)

    def __contains__(self, id: object) -> bool:
        return self.is_fitted and id in self._entries()

    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> Ids:
        """Add signals, one entry each, and return their ids.

        Searches see all of the new entries or none; threads and processes that add or remove take turns. In a durable
        index all of the entries are on disk when this returns, or none of them ever is.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features) or (n_features,)
            Read block by block, so that a memory map larger than memory is fine. A zero signal raises. A SciPy sparse
            matrix is taken too, and made dense a block at a time.
        ids : sequence of n_signals integers in [0, 2**63), or of texts, optional
            Must differ from each other and from those in the index; those of removed entries are free again. Without
            them, the integers after the largest id ever used. Texts are of 1 to 512 bytes in UTF-8; an index has
            integers or texts, never both.
        metadata : sequence of n_signals dicts or None, optional
            JSON objects, one per signal; :meth:`get` returns them.
        device : str, optional
            Make the codes on this CUDA device, "cuda" or "cuda:1": the same bytes.
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
            If a durable index cannot be written or is damaged; nothing is added.
        """
        given = {"ids": ids, "metadata": metadata, "n_threads": n_threads, "rows": rows, "source": source}
        return self._write(signals, device=device, replacing=False, **given)

    def _write(self, signals: npt.ArrayLike, *, device: str | None, **options: Any) -> Ids:
        deferred, made = self._deferred, None
        coder = coder_for(device, self.recipe if deferred is None else deferred.recipe_type)
        known: dict[str, Any] = {"n_features": self.n_features, "feature_names": self.feature_names, "coder": coder}
        addition = Addition.checked(signals, **known, **options)
        if deferred is not None:
            if not len(addition):
                if addition.source is not None:
                    raise ValueError("a source without signals cannot be kept before the first signals; add some first")
                return np.empty(0, np.int64)
            with self._learning:
                if self._deferred is not None:  # no other thread was first
                    recipe, store, made = self._deferred.learn_first(addition)
                    self._state = LearnedIndex(recipe, store)

        def write(change: Change) -> Ids:
            assigned = self._regional.assigned(change.tables, self.path)
            return addition.write(change, self.recipe, made, originals=self.originals, assigned=assigned)

        new = self.store.apply(write)
        return new

    def update_metadata(self, ids: npt.ArrayLike, metadata: Iterable[Note]) -> None:
        """Replace the metadata of entries, in one transaction; None takes it away. An unknown id raises before any."""
        notes = list(metadata)

        def update(change: Change) -> None:
            rows = rows_of(change.snapshot, ids)
            texts = check_metadata(notes, len(rows)) or [b""] * len(rows)
            if len(np.unique(rows)) != len(rows):
                raise ValueError("ids must differ: each entry has one metadata")
            if rows.size:
                change.update_metadata(rows, texts)

        self.store.apply(update)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Remove entries; an unknown id raises before any is removed.

        Searches see all of the entries or none; threads and processes that add or remove take turns. In a durable
        index the entries are gone for good when this returns; :meth:`compact` frees their bytes.
        """
        self.store.apply(lambda change: change.remove(rows_of(change.snapshot, ids)))

    def erase(self, ids: npt.ArrayLike) -> None:
        """Remove entries, and delete every file that holds them: for data that must be gone.

        Rewrites the segments that hold the entries and deletes all earlier versions. Processes that still read an older
        version keep its bytes until they refresh or end; copies made with :meth:`save` keep theirs.

        Raises
        ------
        StorageError
            If the entries were removed but a file could not be deleted, because another program has it open on Windows.
        """

        def erase(change: Change) -> None:
            change.erase(rows_of(change.snapshot, ids))
            change.tables = pruned(change.tables, change.snapshot)

        self.store.apply(erase)

    def get(self, ids: npt.ArrayLike) -> Entries:
        return self._entries().get(ids)

    def _internal_ids(self, ids: npt.ArrayLike) -> Int64:
        snapshot = self.store.snapshot
        return snapshot.gather("ids", rows_of(snapshot, ids)).astype(np.int64)

    # Searching

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Return real projections of queries as searches use them, less the mean: (n_queries, n_pool) float32.

        For codes taken out of the index (:meth:`get`) and for the engines of :mod:`topsign.export`.
        """
        signals = self._checked(queries, "queries")
        projected, _ = self.recipe.project(signals, n_threads=kernels.n_threads(n_threads))
        return Projected.of(projected, self.recipe)

    def _entries(self) -> EntrySet:
        return LocalEntries(self.recipe, self.store.snapshot)

    def _scans(self, queries: Array, **options: Any) -> Iterator[tuple[slice, Scan]]:
        return make_scans(self.recipe, queries, engine=self.engine, **options)

    def to(self, device: str, *, memory: int | None = None) -> Any:
        """Return a searcher of this index with its codes on a CUDA device, "cuda" or "cuda:1": the same answers.

        A :class:`topsign.gpu.GpuIndex`. It searches the entries of now, until its own ``refresh``. At most ``memory``
        bytes stay on the device, by default nine tenths of what is free there; the rest is copied at every search.
        """
        return load_extension("gpu").GpuIndex(self, device=device, memory=memory)

    # Calibration

    @property
    def calibration(self) -> Calibration | None:
        found: Calibration | None = self._stored(KEY, Calibration.from_json)
        return found

    @property
    def evidence(self) -> LikelihoodRatioModel | None:
        found: LikelihoodRatioModel | None = self._stored(EVIDENCE, LikelihoodRatioModel.from_json)
        return found

    def _stored(self, name: str, parse: Callable[[Record, str], Any]) -> Any:
        """Return what a stored record says, parsed once; None if there is none."""
        record, (known, made) = self.store.sources.get(name), self._known.get(name, (None, None))
        if record is not known:
            made = None if record is None else parse(record, self.path or "memory")
            self._known[name] = record, made
        return made

    def _keep_source(self, name: str, record: Record) -> None:
        self.store.apply(lambda change: change.keep_source(name, record))

    def _own_signals(self) -> tuple[Array, Int64] | None:
        return own_signals(self.store.tables, self.store.snapshot, self.n_features)

    # Storage

    def save(self, path: Path) -> None:
        """Write the entries into a new folder, without removed ones; it appears when it is complete.

        From memory this makes the index durable (:func:`topsign.open_index` opens it); of a durable index it is a
        sound copy, also while others write.
        """
        store = self.store
        save_store(path, self.recipe, store, tables=pruned(store.tables, store.snapshot))

    def reencode(
        self,
        *,
        family: str | None = None,
        originals: str | None = None,
        path: Path | None = None,
        n_threads: int | None = None,
        progress: Progress | None = None,
        **parameters: Any,
    ) -> Index:
        """Return another index of the same entries, made from the signals that this one keeps.

        Parameters
        ----------
        family : str, optional
            Family of the new codes, by default that of this index.
        originals : str, optional
            Type in which the new index keeps the signals, too.
        path : path, optional
            Folder of the new index, which must not exist; in memory without it.
        progress : callable, optional
            Called with the number of entries encoded, and of all entries.
        parameters
            Other parameters of the family's constructor: ``n_bytes=48``, for example.
        """
        chosen = check_choice(family or self.family, "family", tuple(Recipe.families))
        if self.originals is None:
            raise ValueError("reencode needs signals that the index keeps; make it with originals=")
        if path is not None:
            check_absent(path)
        snapshot = self.store.snapshot
        make: Any = CONSTRUCTORS.get(chosen)
        if make is not None:
            made: Index = make(n_features=self.n_features, originals=originals, path=path, **parameters)
        else:
            recipe = Recipe.families[chosen].learn(sample_of(snapshot), n_features=self.n_features, **parameters)
            made = Index(recipe, store_for_recipe(recipe, path=path, timeout=None, originals=originals))
        if len(snapshot):
            copy_entries(snapshot, made, feature_names=self.feature_names, n_threads=n_threads, progress=progress)
        return made

    def compact(self) -> None:
        """Drop removed entries and merge small segments, while searches go on."""

        def compact(change: Change) -> None:
            change.compact()
            change.tables = pruned(change.tables, change.snapshot)

        self.store.apply(compact)

    def versions(self) -> list[int]:
        """Return the versions of a durable index that are kept: ``open_index(path, version=...)`` opens one."""
        return self.store.versions()

    def refresh(self) -> bool:
        """Look for changes by other processes; return whether there were any.

        A search sees the state at the opening, at the last change by this index, or at its last refresh.
        """
        with self._learning:
            if self._deferred is not None and self._deferred.exists():
                self._state = LearnedIndex(*self._deferred.joined())
                return True
        return self.store.refresh()

    def verify(self) -> None:
        """Read all of a durable index again: every checksum, every id. Raise StorageError naming what is damaged."""
        self.store.verify()

    def close(self) -> None:
        """Release the files of a durable index, or the entries in memory; not needed before exit."""
        self.store.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle an index in memory with its entries, a durable one as its path."""
        return state_of(self.recipe, self.store)

    def __setstate__(self, state: dict[str, Any]) -> None:
        Index.__init__(self, *restored(state))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = f"{self.family.capitalize()}Index"
        if not self.is_fitted:
            return f"{name}(n_features={self.n_features}, not fitted yet)"
        return f"{name}({len(self)} entries, {self.recipe.summary})"
