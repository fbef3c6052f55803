"""Encoding on a cluster: every shard is a task of its own, the manifest is written last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import dask.array
import numpy as np
from dask.delayed import delayed
from distributed import Client, Future
from sklearn.utils.validation import check_is_fitted

from .._arrays import Array, Float32, Float64
from .._checks import as_signals, check_count
from .._files import Record
from .._named import named
from ..embeddings import AdaptiveEncoder
from ..encoding import mean_signal
from ..errors import StorageError
from ..index import Index
from ..recipe import Recipe
from ..signals import Location, Place, SignalFile, TableColumns, list_files, open_file
from ..signals.files import check_same_columns
from .cluster import resolve_client, run_all
from .columns import BlockRows, ShardColumns
from .folder import Folder
from .manifest import Manifest, begin, stored_recipe, write_manifest
from .plan import Block, Piece, PlannedShard, plan_blocks, plan_files
from .shard import SentRecipe, Shard, finished_shard, write_shard
from .unique import check_unique

SHARD_BYTES = 2**26
"""Bytes of codes in a shard by default: a billion entries of half a kilobyte are some 7,000 shards."""

HEADERS_PER_TASK = 64
"""Files whose headers one task reads."""

Encoder = AdaptiveEncoder | Index[Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Encoded:
    """What is in a folder after :func:`encode`."""

    version: int  # of the manifest
    n_entries: int
    n_shards: int
    n_written: int  # shards that this run wrote; the others were there


@named
def encode(
    signals: Location | dask.array.Array,
    out: Location,
    encoder: Encoder,
    *,
    client: Client | None = None,
    metric: str | None = None,
    array: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
    shard_entries: int | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encodes signals into immutable shards, on all workers of a cluster.

    Ids are row numbers, counted through the files in the order of their names, or those of a column. What is in
    ``out`` already is kept: an interrupted job goes on when it is called again, and signals that ``out`` does not have
    yet become further shards and a new version of the manifest, which is written last.

    Parameters
    ----------
    signals : path, URL or dask array
        A folder or object-store prefix of files that :mod:`topsign.signals` reads (arrays, sparse matrices, tables),
        one such file, or a dask array whose blocks, one shard each, hold whole rows. Read block by block.
    out : path or URL
        A folder that all workers see: a shared file system, s3://, gs:// and so on.
    encoder : AdaptiveEncoder or Index
        A fitted encoder, or an index whose parameters (not entries) are taken. The mean of an index with
        ``center=True`` that has none yet is that of all signals of the first call; workers read them once more for it.
    client : distributed.Client, optional
        Of the cluster; a local one in this process when not given.
    metric : "correlation" or "inner_product", optional
        What scores will estimate; of an index it is known.
    array : str, optional
        Which array or column holds the signals, where files have several.
    id_column : str, optional
        Column of tables that holds the ids, texts or integers. They must differ, within and across files: before the
        manifest is written, workers compare all of them.
    metadata_columns : sequence of str
        Columns of tables that become the metadata of each entry.
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
    columns = TableColumns(id_column, tuple(metadata_columns))
    blocks: Any = None
    files: list[SignalFile] = []
    if isinstance(signals, dask.array.Array):
        if columns.names:
            raise ValueError("a dask array has no columns of ids and metadata; encode tables, or split an index")
        blocks = _check_blocks(signals, recipe.n_features).rechunk({1: -1})
        sources = [_array_record(blocks)]
    else:
        files = _open_all(client, list_files(signals), array, columns)
        _check_files(files, recipe.n_features)
        beside = {"columns": list(columns.names)} if columns.names else {}
        sources = [file.to_json() | beside for file in files]
    if isinstance(encoder, Index) and encoder.awaits_mean:
        known = stored_recipe(folder)
        mean = _mean_of(client, files, blocks) if known is None else known.mean
        recipe = replace(recipe, mean=mean)
    manifest = begin(folder, recipe)
    missing = _missing(manifest, sources, folder)
    if not missing:
        return Encoded(manifest.version, manifest.n_entries, manifest.n_shards, 0)
    if manifest.n_entries and manifest.texts and id_column is None:
        raise ValueError(f"the ids in {folder.url} are texts; name the column of ids (id_column=, --id-column)")
    if blocks is not None:
        plans = list(plan_blocks(blocks, manifest.next_id))
    else:
        new = [file for file, source in zip(files, sources, strict=True) if source in missing]
        plans = list(plan_files(new, manifest.next_id, limit, columns))
    shards, texts, n_written = _run(client, folder, SentRecipe.of(recipe), plans, blocks, progress)
    _check_kinds(manifest, texts, folder)
    if id_column is not None:
        try:
            check_unique(client, folder, [*manifest.shards, *shards], texts=texts == {True})
        except ValueError as error:
            problem = f"{error}; no manifest was written: mend the files and run again, or use a new folder"
            raise ValueError(problem) from None
    last = max([manifest.next_id + sum(plan.n_entries for plan in plans), *(shard.last_id + 1 for shard in shards)])
    manifest = replace(manifest.with_shards(shards, missing, last), texts=texts == {True})
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
    check_same_columns(files)
    for file in files:
        if file.n_signals and file.n_features != n_features:
            raise ValueError(f"{file.url} has signals of {file.n_features} features, the encoder takes {n_features}")
    if not any(file.n_signals for file in files):
        raise ValueError(f"{files[0].url} and all other files hold no signals; there is nothing to encode")


def _check_kinds(manifest: Manifest, texts: set[bool], folder: Folder) -> None:
    """All ids of a folder are texts, or all are integers."""
    if len(texts | ({manifest.texts} if manifest.n_entries else set())) > 1:
        raise TypeError(
            f"ids must be all texts or all integers, got both for {folder.url}; no manifest was written: mend the "
            "columns of ids and run again, or use a new folder"
        )


def _mean_of(client: Client, files: list[SignalFile], blocks: Any) -> Float32:
    """The mean of all signals, summed in double precision by the workers."""
    if blocks is not None:
        mean: Float32 = client.compute(blocks.mean(axis=0, dtype=np.float64)).result().astype(np.float32)
        return mean
    total, n_signals = np.zeros(max(file.n_features for file in files)), 0
    some = [file for file in files if file.n_signals]
    for file, found, error in run_all(client, some, lambda file: client.submit(_file_mean, file, pure=False)):
        if error is not None:
            raise error
        total, n_signals = total + found * file.n_signals, n_signals + file.n_signals
    return (total / n_signals).astype(np.float32)


def _file_mean(file: SignalFile) -> Float64:
    try:
        return mean_signal(file.rows()).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{file.url}: {error}") from None


def _open_all(client: Client, places: list[Place], array: str | None, columns: TableColumns) -> list[SignalFile]:
    """What the headers of all files say, read on the workers."""
    groups = [tuple(places[at : at + HEADERS_PER_TASK]) for at in range(0, len(places), HEADERS_PER_TASK)]
    found: dict[str, SignalFile] = {}
    submit = partial(client.submit, _open_group, array, columns.names, pure=False)
    for _, files, error in run_all(client, groups, submit, name=lambda group: f"the headers from {group[0].url} on"):
        if error is not None:
            raise error
        found |= {file.url: file for file in files}
    return [found[place.url] for place in places]


def _open_group(array: str | None, aside: tuple[str, ...], places: tuple[Place, ...]) -> list[SignalFile]:
    return [open_file(place, array, aside) for place in places]


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
) -> tuple[list[Shard], set[bool], int]:
    """All shards, whether their ids are texts, and how many had to be written."""
    if blocks is None:
        submit: Callable[[PlannedShard], Future] = partial(client.submit, _encode_files, folder, sent, pure=False)
    else:
        there = folder.sizes()

        def submit(plan: PlannedShard) -> Future:
            if plan.file in there:
                return client.submit(_look, folder, sent, plan, pure=False)
            return _submit_block(client, folder, sent, plan, blocks)

    total, done, written = sum(plan.n_entries for plan in plans), 0, 0
    shards, texts, failed = [], set[bool](), {}
    again: list[PlannedShard] = []
    for jobs, send in ((plans, submit), (again, partial(_submit_block, client, folder, sent, blocks=blocks))):
        for plan, found, error in run_all(client, jobs, send, name=str):
            if error is not None:
                failed[plan.file] = error
            elif found is None:  # a shard that an earlier run left unsound
                again.append(plan)
            else:
                shard, has_names, is_new = found
                shards.append(shard)
                texts.add(has_names)
                written, done = written + is_new, done + plan.n_entries
                if progress is not None:
                    progress(done, total)
    if failed:
        _raise_failed(folder.url, failed, len(plans))
    return shards, texts, written


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


Made = tuple[Shard, bool, bool]
"""A shard, whether its ids are texts, and whether it was written now."""


def _look(folder: Folder, sent: SentRecipe, plan: PlannedShard) -> Made | None:
    found = finished_shard(folder, plan.file, sent.recipe())
    return None if found is None else (*found, False)


def _encode_files(folder: Folder, sent: SentRecipe, plan: PlannedShard) -> Made:
    """On a worker: writes a shard from pieces of files, unless it is there already."""
    found = _look(folder, sent, plan)
    if found is not None:
        return found
    columns = ShardColumns(sent.recipe(), plan)
    for piece in plan.parts:
        assert isinstance(piece, Piece)
        try:
            rows = slice(piece.start, piece.stop)
            columns.take(piece.file.rows(), rows)
            columns.note(rows.stop - rows.start, **plan.columns.read_rows(piece.file, rows))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{piece.file.url}: {error}") from None
    return _written(folder, sent, plan, columns)


def _written(folder: Folder, sent: SentRecipe, plan: PlannedShard, columns: ShardColumns) -> Made:
    try:
        whole = columns.finished()
    except (ValueError, TypeError) as error:
        raise type(error)(f"{plan}: {error}") from None
    return write_shard(folder, plan.file, sent.recipe(), whole), whole.names is not None, True


def _submit_block(client: Client, folder: Folder, sent: SentRecipe, plan: PlannedShard, blocks: Any) -> Future:
    (part,) = plan.parts
    assert isinstance(part, Block)
    block = blocks.blocks[part.number, 0].to_delayed().item()
    task = delayed(_encode_block, pure=False)(folder, sent, plan, block)
    future: Future = client.compute(task, optimize_graph=True)
    return future


def _encode_block(folder: Folder, sent: SentRecipe, plan: PlannedShard, values: Array) -> Made:
    """On a worker: writes a shard from a block of an array."""
    (part,) = plan.parts
    assert isinstance(part, Block)
    columns = ShardColumns(sent.recipe(), plan)
    try:
        columns.take(BlockRows(np.asarray(values), part.start), slice(part.start, part.stop))
    except (ValueError, TypeError) as error:
        raise type(error)(f"block {part.number} of the array: {error}") from None
    return _written(folder, sent, plan, columns)
