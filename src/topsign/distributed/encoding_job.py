"""Encoding on a cluster: each segment is a task, and one final version makes all of them visible.

A job first commits a small version that reserves ids, so that concurrent additions get other ids. Its segment files are
orphans until the final version names them; the reservation protects them from cleaning by other clients.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from distributed import Client, Future

from .._arrays import Array, Int64
from .._checks import check_choice, check_count, format_list, suggests_keywords
from .._files import Record
from ..errors import StorageError
from ..families import METRICS, Recipe
from ..index import Index, deferred_of
from ..index.addition import DeferredIndex
from ..index.regions import IndexRegions
from ..signals import FilesRows, Location, Place, SignalFile, TableColumns, list_files, open_file
from ..signals.files import check_same_columns
from ..store.backends import Backend
from ..store.folder_store import FolderChange, FolderStore, exists, open_store, resolve, store_for_recipe
from ..store.segments import ORIGINAL_TYPES
from ..store.stored_columns import open_segment
from ..store.versions import PENDING, SegmentRecord
from .cluster import resolve_client, run_all, run_each, send
from .segment_encoding import EncodedSegment, PlannedSegment, SegmentFormat, encode_segment, plan_segments

if TYPE_CHECKING:
    from ..encoders import Encoder

SEGMENT_BYTES = 2**26
"""Default bytes of codes per segment; a billion entries of 500 bytes make about 7,000 segments."""

OPTIONS = {"column", "columns"}
"""Parts of the record of a source that options determine, not the file."""

HEADERS_PER_TASK = 64
"""Number of file headers read by one task."""

GROUP_ENTRIES = 2**22
"""Number of ids read by one task."""

SHOWN = 20
"""Number of duplicate keys that are looked up for the error message."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EncodingResult:
    """Result of :func:`encode`."""

    version: int  #: number of the manifest; the newest by default
    n_entries: int  #: number of entries that one search compares with
    n_segments: int  #: number of segments
    n_written: int  #: segments written by this run; the others existed


@suggests_keywords
def encode(
    signals: Location,
    out: Location,
    encoder: Encoder | Index | Recipe,
    *,
    client: Client | None = None,
    metric: str | None = None,
    vector_column: str | None = None,
    id_column: str | None = None,
    metadata_columns: Sequence[str] = (),
    originals: str | None = None,
    segment_entries: int | None = None,
    progress: Progress | None = None,
) -> EncodingResult:
    """Encode signals into an index on all workers of a cluster.

    Ids are row numbers over all files sorted by name, or come from a column. Existing entries of ``out`` are kept: call
    it again to continue an interrupted job, or to add new files. All new entries appear in one new version.

    Parameters
    ----------
    signals : path or URL
        A folder or object-store prefix of files that :mod:`topsign.signals` reads (arrays, sparse matrices, tables), or
        one such file. Read block by block.
    out : path or URL
        A folder that all workers see (a shared file system, s3://, gs:// and so on); it is made if it does not exist.
        :func:`open` and :func:`topsign.open_index` open it.
    encoder : fitted encoder, Index or Recipe
        Recipe of the codes, of any family. Entries of an index are ignored. An index that has not learned its recipe
        learns it from the signals in this process, or takes the recipe of an existing index in ``out``.
    client : distributed.Client, optional
        Client of the cluster; by default of a local one in this process.
    metric : "correlation" or "inner_product", optional
        Quantity that scores estimate; by default that of the encoder.
    vector_column : str, optional
        Column or array that holds the signals, if files have several.
    id_column : str, optional
        Table column that holds the ids, strings or integers. They must be unique within and across files; workers
        check this before entries become visible.
    metadata_columns : sequence of str
        Columns of tables that become the metadata of each entry.
    originals : "float32", "float16" or "int8", optional
        Type in which a new index in ``out`` keeps the signals; by default that of an encoder that is an index. An
        existing index keeps its own type. If ``out`` has regions, new entries are assigned to them.
    segment_entries : int, optional
        Entries per segment; by default 64 MiB of codes.
    progress : callable, optional
        Called with the number of stored entries and the total whenever a segment is finished.

    Raises
    ------
    ValueError, TypeError
        If signals cannot be encoded; the message names file and row. All other segments are finished first and kept.
    StorageError
        If a file of signals cannot be read, or ``out`` holds something else, or is damaged.
    ConflictError
        If another job encodes into the same index.
    """
    client, columns = resolve_client(client), TableColumns(id_column, tuple(metadata_columns))
    if segment_entries is not None:
        check_count(segment_entries, "segment_entries")
    if not isinstance(encoder, (Index, Recipe)):
        encoder = _recipe_of_encoder(encoder)
    if originals is not None:
        check_choice(originals, "originals", ORIGINAL_TYPES)
    files = _describe_files(client, list_files(signals), vector_column, columns.names)
    recipe = _recipe_of(encoder, metric, files, out)
    _check_length(files, recipe.n_features)
    kept = encoder.originals if isinstance(encoder, Index) else None
    store = _open_store(out, recipe, originals or kept)
    if originals not in (None, store.originals):
        raise ValueError(f"{store.path} has originals={store.originals!r}, got originals={originals!r}")
    named = {"columns": list(columns.names)} if columns.names else {}
    records = [file.to_json() | named | {"taken": file.n_signals} for file in files]
    missing = _missing(store, {record["url"]: record for record in records})
    if not missing:
        return _result(store, 0)
    if store.snapshot.has_text_ids and id_column is None:
        raise ValueError(f"the ids in {store.path} are texts; name the column of ids with id_column")
    limit = segment_entries or max(1, SEGMENT_BYTES // (recipe.code_bytes + 16))
    new = [file for file, record in zip(files, records, strict=True) if record["url"] in missing]
    n_entries = sum(file.n_signals for file in new)
    first_id = _reserve(store, n_entries)
    plans = list(plan_segments(new, first_id, limit, columns))
    form = SegmentFormat(recipe, store.originals, IndexRegions(recipe, store).regions(store.now.tables))
    encoded = _run(client, store, form, plans, progress)
    _commit(client, store, form, encoded, missing, first_id, n_entries, explicit=id_column is not None)
    return _result(store, sum(one.is_new for one in encoded))


def _result(store: FolderStore, n_written: int) -> EncodingResult:
    return EncodingResult(store.version, len(store.snapshot), len(store.snapshot.segments), n_written)


# Recipe and store


def _recipe_of_encoder(encoder: object) -> Recipe:
    """Return the recipe of a fitted encoder, which needs scikit-learn."""
    from sklearn.utils.validation import check_is_fitted

    from ..encoders import Encoder

    if not isinstance(encoder, Encoder):
        raise TypeError(f"encoder must be a fitted encoder, an Index or a Recipe, got {type(encoder).__name__}")
    check_is_fitted(encoder)
    return encoder.recipe_


def _recipe_of(encoder: Index | Recipe, metric: str | None, files: list[SignalFile], out: Location) -> Recipe:
    """Return the recipe of an index, or a recipe itself."""
    if isinstance(encoder, Index) and (deferred := deferred_of(encoder)) is not None:
        recipe = _learn(deferred, files, out)
    elif isinstance(encoder, Index):
        recipe = encoder.recipe
    else:
        recipe = encoder
    if metric is None or metric == recipe.metric:
        return recipe
    if isinstance(encoder, Index):
        raise ValueError(f"this index has metric={recipe.metric!r}, got metric={metric!r}; leave metric=None")
    changed: Any = recipe
    made: Recipe = replace(changed, metric=check_choice(metric, "metric", METRICS))
    return made


def _learn(deferred: DeferredIndex, files: list[SignalFile], out: Location) -> Recipe:
    """Learn the recipe of an index from the signals, or return that of an existing index in ``out``."""
    if not exists(out):
        _check_length(files, deferred.n_features)
        rows: Any = FilesRows(files)
        return deferred.recipe_type.learn(rows, **deferred.parameters)
    recipe, store = deferred.open_existing(resolve(out))
    store.close()
    return recipe


def _open_store(out: Location, recipe: Recipe, originals: str | None) -> FolderStore:
    """Open or create the store at ``out``; raise StorageError if it has another recipe."""
    if not exists(out):
        store_for_recipe(recipe, path=out, timeout=None, originals=originals).close()
    store = open_store(out, optimistic=True)
    if store.recipe != recipe:
        have, want = store.recipe.difference(recipe)
        problem = f"written with {have}, not {want}; codes of different recipes need folders of their own"
        raise StorageError(store.path, "recipe", problem)
    return store


def _missing(store: FolderStore, records: dict[str, Record]) -> dict[str, Record]:
    """Return the sources that are not encoded yet; raise ValueError if an encoded source has changed."""
    known = store.now.sources
    for name in records.keys() & known.keys():
        before, now = known[name], records[name]
        if before == now:
            continue
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        values = "; ".join(f"{key}: {before.get(key)} then, {now.get(key)} now" for key in keys)
        if set(keys) <= OPTIONS:
            raise ValueError(
                f"{name} is in {store.path} already, but was read with other options ({values}); give the same ones, "
                "or use a new folder"
            )
        raise ValueError(f"{name} is in {store.path} already and has changed since ({values}); use a new folder")
    return {name: record for name, record in records.items() if name not in known}


# Versions


def _reserve(store: FolderStore, n_entries: int) -> int:
    """Reserve ids and return the first one; take over the reservation of an interrupted job."""

    def reserve(change: FolderChange) -> int:
        before = change.sources.get(PENDING, {})
        n_before = before.get("entries")
        if type(n_before) is int and before.get("first_id") == change.next_id - n_before >= 0:
            change.next_id -= n_before
        first = change.next_id
        change.free_ids(n_entries)  # raises if there are too few
        record = {"job": secrets.token_hex(8), "first_id": first, "entries": n_entries}
        change.keep_source(PENDING, record)
        change.next_id = first + n_entries
        return first

    store.refresh()
    return store.apply(reserve)


def _commit(
    client: Client,
    store: FolderStore,
    form: SegmentFormat,
    encoded: list[EncodedSegment],
    sources: dict[str, Record],
    first_id: int,
    n_entries: int,
    *,
    explicit: bool,
) -> None:
    """Commit all segments; check that user-given ids are unique."""
    records = [one.record for one in encoded]
    last = max(one.last_id for one in encoded)

    def commit(change: FolderChange) -> None:
        if len({one.has_text_ids for one in encoded} | ({change.snapshot.has_text_ids} - {None})) > 1:
            raise TypeError(
                f"ids must be all texts or all integers, got both for {store.path}; nothing was changed: fix the "
                "columns of ids and run again, or use a new folder"
            )
        if explicit:
            here = [segment.columns.record for segment in change.snapshot.segments]  # type: ignore[union-attr]
            try:
                check_unique(client, store.backend, store.recipe, [*here, *records], texts=encoded[0].has_text_ids)
            except ValueError as error:
                raise ValueError(f"{error}; nothing was changed: fix the files and run again") from None
        regions = IndexRegions(store.recipe, store).regions(change.tables)
        is_same = regions is None or form.regions is None or regions.generation == form.regions.generation
        change.add_stored(records if is_same else [replace(one, regions=None) for one in records])
        if explicit and change.next_id == first_id + n_entries:
            change.next_id = first_id  # the reserved ids were not needed
        change.next_id = max(change.next_id, last + 1)
        for name, record in sources.items():
            change.keep_source(name, record)
        change.keep_source(PENDING, None)

    store.apply(commit)


def _run(
    client: Client, store: FolderStore, form: SegmentFormat, plans: list[PlannedSegment], progress: Progress | None
) -> list[EncodedSegment]:
    """Return all segments in the order of the plans."""
    index = store.now.manifest.index
    names = {plan: plan.name(index) for plan in plans}
    shared = send(client, form)

    def submit(plan: PlannedSegment) -> Future:
        nonlocal shared
        if shared.status in ("error", "lost", "cancelled"):  # Dask has given it up with the worker that held it
            shared = send(client, form)
        return client.submit(encode_segment, store.backend, shared, names[plan], plan, pure=False)

    total, done = sum(plan.n_entries for plan in plans), 0
    encoded: dict[PlannedSegment, EncodedSegment] = {}
    failed: dict[PlannedSegment, Exception] = {}
    for plan, found, error in run_all(client, plans, submit, name=str):
        if error is not None:
            failed[plan] = error
        else:
            encoded[plan] = found
            done += plan.n_entries
            if progress is not None:
                progress(done, total)
    if failed:
        _raise_failed(store.path, [failed[plan] for plan in plans if plan in failed], len(plans))
    return [encoded[plan] for plan in plans]


def _raise_failed(url: str, failed: list[Exception], n_segments: int) -> NoReturn:
    """Raise an error for segments that could not be encoded, with the type of the first error."""
    named = "; ".join(map(str, failed[:5]))
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    problem = (
        f"{len(failed)} of {n_segments} segments could not be encoded: {named}{more}. The others are kept in {url}; "
        "fix these and run again"
    )
    first = failed[0]
    if isinstance(first, StorageError):
        raise StorageError(first.path, first.section, problem) from first
    raise (ValueError if isinstance(first, (ValueError, TypeError)) else RuntimeError)(problem) from first


# Signals


def _describe_files(
    client: Client, places: list[Place], vector_column: str | None, aside: tuple[str, ...]
) -> list[SignalFile]:
    """Describe signal files, whose headers are read by the workers."""
    groups = [tuple(places[at : at + HEADERS_PER_TASK]) for at in range(0, len(places), HEADERS_PER_TASK)]
    submit = partial(client.submit, _open_group, vector_column, aside, pure=False)
    found: dict[str, SignalFile] = {}
    for _, files in run_each(client, groups, submit, name=lambda group: f"headers from {group[0].url} on"):
        found |= {file.url: file for file in files}
    ordered = [found[place.url] for place in places]
    check_same_columns(ordered)
    if not any(file.n_signals for file in ordered):
        raise ValueError(f"{ordered[0].url} and all other files contain no signals")
    return ordered


def _check_length(files: list[SignalFile], n_features: int) -> None:
    """Raise ValueError if signals have another length."""
    for file in files:
        if file.n_signals and file.n_features != n_features:
            raise ValueError(f"{file.url} has signals of {file.n_features} features, the encoder takes {n_features}")


def _open_group(vector_column: str | None, aside: tuple[str, ...], places: tuple[Place, ...]) -> list[SignalFile]:
    return [open_file(place, vector_column, aside) for place in places]


# Ids


def check_unique(
    client: Client, backend: Backend, recipe: Recipe, records: list[SegmentRecord], *, texts: bool
) -> None:
    """Raise ValueError if two entries have the same id.

    Each id has a 64-bit key: the integer itself, or the hash of the text. Workers read the ids of groups of segments
    and partition the keys by value; one task per partition then finds duplicate keys. Workers hold eight bytes per
    entry.
    """
    groups = _group(records)
    sent = send(client, recipe)
    split = partial(client.submit, _split_keys, backend, sent, texts=texts, n_parts=len(groups), pure=False)
    keys = [split(group) for group in groups]

    def find(part: int) -> Any:
        return client.submit(_find_twice, [client.submit(getitem, one, part, pure=False) for one in keys], pure=False)

    repeated = [found for _, found in run_each(client, range(len(groups)), find)]
    chosen = np.unique(np.concatenate(repeated))[:SHOWN]
    if not chosen.size:
        return
    counts: Counter[Any] = Counter()
    look = partial(client.submit, _ids_of, backend, sent, texts=texts, keys=chosen, pure=False)
    for _, ids in run_each(client, groups, look):
        counts.update(ids)
    twice = sorted(id for id, count in counts.items() if count > 1)  # hashes of different texts may collide
    if twice:
        raise ValueError(f"ids must differ, but {format_list(np.array(twice, object))} given more than once")


def _group(records: list[SegmentRecord]) -> list[tuple[SegmentRecord, ...]]:
    groups, held = [list[SegmentRecord]()], 0
    for record in records:
        if groups[-1] and held + record.file.entries > GROUP_ENTRIES:
            groups.append([])
            held = 0
        groups[-1].append(record)
        held += record.file.entries
    return [tuple(group) for group in groups]


def _keys(backend: Backend, recipe: Recipe, record: SegmentRecord, texts: bool) -> tuple[Array, Any]:
    """Return the keys of the live entries of a segment, and their ids."""
    segment = open_segment(backend, record, recipe, {})
    rows, stored = np.flatnonzero(segment.living), segment.columns.text_ids
    if texts:
        assert stored is not None
        hashes = np.empty_like(stored.hashes)
        hashes[stored.order] = stored.hashes  # sorted by hash, not by entry
        return hashes[rows], stored.texts(rows)
    return segment.ids[rows].view(np.uint64), segment.ids[rows].tolist()


def _split_keys(
    backend: Backend, recipe: Recipe, records: tuple[SegmentRecord, ...], *, texts: bool, n_parts: int
) -> list[Array]:
    keys = np.concatenate([_keys(backend, recipe, record, texts)[0] for record in records])
    return [keys[keys % np.uint64(n_parts) == part] for part in range(n_parts)]


def _find_twice(parts: list[Array]) -> Array:
    unique, counts = np.unique(np.concatenate(parts), return_counts=True)
    return unique[counts > 1][:SHOWN]


def _ids_of(
    backend: Backend, recipe: Recipe, records: tuple[SegmentRecord, ...], *, texts: bool, keys: Int64
) -> list[Any]:
    """Return the ids with these keys."""
    found = []
    for record in records:
        here, ids = _keys(backend, recipe, record, texts)
        found += [ids[at].decode() if texts else ids[at] for at in np.flatnonzero(np.isin(here, keys))]
    return found
