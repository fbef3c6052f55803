"""Encoding on a cluster: each segment is a task, and one final version makes all of them visible.

A job first commits a small version that reserves ids, so that concurrent additions get other ids. Its segment files are
orphans until the final version names them; the reservation protects them from cleaning by other clients.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from distributed import Client, Future
from sklearn.utils.validation import check_is_fitted

from .._checks import check_choice, check_count
from .._files import Record
from ..encoders import Encoder
from ..errors import StorageError
from ..families import METRICS, Recipe
from ..index import Index, deferred_of
from ..index.addition import DeferredIndex
from ..index.regions import IndexRegions
from ..signals import Location, TableColumns, list_files
from ..store import ORIGINAL_TYPES, exists, open_store, resolve, store_for_recipe
from ..store.folder_store import FolderChange, FolderStore
from ..store.versions import PENDING
from .cluster import resolve_client, run_all, send
from .plan import PlannedSegment
from .segment_writing import (
    Coding,
    Written,
    write_from_files,
)
from .signal_sources import FileSource
from .unique import check_unique

SEGMENT_BYTES = 2**26
"""Default bytes of codes per segment; a billion entries of 500 bytes make about 7,000 segments."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EncodingResult:
    """Result of :func:`encode`."""

    version: int
    n_entries: int
    n_segments: int
    n_written: int  # segments written by this run; the others existed


def encode(
    signals: Location,
    out: Location,
    encoder: Encoder | Index | Recipe,
    *,
    client: Client | None = None,
    metric: str | None = None,
    array: str | None = None,
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
    array : str, optional
        Array or column that holds the signals, if files have several.
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
    _check_encoder(encoder)
    if originals is not None:
        check_choice(originals, "originals", ORIGINAL_TYPES)
    source = FileSource(client, list_files(signals), array, columns)
    recipe = _recipe_of(encoder, metric, source, out)
    source.check(recipe.n_features)
    kept = encoder.originals if isinstance(encoder, Index) else None
    store = _opened(out, recipe, originals or kept)
    if originals not in (None, store.originals):
        raise ValueError(f"{store.path} has originals={store.originals!r}, got originals={originals!r}")
    missing = _missing(store, source.records())
    if not missing:
        return _encoded(store, 0)
    if store.snapshot.has_text_ids and id_column is None:
        raise ValueError(f"the ids in {store.path} are texts; name the column of ids (id_column=, --id-column)")
    limit = segment_entries or max(1, SEGMENT_BYTES // (recipe.code_bytes + 16))
    n_entries = source.n_signals(missing)
    first_id = _reserve(store, n_entries)
    plans = source.plan(missing, first_id, limit)
    coding = Coding(recipe, store.originals, IndexRegions(recipe, store).regions())
    written = _run(client, store, coding, plans, progress)
    _commit(client, store, coding, written, missing, first_id, n_entries, explicit=id_column is not None)
    return _encoded(store, sum(one.is_new for one in written))


def _encoded(store: FolderStore, n_written: int) -> EncodingResult:
    return EncodingResult(store.version, len(store.snapshot), len(store.snapshot.segments), n_written)


# Recipe and store


def _check_encoder(encoder: object) -> None:
    if not isinstance(encoder, (Encoder, Index, Recipe)):
        raise TypeError(f"encoder must be a fitted encoder, an Index or a Recipe, got {type(encoder).__name__}")
    if isinstance(encoder, Encoder):
        check_is_fitted(encoder)


def _recipe_of(encoder: Encoder | Index | Recipe, metric: str | None, source: FileSource, out: Location) -> Recipe:
    """Return the recipe of an encoder, index or recipe."""
    if isinstance(encoder, Index) and (deferred := deferred_of(encoder)) is not None:
        recipe = _learned(deferred, source, out)
    elif isinstance(encoder, Index):
        recipe = encoder.recipe
    else:
        recipe = encoder.recipe_ if isinstance(encoder, Encoder) else encoder
    if metric is None or metric == recipe.metric:
        return recipe
    if isinstance(encoder, Index):
        raise ValueError(f"this index has metric={recipe.metric!r}, got metric={metric!r}; leave metric=None")
    changed: Any = recipe
    made: Recipe = replace(changed, metric=check_choice(metric, "metric", METRICS))
    return made


def _learned(deferred: DeferredIndex, source: FileSource, out: Location) -> Recipe:
    """Learn the recipe of an index from the signals, or return that of an existing index in ``out``."""
    if not exists(out):
        source.check(deferred.n_features)
        return deferred.learn(source.rows(), slice(0, len(source.rows())))
    recipe, store = replace(deferred, path=resolve(out)).joined()
    store.close()
    return recipe


def _opened(out: Location, recipe: Recipe, originals: str | None) -> FolderStore:
    """Open or create the store at ``out``; raise StorageError if it has another recipe."""
    if not exists(out):
        store_for_recipe(recipe, path=out, timeout=None, originals=originals).close()
    store = open_store(out, readonly=False, timeout=None, optimistic=True)
    assert isinstance(store, FolderStore)
    if store.recipe != recipe:
        have, want = store.recipe.difference(recipe)
        problem = f"written with {have}, not {want}; codes of different recipes need folders of their own"
        raise StorageError(store.path, "recipe", problem)
    return store


def _missing(store: FolderStore, records: dict[str, Record]) -> dict[str, Record]:
    """Return the sources that are not encoded yet; raise ValueError if an encoded source has changed."""
    known = store.sources
    for name in records.keys() & known.keys():
        if known[name] != records[name]:
            raise ValueError(
                f"{name} is in {store.path} already and has changed since: {known[name]} then, {records[name]} now; "
                "use a new folder"
            )
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
    coding: Coding,
    written: list[Written],
    sources: dict[str, Record],
    first_id: int,
    n_entries: int,
    *,
    explicit: bool,
) -> None:
    """Commit all segments; check that user-given ids are unique."""
    records = [one.record for one in written]
    last = max(one.last_id for one in written)

    def commit(change: FolderChange) -> None:
        if len({one.has_text_ids for one in written} | ({change.snapshot.has_text_ids} - {None})) > 1:
            raise TypeError(
                f"ids must be all texts or all integers, got both for {store.path}; nothing was changed: fix the "
                "columns of ids and run again, or use a new folder"
            )
        if explicit:
            here = [segment.columns.record for segment in change.snapshot.segments]  # type: ignore[attr-defined]
            try:
                check_unique(client, store.backend, store.recipe, [*here, *records], texts=written[0].has_text_ids)
            except ValueError as error:
                raise ValueError(f"{error}; nothing was changed: fix the files and run again") from None
        regions = IndexRegions(store.recipe, store).regions(change.tables)
        is_same = regions is None or coding.regions is None or regions.generation == coding.regions.generation
        change.add_stored(records if is_same else [replace(one, regions=None) for one in records])
        if explicit and change.next_id == first_id + n_entries:
            change.next_id = first_id  # the reserved ids were not needed
        change.next_id = max(change.next_id, last + 1)
        for name, record in sources.items():
            change.keep_source(name, record)
        change.keep_source(PENDING, None)

    store.apply(commit)


def _run(
    client: Client,
    store: FolderStore,
    coding: Coding,
    plans: list[PlannedSegment],
    progress: Progress | None,
) -> list[Written]:
    """Return all segments in the order of the plans."""
    index = store.now.manifest.index
    names = {plan: plan.name(index) for plan in plans}
    held = send(client, coding)

    def sent() -> Future:
        """Return the coding on a worker; it is sent again if Dask has given it up with the worker that held it."""
        nonlocal held
        if held.status in ("error", "lost", "cancelled"):
            held = send(client, coding)
        return held

    def submit(plan: PlannedSegment) -> Future:
        return client.submit(write_from_files, store.backend, sent(), names[plan], plan, pure=False)

    total, done = sum(plan.n_entries for plan in plans), 0
    written: dict[PlannedSegment, Written] = {}
    failed: dict[PlannedSegment, Exception] = {}
    for plan, found, error in run_all(client, plans, submit, name=str):
        if error is not None:
            failed[plan] = error
        else:
            written[plan] = found
            done += plan.n_entries
            if progress is not None:
                progress(done, total)
    if failed:
        _raise_failed(store.path, [failed[plan] for plan in plans if plan in failed], len(plans))
    return [written[plan] for plan in plans]


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
