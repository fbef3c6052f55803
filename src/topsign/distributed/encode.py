"""Encoding on a cluster: every shard is a task of its own, the manifest is written last."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import dask.array
import numpy as np
from dask.delayed import delayed
from distributed import Client, Future
from sklearn.utils.validation import check_is_fitted

from .._arrays import Array
from .._checks import as_signals, check_count
from .._files import Record
from .._rows import Rows
from ..embeddings import AdaptiveEncoder
from ..encoding import encode as encode_signals
from ..errors import StorageError
from ..index import Index
from ..index.storage import Arrays
from ..recipe import Recipe
from ..signals import Location, Place, SignalFile, list_files, open_file
from .cluster import resolve_client, run_all
from .folder import Folder
from .manifest import Manifest, begin, write_manifest
from .plan import Block, Piece, PlannedShard, plan_blocks, plan_files
from .shard import SentRecipe, Shard, finished_shard, write_shard

SHARD_BYTES = 2**26
"""Bytes of codes in a shard by default: a billion entries of half a kilobyte are some 7,000 shards."""

HEADERS_PER_TASK = 64
"""Files whose headers one task reads."""

ENCODED_ROWS = 8192
"""Signals encoded at a time, whose codes are held besides those of the shard."""

Encoder = AdaptiveEncoder | Index[Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Encoded:
    """What is in a folder after :func:`encode`."""

    version: int  # of the manifest
    n_entries: int
    n_shards: int
    n_written: int  # shards that this run wrote; the others were there


def encode(
    signals: Location | dask.array.Array,
    out: Location,
    encoder: Encoder,
    *,
    client: Client | None = None,
    metric: str | None = None,
    array: str | None = None,
    shard_entries: int | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encodes signals into immutable shards, on all workers of a cluster.

    Ids are row numbers, counted through the files in the order of their names. What is in ``out`` already is kept:
    an interrupted job goes on when it is called again, and signals that ``out`` does not have yet become further
    shards and a new version of the manifest, which is written last.

    Parameters
    ----------
    signals : path, URL or dask array
        A folder or object-store prefix of .npy, .npz, .parquet (signals as lists in one column) and .safetensors
        files, one such file, or a dask array whose blocks, one shard each, hold whole rows. Read block by block.
    out : path or URL
        A folder that all workers see: a shared file system, s3://, gs:// and so on.
    encoder : AdaptiveEncoder or Index
        A fitted encoder without ``center=True``, or an index whose parameters (not entries) are taken.
    client : distributed.Client, optional
        Of the cluster; a local one in this process when not given.
    metric : "correlation" or "inner_product", optional
        What scores will estimate; of an index it is known.
    array : str, optional
        Which array or column holds the signals, where files have several.
    shard_entries : int, optional
        Entries of a shard; so many that their codes take 64 MiB when not given.
    progress : callable, optional
        Called with the number of entries on disk and of all there will be, as shards are finished.

    Raises
    ------
    ValueError, TypeError
        Signals that cannot be encoded, named by file and row; all other shards are finished first and kept.
    StorageError
        Where a file of signals cannot be read, or ``out`` holds something else, or is damaged.
    """
    folder = Folder.at(out)
    recipe = _recipe_of(encoder, metric)
    client = resolve_client(client)
    limit = check_count(shard_entries or default_shard_entries(recipe), "shard_entries")
    blocks: Any = None
    if isinstance(signals, dask.array.Array):
        blocks = _check_blocks(signals, recipe.n_features).rechunk({1: -1})
        sources = [_array_record(blocks)]
    else:
        files = _open_all(client, list_files(signals), array)
        _check_files(files, recipe.n_features)
        sources = [file.to_json() for file in files]
    manifest = begin(folder, recipe)
    missing = _missing(manifest, sources, folder)
    if not missing:
        return Encoded(manifest.version, manifest.n_entries, manifest.n_shards, 0)
    if blocks is not None:
        plans = list(plan_blocks(blocks, manifest.next_id))
    else:
        plans = list(plan_files([file for file in files if file.to_json() in missing], manifest.next_id, limit))
    shards, n_written = _run(client, folder, SentRecipe.of(recipe), plans, blocks, progress)
    next_id = manifest.next_id + sum(plan.n_entries for plan in plans)
    manifest = manifest.with_shards(shards, missing, next_id)
    write_manifest(folder, manifest)
    folder.remove_drafts({plan.file for plan in plans})
    return Encoded(manifest.version, manifest.n_entries, manifest.n_shards, n_written)


def default_shard_entries(recipe: Recipe) -> int:
    """Entries whose codes, norms and ids take 64 MiB."""
    return max(1, SHARD_BYTES // (recipe.layout.code_bytes + 16))


def _recipe_of(encoder: Encoder, metric: str | None) -> Recipe:
    """The recipe that shards are encoded with."""
    if not isinstance(encoder, (AdaptiveEncoder, Index)):
        raise TypeError(f"encoder must be an AdaptiveEncoder or an Index, got {type(encoder).__name__}")
    if getattr(encoder, "center", False):
        raise ValueError(
            "an index does not remove a mean, got an encoder with center=True; subtract the mean from the signals (and "
            "later from the queries), and encode without it"
        )
    if isinstance(encoder, AdaptiveEncoder):
        check_is_fitted(encoder)
        return replace(encoder.recipe_, metric=metric or "correlation")
    if metric is not None and encoder.metric != metric:
        raise ValueError(f"this index has metric={encoder.metric!r}, got metric={metric!r}; leave metric=None")
    return encoder.recipe


def _check_blocks(array: Any, n_features: int) -> Any:
    """A dask array of signals whose blocks have known sizes."""
    as_signals(np.empty((0,) * array.ndim, array.dtype))
    if array.ndim != 2 or array.shape[1] != n_features:
        raise ValueError(f"signals must be a dask array (n_signals, {n_features}), got shape {array.shape}")
    if any(math.isnan(size) for size in array.chunks[0]):
        raise ValueError("the blocks of this dask array have unknown sizes; call compute_chunk_sizes() first")
    return array


def _check_files(files: list[SignalFile], n_features: int) -> None:
    for file in files:
        if file.n_signals and file.n_features != n_features:
            raise ValueError(f"{file.url} has signals of {file.n_features} features, the encoder takes {n_features}")
    if not any(file.n_signals for file in files):
        raise ValueError(f"{files[0].url} and all other files hold no signals; there is nothing to encode")


def _open_all(client: Client, places: list[Place], array: str | None) -> list[SignalFile]:
    """What the headers of all files say, read on the workers."""
    groups = [tuple(places[at : at + HEADERS_PER_TASK]) for at in range(0, len(places), HEADERS_PER_TASK)]
    found: dict[str, SignalFile] = {}
    for _, files, error in run_all(client, groups, lambda group: client.submit(_open_group, group, array, pure=False)):
        if error is not None:
            raise error
        found |= {file.url: file for file in files}
    return [found[place.url] for place in places]


def _open_group(places: tuple[Place, ...], array: str | None) -> list[SignalFile]:
    return [open_file(place, array) for place in places]


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
            raise ValueError(
                f"{name} is in {folder.url} already and has changed since: {known[name]} then, {source} now; use a new "
                "folder"
            )
    return missing


def _run(
    client: Client,
    folder: Folder,
    sent: SentRecipe,
    plans: list[PlannedShard],
    blocks: Any,
    progress: Progress | None,
) -> tuple[list[Shard], int]:
    """All shards, and how many had to be written."""
    if blocks is None:
        submit: Callable[[PlannedShard], Future] = partial(client.submit, _encode_files, folder, sent, pure=False)
    else:
        there = folder.sizes()

        def submit(plan: PlannedShard) -> Future:
            if plan.file in there:
                return client.submit(_look, folder, sent, plan, pure=False)
            return _submit_block(client, folder, sent, plan, blocks)

    total, done, written = sum(plan.n_entries for plan in plans), 0, 0
    shards, failed = [], {}
    again: list[PlannedShard] = []
    for jobs, send in ((plans, submit), (again, partial(_submit_block, client, folder, sent, blocks=blocks))):
        for plan, found, error in run_all(client, jobs, send):
            if error is not None:
                failed[plan.file] = error
            elif found is None:  # a shard that an earlier run left unsound
                again.append(plan)
            else:
                shard, is_new = found
                shards.append(shard)
                written, done = written + is_new, done + plan.n_entries
                if progress is not None:
                    progress(done, total)
    if failed:
        _raise_failed(folder.url, failed, len(plans))
    return shards, written


def _raise_failed(url: str, failed: dict[str, Exception], n_shards: int) -> NoReturn:
    """Some shards could not be encoded; the type of error is that of the first."""
    first = failed[min(failed)]
    named = "; ".join(str(failed[file]) for file in sorted(failed)[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    problem = (
        f"{len(failed)} of {n_shards} shards could not be encoded: {named}{more}. The others are kept in {url}; fix "
        "these and run again"
    )
    if isinstance(first, StorageError):
        raise StorageError(first.path, first.section, problem) from first
    raise (ValueError if isinstance(first, (ValueError, TypeError)) else RuntimeError)(problem) from first


def _look(folder: Folder, sent: SentRecipe, plan: PlannedShard) -> tuple[Shard, bool] | None:
    found = finished_shard(folder, plan.file, sent.recipe())
    return None if found is None else (found, False)


def _encode_files(folder: Folder, sent: SentRecipe, plan: PlannedShard) -> tuple[Shard, bool]:
    """On a worker: writes a shard from pieces of files, unless it is there already."""
    found = _look(folder, sent, plan)
    if found is not None:
        return found
    columns = _Columns(sent.recipe(), plan)
    for piece in plan.parts:
        assert isinstance(piece, Piece)
        try:
            columns.take(piece.file.rows(), slice(piece.start, piece.stop))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.file.url}: {error}") from None
    return write_shard(folder, plan.file, sent.recipe(), columns.arrays), True


def _submit_block(client: Client, folder: Folder, sent: SentRecipe, plan: PlannedShard, blocks: Any) -> Future:
    (part,) = plan.parts
    assert isinstance(part, Block)
    block = blocks.blocks[part.number, 0].to_delayed().item()
    task = delayed(_encode_block, pure=False)(folder, sent, plan, block)
    future: Future = client.compute(task, optimize_graph=True)
    return future


def _encode_block(folder: Folder, sent: SentRecipe, plan: PlannedShard, values: Array) -> tuple[Shard, bool]:
    """On a worker: writes a shard from a block of an array."""
    (part,) = plan.parts
    assert isinstance(part, Block)
    columns = _Columns(sent.recipe(), plan)
    try:
        columns.take(_BlockRows(np.asarray(values), part.start), slice(part.start, part.stop))
    except (ValueError, TypeError) as error:
        raise type(error)(f"block {part.number} of the array: {error}") from None
    return write_shard(folder, plan.file, sent.recipe(), columns.arrays), True


class _BlockRows(Rows):
    """Rows of a block, numbered as in the whole array."""

    def __init__(self, values: Array, start: int) -> None:
        self._values, self._start = as_signals(values), start
        super().__init__((start + len(values), values.shape[1]), values.dtype)

    def read(self, start: int, stop: int) -> Array:
        return self._values[start - self._start : stop - self._start]


class _Columns:
    """The columns of a shard, filled part after part."""

    def __init__(self, recipe: Recipe, plan: PlannedShard) -> None:
        self._recipe, self._filled = recipe, 0
        n_entries = plan.n_entries
        norms, scales = (np.empty(n_entries, np.float32) if recipe.norms else None for _ in range(2))
        codes = np.empty((n_entries, recipe.layout.code_bytes), np.uint8)
        self.arrays = Arrays(np.arange(plan.first_id, plan.first_id + n_entries), codes, norms, scales, None)

    def take(self, signals: Any, part: slice) -> None:
        """Encodes a part of signals that are read as they are sliced."""
        for start in range(part.start, part.stop, ENCODED_ROWS):
            rows = slice(start, min(start + ENCODED_ROWS, part.stop))
            # One thread: a worker's other threads have shards of their own.
            made = encode_signals(self._recipe, signals, part=rows, n_threads=1)
            filled = slice(self._filled, self._filled + rows.stop - rows.start)
            columns: tuple[Any, ...] = (self.arrays.codes, self.arrays.norms, self.arrays.scales)
            for column, values in zip(columns, (made.codes, made.norms, made.scales), strict=True):
                if column is not None:
                    column[filled] = values
            self._filled = filled.stop
