"""Index: the type that all indexes share, and ``open_index``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32, Int64
from .._checks import as_signals, check_flag, names_of_columns
from .._files import Record
from .._named import named
from ..encoding import project
from ..errors import StorageError
from ..projections import Projected, Projection
from ..recipe import Recipe
from .centering import Centering
from .entries import FEATURES, EntryVerbs
from .filters import Where, select
from .nulls import KEY
from .pairs import PairFinding, PairLimit, compare_entries
from .results import Codes, Note
from .search import Calibration, Engine, Hits, KernelEngine, Reach, Scan, SignalSample, TrellisEngine, make_scans
from .searching import Searching
from .storage import MemoryStore, Snapshot, Store, make_segments, merge_segments
from .storage.stores import Path, check_equal, open_file, store_for_recipe
from .verbs import Ids


class Index(Centering, EntryVerbs[Codes], PairFinding[Snapshot], Searching[Snapshot]):
    """Entries known by their ids, and exact search over them. :class:`AdaptiveIndex` and :class:`SignIndex` are two.

    Searching methods read one snapshot from beginning to end and take no lock; ``add`` and ``remove`` take turns and
    put a new snapshot in its place. All methods are safe from any thread.
    """

    family: ClassVar[str]  # of the codes, see Recipe
    families: ClassVar[dict[str, type[Index[Any]]]] = {}

    engine: Engine | TrellisEngine = KernelEngine()  # what finds the entries

    _sample: SignalSample | None = None
    _known: tuple[object, Calibration | None] = (None, None)  # the record that was read, and what it says

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Index.families[cls.family] = cls

    def __init__(self, recipe: Recipe, store: Store) -> None:
        self.recipe, self.store = recipe, store
        self._learning = threading.Lock()

    def _write(self, signals: npt.ArrayLike, *, rows: slice | None = None, **options: Any) -> Ids:
        values = as_signals(signals, n_features=self.n_features, feature_names=self.feature_names)
        new = super()._write(values, feature_names=names_of_columns(signals), rows=rows, **options)
        with self._learning:
            self._offer_sample(new, values, (rows or slice(None)).indices(len(values))[0])
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
        return {name: record for name, record in self.store.sources.items() if name not in (KEY, FEATURES)}

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        record = self.store.sources.get(FEATURES)
        return None if record is None else tuple(record["names"])

    def _whole(self) -> Snapshot:
        return self.store.snapshot

    def _considered(self, whole: Snapshot, among: npt.ArrayLike | None, where: Where | None) -> Snapshot:
        if among is None and where is None:
            return whole
        chosen = [] if among is None else [whole.mask(self._places(whole, among, "among"))]
        chosen += [] if where is None else [select(whole, where)]
        return whole.where(np.logical_and.reduce(chosen))

    def _scans(self, queries: Array, **options: Any) -> Iterator[tuple[slice, Scan]]:
        return make_scans(self.recipe, queries, engine=self.engine, **options)

    def _nearest(self, entries: Snapshot, scan: Scan, k: int) -> Hits:
        return scan.nearest(entries, k)

    def _within(self, entries: Snapshot, scan: Scan, reach: Reach) -> Hits:
        return scan.within(entries, reach)

    def _compared(self, whole: Snapshot, limit: PairLimit, n_threads: int | None) -> Iterator[tuple[int, Hits]]:
        return compare_entries(self.recipe, whole, whole, limit, kernels.n_threads(n_threads))

    def _notes(self, whole: Snapshot, numbers: Int64) -> list[Note]:
        return whole.notes(whole.locate(numbers))

    @property
    def calibration(self) -> Calibration | None:
        """Nulls that :meth:`calibrate` learned, None while p-values are those of isotropic signals."""
        record = self.store.sources.get(KEY)
        if record is not self._known[0]:
            made = None if record is None else Calibration.from_json(record, self.store.path or "memory")
            self._known = record, made
        return self._known[1]

    def _keep_calibration(self, learned: Calibration) -> None:
        with self.store.change() as change:
            change.sources[KEY] = learned.to_json()

    def _own_signals(self) -> tuple[Array, Int64] | None:
        sample, snapshot = self._sample, self.store.snapshot
        if sample is None or not len(sample.ids):
            return None
        if snapshot.has_names:
            places = snapshot.find_names([str(one).encode() for one in sample.ids])
        else:
            places = snapshot.locate(sample.ids.astype(np.int64))
        numbers = np.full(len(places), -1, np.int64)
        numbers[places >= 0] = snapshot.gather("ids", places[places >= 0])
        return sample.signals, numbers

    def _numbers_of(self, ids: npt.ArrayLike) -> Int64:
        snapshot = self.store.snapshot
        return snapshot.gather("ids", self._places(snapshot, ids)).astype(np.int64)

    def _offer_sample(self, ids: Array, signals: Array, first: int) -> None:
        if self._sample is None:
            self._sample = SignalSample(self.n_features)
        self._sample.offer(ids, signals, first)

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Real projections of queries as searches use them, less the mean: (n_queries, n_pool) float32.

        For codes taken out of the index (:meth:`get`) and for the engines of :mod:`topsign.export`.
        """
        self._check_learned()
        signals = self._checked(queries, "queries")
        return Projected.of(project(self.recipe, signals, n_threads=n_threads)[0], self.recipe)

    def to(self, device: str, *, memory: int | None = None) -> Any:
        """A searcher of this index with its codes on a CUDA device, "cuda" or "cuda:1": the same answers, faster.

        A :class:`topsign.gpu.GpuIndex`. It searches the entries of now, until its own ``refresh``. At most ``memory``
        bytes stay on the device, by default nine tenths of what is free there; the rest is copied at every search.
        """
        gpu = import_module("topsign.gpu")  # a room above this one, which needs packages of its own
        return gpu.GpuIndex(self, device=device, memory=memory)

    @named
    def compact(self, *, shrink: bool = False) -> None:
        """Frees the bytes of removed entries, and joins small segments, while searches go on.

        A durable index is rewritten part by part in its own file, in transactions that each keep every entry. Later
        additions use the free pages, once no process reads an older state; the file does not become shorter.

        With ``shrink`` a compacted copy takes the place of the file, in one instant, and gives the free pages back to
        the file system; the disk needs room for both meanwhile. Other processes go on, and go over to the new file with
        their next change or :meth:`refresh`; until then the system keeps the bytes of the old one.
        """
        if check_flag(shrink, "shrink"):
            return self.store.shrink()
        with self.store.change() as change:
            change.compact()

    def refresh(self) -> bool:
        """Looks for changes by other processes; returns whether there were any.

        A search sees the state at the opening, at the last change by this index, or at its last refresh.
        """
        return self._join_waiting() or self.store.refresh()

    def verify(self) -> None:
        """Reads all of a durable index again: every checksum, every id. Raises StorageError naming what is damaged."""
        self.store.verify()

    def close(self) -> None:
        """Releases the file of a durable index, or the entries in memory; not needed before exit."""
        self.store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """An index in memory pickles with its entries; a durable one as its path, and opens again."""
        self._check_learned()
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


@named
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
