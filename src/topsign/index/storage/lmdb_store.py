"""LMDB store: acknowledged writes survive a crash; corruption is reported."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any

import lmdb

from ..._files import Record, pack_record
from ...errors import StorageError
from ...recipe import Recipe
from . import segments
from .lmdb_change import FileChange
from .lmdb_columns import StoredColumns
from .lmdb_environment import ATTEMPTS, Environment, raise_readonly
from .lmdb_lock import ReplacedError
from .lmdb_new_file import create
from .lmdb_records import FORMAT, MAGIC, State, column_key, read_record, read_state, segment_key
from .lmdb_shrink import is_successor, remove_draft, write_shrunk
from .lmdb_states import check_reached, first_view, read_snapshot, sound_view
from .metadata import parse_notes
from .segments import COLUMNS
from .snapshot import Snapshot

SEGMENT_BYTES = 2**25
"""Most bytes that the codes of one segment take, so that nothing large is ever held twice."""


class FileStore:
    """Entries in a file; ``recipe`` is what its codes are made with, ``header`` all that its header says."""

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool, timeout: float | None) -> None:
        self.path = os.path.realpath(path)  # one name, and so one lock file, for all who open it
        self.readonly = readonly
        self.timeout = timeout
        if not os.path.isfile(self.path):
            raise StorageError(self.path, "file", "does not exist, or is not a file")
        self._use(*Environment.at(self.path))
        self._lock, self._following = threading.Lock(), threading.Lock()
        self._loaded: tuple[State, Snapshot] | None = None
        self._closed = False
        view, count = first_view(self._environment)
        self.header = read_record(view, b"header", "header")
        if self.header.get("magic") != MAGIC or self.header.get("format") != FORMAT:
            what = f"{self.header.get('magic')!r} of format {self.header.get('format')}"
            raise StorageError(self.path, "header", f"{what}; this library reads {MAGIC!r} of format {FORMAT}")
        self.recipe = Recipe.from_json(self.header, self.path)
        self.segment_entries = min(segments.MERGED_ENTRIES, max(1, SEGMENT_BYTES // self.recipe.layout.code_bytes))
        self.adopt(read_snapshot(view, self.header, self.recipe))
        check_reached(self.path, count, self._newest_loaded())

    def _use(self, environment: Environment, token: int) -> None:
        """Reads and writes this open file from now on."""
        self._environment = environment
        self._leave = weakref.finalize(self, environment.leave, token)
        self._leave.atexit = False
        environment.drop_when_growing(self)

    @staticmethod
    def create(path: str | os.PathLike[str], recipe: Recipe) -> None:
        """Makes a new file without entries; one that another process made meanwhile is left alone."""
        header = {"magic": MAGIC, "format": FORMAT, "library": version("topsign")} | recipe.to_json()
        create(os.path.realpath(path), {b"header": pack_record(header), b"state": pack_record(State().to_record())})

    @property
    def snapshot(self) -> Snapshot:
        return self._newest_loaded()[1]

    @property
    def sources(self) -> dict[str, Record]:
        """How far each named source of signals has been added, for a build that resumes."""
        return self._newest_loaded()[0].sources

    @property
    def next_id(self) -> int:
        """The integer after the largest id ever used."""
        return self._newest_loaded()[0].next_id

    def _newest_loaded(self) -> tuple[State, Snapshot]:
        self._check_open()
        self._environment.check_process()
        return self._loaded or self.adopt(self.load())

    def adopt(self, loaded: tuple[State, Snapshot]) -> tuple[State, Snapshot]:
        """Makes this the state that searches see, unless another thread has loaded a newer one."""
        with self._lock:
            if self._loaded is None or self._loaded[0].sequence < loaded[0].sequence:
                self._loaded = loaded
        return loaded

    def refresh(self) -> bool:
        before = self._newest_loaded()[0].sequence
        self._follow()
        return self.adopt(self.load())[0].sequence != before

    def drop(self) -> None:
        """Releases the map; the next search loads the newest state."""
        self._loaded = None

    def close(self) -> None:
        if not self._closed:
            self._closed, self._loaded = True, None
            self._leave()

    @contextmanager
    def change(self) -> Iterator[FileChange]:
        with self._exclusive():
            change = FileChange(self, *self.load())
            try:
                yield change
                change.commit()
                change.tidy()
            except BaseException:
                if change.discard():
                    with suppress(StorageError):  # else the next change removes them
                        self._remove_strays()
                raise
            self._environment.check_identity()
            self.adopt((change.state, change.snapshot))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """The only writer of the file that is at the path now, without what a writer that died left behind."""
        self._check_open()
        if self.readonly:
            raise_readonly(self.path, "it was opened with readonly=True")
        for attempt in range(ATTEMPTS):
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._environment.exclusive(self.timeout))
                except ReplacedError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    self._follow()
                    continue
                self._remove_strays()
                remove_draft(self.path)
                yield
                return

    def shrink(self) -> None:
        """Puts a compacted copy in the place of the file, so that its free pages are the file system's again."""
        with self._exclusive():
            state, snapshot = self.load()
            write_shrunk(self._environment, self.header, state, snapshot, limit=self.segment_entries)
            del snapshot
        self.refresh()

    def _follow(self) -> None:
        """Goes over to the shrunk copy that took the place of this file; ReplacedError where another file did."""
        with self._following:
            old = self._environment
            try:
                return old.check_identity()
            except ReplacedError:
                if not os.path.isfile(self.path):
                    raise
                environment, token = Environment.at(self.path)
                try:
                    view, count = first_view(environment)
                    if not is_successor(sound_view(old), view):
                        raise
                    loaded = read_snapshot(view, self.header, self.recipe)
                    check_reached(self.path, count, loaded)
                except BaseException:
                    environment.leave(token)
                    raise
            leave = self._leave
            self._use(environment, token)
            self.adopt(loaded)
            leave()

    def put(self, values: dict[bytes, Any], *, gone: set[int] | frozenset[int] = frozenset()) -> None:
        """One transaction: these values, and no segments of these numbers any more."""

        def work(transaction: lmdb.Transaction) -> None:
            for number in gone:
                transaction.delete(segment_key(number))
                for name in (*COLUMNS, "metadata", "names", "alive"):
                    transaction.delete(column_key(name, number))
            for key, value in values.items():
                transaction.put(key, value)

        self._environment.write(work)

    def load(self) -> tuple[State, Snapshot]:
        """The newest state, its records checked, its columns not yet touched."""
        return read_snapshot(sound_view(self._environment), self.header, self.recipe)

    def verify(self) -> None:
        """Reads everything again; raises StorageError that names all damaged parts."""
        self._check_open()
        environment = self._environment
        problems: dict[str, str] = {}  # not the errors themselves, which would keep all of this alive

        def attempt(check: Callable[[], object]) -> None:
            try:
                check()
            except StorageError as error:
                problems[error.section] = error.problem

        environment.sound = -1
        environment.checked.clear()
        view, count = first_view(environment)
        state, snapshot = read_snapshot(view, self.header, self.recipe)
        check_reached(self.path, count, (state, snapshot))
        for segment in snapshot.segments:
            columns = segment.columns
            assert isinstance(columns, StoredColumns)
            for name in columns.record["columns"]:
                attempt(partial(getattr, columns, name))
            attempt(partial(self._check_entries, columns, state))
        if not problems:
            attempt(partial(self._check_unique, snapshot))
        if problems:
            (section, problem), *others = problems.items()
            raise StorageError(self.path, section, "; ".join([problem, *map(": ".join, others)]))

    def _check_entries(self, columns: StoredColumns, state: State) -> None:
        section, ids = f"segment {columns.number}, ids", columns.ids
        if ids[-1] >= state.next_id:
            raise StorageError(self.path, section, f"id {ids[-1]}, but the next new id is {state.next_id}")
        if columns.metadata is not None:
            parse_notes(columns.metadata.texts(range(len(columns))))

    def _check_unique(self, snapshot: Snapshot) -> None:
        ids = snapshot.ids
        twice = ids[1:][ids[1:] == ids[:-1]]
        if twice.size:
            raise StorageError(self.path, "ids", f"{twice[0]} belongs to two entries")

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(self.path, "file", "this index is closed; open it again")

    def _remove_strays(self) -> None:
        """Segments that a writer wrote ahead before it died or failed: nothing refers to them."""
        view = sound_view(self._environment)
        first = stray = read_state(view).next_segment
        while view.get(segment_key(stray)) is not None:
            stray += 1
        del view
        if stray > first:
            self.put({}, gone=set(range(first, stray)))
