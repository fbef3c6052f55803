"""Conversion: the entries of one index as shards, and shards as one durable index."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from .._arrays import Int64
from .._checks import check_count, check_index
from .._named import named
from ..errors import StorageError
from ..index import Index
from ..index.nulls import KEY as CALIBRATION
from ..index.storage import COLUMNS, Arrays, Metadata, Names, Segment, Snapshot, merge_segments
from ..signals import Location
from .encode import Encoded, default_shard_entries
from .folder import Folder
from .manifest import begin, read_manifest, write_manifest
from .shard import read_shard, write_shard


@named
def split(index: Index[Any], out: Location, *, shard_entries: int | None = None) -> Encoded:
    """Writes the entries of an index, with their ids and metadata, as shards into a new folder.

    A shard is held in memory at a time. ``shard_entries`` as in :func:`encode`.
    """
    check_index(index, (Index,))
    if index.awaits_mean:
        raise ValueError("this index has not learned from its first signals yet; add them before it is split")
    limit = check_count(shard_entries or default_shard_entries(index.recipe), "shard_entries")
    folder, snapshot = Folder.at(out), index.store.snapshot
    manifest = begin(folder, index.recipe)
    if manifest.version:
        raise StorageError(folder.url, "file", "exists already; choose another name, or remove it first")
    ids, shards = snapshot.ids, []
    for start in range(0, len(ids), limit):
        columns = _gathered(snapshot, ids[start : start + limit])
        file = f"{columns.ids[0]:015d}-{columns.ids[-1]:015d}.parquet"
        shards.append(write_shard(folder, file, index.recipe, columns))
    manifest = manifest.with_shards(shards, [], int(ids[-1]) + 1 if len(ids) else 0)
    calibration = None if index.calibration is None else index.calibration.to_json()
    manifest = replace(manifest, texts=bool(snapshot.has_names), calibration=calibration)
    write_manifest(folder, manifest)
    return Encoded(manifest.version, manifest.n_entries, len(shards), len(shards))


@named
def merge(out: Location, path: str | os.PathLike[str], *, version: int | None = None) -> Index[Any]:
    """Makes a durable index of the entries of all shards, with their ids and metadata, in a new file.

    All of them are in the file when this returns, or none. Two shards are held in memory at a time.
    """
    folder = Folder.at(out)
    manifest = read_manifest(folder, version)
    index = Index.from_recipe(manifest.recipe, path=path)
    shards = iter(manifest.shards)
    held: list[Segment] = []
    with index.store.change() as change:
        for rows in change.parts(manifest.n_entries):
            n_entries = rows.stop - rows.start
            while sum(map(len, held)) < n_entries:
                held.append(read_shard(folder, next(shards), manifest.recipe))
            if n_entries:
                whole = merge_segments(held)
                change.add([_cut(whole, 0, n_entries)])
                held = [_cut(whole, n_entries, len(whole))] if len(whole) > n_entries else []
        change.next_id = max(change.next_id, manifest.next_id)
        if manifest.calibration is not None:
            change.sources[CALIBRATION] = manifest.calibration
    return index


def _cut(segment: Segment, start: int, stop: int) -> Segment:
    columns: dict[str, Any] = {name: getattr(segment, name) for name in COLUMNS}
    parts: dict[str, Any] = {name: None if column is None else column[start:stop] for name, column in columns.items()}
    notes, names = segment.columns.metadata, segment.columns.names
    parts["metadata"] = Metadata.of(notes.texts(range(start, stop))) if notes else None
    parts["names"] = Names.of(names.names(range(start, stop))) if names else None
    return Segment(Arrays(**parts))


def _gathered(snapshot: Snapshot, ids: Int64) -> Arrays:
    places = snapshot.locate(ids)
    kept = snapshot.segments[0].norms is not None
    norms, scales = (snapshot.gather(name, places) if kept else None for name in ("norms", "scales"))
    texts = None
    if any(segment.columns.metadata is not None for segment in snapshot.segments):
        texts = Metadata.of(snapshot.texts(places))
    names = Names.of([name.encode() for name in snapshot.names(places)]) if snapshot.has_names else None
    return Arrays(ids, snapshot.gather("codes", places), norms, scales, None, texts, names)
