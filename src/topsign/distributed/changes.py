"""Entries of a sharded index: read, added, replaced, removed; shards that change are written anew."""

from __future__ import annotations

import hashlib
import operator
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client

from .._arrays import Int64
from .._checks import MAX_ID, listed, raise_unknown_ids
from .._named import named
from ..index import Index
from ..index.ids import are_texts, check_added_kind
from ..index.results import Entries, Note
from ..index.storage import Segment, make_segments, merge_segments
from ..index.verbs import Verbs
from ..recipe import Recipe
from .ask import by_shard
from .cluster import run_all
from .entries import ShardedEntries
from .folder import Folder
from .manifest import Manifest
from .shard import SentRecipe, Shard, read_shard, write_shard


class ShardedVerbs(Verbs[Any]):
    """What a sharded index does with its entries, other than searching them.

    A change writes the shards that it touches anew, under other names, and then the next version of the manifest:
    all of it is seen, or nothing. Older versions keep their shards.
    """

    recipe: Recipe
    _client: Client
    _folder: Folder
    _manifest: Manifest

    @abstractmethod
    def _whole(self) -> ShardedEntries:
        """All entries of this moment."""

    @abstractmethod
    def _publish(self, manifest: Manifest) -> None:
        """Writes the next version of the manifest, and loads what is new in it."""

    def __len__(self) -> int:
        """Number of entries."""
        return self._manifest.n_entries

    @property
    def has_text_ids(self) -> bool:
        """Whether the ids of the entries are texts."""
        return self._whole().has_names

    @property
    def ids(self) -> Any:
        """Ids of all entries, fetched from the workers: ascending integers, or texts in order of addition."""
        return self._whole().ids()

    def __contains__(self, id: object) -> bool:
        """Whether an entry has this id."""
        whole = self._whole()
        if isinstance(id, str):
            return whole.has_names and bool(whole.numbers_of([id.encode()]))
        try:
            wanted = operator.index(id)  # type: ignore[arg-type]
        except TypeError:
            return False
        return not whole.has_names and 0 <= wanted <= MAX_ID and len(whole.held(np.array([wanted]))) == 1

    def get(self, ids: npt.ArrayLike) -> Entries[Any]:
        """Codes and metadata of these entries, or of this one, in the order asked; an unknown id raises."""
        return self._fetched(self._whole().find(ids)).get(ids)

    @named
    def add(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None = None,
        metadata: Iterable[Note] | None = None,
        n_threads: int | None = None,
        device: str | None = None,
    ) -> Any:
        """Adds signals as one further shard, encoded by the client, and returns their ids; see :meth:`Index.add`.

        For a few entries beside those of :func:`encode`, which is for many.
        """
        return self._write(signals, ids=ids, metadata=metadata, n_threads=n_threads, device=device, replacing=False)

    def update_metadata(self, ids: npt.ArrayLike, metadata: Iterable[Note]) -> None:
        """Replaces the metadata of entries; None takes it away. An unknown id raises before any is changed."""
        numbers = self._whole().find(ids)
        local = self._fetched(numbers)
        local.update_metadata(ids, metadata)
        self._rewrite(np.unique(numbers), merge_segments(local.store.snapshot.segments) if len(local) else None)

    def remove(self, ids: npt.ArrayLike) -> None:
        """Removes entries; an unknown id raises before any is removed.

        They are in older versions of the manifest still, until :meth:`compact`.
        """
        whole = self._whole()
        numbers = whole.find(ids)
        unknown = np.setdiff1d(numbers, whole.held(numbers))
        if unknown.size:
            raise_unknown_ids(unknown, "ids")
        self._rewrite(np.unique(numbers), None)

    def _fetched(self, numbers: Int64) -> Index[Any]:
        """An index in memory of the entries with these numbers."""
        local = Index.from_recipe(self.recipe)
        with local.store.change() as change:
            change.add(self._whole().fetch(numbers))
        return local

    def _write(
        self,
        signals: npt.ArrayLike,
        *,
        ids: npt.ArrayLike | None,
        metadata: Iterable[Note] | None,
        n_threads: int | None,
        device: Any,
        replacing: bool,
    ) -> Any:
        whole, texts = self._whole(), ids is not None and are_texts(ids)
        check_added_kind(whole.has_names if len(whole) else None, given=ids is not None, texts=texts)
        local = Index.from_recipe(self.recipe)
        new = local.add(signals, ids=ids, metadata=metadata, n_threads=n_threads, device=device)
        if not len(local):
            return new
        segment, next_id = merge_segments(local.store.snapshot.segments), self._manifest.next_id
        if texts:
            segment, held = _renumbered(segment, whole, next_id)
        elif ids is None:
            segment = Segment(replace(segment.columns, ids=segment.ids + next_id))  # type: ignore[type-var]
            new, held = new + next_id, np.empty(0, np.int64)
        else:
            held = whole.held(segment.ids)
        if held.size and not replacing:
            taken = held if not texts else np.array(list(whole.names(held).values()), object)
            raise ValueError(f"ids must be new, but {listed(taken)} in the index already; upsert replaces entries")
        self._rewrite(held, segment)
        return new

    def _rewrite(self, removed: Int64, new: Segment | None) -> None:
        """The next version: touched shards without the entries removed, and a shard of new ones."""
        folder, manifest = self._folder, self._manifest
        mark = f"{manifest.version}-{hashlib.sha256(removed.tobytes()).hexdigest()}"
        chosen = by_shard(manifest.shards, removed)
        touched = [shard for shard in manifest.shards if shard.file in chosen]
        sent, shards = SentRecipe.of(self.recipe), list[Shard]()
        submit = partial(self._client.submit, _write_without, folder, sent, mark, pure=False)
        for _, made, error in run_all(
            self._client, touched, lambda shard: submit(shard, chosen[shard.file]), name=lambda shard: shard.file
        ):
            if error is not None:
                raise error
            shards += made
        next_id = manifest.next_id
        if new is not None:
            digest = hashlib.sha256(f"{mark} new {new.columns.codes.tobytes()!r}".encode()).hexdigest()[:16]
            file = f"{new.ids[0]:015d}-{digest}.parquet"
            shards.append(write_shard(folder, file, self.recipe, new.columns))
            next_id = max(next_id, int(new.ids[-1]) + 1)
        left = manifest.without({shard.file for shard in touched})
        texts = manifest.texts if len(self) or new is None else new.columns.names is not None
        self._publish(replace(left.with_shards(shards, [], next_id), texts=texts))


def _renumbered(segment: Segment, whole: ShardedEntries, next_id: int) -> tuple[Segment, Int64]:
    """Entries with ids of text, with the numbers that they have in the index or new ones, and those they have."""
    columns, order = segment.columns, range(len(segment))
    assert columns.names is not None
    names = columns.names.names(order)
    known = whole.numbers_of(names)
    fresh = iter(range(next_id, next_id + len(names)))
    numbers = np.array([known[name] if name in known else next(fresh) for name in names], np.int64)
    texts = columns.metadata.texts(order) if columns.metadata else None
    made = make_segments(numbers, columns.codes.copy(), columns.norms, columns.scales, texts, names)
    return merge_segments(made), np.array(sorted(known.values()), np.int64)


def _write_without(folder: Folder, sent: SentRecipe, mark: str, shard: Shard, removed: Int64) -> list[Shard]:
    """On a worker: the shard as it is, without these entries in a new file, or nothing where none are left."""
    segment = read_shard(folder, shard, sent.recipe())
    kept = ~np.isin(segment.ids, removed)
    if kept.all():
        return [shard]
    if not kept.any():
        return []
    digest = hashlib.sha256(f"{mark} {shard.file}".encode()).hexdigest()[:16]
    left = merge_segments([segment.where(kept)])
    return [write_shard(folder, f"{left.ids[0]:015d}-{digest}.parquet", sent.recipe(), left.columns)]
