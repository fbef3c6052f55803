"""Entries of an index: added, replaced, removed, read, saved."""

from __future__ import annotations

import operator
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Int64
from .._checks import MAX_ID, as_signals, check_feature_names, check_metadata, check_part, check_source, listed
from .._files import Record, draft_of, publish
from .._named import named
from ..encoding import Coder, Encoded, check_signals, encode
from ..recipe import Recipe
from .first import FirstAddition
from .ids import check_added_kind, check_asked, check_found, check_new_ids
from .results import Codes, Entries, Note
from .storage import Change, Snapshot, Store, make_segments, merge_segments
from .storage.stores import Path, store_for_recipe
from .verbs import Ids, Verbs

FEATURES = "topsign:features"
"""Name under which a store keeps the names of the features among its sources."""


class EntryVerbs(FirstAddition, Verbs[Codes]):
    """What an index does with its entries, other than searching them."""

    recipe: Recipe  # what the codes are made with
    store: Store  # where the entries are kept; for the library's own modules

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Length of a signal."""

    @property
    def ids(self) -> Ids:
        """Ids of the entries: ascending integers, or texts in the order in which they were added."""
        snapshot = self.store.snapshot
        return self._user_ids(snapshot, snapshot.ids)

    @property
    def has_text_ids(self) -> bool:
        """Whether the ids of the entries are texts."""
        return bool(self.store.snapshot.has_names)

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.store.snapshot)

    def __contains__(self, id: object) -> bool:
        """Whether an entry has this id."""
        snapshot = self.store.snapshot
        if isinstance(id, str):
            return bool(snapshot.has_names) and bool(snapshot.find_names([id.encode()])[0] >= 0)
        try:
            wanted = operator.index(id)  # type: ignore[arg-type]
        except TypeError:
            return False
        if snapshot.has_names:
            return False
        return 0 <= wanted <= MAX_ID and bool(snapshot.locate(np.array([wanted]))[0] >= 0)

    @named
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
        """Adds signals, one entry each, and returns their ids.

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
            Make the codes on this CUDA device, "cuda" or "cuda:1": the same bytes. For trellis codes, and for
            adaptive ones of Hadamard projections.
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
        return self._write(
            signals,
            ids=ids,
            metadata=metadata,
            n_threads=n_threads,
            device=device,
            replacing=False,
            rows=rows,
            source=source,
        )

    def _write(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        n_threads: int | None,
        device: Any,
        replacing: bool,
        rows: slice | None = None,
        source: tuple[str, Record] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Ids:
        values = as_signals(signals, n_features=self.n_features)
        coder = None if device is None else cache(partial(_make_coder, device))
        if coder is not None:
            coder(getattr(self, "recipe", None))  # what a device cannot do is refused before anything is learned
        whole = check_part(rows, len(values))
        n_signals, threads = whole.stop - whole.start, kernels.n_threads(n_threads)
        texts, given = check_metadata(metadata, n_signals), check_new_ids(ids, n_signals)
        check_source(source)
        names = given if isinstance(given, list) else None
        if self._unlearned is not None and not n_signals:
            if source is not None:
                raise ValueError("a source without signals cannot be kept before the first signals; add some first")
            return np.empty(0, np.int64)

        def encoded(recipe: Recipe, part: slice) -> Encoded:
            return encode(recipe, values, part=part, n_threads=threads, coder=coder and coder(recipe))

        made = self._learn_first(values, whole, encoded, n_threads=threads)
        with self.store.change() as change:
            check_added_kind(change.snapshot.has_names, given=ids is not None, texts=names is not None)
            keep_feature_names(change, feature_names)
            new, taken = _numbers_for(change, given, n_signals, replacing=replacing)
            if taken.size:
                change.replace(taken)
            parts = list(change.parts(n_signals))
            if len(parts) > 1 and made is None:  # written one by one: what would be refused later is refused now
                check_signals(self.recipe, values, part=whole, n_threads=threads)
            for part in parts:
                here = slice(whole.start + part.start, whole.start + part.stop)
                one = encoded(self.recipe, here) if made is None else made.rows(part)
                noted, named = texts and texts[part], names and names[part]
                change.add(make_segments(new[part].copy(), one.codes, one.norms, one.scales, noted, named))
            change.next_id = max(change.next_id, int(new.max(initial=-1)) + 1)
            change.sources.update([source] if source else [])
        return new if names is None else _texts(name.decode() for name in names)

    def update_metadata(self, ids: npt.ArrayLike, metadata: Iterable[Note]) -> None:
        """Replaces the metadata of entries, in one transaction; None takes it away. An unknown id raises before any."""
        with self.store.change() as change:
            snapshot = change.snapshot
            places = self._places(snapshot, ids)
            texts = check_metadata(metadata, len(places)) or [b""] * len(places)
            if len(np.unique(places)) != len(places):
                raise ValueError("ids must differ: each entry has one metadata")
            if not places.size:
                return
            numbers = snapshot.gather("ids", places)
            norms, scales = (
                snapshot.gather(name, places) if self.recipe.beside else None for name in ("norms", "scales")
            )
            names = [name.encode() for name in snapshot.names(places)] if snapshot.has_names else None
            made = make_segments(numbers, snapshot.gather("codes", places), norms, scales, texts, names)
            del snapshot
            change.replace(np.sort(np.concatenate([segment.ids for segment in made])))
            change.add(made)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Removes entries; an unknown id raises before any is removed.

        Searches see all of the entries or none; threads and processes that add or remove take turns. In a durable
        index the entries are gone for good when this returns; :meth:`compact` frees their bytes.
        """
        with self.store.change() as change:
            change.remove(self._places(change.snapshot, ids))

    def get(self, ids: npt.ArrayLike) -> Entries[Codes]:
        """Codes and metadata of these entries, or of this one, in the order asked; an unknown id raises."""
        snapshot = self.store.snapshot
        places = self._places(snapshot, ids)
        numbers = snapshot.gather("ids", places).astype(np.int64)
        return Entries(self._user_ids(snapshot, numbers), self._codes(snapshot, places), snapshot.notes(places))

    @abstractmethod
    def _codes(self, snapshot: Snapshot, places: Int64) -> Codes:
        """The codes of the entries at these places."""

    def save(self, path: Path) -> None:
        """Writes the entries into a new file, without removed ones; it appears when it is complete.

        From memory this makes the index durable (:func:`topsign.open_index` opens it); of a durable index it is a
        copy that takes no more bytes than needed.
        """
        self._check_learned()
        target = os.path.abspath(path)
        if os.path.lexists(target):
            raise FileExistsError(f"{target} exists; choose another name, or remove it first")
        with draft_of(target) as draft, draft_of(target) as beside:
            self._copy(draft)
            with suppress(FileNotFoundError):
                os.replace(f"{draft}-lock", beside)  # LMDB's, of a name that is about to go
            publish(draft, target, new=True)

    copy_to = save

    def _copy(self, path: str) -> None:
        store, snapshot = store_for_recipe(self.recipe, path=path, timeout=None), self.store.snapshot
        with store.change() as change:
            for group in snapshot.groups(limit=getattr(store, "segment_entries", None)):
                change.add([merge_segments(snapshot.segments[group])])
            change.next_id = max(self.store.next_id, int(snapshot.ids.max(initial=-1)) + 1)
            change.sources.update(self.store.sources)
        store.close()

    def _places(self, snapshot: Snapshot, ids: npt.ArrayLike, name: str = "ids") -> Int64:
        """The places of entries with these ids; an unknown one raises."""
        asked = check_asked(ids, snapshot.has_names, name)
        if not isinstance(asked, list):
            return snapshot.places(asked, name)
        places = snapshot.find_names(asked)
        check_found(asked, places >= 0, name)
        return places

    def _user_ids(self, snapshot: Snapshot, numbers: Int64) -> Ids:
        """Numbers of entries as the ids that the user gave; -1 becomes None beside texts."""
        if not snapshot.has_names:
            return numbers
        out = np.full(numbers.shape, None, object)
        known = numbers >= 0
        out[known] = snapshot.names(snapshot.locate(numbers[known]))
        return out


def keep_feature_names(change: Change, names: Sequence[str] | None) -> None:
    """Names of the columns of the first table; others that came meanwhile must agree with them."""
    if names is not None:
        kept = change.sources.setdefault(FEATURES, {"names": list(names)})
        check_feature_names(names, kept["names"], "signals")


def _make_coder(device: Any, recipe: Recipe | None) -> Coder:
    """What makes codes of a recipe on a device, by its name."""
    gpu = import_module("topsign.gpu.coder")  # a room above this one, which needs packages of its own
    return gpu.GpuCoder(recipe, device)  # type: ignore[no-any-return]


def _numbers_for(
    change: Change, ids: Int64 | list[bytes] | None, n_entries: int, *, replacing: bool
) -> tuple[Int64, Int64]:
    """Numbers of new entries, and those among them that entries with the same ids have already."""
    if ids is None:
        return change.free_ids(n_entries), np.empty(0, np.int64)
    if not isinstance(ids, list):
        taken = change.held(ids)
        if taken.size and not replacing:
            raise ValueError(
                f"ids must be new, but {listed(taken)} in the index already; upsert replaces entries, or choose others"
            )
        return ids, taken
    return _numbers_of_names(change, ids, replacing=replacing)


def _numbers_of_names(change: Change, names: list[bytes], *, replacing: bool) -> tuple[Int64, Int64]:
    places = change.snapshot.find_names(names)
    held = places >= 0
    if held.any() and not replacing:
        taken = np.array([names[at].decode() for at in np.flatnonzero(held)], object)
        raise ValueError(f"ids must be new, but {listed(taken)} in the index already; upsert replaces entries")
    numbers = np.empty(len(names), np.int64)
    numbers[~held] = change.free_ids(int((~held).sum()))
    if held.any():
        numbers[held] = change.snapshot.gather("ids", places[held])
    return numbers, np.sort(numbers[held])


def _texts(names: Iterable[str]) -> Array:
    found = list(names)
    out = np.empty(len(found), object)
    out[:] = found
    return out
