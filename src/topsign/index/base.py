"""What all indexes share: entries with ids, snapshots, and the course of a search."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Float32, Float64, Int64
from .._checks import (
    MAX_ID,
    as_signals,
    check_choice,
    check_count,
    check_ids,
    check_metadata,
    check_timeout,
    raise_taken_ids,
    raise_unknown_ids,
)
from ..encoding import encode
from ..projections import Projection
from ..projections.blocks import float_blocks
from ..recipe import Recipe
from ..theory.inference import SCORINGS
from .found import Found, Reach, find_nearest, find_within
from .metadata import Note
from .neighbors import Matches, Neighbors
from .originals import Originals, Source
from .scans import AsymmetricScan, ChosenRowsScan, ExpectedScaleScan, HammingScan, Queries, Scan
from .segments import Hits, Snapshot, make_segments
from .significance import Significance, sample_pvalues, shared_significance
from .store import Change, MemoryStore, Store

if TYPE_CHECKING:
    from .file import FileStore  # LMDB is imported by the first durable index

Path = str | os.PathLike[str] | None

QUERY_BYTES = 2**26  # projections of queries held at a time


class Index(ABC):
    """Entries known by their ids, in immutable segments.

    Searching methods read one snapshot from beginning to end and take no lock; ``add`` and ``remove`` take turns
    and put a new snapshot in its place.
    """

    kind: ClassVar[str]  # of index, as files call it

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._store: Store = MemoryStore()

    @property
    def path(self) -> str | None:
        """The file, of a durable index."""
        return self._store.path

    @property
    def _snapshot(self) -> Snapshot:
        return self._store.snapshot

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
        return self.recipe.projection.n_features

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.recipe.projection.n_pool

    @property
    def nbytes(self) -> int:
        """Bytes held: codes, ids, and norms and scales where they are kept. Safe from any thread."""
        return sum(segment.nbytes for segment in self._snapshot.segments)

    @property
    def n_segments(self) -> int:
        """Parts that the entries are stored in. Safe from any thread."""
        return len(self._snapshot.segments)

    @property
    def n_removed(self) -> int:
        """Removed entries whose bytes :meth:`compact` would free. Safe from any thread."""
        return sum(map(len, self._snapshot.segments)) - len(self._snapshot)

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """Records given to :meth:`add` as ``source``, by name."""
        return dict(self._store.sources)

    @property
    def header(self) -> dict[str, Any]:
        """What the file of a durable index says of itself; in memory the recipe alone."""
        return dict(getattr(self._store, "header", None) or self.recipe.to_json())

    @property
    def ids(self) -> Int64:
        """Ids of the entries, ascending. Safe from any thread."""
        return self._snapshot.ids

    def __len__(self) -> int:
        """Number of entries. Safe from any thread."""
        return len(self._snapshot)

    def __contains__(self, id: object) -> bool:
        """Whether an entry has this id. Safe from any thread."""
        try:
            wanted = operator.index(id)  # type: ignore[arg-type]
        except TypeError:
            return False
        return 0 <= wanted <= MAX_ID and bool(self._snapshot.locate(np.array([wanted]))[0] >= 0)

    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        rows: slice | None = None,
        source: tuple[str, dict[str, Any]] | None = None,
    ) -> Int64:
        """Adds signals, one entry each, and returns their ids.

        Safe beside searches, which see all of the new entries or none; threads and processes that add or remove take
        turns. In a durable index all of the entries are on disk when this returns, or none of them ever is.

        Parameters
        ----------
        signals : array of shape (n_signals, n_features) or (n_features,)
            Read block by block, so that a memory map larger than memory is fine. A zero signal raises.
        ids : sequence of n_signals integers in [0, 2**63), optional
            Must differ from each other and from those in the index; those of removed entries are free again. Without
            them, the integers after the largest id ever used.
        metadata : sequence of n_signals dicts or None, optional
            What JSON can hold; :meth:`get` returns it.
        rows : slice, optional
            Adds these rows of the signals alone; errors still name rows of the whole. ``ids`` and ``metadata`` are
            those of the rows added.
        source : (name, record), optional
            A name and a JSON record that :attr:`sources` keeps, stored in the same transaction as the entries: how
            far a file has been read, so that an interrupted job can go on without duplicates.

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
        with self._store.change() as change:
            new = _free_ids(change, n_signals) if ids is None else _check_new(change, ids, n_signals)
            for part in change.parts(n_signals):
                here = slice(first + part.start, first + part.stop)
                made = encode(self.recipe, signals, part=here, n_threads=threads)
                change.add(make_segments(new[part].copy(), made.codes, made.norms, made.scales, texts and texts[part]))
            change.next_id = max(change.next_id, int(new.max(initial=-1)) + 1)
            change.sources.update([source] if source else [])
        return new

    def remove(self, ids: npt.ArrayLike) -> None:
        """Removes entries; an unknown id raises before any is removed.

        Safe beside searches, which see all of the entries or none; threads and processes that add or remove take
        turns. In a durable index the entries are gone for good when this returns; :meth:`compact` frees their bytes.
        """
        wanted = check_ids(ids)
        with self._store.change() as change:
            change.snapshot = change.snapshot.remove(_places(change.snapshot, wanted))

    def compact(self) -> None:
        """Frees the bytes of removed entries, and joins small segments, while searches go on.

        A durable index is rewritten part by part in its own file, in transactions that each keep every entry. The file
        does not become shorter: its free pages are used by later additions, once no process reads an older state.
        """
        with self._store.change() as change:
            change.compact()

    def refresh(self) -> bool:
        """Looks at what other processes have added or removed; returns whether there was anything.

        An index that searches sees the state of its opening, its last own change, or its last refresh.
        """
        return self._store.refresh()

    def verify(self) -> None:
        """Reads all of a durable index again: every checksum, every id. Raises StorageError naming what is damaged."""
        self._store.verify()

    def close(self) -> None:
        """Lets go of the file of a durable index, or of the entries in memory; not needed before exit."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def _stored(cls, path: Path, timeout: float | None) -> FileStore | None:
        """What is in the file already, if there is one."""
        if path is None and timeout is not None:
            raise ValueError(f"timeout is for a file that others may write, got timeout={timeout!r} without a path")
        if path is None or not os.path.lexists(path):
            return None
        from .file import FileStore

        store = FileStore(path, readonly=False, timeout=check_timeout(timeout))
        if store.header["kind"] != cls.kind:
            what = f"kind={store.header['kind']!r}, got kind={cls.kind!r}"
            raise ValueError(f"{store.path} was written with {what}; topsign.open_index takes what the file has")
        return store

    def _keep_in(self, path: Path, timeout: float | None, store: FileStore | None) -> None:
        """Makes the index durable: in a new file, or as what is stored, whose parameters must be the same."""
        if path is None:
            return
        if store is None:
            from .file import FileStore

            FileStore.create(path, self.recipe.to_json())
            store = FileStore(path, readonly=False, timeout=check_timeout(timeout))
        self._use(store)

    def _use(self, store: FileStore) -> None:
        have, want = Recipe.from_json(store.header, store.path).difference(self.recipe)
        if have:
            raise ValueError(
                f"{store.path} was written with {have}, got {want}; topsign.open_index takes what the file has"
            )
        store.limit_segments(self.recipe.layout.code_bytes)
        self._store = store

    def _search(
        self,
        queries: npt.ArrayLike,
        *,
        k: int,
        scoring: str,
        among: npt.ArrayLike | None,
        rescore: Source | None,
        rescore_factor: int,
        n_threads: int | None,
        n_kept: int | None = None,
    ) -> Neighbors:
        k = check_count(k, "k")
        factor = check_count(rescore_factor, "rescore_factor")
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        originals = None if rescore is None else Originals(rescore, n_features=self.n_features)
        snapshot = self._considered(among)
        found = Neighbors._unfilled(len(queries), k)
        for block, scan in self._scans(queries, scoring, n_kept, n_threads):
            if originals is None:
                part = find_nearest(scan, snapshot, k)
            else:
                candidates = scan.nearest(snapshot, k * factor)
                hits, scores, p_values = self._reranked(snapshot, candidates, originals, queries[block], k)
                meaning = replace(scan.meaning(snapshot, hits), scores=scores, p_values=p_values)
                part = Found.of(snapshot, hits, meaning)
            part.fill(found, block)
        return found

    def _within(
        self,
        queries: npt.ArrayLike,
        *,
        radius: float | None,
        threshold: float | None,
        false_alarm: float | None,
        scoring: str,
        among: npt.ArrayLike | None,
        n_threads: int | None,
        n_kept: int | None = None,
    ) -> Matches:
        reach = Reach.checked(radius=radius, threshold=threshold, false_alarm=false_alarm, scoring=scoring)
        queries = as_signals(queries, n_features=self.n_features, name="queries")
        snapshot = self._considered(among)
        reach = reach.for_entries(len(snapshot))
        parts = [
            find_within(scan, snapshot, reach).matches(block.stop - block.start)
            for block, scan in self._scans(queries, scoring, n_kept, n_threads)
        ]
        return Matches._joined(parts)

    def _scans(
        self, queries: Array, scoring: str, n_kept: int | None, n_threads: int | None
    ) -> Iterator[tuple[slice, Scan]]:
        """Blocks of queries, each with the scan that compares it."""
        check_choice(scoring, "scoring", SCORINGS)
        threads = kernels.n_threads(n_threads)
        for rows, prepared in self._prepared(queries, n_kept, threads):
            yield rows, self._scan(prepared, scoring, n_kept, threads)

    def _prepared(
        self, queries: Array, n_kept: int | None, n_threads: int, *, n_bytes: int = QUERY_BYTES
    ) -> Iterator[tuple[slice, Queries]]:
        """Blocks of queries as scans read them, so many bytes of projections at a time."""
        n_rows = max(1, n_bytes // (4 * max(self.recipe.projection.shape)))
        for block in float_blocks(queries, n_rows, n_threads=n_threads, name="queries"):
            projected = self.recipe.projection.apply(block.values, n_threads=n_threads)
            prepared = Queries(projected, np.sqrt(block.square_norms))
            yield block.rows, prepared if n_kept is None else _choose_rows(prepared, n_kept, n_threads)

    def _scan(self, prepared: Queries, scoring: str, n_kept: int | None, n_threads: int) -> Scan:
        kind: type[Scan] = HammingScan
        if scoring == "asymmetric":
            kind = ChosenRowsScan if n_kept is not None else AsymmetricScan if self.recipe.norms else ExpectedScaleScan
        law = self._law(self.recipe.layout.n_bits if n_kept is None else n_kept)
        return kind(self.recipe.layout, prepared, law, self.recipe.metric, n_threads)

    def _reranked(
        self, snapshot: Snapshot, candidates: Hits, originals: Originals, queries: Array, k: int
    ) -> tuple[Hits, Float32, Float64]:
        """The k best candidates of each query by exact comparison, their scores and p-values."""
        shape = (len(queries), -1) if candidates.rows.size else (len(queries), 0)
        ids = snapshot.gather("ids", candidates.places).reshape(shape)
        inner, correlations = np.empty(ids.shape), np.empty(ids.shape)
        for row, query in enumerate(queries):
            inner[row], correlations[row] = originals.compare(ids[row], query.astype(np.float64))
        exact = inner if self.recipe.metric == "inner_product" else correlations
        order = np.lexsort((ids, -exact))[:, :k]

        def chosen(array: Array) -> Array:
            return np.take_along_axis(array.reshape(ids.shape), order, axis=1).ravel()

        hits = Hits(chosen(candidates.rows), chosen(candidates.places), chosen(candidates.values))
        return hits, chosen(exact).astype(np.float32), sample_pvalues(chosen(correlations), self.n_features)

    def _law(self, n_bits: int) -> Significance:
        """Of codes that compare ``n_bits`` signs."""
        flat = self.recipe.projection.options.get("spectrum", "unimodular") == "unimodular"
        pool = self.recipe.projection.kind if flat else "gaussian"
        return shared_significance(n_bits, self.n_pool, self.n_features, pool, self.recipe.norms)

    def _considered(self, among: npt.ArrayLike | None) -> Snapshot:
        snapshot = self._snapshot
        return snapshot if among is None else snapshot.among(_places(snapshot, check_ids(among, "among"), "among"))

    def _located(self, ids: npt.ArrayLike) -> tuple[Snapshot, Int64, Int64]:
        """A snapshot, these ids, and where in it they are."""
        snapshot, wanted = self._snapshot, check_ids(ids)
        return snapshot, wanted, _places(snapshot, wanted)

    @property
    @abstractmethod
    def n_bits(self) -> int: ...


def _free_ids(change: Change, n_signals: int) -> Int64:
    if change.next_id + n_signals - 1 > MAX_ID:
        raise ValueError(f"no ids are left after {change.next_id - 1}, the largest; give ids yourself")
    return np.arange(change.next_id, change.next_id + n_signals)


def _check_new(change: Change, ids: npt.ArrayLike, n_signals: int) -> Int64:
    new = check_ids(ids)
    if len(new) != n_signals:
        raise ValueError(f"ids must be one per signal, got {len(new)} ids for {n_signals} signals")
    unique, counts = np.unique(new, return_counts=True)
    if (counts > 1).any():
        raise_taken_ids(unique[counts > 1], twice=True)
    taken = unique[change.snapshot.locate(unique) >= 0]
    if taken.size:
        raise_taken_ids(taken, twice=False)
    return new


def _places(snapshot: Snapshot, ids: Int64, name: str = "ids") -> Int64:
    places = snapshot.locate(ids)
    if (places < 0).any():
        raise_unknown_ids(ids[places < 0], name)
    return places


def _choose_rows(queries: Queries, n_kept: int, n_threads: int) -> Queries:
    """The same queries, each with its ``n_kept`` largest projections alone."""
    locations, _, _ = kernels.active().select(queries.projected, n_kept, n_threads=n_threads)
    kept = np.zeros(queries.projected.shape, bool)
    np.put_along_axis(kept, locations, True, axis=1)
    projected = np.where(kept, queries.projected, np.float32(0))
    return Queries(projected, queries.norms, np.packbits(kept, axis=1, bitorder="little"))
