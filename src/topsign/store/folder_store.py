"""Folders of immutable files and the versions that name them; creation and opening of any store."""

from __future__ import annotations

import errno
import json
import os
import random
import secrets
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, NoReturn, TypeVar

import numpy as np

from .._arrays import Array, Booleans, Int64
from .._checks import check_count, check_real, format_list
from .._files import Record, parse_json, why
from ..errors import ConflictError, StorageError
from ..families import Recipe
from . import segments
from .backends import FOLDERS, Backend, Bucket, LocalFolder, UnsettledError, is_url, make_folder
from .memory import BaseStore, Change, MemoryStore, StoreVersion
from .segments import Segment, Snapshot, merge_segments
from .stored_columns import MISSING, FileWriter, StoredColumns, StoredFile, open_file, open_segment, write_segment
from .versions import (
    ATTEMPTS,
    FORMAT,
    FileRecord,
    Listing,
    Manifest,
    SegmentRecord,
    SupersededError,
    UnknownOutcomeError,
    Versions,
    version_name,
)

Path = str | os.PathLike[str]

SEGMENT_BYTES = 2**25
"""Maximum bytes of codes per new segment, which bounds the memory for copies."""

ORIGINALS_BYTES = 2**27
"""Maximum bytes of originals per new segment."""

REMOVED_BYTES, REMOVED_SHARE = 2**16, 1 / 12
"""Maximum bytes of removed entries in a store, and their maximum share of all entries."""

OVERLAID_SHARE = 1 / 8
"""Share of replaced metadata above which a segment is rewritten."""


@dataclass(frozen=True, eq=False)
class OpenVersion(StoreVersion):
    """Version of a folder, and its open files."""

    manifest: Manifest = field(kw_only=True)

    @property
    def files(self) -> dict[str, StoredFile]:
        """Open files by path."""
        columns = [segment.columns for segment in self.snapshot.segments]
        files = [file for one in columns if isinstance(one, StoredColumns) for file in one.files]
        files += [table for table in self.tables.values() if isinstance(table, StoredFile)]
        return {file.record.path: file for file in files}


class FolderChange(Change):
    """Change of a folder. Its files are written immediately but are invisible until a version names them.

    Clients of a shared store do not exclude each other. A change is made on the newest version. It holds if the entries
    that it removes or replaces are those that its client last saw; entries that others added or changed do not matter.
    This also applies to a local folder if so many versions lie between that it could be a restored copy.
    """

    def __init__(self, store: FolderStore, loaded: OpenVersion, seen: OpenVersion) -> None:
        super().__init__(loaded)
        self.part_entries = self.segment_entries = store.segment_entries  # so that memory stays bounded
        self.erased = False
        self.commit_begun = False  # from then on its files are deleted only if the commit is known to have failed
        self._store, self._backend, self.before = store, store.backend, loaded
        self._seen = seen  # version whose entries the change may remove or replace
        self.process = os.getpid()  # the only one that may write; not one that is forked from it
        self._held: list[Segment] = []
        self.writer = FileWriter(store.backend, loaded.manifest.n_inline)

    def remove(self, rows: Int64) -> None:
        self._check_seen(rows)
        self.snapshot = self.snapshot.remove(rows, rewrite=False)

    def add(self, new: list[Segment]) -> None:
        if self._held:  # the last segments stay in memory because they may be merged
            self._take([*self.snapshot.segments, *self._held])
        self._held = new

    def add_stored(self, records: Sequence[SegmentRecord]) -> None:
        """Add segments whose files are already in the store."""
        made = [open_segment(self._backend, record, self._store.recipe, {}) for record in records]
        self.snapshot = Snapshot((*self.snapshot.segments, *made))
        self.writer.folders |= {file.folder for record in records for file in record.files}

    def update_metadata(self, rows: Int64, texts: Sequence[bytes]) -> None:
        self._check_seen(rows)
        super().update_metadata(rows, texts)
        parts = list(self.snapshot.segments)
        for i, segment in enumerate(parts):
            overlay = segment.columns.overlay if isinstance(segment.columns, StoredColumns) else None
            if overlay is not None and len(overlay[0]) > OVERLAID_SHARE * len(segment):
                parts[i] = merge_segments([segment])
        self.snapshot = Snapshot(tuple(parts))

    def erase(self, rows: Int64) -> None:
        super().erase(rows)
        self.erased = True

    def finish(self) -> Manifest | None:
        """Sync the new files and return the next version, or None if the change has no effect."""
        limit, before = self.segment_entries, self.before
        held, self._held = self._held, []
        self._take(self.snapshot.add(held, limit=limit).segments)
        while (
            any(segment.alive is not None for segment in self.snapshot.segments)
            and (step := self.snapshot.tidied(n_bytes=REMOVED_BYTES, share=REMOVED_SHARE, limit=limit)) is not None
        ):
            self._take(step.segments)
        changed = self.next_id != before.next_id or self.sources != before.sources
        changed |= [*map(id, self.tables.values())] != [*map(id, before.tables.values())]
        if self.snapshot.segments == before.snapshot.segments and not changed:
            return None
        parts, records = [], []
        for segment in self.snapshot.segments:  # their bitmaps, metadata and extra columns
            assert isinstance(segment.columns, StoredColumns)
            columns = segment.columns.write(self.writer, segment.alive)
            parts.append(segment if columns is segment.columns else Segment(columns, columns.alive))
            records.append(columns.record)
        self.snapshot = Snapshot(tuple(parts))
        tables = {
            name: before.manifest.tables[name]
            if before.tables.get(name) is table
            else self.writer.write("segments", table, 0)
            for name, table in self.tables.items()
        }
        self._backend.sync(self.writer.folders)
        return before.manifest.next(next_id=self.next_id, sources=self.sources, segments=tuple(records), tables=tables)

    def _take(self, made: Iterable[Segment]) -> None:
        self.snapshot = Snapshot(tuple(map(self._stored, made)))

    def _stored(self, segment: Segment) -> Segment:
        """Return a segment whose columns are in files, which are written now if they are in memory."""
        if os.getpid() != self.process:
            problem = "this process was forked during a change; only its parent can write"
            raise StorageError(self._store.path, "lock", problem)
        if isinstance(segment.columns, StoredColumns):
            return segment
        record = write_segment(self.writer, segment.columns)
        columns = StoredColumns.open(self._backend, record, self._store.recipe, self.writer.written)
        return Segment(columns, segment.alive)

    def _check_seen(self, rows: Int64) -> None:
        """Raise ConflictError for entries that another client has changed since the last refresh."""
        if self._seen.manifest.token == self.before.manifest.token or not rows.size:
            return
        same = _unchanged_entries(self.snapshot, rows, self._seen.snapshot)
        if not same.all():
            names = self.snapshot.text_ids if self.snapshot.has_text_ids else partial(self.snapshot.gather, "ids")
            changed = format_list(np.asarray(names(rows[~same])))
            self._refuse(f"{changed} changed by another client since this index was last refreshed")

    def keep_source(self, name: str, record: Record | None) -> None:
        if self._seen.sources.get(name) != self.before.sources.get(name):
            self._refuse(f"the record of {name} is changed by another client since this index was last refreshed")
        super().keep_source(name, record)

    def _refuse(self, problem: str) -> NoReturn:
        remedy = "nothing was changed; refresh the index, then change it again"
        raise ConflictError(self._store.path, "entries", f"{problem}; {remedy}")


def _unchanged_entries(now: Snapshot, rows: Int64, then: Snapshot) -> Booleans:
    """Return whether the entries at these rows had the same content in an older snapshot."""
    before = then.locate(now.gather("ids", rows).astype(np.int64))
    same = before >= 0
    (files, positions), (files_then, positions_then) = _file_positions(now, rows), _file_positions(then, before)
    moved = same & ((files != files_then) | (positions != positions_then))
    if moved.any():
        here, there = rows[moved], before[moved]
        equal = np.array(now.texts(here), object) == np.array(then.texts(there), object)
        same[moved] = equal & (now.gather("codes", here) == then.gather("codes", there)).all(axis=1)
    return same


def _file_positions(snapshot: Snapshot, rows: Int64) -> tuple[Array, Int64]:
    """Return the names of the files that hold each entry and its metadata, and its position there."""
    owners, names = np.searchsorted(snapshot.starts, rows, side="right") - 1, []
    for columns in (segment.columns for segment in snapshot.segments):
        record = columns.record if isinstance(columns, StoredColumns) else None
        names.append(f"{record.file.name} {record.metadata and record.metadata.name}" if record else str(id(columns)))
    return np.array([*names, ""], object)[owners], rows - snapshot.starts[owners]


Result = TypeVar("Result")

REPLACED = "was replaced, moved or deleted since it was opened; close this index and open it again"

REQUESTS = 16
"""Concurrent requests when the files of a bucket are opened."""


class FolderStore(BaseStore[OpenVersion]):
    """Entries in a folder, with the recipe of their codes and a header for users."""

    path: str
    recipe: Recipe

    def __init__(
        self,
        backend: Backend,
        *,
        readonly: bool = False,
        timeout: float | None = None,
        version: int | None = None,
        keep_versions: int = 1,
        optimistic: bool = False,
    ) -> None:
        self.backend, self.path = backend, backend.path
        self.readonly, self.timeout, self.pinned = readonly, timeout, version
        self.optimistic = optimistic or backend.is_shared  # raise ConflictError for entries that others changed
        self.commits = Versions(backend, keep=keep_versions)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._unsettled = defaultdict[int, list[tuple[OpenVersion, Manifest]]](list)  # unknown outcomes of each thread
        self.recipe, self._recipe_file, record = self._first_recipe()
        self.adopt(self.load())
        self.originals = self.now.manifest.originals
        self.header = {"format": FORMAT, "library": self.now.manifest.library} | record
        self.segment_entries = segment_limit(self.recipe, self.originals)

    @property
    def sizes(self) -> Counter[str]:
        """Bytes of all files of the version that searches see, by content; those of the manifest include headers."""
        manifest = self.now.manifest
        found = Counter(
            manifest=len(manifest.content) - manifest.n_inline + manifest.recipe.n_bytes,
            tables=sum(record.n_bytes for record in manifest.tables.values()),
        )
        for segment in self.snapshot.segments:
            found.update(segment.columns.sizes)
        return +found

    @property
    def _known(self) -> OpenVersion | None:
        """The version that searches see; None before it is opened and after :meth:`close`."""
        return vars(self).get("now")

    @property
    def version(self) -> int:
        """Number of the version that searches see."""
        return self.now.manifest.version

    def versions(self) -> list[int]:
        """Return the kept versions, ascending."""
        self.now  # noqa: B018  (raises if closed)
        return self.commits.listing().numbers

    def adopt(self, loaded: OpenVersion) -> None:
        """Set the version that searches see, unless another thread has loaded a newer one."""
        if self._process != os.getpid():  # a thread of the parent may have held the lock when this process was forked
            self._process, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            known = self._known
            if known is None or known.manifest.version < loaded.manifest.version:
                self.now = loaded

    def refresh(self) -> bool:
        before = self.now.manifest.token
        self.adopt(self.load())
        return self.now.manifest.token != before

    def __reduce__(self) -> tuple[Any, ...]:
        self.now  # noqa: B018  (raises if closed)
        return partial(open_store, self.path, readonly=self.readonly, version=self.pinned), ()

    def apply(self, make: Callable[[FolderChange], Result]) -> Result:
        """Apply a change and return its result; repeat it if another client of a shared store committed first.

        If the outcome of the thread's last change is unknown and this is the same one, it is not stored twice.
        """
        seen = self.now
        for attempt in count(1):
            try:
                for result in self._repeated(make) if self._unsettled[threading.get_ident()] else ():
                    return result
                with self.change(seen) as change:
                    result = make(change)
                return result
            except SupersededError:
                if attempt == ATTEMPTS:
                    raise
            time.sleep(random.uniform(0, 0.005 * min(attempt, 40)))
        raise AssertionError

    @contextmanager
    def change(self, seen: OpenVersion | None = None) -> Iterator[FolderChange]:
        """Change the store, which is committed at the end of the block."""
        seen = seen or self.now
        with self._locked():
            now = self.now
            newest = now if self.commits.is_newest(now.manifest) else self.load()
            is_checked = self.optimistic or not newest.manifest.descends_from(seen.manifest)
            change = FolderChange(self, newest, seen if is_checked else newest)
            unsettled = self._unsettled[threading.get_ident()]
            loaded, listing, manifest = newest, None, None
            try:
                yield change
                manifest = change.finish()
                if manifest is not None:
                    change.commit_begun = True
                    listing = self.commits.commit(manifest)
                    unsettled.clear()  # this version keeps them from appearing later
                    made = change.snapshot, change.next_id, change.sources, change.tables
                    loaded = OpenVersion(*made, manifest=manifest)
                self.adopt(loaded)
            except BaseException as error:
                if isinstance(error, UnknownOutcomeError) and manifest is not None:
                    unsettled.append((newest, manifest))
                if change.process == os.getpid():
                    self._tidy_up(change, error)
                raise
            self._clean(loaded.manifest, change, listing)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the writer lock; errors of the block are refusals, but an error of releasing the lock is not."""
        self.now  # noqa: B018  (raises if closed)
        if self.pinned is not None:
            raise StorageError(self.path, "folder", f"cannot be written: version {self.pinned} of it was opened")
        if self.readonly:
            raise StorageError(self.path, "folder", "cannot be written: it was opened with readonly=True")
        is_done = False
        try:
            with self.backend.lock(self.timeout):
                yield
                is_done = True
        except OSError as error:
            if is_done:
                return
            if isinstance(error, TimeoutError):
                raise
            raise self._unwritten(error) from None

    def _repeated(self, make: Callable[[FolderChange], Result]) -> list[Result]:
        """Return the result of a change with unknown outcome if it turns out to be stored and ``make`` repeats it.

        It repeats the change if it would make the same version from the same version before it.
        """
        unsettled = self._unsettled[threading.get_ident()]
        with self._locked():
            now = self.load()
            for before, manifest in [*unsettled]:
                is_stored, again = now.manifest.descends_from(manifest), None
                if is_stored is False and now.manifest.version < manifest.version:
                    continue  # it may appear later
                if is_stored:
                    change = FolderChange(self, before, before)
                    try:
                        with suppress(ValueError, TypeError, LookupError, ConflictError):  # of another change
                            result, again = make(change), change.finish()
                    finally:
                        change.writer.delete()
                is_repeated = again is not None and again.repeats(manifest)
                if is_repeated and not self.backend.is_shared:  # the name of that version may not be durable
                    now = replace(now, manifest=now.manifest.next())
                    self.commits.commit(now.manifest)
                unsettled.remove((before, manifest))
                if is_stored is None:
                    raise self.commits.overtaken(manifest, now.manifest)
                if is_repeated:
                    self.adopt(now)
                    self._clean(now.manifest, change)
                    return [result]
        return []

    def _clean(self, manifest: Manifest, change: FolderChange, listing: Listing | None = None) -> None:
        is_clean = self.commits.clean(manifest, listing, keep=1 if change.erased else None)
        if change.erased and not is_clean:
            problem = "the entries are removed, but some of their files cannot be deleted yet; call compact() later"
            raise StorageError(self.path, "segments", problem)

    def _tidy_up(self, change: FolderChange, error: BaseException) -> None:
        """Delete the files of a failed change; keep its version if it was created before an interrupt.

        If the outcome is unknown, keep the files of both versions.
        """
        if isinstance(error, UnknownOutcomeError):
            return
        if not self.backend.is_shared:
            with suppress(OSError, StorageError):  # the next change tries again
                if change.commit_begun and not isinstance(error, OSError | StorageError):
                    self.backend.sync(["versions"])  # an interrupt may have come between a version's name and its sync
                self.commits.clean(self.commits.newest())
        elif isinstance(error, ConflictError) or not change.commit_begun:
            change.writer.delete()

    def load(self) -> OpenVersion:
        """Open all files of the newest or the pinned version; columns are verified when they are read."""
        missing: tuple[str, int] | None = None
        for _ in range(ATTEMPTS):
            loaded = self._known
            manifest = self._newest()
            if loaded is not None and manifest.token == loaded.manifest.token:
                return loaded
            is_other = loaded is not None and manifest.descends_from(loaded.manifest) is False
            if is_other or manifest.recipe != self._recipe_file:  # made at the same path, or a copy restored there
                self._refuse_replaced()
            try:
                return self._open(manifest, {} if loaded is None else loaded.files)
            except FileNotFoundError as error:
                what = os.path.basename(str(error.filename))
                if missing == (what, manifest.version):
                    with suppress(FileNotFoundError):
                        return self._open(manifest, {} if loaded is None else loaded.files, lenient=True)
                    problem = f"a file of version {manifest.version} is missing: {what}; restore it from a copy"
                    raise StorageError(self.path, version_name(manifest.version), problem) from None
                missing = what, manifest.version  # compacted, if the next listing shows a newer version
        raise StorageError(self.path, "versions", "changed at every attempt to open them; try again")

    def _open(self, manifest: Manifest, known: dict[str, StoredFile], *, lenient: bool = False) -> OpenVersion:
        """Open all files of a version; if ``lenient``, missing files of extra columns raise when they are read."""
        make = partial(open_segment, self.backend, recipe=self.recipe, known=known, lenient=lenient)
        with ThreadPoolExecutor(REQUESTS) if self.backend.is_shared else nullcontext() as pool:  # files take requests
            parts = tuple((map if pool is None else pool.map)(make, manifest.segments))
        tables = {
            name: open_file(self.backend, one, known, is_optional=True, is_lenient=lenient)
            for name, one in manifest.tables.items()
        }
        return OpenVersion(Snapshot(parts), manifest.next_id, manifest.sources, tables, manifest=manifest)

    def verify(self, run: Callable[..., Iterable[dict[str, str]]] = map) -> None:
        """Read all files again; raise StorageError that lists all damage.

        ``run`` applies a function to each segment like ``map``; a cluster runs it on its workers.
        """
        self.now  # noqa: B018
        for _ in range(ATTEMPTS):
            manifest = self.load().manifest
            problems = self._problems(manifest, run)
            is_missing = any(problem.startswith("missing") for problem in problems.values())
            if not is_missing or self._newest().token == manifest.token:
                break  # otherwise a writer may have compacted the file: verify the newer version
        if problems:
            (section, problem), *others = problems.items()
            raise StorageError(self.path, section, "; ".join([problem, *map(": ".join, others)]))

    def _problems(self, manifest: Manifest, run: Callable[..., Iterable[dict[str, str]]]) -> dict[str, str]:
        """Return the problems of a version and of older kept versions by section."""
        problems: dict[str, str] = {}
        for found in run(partial(verify_segment, self.backend, self.recipe, manifest.next_id), manifest.segments):
            problems |= found
        for file in self._open(replace(manifest, segments=()), {}, lenient=True).files.values():
            problems |= file.verify()
        if not problems:
            self._first_recipe()
            try:
                ids = self._open(manifest, {}).snapshot.ids
            except FileNotFoundError as error:
                return {os.path.basename(str(error.filename)): MISSING}
            twice = ids[1:][ids[1:] == ids[:-1]]
            problems |= {"ids": f"{twice[0]} belongs to two entries"} if twice.size else {}
        for number in self.versions() if not problems and self.pinned is None else ():
            try:
                for record in self.commits.read(number).files:
                    problems |= {} if record.folder == "recipes" else StoredFile(self.backend, record).verify()
            except FileNotFoundError:
                continue  # an older version that is being cleaned, or was when the power failed
        return problems

    def _newest(self) -> Manifest:
        """Return the manifest of the newest or the pinned version."""
        if self.pinned is None:
            try:
                return self.commits.newest(None if self._known is None else self._known.manifest)
            except StorageError as error:
                if self._known is not None and error.section == "versions":
                    self._refuse_replaced()
                raise
        numbers = self.commits.listing().numbers
        try:
            return self.commits.read(self.pinned)
        except FileNotFoundError:
            kept = ", ".join(map(str, numbers)) or "none"
            raise StorageError(
                self.path, version_name(self.pinned), f"version {self.pinned} is not kept; versions: {kept}"
            ) from None

    def _first_recipe(self) -> tuple[Recipe, FileRecord, Record]:
        for attempt in range(ATTEMPTS):
            file = self._newest().recipe
            try:
                content = self.backend.read(file.path, file.n_bytes)
            except FileNotFoundError:
                if attempt == 0:
                    continue
                raise StorageError(self.path, file.path, MISSING) from None
            except OSError as error:
                raise StorageError(self.path, file.path, f"cannot be read: {error.strerror}") from None
            computed = zlib.crc32(content)
            if computed != file.crc32 or len(content) != file.n_bytes:
                raise StorageError.bad_checksum(self.path, file.path, stored=file.crc32, computed=computed)
            break
        try:
            record = parse_json(content)
            if not isinstance(record, dict):
                raise ValueError("a JSON object expected")
        except ValueError as error:
            raise StorageError(self.path, file.path, f"damaged: {error}") from None
        return Recipe.from_json(record, self.path), file, record

    def _refuse_replaced(self) -> NoReturn:
        raise StorageError(self.path, "folder", REPLACED)

    def _unwritten(self, error: OSError) -> StorageError:
        if not os.path.isdir(self.path) and not self.backend.is_shared:
            problem = REPLACED
        elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
            problem = "cannot be written: the folder is read-only; open it with readonly=True"
        else:
            problem = f"could not be written, nothing was changed: {why(error)}"
        return StorageError(self.path, "folder", problem)


Store = MemoryStore | FolderStore
"""Store of the entries of an index."""


def verify_segment(backend: Backend, recipe: Recipe, next_id: int, record: SegmentRecord) -> dict[str, str]:
    """Open and read the files of a segment again; return problems by section."""
    problems: dict[str, str] = {}
    try:
        columns = StoredColumns.open(backend, record, recipe, {}, lenient=True)
        for file in columns.files:
            problems |= file.verify()
        if not problems:
            columns.verify(next_id)
    except FileNotFoundError:
        problems[record.file.path] = MISSING
    except StorageError as error:
        problems[error.section] = error.problem
    return problems


def segment_limit(recipe: Recipe, originals: str | None = None) -> int:
    """Return the maximum number of entries per segment."""
    limits = [segments.MERGED_ENTRIES, SEGMENT_BYTES // recipe.code_bytes]
    if originals is not None:
        limits.append(ORIGINALS_BYTES // (np.dtype(originals).itemsize * recipe.n_features))
    return max(1, min(limits))


def create_store(path: str, recipe: Recipe, first: StoreVersion, originals: str | None) -> None:
    """Create a store with the content of a version atomically; raise FileExistsError if the name exists."""
    try:
        if is_url(path):
            bucket = Bucket(path)
            bucket.check_exclusive()
            write_first(bucket, recipe, first, originals)
        else:
            make_folder(path, lambda folder: write_first(folder, recipe, first, originals))
    except (FileExistsError, StorageError):
        raise
    except UnsettledError as error:
        raise StorageError(path, "folder", f"exists, but may not survive a power loss: {why(error)}") from None
    except OSError as error:
        raise StorageError(path, "folder", f"cannot be created: {why(error)}") from None


def write_first(backend: Backend, recipe: Recipe, first: StoreVersion, originals: str | None) -> None:
    """Write the first version of a new store; raise FileExistsError if another client has written one."""
    from importlib.metadata import version as version_of  # slow to import

    writer = FileWriter(backend)
    text = json.dumps(recipe.to_json(), separators=(",", ":"), allow_nan=False).encode()
    file = FileRecord("recipes", secrets.token_hex(16), len(text), zlib.crc32(text), 0)
    backend.create(file.path, [text])
    parts = []
    for group in first.snapshot.groups(limit=segment_limit(recipe, originals)):
        merged = merge_segments(first.snapshot.segments[group])
        parts.append(write_segment(writer, merged.columns))
    manifest = Manifest(
        file,
        library=version_of("topsign"),
        next_id=first.next_id,
        segments=tuple(parts),
        sources=dict(first.sources),
        originals=originals,
        tables={name: writer.write("segments", table, 0) for name, table in first.tables.items()},
    )
    backend.sync(FOLDERS)
    try:
        Versions(backend).commit(manifest)
    except SupersededError:
        for one in manifest.files:
            backend.delete(one.path)
        raise FileExistsError(errno.EEXIST, "exists already", backend.path) from None


def resolve(path: Path) -> str:
    """Return the canonical path without symbolic links, or the URL; raise if it cannot name a folder."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path, got {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"path must be a text that is not empty and has no null character, got {text!r}")
    return text.rstrip("/") if is_url(text) else os.path.realpath(text.removeprefix("file://"))


def exists(path: Path) -> bool:
    """Return whether this path or URL exists."""
    target = resolve(path)
    if not is_url(target):
        return os.path.lexists(target)
    try:
        return bool(Bucket(target).list("versions"))
    except FileNotFoundError:
        return False


def store_for_recipe(
    recipe: Recipe, *, path: Path | None, timeout: float | None, originals: str | None = None
) -> Store:
    """Create a store for codes of this recipe, or open one that another process has just created."""
    check_place(path, timeout)
    if path is None:
        return MemoryStore(originals)
    with suppress(FileExistsError):
        create_store(resolve(path), recipe, StoreVersion(), originals)
    return open_store(path, timeout=timeout)


def check_place(path: Path | None, timeout: float | None) -> None:
    """Raise if no store can be created: a timeout without a path, or a path without a parent folder."""
    if path is None:
        if timeout is not None:
            raise ValueError(f"timeout is for a folder that others may write, got timeout={timeout!r} without a path")
        return
    target = resolve(path)
    folder = os.path.dirname(target)
    if not is_url(target) and not os.path.isdir(folder):
        raise StorageError(target, "folder", f"cannot be created: the folder {folder} does not exist; create it first")
    _check_timeout(timeout)


def _check_timeout(timeout: float | None) -> float | None:
    return None if timeout is None else check_real(timeout, "timeout", minimum=0)


def open_store(
    path: Path,
    *,
    readonly: bool = False,
    timeout: float | None = None,
    version: int | None = None,
    keep_versions: int = 1,
    optimistic: bool = False,
) -> FolderStore:
    """Open the store in an existing folder."""
    if (readonly or version is not None) and (timeout is not None or keep_versions != 1):
        raise ValueError("timeout and keep_versions are for changes, which readonly=True and version= refuse")
    return FolderStore(
        _backend_at(resolve(path)),
        readonly=readonly,
        timeout=_check_timeout(timeout),
        version=None if version is None else check_count(version, "version"),
        keep_versions=check_count(keep_versions, "keep_versions"),
        optimistic=optimistic,
    )


def _backend_at(target: str) -> Backend:
    if is_url(target):
        return Bucket(target)
    try:
        backend = LocalFolder(target)
    except OSError:
        raise StorageError(target, "folder", "does not exist") from None
    if not os.path.isdir(target):
        raise StorageError(target, "folder", "is not a topsign index, which is a folder")
    return backend


def save_store(path: Path, recipe: Recipe, store: Store) -> None:
    """Write the content of a store to a new folder; raise FileExistsError if it exists, or another process makes it."""
    if exists(path):
        raise FileExistsError(f"{path} exists; choose another name, or remove it first")
    check_place(path, None)
    create_store(resolve(path), recipe, store.now, store.originals)
