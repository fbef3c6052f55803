"""Encoding on a cluster: every shard a task of its own, the manifest last."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array
import numpy as np
from dask.delayed import delayed
from distributed import Client, Future
from sklearn.utils.validation import check_is_fitted

from .._arrays import Array
from .._checks import (
    as_signals,
    check_blocks,
    check_count,
    check_encoder,
    check_sources,
    raise_changed_source,
    raise_failed,
)
from ..embeddings import AdaptiveEncoder
from ..encoding import encode as encode_signals
from ..index import Index
from ..index.storage import Arrays
from .clusters import resolve_client, run_all
from .folders import Folder, Location
from .manifests import Manifest, begin, write_manifest
from .shards import Record, Shard, finished_shard, index_of, write_shard
from .sources import Source, describe, list_sources

SHARD_BYTES = 2**26
"""Of codes in a shard when its size is not given: a billion entries of half a kilobyte are some 7,000 shards."""

DESCRIBED = 64
"""Files whose headers one task reads."""

ENCODED_ROWS = 8192
"""Signals whose codes are held besides those of the shard."""

Encoder = AdaptiveEncoder | Index[Any]


@dataclass(frozen=True)
class Encoded:
    """What is in a folder after :func:`encode`."""

    version: int  # of the manifest
    entries: int
    shards: int
    written: int  # shards that this run wrote; the others were there


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a source."""

    source: Source
    start: int
    stop: int


@dataclass(frozen=True)
class Block:
    """One block of a dask array."""

    name: str  # of the array
    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class Plan:
    """A shard to be: its ids are consecutive from the first, and its name says of what it is made."""

    first_id: int
    parts: tuple[Piece, ...] | tuple[Block]

    @property
    def entries(self) -> int:
        return sum(part.stop - part.start for part in self.parts)

    @property
    def file(self) -> str:
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        return f"{self.first_id:015d}-{digest}.parquet"


def encode(
    signals: Location | dask.array.Array,
    out: Location,
    encoder: Encoder,
    *,
    client: Client | None = None,
    metric: str | None = None,
    column: str | None = None,
    shard_entries: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Encoded:
    """Encodes signals into immutable shards, on all workers of a cluster.

    Ids are row numbers, counted through the files in the order of their names. What is in ``out`` already is kept:
    an interrupted job goes on when it is called again, and signals that ``out`` does not have yet become further
    shards and a new version of the manifest, which is written last.

    Parameters
    ----------
    signals : path, URL or dask array
        A folder or object-store prefix of .npy and Parquet files (signals as lists in one column), one such file, or a
        dask array whose blocks, one shard each, hold whole rows. Read block by block.
    out : path or URL
        A folder that all workers see: a shared file system, s3://, gs:// and so on.
    encoder : AdaptiveEncoder, AdaptiveIndex or SignIndex
        A fitted encoder without ``center=True``, or an index whose parameters (not entries) are taken.
    client : distributed.Client, optional
        Of the cluster; a local one in this process when not given.
    metric : "correlation" or "inner_product", optional
        What scores will estimate; of an index it is known.
    column : str, optional
        Of Parquet files, where they have several of lists.
    shard_entries : int, optional
        Entries of a shard; so many that their codes take 64 MiB when not given.
    progress : callable, optional
        Called with the number of entries on disk and of all there will be, as shards are finished.

    Raises
    ------
    ValueError, TypeError
        Signals that cannot be encoded, named by file and row; all other shards are finished first and kept.
    StorageError
        Where ``out`` holds something else, or is damaged.
    """
    folder = Folder.at(out)
    index = _template(encoder, metric)
    client = resolve_client(client)
    limit = check_count(shard_entries or max(1, SHARD_BYTES // (index.recipe.layout.code_bytes + 16)), "shard_entries")
    blocks: Any = None
    if isinstance(signals, dask.array.Array):
        blocks = check_blocks(signals, index.n_features).rechunk({1: -1})
        sources = [_array_record(blocks)]
    else:
        described = _described(client, list_sources(signals), column)
        check_sources([(one.url, one.rows, one.n_features) for one in described], index.n_features)
        sources = [one.record for one in described]
    manifest = begin(folder, index.recipe.to_json())
    missing = _missing(manifest, sources, folder)
    if not missing:
        return Encoded(manifest.version, manifest.entries, len(manifest.shards), 0)
    if blocks is not None:
        plans = list(_block_plans(blocks, manifest.next_id))
    else:
        plans = list(_plans([one for one in described if one.record in missing], manifest.next_id, limit))
    shards, written = _run(client, folder, index.recipe.to_json(), plans, blocks, progress)
    next_id = manifest.next_id + sum(plan.entries for plan in plans)
    manifest = manifest.with_shards(shards, missing, next_id)
    write_manifest(folder, manifest)
    folder.remove_drafts({plan.file for plan in plans})
    return Encoded(manifest.version, manifest.entries, len(manifest.shards), written)


def _template(encoder: Encoder, metric: str | None) -> Index[Any]:
    """An empty index with the parameters asked for."""
    check_encoder(encoder, (AdaptiveEncoder, Index), metric)
    if not isinstance(encoder, AdaptiveEncoder):
        return Index.from_recipe(encoder.recipe)
    check_is_fitted(encoder)
    return Index.from_recipe(replace(encoder.recipe_, metric=metric or "correlation"))


def _described(client: Client, urls: list[str], column: str | None) -> list[Source]:
    groups = [tuple(urls[at : at + DESCRIBED]) for at in range(0, len(urls), DESCRIBED)]
    found: dict[str, Source] = {}
    for _, sources, error in run_all(client, groups, lambda group: client.submit(_describe_all, group, column)):
        if error is not None:
            raise error
        found |= {source.url: source for source in sources}
    return [found[url] for url in urls]


def _describe_all(urls: tuple[str, ...], column: str | None) -> list[Source]:
    return [describe(url, column) for url in urls]


def _array_record(array: Any) -> Record:
    return {"array": array.name, "blocks": [int(size) for size in array.chunks[0]], "n_features": array.shape[1]}


def _missing(manifest: Manifest, sources: list[Record], folder: Folder) -> list[Record]:
    """Sources that are not encoded yet; one that has changed since is refused."""
    known = {source.get("url") or source["array"]: source for source in manifest.sources}
    missing = []
    for source in sources:
        name: str = source.get("url") or source["array"]
        if name not in known:
            missing.append(source)
        elif known[name] != source:
            raise_changed_source(folder.url, name, known[name], source)
    return missing


def _plans(sources: list[Source], first_id: int, limit: int) -> Iterator[Plan]:
    """Shards of ``limit`` entries, through the files one after another."""
    parts: list[Piece] = []
    room = limit
    for source in sources:
        start = 0
        while start < source.rows:
            stop = min(source.rows, start + room)
            parts.append(Piece(source, start, stop))
            room, start = room - (stop - start), stop
            if not room:
                yield Plan(first_id, tuple(parts))
                first_id, parts, room = first_id + limit, [], limit
    if parts:
        yield Plan(first_id, tuple(parts))


def _block_plans(array: Any, first_id: int) -> Iterator[Plan]:
    ends = np.cumsum(array.chunks[0]).tolist()
    for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        if stop > start:
            yield Plan(first_id + start, (Block(array.name, number, start, stop),))


def _run(
    client: Client,
    folder: Folder,
    parameters: Record,
    plans: list[Plan],
    blocks: Any,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Shard], int]:
    """All shards, and how many had to be written."""
    if blocks is None:
        submit: Callable[[Plan], Future] = partial(client.submit, _encode_files, folder, parameters, pure=False)
    else:
        there = folder.sizes()

        def submit(plan: Plan) -> Future:
            if plan.file in there:
                return client.submit(_look, folder, parameters, plan, pure=False)
            return _submit_block(client, folder, parameters, plan, blocks)

    total, done, written = sum(plan.entries for plan in plans), 0, 0
    shards, failed = [], {}
    again: list[Plan] = []
    for jobs, send in ((plans, submit), (again, partial(_submit_block, client, folder, parameters, blocks=blocks))):
        for plan, found, error in run_all(client, jobs, send):
            if error is not None:
                failed[plan.file] = error
            elif found is None:  # a shard that an earlier run left unsound
                again.append(plan)
            else:
                shard, is_new = found
                shards.append(shard)
                written, done = written + is_new, done + plan.entries
                if progress is not None:
                    progress(done, total)
    if failed:
        raise_failed(folder.url, failed, len(plans))
    return shards, written


def _look(folder: Folder, parameters: Record, plan: Plan) -> tuple[Shard, bool] | None:
    found = finished_shard(folder, plan.file, parameters)
    return None if found is None else (found, False)


def _encode_files(folder: Folder, parameters: Record, plan: Plan) -> tuple[Shard, bool]:
    """On a worker: writes a shard from pieces of files, unless it is there already."""
    found = _look(folder, parameters, plan)
    if found is not None:
        return found
    columns = _Columns(parameters, plan)
    for piece in plan.parts:
        assert isinstance(piece, Piece)
        try:
            columns.take(piece.source.signals(), slice(piece.start, piece.stop))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.source.url}: {error}") from None
    return write_shard(folder, plan.file, parameters, columns.arrays), True


def _submit_block(client: Client, folder: Folder, parameters: Record, plan: Plan, blocks: Any) -> Future:
    (part,) = plan.parts
    assert isinstance(part, Block)
    block = blocks.blocks[part.number, 0].to_delayed().item()
    task = delayed(_encode_block, pure=False)(folder, parameters, plan, block)
    future: Future = client.compute(task, optimize_graph=True)
    return future


def _encode_block(folder: Folder, parameters: Record, plan: Plan, values: Array) -> tuple[Shard, bool]:
    """On a worker: writes a shard from a block of an array."""
    (part,) = plan.parts
    assert isinstance(part, Block)
    columns = _Columns(parameters, plan)
    try:
        columns.take(_Offset(np.asarray(values), part.start), slice(part.start, part.stop))
    except (ValueError, TypeError) as error:
        raise type(error)(f"block {part.number} of the array: {error}") from None
    return write_shard(folder, plan.file, parameters, columns.arrays), True


class _Offset:
    """Rows of a block, numbered as in the whole array."""

    def __init__(self, values: Array, start: int) -> None:
        self._values, self._start = as_signals(values), start
        self.shape = (start + len(values), values.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | int) -> Array:
        if isinstance(rows, slice):
            return self._values[rows.start - self._start : rows.stop - self._start]
        return np.asarray(self._values[rows - self._start])


class _Columns:
    """The columns of a shard, filled part after part."""

    def __init__(self, parameters: Record, plan: Plan) -> None:
        self._index = index_of(parameters)
        self._filled = 0
        n_entries = plan.entries
        norms, scales = (np.empty(n_entries, np.float32) if self._index.norms else None for _ in range(2))
        codes = np.empty((n_entries, self._index.recipe.layout.code_bytes), np.uint8)
        self.arrays = Arrays(np.arange(plan.first_id, plan.first_id + n_entries), codes, norms, scales, None)

    def take(self, signals: Any, part: slice) -> None:
        """Encodes a part of signals that are read as they are sliced."""
        for start in range(part.start, part.stop, ENCODED_ROWS):
            rows = slice(start, min(start + ENCODED_ROWS, part.stop))
            # One thread: a worker's other threads have shards of their own.
            made = encode_signals(self._index.recipe, signals, part=rows, n_threads=1)
            filled = slice(self._filled, self._filled + rows.stop - rows.start)
            columns: tuple[Any, ...] = (self.arrays.codes, self.arrays.norms, self.arrays.scales)
            for column, values in zip(columns, (made.codes, made.norms, made.scales), strict=True):
                if column is not None:
                    column[filled] = values
            self._filled = filled.stop
