"""Index: a recipe, a store and an engine; the methods that change and store its entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Float32
from .._checks import as_signals, check_flag, check_metadata, names_of_columns, suggests_keywords
from .._files import Record
from .._lazy import load_extension
from .._random import RandomState
from ..errors import StorageError, warn
from ..families import Null, Recipe
from ..projections import Projected, Projection
from ..search.engine import ENGINE, Engine
from ..search.regions import Progress
from ..signals import from_table
from ..store.folder_store import Path, Store, exists, open_store, save_store, store_for_recipe
from ..store.memory import Change
from ..store.segments import Note
from .addition import RESERVED_PREFIX, Addition, DeferredIndex, encoder_for
from .base import BaseIndex, LearnedIndex
from .entries import Ids, rows_of
from .regions import RegionSummary


@suggests_keywords
class Index(BaseIndex):
    """Index of signals: stores a code of each under an id, and finds entries by their codes.

    A search reads one snapshot and takes no lock. Changes exclude each other and replace the snapshot. All methods are
    thread-safe. Results are identical for all instruction sets and numbers of threads. A family that learns does so
    once, by :meth:`fit` or from the first addition; if that is rejected, nothing is learned and no folder is created.

    Parameters
    ----------
    n_features : int
        Length of a signal, at least 2.
    family : "trellis", "grouped", "sign", "adaptive" or one of your own
        ``trellis`` codes need the fewest bytes for a given recall and learn from signals. ``grouped`` codes keep the
        largest of every eight projections and its sign: for long signals and weak matches, without training, and with
        p-values. ``sign`` codes keep the signs of all projections, ``adaptive`` codes, those of the paper, the signs of
        the largest of the whole pool.
    n_bytes : int
        Bytes per code; with trellis codes, and with inner products, its factor takes two more. By default sign codes
        have n_features // 8 and grouped codes n_features // 16. Adaptive codes have ``n_bits`` instead.
    n_bits : int or "auto"
        Projections kept by an adaptive code; "auto", the default, is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed for an adaptive code; n_features by default.
    basis : kind or Projection
        For trellis codes "principal" (default), "hadamard" or an orthonormal projection; for the others "hadamard"
        (default), "gaussian", "rademacher", "sparse", "circulant", or an existing projection.
    metric : "correlation" or "inner_product"
        Quantity that scores estimate. "correlation" is the cosine between the signals as given; the mean of a signal's
        features is not subtracted. "inner_product" keeps the norm of each signal in two more bytes.
    center : bool or array of shape (n_features,)
        Mean that is subtracted from signals: given, or learned from the first addition (True, the default of trellis
        codes, which add it back before scores are computed). Centre signals that share a component, such as embeddings
        of a network.
    originals : "float32", "float16" or "int8", optional
        Also keep the signals themselves in this type, for rescoring (:meth:`search` with ``rescore=True`` or
        ``recall=``) and :meth:`get`. In a folder they are separate files that are memory-mapped and read only for
        candidates.
    random_state : int, Generator or None
        Seed of the projections; None draws one.
    path : path, optional
        Folder of the index, created if it does not exist. If it exists, all given parameters must agree with it;
        :func:`topsign.open_index` needs no parameters.
    timeout : float, optional
        Seconds that a change waits for another writer before it raises TimeoutError; None waits without limit.
    **options
        Parameters of a family of your own.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> index = ts.Index(512, family="grouped", n_bytes=32, random_state=7)
    >>> ids = index.add(signals)
    >>> index.search(signals[[5, 7]] + 0.5, k=1).ids
    array([[5],
           [7]])
    >>> index.within(signals[5], false_alarm=1e-6).ids
    array([5])
    """

    def __init__(
        self,
        n_features: int,
        *,
        family: str = "trellis",
        n_bytes: int | None = None,
        n_bits: int | str | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        metric: str = "correlation",
        center: bool | npt.ArrayLike | None = None,
        originals: str | None = None,
        random_state: RandomState = 0,
        path: Path | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        parameters: dict[str, Any] = {"n_bytes": n_bytes, "n_bits": n_bits, "n_pool": n_pool, "basis": basis}
        parameters |= {"center": center, "metric": metric, "random_state": random_state}
        place: dict[str, Any] = {"originals": originals, "path": path, "timeout": timeout}
        deferred = DeferredIndex(family, n_features, parameters, options, **place)
        opened = deferred.open()
        super().__init__(deferred if opened is None else LearnedIndex(*opened), ENGINE)
        warning = deferred.recipe_type.size_warning(**deferred.parameters)
        if warning is not None:
            warn(warning)

    @classmethod
    def from_recipe(cls, recipe: Recipe, *, path: Path | None = None, timeout: float | None = None) -> Index:
        """Return an index without entries whose codes are made with this ``recipe``; with ``path``, in a new folder.

        ``timeout`` is that of the constructor.
        """
        if path is not None and exists(path):
            raise StorageError(path, "index", "exists already; choose another name, or remove it first")
        return index_of(recipe, store_for_recipe(recipe, path=path, timeout=timeout))

    # Parts

    @property
    def info(self) -> Record:
        """Description of the index: entries, removed entries, segments, bytes by content, header, kind of ids."""
        snapshot, recipe = self._store.snapshot, self.recipe
        return {
            "entries": len(snapshot),
            "removed": sum(map(len, snapshot.segments)) - len(snapshot),
            "segments": len(snapshot.segments),
            "bytes": dict(self._store.sizes),
            "text_ids": bool(snapshot.has_text_ids),
            "header": self._store.header or recipe.to_json(),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all that the index holds, in memory or in its folder; :attr:`info` says of what."""
        return self._store.sizes.total()

    @property
    def sources(self) -> dict[str, Record]:
        """Records given to :meth:`add` as ``source``, by name."""
        sources = self._store.now.sources
        return {name: record for name, record in sources.items() if not name.startswith(RESERVED_PREFIX)}

    # Learning

    def fit(self, sample: npt.ArrayLike) -> Self:
        """Learn the recipe from a ``sample`` of signals, once.

        Raises ValueError if the recipe is known, because codes of two recipes cannot be compared, or if the sample is
        too small.
        """
        values = as_signals(sample, n_features=self.n_features, name="sample")
        with self._learning:
            if isinstance(self._state, LearnedIndex):
                raise ValueError("this index has its recipe already; make another index to learn from other signals")
            self._state = LearnedIndex(*self._state.fit(values, names_of_columns(sample)))
        return self

    # Entries

    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        device: str | None = None,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
    ) -> Ids:
        """Add signals, one entry each, and return their ids.

        Searches see all of the new entries or none. Changes by threads and processes exclude each other. Once this
        returns, the entries of a durable index are on disk; if it raises, none are.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features) or (n_features,)
            Read block by block, so memory maps may be larger than memory. SciPy sparse matrices are converted to dense
            blocks. A zero signal raises ValueError.
        ids : sequence of n_signals integers in [0, 2**63), or of texts, optional
            They must differ from each other and from those in the index; ids of removed entries can be used again. The
            default is the integers after the largest id ever used. Texts have 1 to 512 bytes in UTF-8. An index has
            integers or texts, not both.
        metadata : sequence of n_signals dicts or None, optional
            JSON objects, one per signal; :meth:`get` returns them.
        device : str, optional
            Encode on this CUDA device, "cuda" or "cuda:1", with the same bytes.
        rows : slice, optional
            Add only these rows of the signals. ``ids`` and ``metadata`` have one element per added row; error messages
            name rows of the whole array.
        source : (name, record), optional
            A name and a JSON record that :attr:`sources` keeps, stored in the same transaction as the entries. It can
            hold how far a file has been read, so that an interrupted job resumes without duplicates.

        Raises ValueError or TypeError for wrong arguments, and StorageError if a durable index is damaged or cannot be
        written. In each case nothing is added.
        """
        given = {"ids": ids, "metadata": metadata, "rows": rows, "source": source}
        return self._write(signals, device=device, replacing=False, **given)

    def _write(self, signals: npt.ArrayLike, *, device: str | None, **options: Any) -> Ids:
        state, made = self._state, None
        known = state if isinstance(state, DeferredIndex) else state.recipe
        given: Any = {"n_features": known.n_features, "feature_names": state.feature_names}
        if device is not None:
            given["encoder"] = encoder_for(device, known.recipe_type if isinstance(known, DeferredIndex) else known)
        addition = Addition(signals, **given, **options)
        if isinstance(state, DeferredIndex):
            if not len(addition):
                if addition.source is not None:
                    raise ValueError("a source without signals cannot be kept before the first signals; add some first")
                return np.empty(0, np.int64)
            with self._learning:
                if isinstance(self._state, DeferredIndex):  # no other thread was first
                    learned, store, made = self._state.learn_first(addition)
                    self._state = LearnedIndex(learned, store)
            state = self._learned()
        given = {"recipe": state.recipe, "made": made, "originals": state.store.originals}
        return state.store.apply(partial(addition.write, regions=state.regions.assign, **given))

    def upsert(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike,
        metadata: Iterable[Note] | None = None,
        device: str | None = None,
    ) -> Ids:
        """Add ``signals`` and replace existing entries with the same ``ids``, in one transaction.

        Replaced entries lose their ``metadata`` unless new metadata are given. Parameters, also ``device``, are those
        of :meth:`add`.
        """
        return self._write(signals, ids=ids, metadata=metadata, device=device, replacing=True)

    def add_table(
        self,
        table: Any,
        *,
        vector_column: str | None = None,
        id_column: str | None = None,
        metadata_columns: Sequence[str] = (),
        upsert: bool = False,
        device: str | None = None,
    ) -> Ids:
        """Add the rows of a pandas or Polars frame or an Arrow ``table``; with ``upsert`` replace those of known ids.

        Parameters
        ----------
        vector_column : str, optional
            Column of lists that holds the vectors; by default the only such column. If there is none, all numeric
            columns other than ids and metadata are features, and later tables must have the same in the same order.
        id_column : str, optional
            Column of ids, texts or integers.
        metadata_columns : sequence of str
            Columns that become the metadata of each entry.
        device : str, optional
            As for :meth:`add`.
        """
        columns: Any = {"vector_column": vector_column, "id_column": id_column, "metadata_columns": metadata_columns}
        found = from_table(table, **columns)
        if upsert and found.ids is None:
            raise ValueError("upsert needs id_column: entries are replaced by their ids")
        options: dict[str, Any] = {"device": device, "replacing": upsert}
        return self._write(found.signals, ids=found.ids, metadata=found.metadata, **options)

    def update_metadata(self, ids: npt.ArrayLike, metadata: Iterable[Note]) -> None:
        """Replace the metadata of the entries ``ids`` by ``metadata`` in one transaction; None deletes it.

        An unknown id changes nothing.
        """
        notes = list(metadata)

        def change(change: Change) -> None:
            rows = rows_of(change.snapshot, ids)
            texts = check_metadata(notes, len(rows)) or [b""] * len(rows)
            if len(np.unique(rows)) != len(rows):
                raise ValueError("ids must differ: each entry has one metadata")
            if rows.size:
                change.update_metadata(rows, texts)

        self._store.apply(change)

    def remove(self, ids: npt.ArrayLike, *, erase: bool = False) -> None:
        """Remove entries; an unknown id raises ValueError and removes nothing.

        Searches see all of the entries or none. In a durable index the removal is durable when this returns;
        :meth:`compact` frees their bytes.

        Parameters
        ----------
        ids : sequence of ids
            Entries to remove.
        erase : bool
            Also delete every file that holds the entries, for data that must not remain on disk: segments are
            rewritten, and all earlier versions are deleted. Processes that still read an older version keep its bytes
            until they refresh or end; copies made with :meth:`save` keep theirs. Raises StorageError if the entries
            were removed but a file could not be deleted, because another program has it open on Windows.
        """
        erase = check_flag(erase, "erase")

        def change(change: Change) -> None:
            (change.erase if erase else change.remove)(rows_of(change.snapshot, ids))

        self._store.apply(change)

    # Searching

    def project(self, queries: npt.ArrayLike) -> Float32:
        """Return the projections of ``queries`` minus the mean, (n_queries, n_pool) float32, as searches use them.

        For codes taken out of the index (:meth:`get`) and, by :func:`topsign.query_bits`, for other engines.
        """
        signals = self._checked(queries, "queries")
        projected, _ = self.recipe.project(signals)
        return Projected.of(projected, self.recipe)

    def to(self, device: str, *, memory: int | None = None) -> Any:
        """Return a searcher of this index with its codes on a CUDA ``device``, "cuda" or "cuda:1": the same answers.

        The result is a :class:`topsign.gpu.GpuIndex`. It searches the present entries until its own ``refresh``. At
        most ``memory`` bytes stay on the device, by default 90% of its free memory; the rest is copied at every search.
        """
        return load_extension("gpu").GpuIndex(self, device=device, memory=memory)

    # Regions and recall

    @property
    def regions(self) -> RegionSummary | None:
        """Summary of the regions, or None before :meth:`learn_regions`."""
        return self._learned().regions.summary(self._store.now)

    def learn_regions(
        self,
        queries: npt.ArrayLike | None = None,
        *,
        n_regions: int | str = "auto",
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> RegionSummary | None:
        """Divide the entries into regions, so that ``search(recall=)`` visits a few of them, and calibrate recall.

        Regions are learned from decoded codes, so that any index can have them. Entries that are added later are
        assigned to them. Learn again when the index has grown fourfold (:attr:`regions` says when that is due):
        searches stay right in the meantime, but visit more. Other writers wait while this runs, searches do not.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features), optional
            Typical queries to calibrate recall with, at least 200 that are not entries; 1,000 or more are better. By
            default entries are the queries, as kept originals or decoded codes; these do not train the regions.
        n_regions : int or "auto"
            "auto" is 8 sqrt(n), rounded to a power of two; below 20,000 entries none, because they save little time.
        random_state : int
            Seed. The same entries give the same regions, up to the rounding of matrix products.
        progress : callable, optional
            Called with a percentage done, and 100.
        """
        given = None if queries is None else self._checked(queries, "queries")
        return self._learned().regions.learn(n_regions, given, seed=random_state, progress=progress)

    # Storage

    def save(self, path: Path) -> None:
        """Write the entries that are not removed into a new folder, ``path``, which appears when it is complete.

        :func:`topsign.open_index` opens the folder. The copy of a durable index is consistent, even while others write.
        """
        save_store(path, self.recipe, self._store)

    def compact(self) -> None:
        """Drop removed entries and merge small segments, while searches go on."""
        self._store.apply(lambda change: change.compact())

    def versions(self) -> list[int]:
        """Return the kept versions of a durable index; ``open_index(path, version=...)`` opens one."""
        return self._store.versions()

    def refresh(self) -> bool:
        """Load changes by other processes; return whether there were any.

        A search sees the index as of its opening, its last change by this object, or its last refresh.
        """
        with self._learning:
            if isinstance(self._state, DeferredIndex) and self._state.exists():
                self._state = LearnedIndex(*self._state.open_existing())
                return True
        return self._store.refresh()

    def verify(self) -> None:
        """Verify every checksum and every id of a durable index; raise StorageError that names the damage."""
        self._store.verify()
        if isinstance(self._state, LearnedIndex):
            self._state.regions.verify(self._entries())

    def close(self) -> None:
        """Release the files of a durable index, or the entries in memory; not needed before exit."""
        self._store.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle an index in memory with its entries, a durable one as its path."""
        recipe, store = self.recipe, self._store
        return {"store": store, "recipe": recipe.to_json() if store.recipe is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        store: Store = state["store"]
        recipe = Recipe.from_json(state["recipe"], "pickled index") if store.recipe is None else store.recipe
        BaseIndex.__init__(self, LearnedIndex(recipe, store), ENGINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if isinstance(self._state, DeferredIndex):
            return f"Index(family={self.family!r}, n_features={self.n_features}, not fitted yet)"
        try:
            return f"Index({len(self)} entries, family={self.family!r}, {self.recipe.summary})"
        except StorageError:
            place = "in memory" if self.path is None else repr(str(self.path))
            return f"Index(family={self.family!r}, {place}, closed)"


def store_of(index: Index) -> Store:
    """Return the storage of an index, for packages that change more than its entries."""
    return index._store


def deferred_of(index: Index) -> DeferredIndex | None:
    """Return the parameters of an index that has not learned its recipe, otherwise None."""
    return index._state if isinstance(index._state, DeferredIndex) else None


def nulls_of(index: Index) -> Mapping[str, Null] | None:
    """Return the null distributions of a calibrated index by scoring, otherwise None."""
    return index._nulls()


def index_of(recipe: Recipe, store: Store, *, engine: Engine = ENGINE) -> Index:
    """Return the index of the entries of a store."""
    made = Index.__new__(Index)
    BaseIndex.__init__(made, LearnedIndex(recipe, store), engine)
    return made


@suggests_keywords
def open_index(
    path: Path,
    *,
    readonly: bool = False,
    timeout: float | None = None,
    version: int | None = None,
    keep_versions: int = 1,
) -> Index:
    """Open the index in a folder with the recipe that it was made with.

    Parameters
    ----------
    path : path or URL
        A folder, or a prefix in an object store that fsspec reaches (``s3://bucket/photos.topsign``).
    readonly : bool
        Refuse changes; the folder may then be on read-only media.
    timeout : float, optional
        Seconds that a change waits for another writer, then TimeoutError; None waits as long as it takes.
    version : int, optional
        Open this version, read-only, if it is still kept (:meth:`Index.versions`); the newest by default.
    keep_versions : int
        Versions that are kept after a change of this index, the newest included.

    Raises
    ------
    StorageError
        If there is no index, a damaged one, or one that this version of the library cannot read.
    """
    options: Any = {"readonly": check_flag(readonly, "readonly"), "timeout": timeout, "version": version}
    store = open_store(path, keep_versions=keep_versions, **options)
    return index_of(store.recipe, store)
