"""A store in a folder: immutable files, and versions that name them."""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array
from .._files import Record, parse_json
from .._system import why
from ..errors import StorageError
from ..families import Recipe
from . import segments
from .backend import FOLDERS, Backend
from .folder_change import FolderChange
from .local import LocalFolder, make_folder
from .manifest import FORMAT, FileRecord, Manifest, SegmentRecord, new_name, version_name
from .memory import Table
from .segments import Segment, merge_segments
from .snapshot import Snapshot
from .stored_columns import StoredColumns, open_extra, write_segment
from .stored_file import StoredFile, write_columns
from .versions import ATTEMPTS, Versions

REPLACED = "was replaced, moved or deleted since it was opened; close this index and open it again"

SEGMENT_BYTES = 2**25
"""Most bytes that the codes of one new segment take, so that nothing large is held twice in memory."""

ORIGINALS_BYTES = 2**27
"""Most bytes that the originals of one new segment take."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """One version, opened: a search reads it from beginning to end, whatever writers do."""

    manifest: Manifest
    snapshot: Snapshot
    tables: Mapping[str, Table] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, StoredFile]:
        """Open files by path."""
        columns = [segment.columns for segment in self.snapshot.segments]
        files = [file for one in columns if isinstance(one, StoredColumns) for file in one.files]
        files += [table.file for table in self._stored_tables if isinstance(table.file, StoredFile)]
        return {file.record.path: file for file in files}

    @property
    def problems(self) -> dict[str, str]:
        """Sections of files that cannot be opened, and why, of those that not every search needs."""
        broken = [table.file for table in self._stored_tables if isinstance(table.file, StorageError)]
        problems = {error.section: error.problem for error in broken}
        for segment in self.snapshot.segments:
            problems |= segment.columns.problems if isinstance(segment.columns, StoredColumns) else {}
        return problems

    @property
    def _stored_tables(self) -> list[StoredTable]:
        return [table for table in self.tables.values() if isinstance(table, StoredTable)]


class StoredTable(Mapping[str, Array]):
    """Named arrays in a file, each verified when it is read."""

    def __init__(self, file: StoredFile | StorageError) -> None:
        self.file = file  # or why it cannot be opened

    def _opened(self) -> StoredFile:
        if isinstance(self.file, StorageError):
            raise self.file
        return self.file

    def __getitem__(self, name: str) -> Array:
        if name not in self._opened():
            raise KeyError(name)
        return self._opened().column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened().names)

    def __len__(self) -> int:
        return len(self._opened().names)


class FolderStore:
    """Entries in a folder; ``recipe`` is what its codes are made with, ``header`` describes it to users."""

    def __init__(
        self,
        backend: Backend,
        *,
        readonly: bool = False,
        timeout: float | None = None,
        version: int | None = None,
        keep_versions: int = 1,
    ) -> None:
        self.backend, self.path = backend, backend.path
        self.readonly, self.timeout, self.pinned = readonly, timeout, version
        self.commits = Versions(backend, keep=keep_versions)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._loaded: Loaded | None = None
        self.recipe, self._recipe_file, record = self._first_recipe()
        self.adopt(self.load())
        self.header: Record = {"format": FORMAT, "library": self._now.manifest.library} | record
        self.segment_entries = segment_limit(self.recipe, self.originals)

    @classmethod
    def create(cls, path: str, recipe: Recipe, originals: str | None = None) -> None:
        """Make a folder without entries; one that another process made meanwhile is left alone."""
        with suppress(FileExistsError):
            cls.write(path, recipe, Snapshot(), next_id=0, sources={}, originals=originals)

    @staticmethod
    def write(path: str, recipe: Recipe, snapshot: Snapshot, **parts: Any) -> None:
        """Make a folder that holds the entries of a snapshot; it appears complete, or FileExistsError is raised.

        ``parts`` are those of :func:`write_first`.
        """

        def fill(folder: LocalFolder) -> None:
            write_first(folder, recipe, snapshot, **parts)

        try:
            make_folder(path, fill)
        except FileExistsError:
            raise
        except OSError as error:
            raise StorageError(path, "folder", f"cannot be made: {why(error)}") from None

    @property
    def snapshot(self) -> Snapshot:
        return self._now.snapshot

    @property
    def sources(self) -> dict[str, Record]:
        """How far each named source of signals has been added, for a build that resumes."""
        return self._now.manifest.sources

    @property
    def originals(self) -> str | None:
        """Type in which signals are kept; None if they are not."""
        return self._now.manifest.originals

    @property
    def tables(self) -> Mapping[str, Table]:
        """Arrays of the whole index, by name."""
        return self._now.tables

    @property
    def next_id(self) -> int:
        """The integer after the largest id ever used."""
        return self._now.manifest.next_id

    @property
    def version(self) -> int:
        """The version that searches see."""
        return self._now.manifest.version

    @property
    def _now(self) -> Loaded:
        if self._loaded is None:
            raise StorageError(self.path, "folder", "this index is closed; open it again")
        return self._loaded

    def versions(self) -> list[int]:
        """Versions that are kept, ascending."""
        self._now  # noqa: B018  (raises if closed)
        return self.commits.numbers()

    def adopt(self, loaded: Loaded) -> None:
        """Make this the version that searches see, unless another thread has loaded a newer one."""
        if self._process != os.getpid():  # a thread of the parent may have held the lock when this process was forked
            self._process, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self._loaded is None or self._loaded.manifest.version < loaded.manifest.version:
                self._loaded = loaded

    def refresh(self) -> bool:
        before = self._now.manifest.token
        self.adopt(self.load())
        return self._now.manifest.token != before

    def close(self) -> None:
        self._loaded = None

    @contextmanager
    def change(self) -> Iterator[FolderChange]:
        self._check_writable()
        try:
            with self.backend.lock(self.timeout):
                change = FolderChange(self, self.load())
                try:
                    yield change
                    change.commit()
                except BaseException:
                    if change.is_ours:
                        self._tidy_up()
                    raise
                self.adopt(Loaded(change.manifest, change.snapshot, change.tables))
                is_clean = self.commits.clean(change.manifest, keep=1 if change.erased else None)
        except (TimeoutError, StorageError):
            raise
        except OSError as error:
            raise self._unwritten(error) from None
        if change.erased and not is_clean:
            problem = "the entries are removed, but some of their files cannot be deleted yet; call compact() later"
            raise StorageError(self.path, "segments", problem)

    def _tidy_up(self) -> None:
        """Delete what a change left that failed; its own version is kept if it was created before an interrupt."""
        if not self.backend.is_shared:
            with suppress(StorageError):  # the next change tries again
                self.commits.clean(self.commits.newest())

    def load(self) -> Loaded:
        """The newest version (or the one asked for), all its files open; columns are verified when they are read."""
        missing: tuple[str, int] | None = None
        for _ in range(ATTEMPTS):
            loaded = self._loaded
            manifest = self._newest()
            if loaded is not None and manifest.token == loaded.manifest.token:
                return loaded
            self._check_descent(manifest)
            try:
                return self._open(manifest, {} if loaded is None else loaded.files)
            except FileNotFoundError as error:
                what = os.path.basename(str(error.filename))
                if missing == (what, manifest.version):
                    with suppress(FileNotFoundError):
                        return self._open(manifest, {} if loaded is None else loaded.files, lenient=True)
                    problem = f"a file of version {manifest.version} is missing: {what}; restore it from a copy"
                    raise StorageError(self.path, version_name(manifest.version), problem) from None
                missing = what, manifest.version  # compacted away, if the next listing shows a newer version
        raise StorageError(self.path, "versions", "changed at every attempt to open them; try again")

    def _open(self, manifest: Manifest, known: dict[str, StoredFile], *, lenient: bool = False) -> Loaded:
        """All files of a version; if ``lenient``, missing files of extra columns raise when they are read."""
        parts = [open_segment(self.backend, one, self.recipe, known, lenient=lenient) for one in manifest.segments]
        tables = {
            name: StoredTable(open_extra(self.backend, one, known, lenient=lenient))
            for name, one in manifest.tables.items()
        }
        return Loaded(manifest, Snapshot(tuple(parts)), tables)

    def verify(self) -> None:
        """Read everything again; raise StorageError that names all damaged parts."""
        self._now  # noqa: B018
        problems: dict[str, str] = {}
        loaded = self._open(self.load().manifest, {}, lenient=True)  # maps of its own: nothing counts as verified
        for file in loaded.files.values():
            problems |= file.verify()
        problems |= loaded.problems
        for segment in loaded.snapshot.segments if not problems else ():
            try:
                assert isinstance(segment.columns, StoredColumns)
                segment.columns.verify(loaded.manifest.next_id)
            except StorageError as error:
                problems[error.section] = error.problem
        if not problems:
            self._first_recipe()
            ids = loaded.snapshot.ids
            twice = ids[1:][ids[1:] == ids[:-1]]
            problems |= {"ids": f"{twice[0]} belongs to two entries"} if twice.size else {}
        for number in self.versions() if not problems and self.pinned is None else ():
            try:
                for record in self.commits.read(number).files:
                    problems |= {} if record.folder == "recipes" else StoredFile(self.backend, record).verify()
            except FileNotFoundError:
                continue  # an older version that is being cleaned, or was when the power failed
        if problems:
            (section, problem), *others = problems.items()
            raise StorageError(self.path, section, "; ".join([problem, *map(": ".join, others)]))

    def _newest(self) -> Manifest:
        if self.pinned is not None:
            return self._read_pinned()
        try:
            return self.commits.newest()
        except StorageError as error:
            if self._loaded is not None and error.section == "versions":
                self._refuse_replaced()
            raise

    def _read_pinned(self) -> Manifest:
        assert self.pinned is not None
        numbers = self.commits.numbers()
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
                raise StorageError(self.path, file.path, "missing; restore it from a copy") from None
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

    def _check_descent(self, manifest: Manifest) -> None:
        """Refuse an index that was put at the path of another."""
        now = self._loaded
        if manifest.recipe != self._recipe_file or (now and not manifest.descends_from(now.manifest)):
            self._refuse_replaced()

    def _refuse_replaced(self) -> NoReturn:
        raise StorageError(self.path, "folder", REPLACED)

    def _check_writable(self) -> None:
        self._now  # noqa: B018
        if self.pinned is not None:
            raise StorageError(self.path, "folder", f"cannot be written: version {self.pinned} of it was opened")
        if self.readonly:
            raise StorageError(self.path, "folder", "cannot be written: it was opened with readonly=True")

    def _unwritten(self, error: OSError) -> StorageError:
        if not os.path.isdir(self.path) and not self.backend.is_shared:
            problem = REPLACED
        elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
            problem = "cannot be written: the folder is read-only; open it with readonly=True"
        else:
            problem = f"could not be written, nothing was changed: {why(error)}"
        return StorageError(self.path, "folder", problem)


def open_segment(
    backend: Backend, record: SegmentRecord, recipe: Recipe, known: dict[str, StoredFile], *, lenient: bool = False
) -> Segment:
    """A stored segment; its bitmap of removed entries is read, its other columns are not."""
    columns = StoredColumns.open(backend, record, recipe, known, lenient=lenient)
    return Segment(columns, columns.alive)


def write_first(
    backend: Backend,
    recipe: Recipe,
    snapshot: Snapshot,
    *,
    next_id: int,
    sources: dict[str, Record],
    originals: str | None = None,
    tables: Mapping[str, Table] | None = None,
) -> None:
    """Write the first version of a new store: a recipe, and the entries of a snapshot."""
    text = json.dumps(recipe.to_json(), separators=(",", ":"), allow_nan=False).encode()
    file = FileRecord("recipes", new_name(), len(text), zlib.crc32(text), 0)
    backend.create(file.path, [text])
    parts = []
    for group in snapshot.groups(limit=segment_limit(recipe, originals)):
        merged = merge_segments(snapshot.segments[group])
        parts.append(write_segment(backend, merged.columns))
    backend.create("lock", [])
    manifest = Manifest(
        file,
        library=version_of("topsign"),
        next_id=next_id,
        segments=tuple(parts),
        sources=sources,
        originals=originals,
        tables={name: write_columns(backend, "segments", table, 0) for name, table in (tables or {}).items()},
    )
    Versions(backend).commit(manifest, [*(one.path for one in manifest.files), *FOLDERS])


def segment_limit(recipe: Recipe, originals: str | None = None) -> int:
    """Entries of the largest segment."""
    limits = [segments.MERGED_ENTRIES, SEGMENT_BYTES // recipe.code_bytes]
    if originals is not None:
        limits.append(ORIGINALS_BYTES // (np.dtype(originals).itemsize * recipe.n_features))
    return max(1, min(limits))
