"""LMDB store: acknowledged writes survive a crash; corruption is reported."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

import lmdb

from ..._arrays import Int64
from ..._files import Record, pack_record, unpack_record
from ...errors import StorageError
from ...recipe import Recipe
from . import segments
from .lmdb_columns import StoredColumns
from .lmdb_environment import Environment, View, raise_readonly
from .lmdb_new_file import create
from .lmdb_records import (
    FORMAT,
    MAGIC,
    State,
    column_key,
    read_record,
    read_state,
    removal_values,
    segment_key,
    segment_values,
)
from .memory import Change
from .metadata import parse_notes
from .segments import COLUMNS, Segment
from .snapshot import Snapshot

CHECK_SECONDS = 30.0
"""How long checking pages is tried while others write."""

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
        self._environment, token = Environment.at(self.path)
        self._leave = weakref.finalize(self, self._environment.leave, token)
        self._leave.atexit = False
        self._environment.drop_when_growing(self)
        self._lock = threading.Lock()
        self._loaded: tuple[State, Snapshot] | None = None
        self._closed = False
        self._check_order()
        view = self._sound_view()
        self.header = read_record(view, b"header", "header")
        if self.header.get("magic") != MAGIC or self.header.get("format") != FORMAT:
            what = f"{self.header.get('magic')!r} of format {self.header.get('format')}"
            raise StorageError(self.path, "header", f"{what}; this library reads {MAGIC!r} of format {FORMAT}")
        self.recipe = Recipe.from_json(self.header, self.path)
        self.segment_entries = min(segments.MERGED_ENTRIES, max(1, SEGMENT_BYTES // self.recipe.layout.code_bytes))
        self._adopt(self.load(view))

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
        return self._loaded or self._adopt(self.load())

    def _adopt(self, loaded: tuple[State, Snapshot]) -> tuple[State, Snapshot]:
        """Makes this the state that searches see, unless another thread has loaded a newer one."""
        with self._lock:
            if self._loaded is None or self._loaded[0].sequence < loaded[0].sequence:
                self._loaded = loaded
        return loaded

    def refresh(self) -> bool:
        before = self._newest_loaded()[0].sequence
        self._environment.check_identity()
        return self._adopt(self.load())[0].sequence != before

    def drop(self) -> None:
        """Releases the map; the next search loads the newest state."""
        self._loaded = None

    def close(self) -> None:
        if not self._closed:
            self._closed, self._loaded = True, None
            self._leave()

    @contextmanager
    def change(self) -> Iterator[FileChange]:
        self._check_open()
        if self.readonly:
            raise_readonly(self.path, "it was opened with readonly=True")
        with self._environment.exclusive(self.timeout):
            self._remove_strays()
            change = FileChange(self, *self.load())
            try:
                yield change
                change.commit()
            except BaseException:
                if change.discard():
                    with suppress(StorageError):  # else the next change removes them
                        self._remove_strays()
                raise
            self._adopt((change.state, change.snapshot))

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

    def load(self, view: View | None = None) -> tuple[State, Snapshot]:
        """The newest state, its records checked, its columns not yet touched."""
        view = view or self._sound_view()
        if read_record(view, b"header", "header") != self.header:
            raise StorageError(self.path, "header", "is not what it was: another file was written over this one")
        state = read_state(view)
        checked = self._environment.checked
        for number in checked.keys() - set(state.segments):
            checked.pop(number, None)
        with self._records():
            return state, self._segments(view, state)

    def _segments(self, view: View, state: State) -> Snapshot:
        found = []
        for number in state.segments:
            section = f"segment {number}"
            record = read_record(view, segment_key(number), section)
            columns = StoredColumns(record, self.recipe, view)
            segment = Segment(columns, columns.alive)
            if record["number"] != number or segment.n_alive != record["alive"]:
                described = f"number {record['number']} with {record['alive']} entries alive"
                raise StorageError(self.path, section, f"damaged: {described}, but {segment.n_alive} are")
            found.append(segment)
        return Snapshot(tuple(found))

    @contextmanager
    def _records(self) -> Iterator[None]:
        """Turns what records of other shapes cause into an error that names the file."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise StorageError(self.path, "records", f"damaged: {error!r}; restore the file from a copy") from None

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
        self._check_order()
        view = self._sound_view()
        read_record(view, b"header", "header")
        state, snapshot = self.load(view)
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

    def _sound_view(self) -> View:
        """The newest state, whose pages were all checked."""
        environment = self._environment
        deadline = time.monotonic() + CHECK_SECONDS
        while time.monotonic() < deadline:
            view = environment.view()
            if view.number == environment.sound:
                return view
            meta = next((meta for meta in environment.pages.metas() if meta.transaction == view.number), None)
            if meta is not None:  # else two transactions passed meanwhile, and what it says is overwritten
                environment.pages.values(meta)
                environment.sound = view.number
                return view
            environment.check_identity()
        self._raise_restless()

    def _check_order(self) -> None:
        """A damaged meta page must not pass an older state off as the newest."""
        pages = self._environment.pages
        deadline = time.monotonic() + CHECK_SECONDS
        while time.monotonic() < deadline:
            newer, older = pages.metas()
            if older.transaction == 0:
                return
            try:
                sequences = [self._sequence(pages.values(meta)) for meta in (newer, older)]
                if sequences[0] >= sequences[1]:
                    return
                problem = f"damaged: the newer one leads to state {sequences[0]}, the older one to {sequences[1]}"
                raise StorageError(self.path, "meta pages", problem)
            except StorageError:
                if pages.metas()[0] == newer:  # else a writer reused the pages while they were read
                    raise
        self._raise_restless()

    def _raise_restless(self) -> NoReturn:
        raise StorageError(
            self.path, "pages", f"did not stay as they are for long enough to be checked in {CHECK_SECONDS:g} s"
        )

    def _sequence(self, values: dict[bytes, tuple[int, int]]) -> int:
        if b"state" not in values:
            raise StorageError(self.path, "state", "missing")
        value = self._environment.pages.value(values[b"state"], "state")
        with self._records():
            return State.from_record(unpack_record(value, self.path, "state")).sequence

    def _remove_strays(self) -> None:
        """Segments that a writer wrote ahead before it died or failed: nothing refers to them."""
        view = self._sound_view()
        first = stray = read_state(view).next_segment
        while view.get(segment_key(stray)) is not None:
            stray += 1
        del view
        if stray > first:
            self.put({}, gone=set(range(first, stray)))


class FileChange(Change):
    """A change to a file, in a transaction of its own.

    New segments beyond one are written ahead, each in its own transaction and under a number that nothing refers to
    until the last transaction does, so that memory stays bounded and the change is still visible at once or never.
    """

    def __init__(self, store: FileStore, state: State, snapshot: Snapshot) -> None:
        super().__init__(snapshot, state.next_id, dict(state.sources))
        self.state = state
        self._store = store
        self._before = snapshot
        self._ahead: list[Segment] = []
        self._held: list[Segment] = []
        self.replaced: Int64 | None = None

    def parts(self, n_entries: int) -> Iterator[slice]:
        limit = self._store.segment_entries
        for start in range(0, max(1, n_entries), limit):
            yield slice(start, min(start + limit, n_entries))

    def replace(self, ids: Int64) -> None:
        self.replaced = ids  # removed at the commit: until then the snapshot is loaded again and again

    def add(self, segments: list[Segment]) -> None:
        if self._held:
            self._write_ahead()
        self._held = segments

    def discard(self) -> bool:
        """Gives the change up; returns whether segments were written ahead."""
        self._let_go()
        return bool(self._ahead)

    def compact(self) -> None:
        """In steps, each a transaction of its own: all keep the same entries."""
        while (step := self.snapshot.compacted(limit=self._store.segment_entries)) is not None:
            self.snapshot = step
            del step
            self.commit()

    def commit(self) -> None:
        """Makes the change visible, and goes on from there."""
        if self.replaced is not None:
            self.snapshot, self.replaced = self.snapshot.remove(self.snapshot.places(self.replaced)), None
        self.snapshot = self.snapshot.add(self._ahead + self._held, limit=self._store.segment_entries)
        changed = self.next_id != self.state.next_id or self.sources != self.state.sources
        if self.snapshot.segments == self._before.segments and not changed:
            return
        values, numbers, next_segment = self._planned()
        gone = set(self.state.segments) - set(numbers)
        state = State(self.state.sequence + 1, self.next_id, next_segment, numbers, self.sources)
        self._let_go()
        self._store.put(values | {b"state": pack_record(state.to_record())}, gone=gone)
        self.state, self.snapshot = self._store.load()
        self._before, self._ahead = self.snapshot, []

    def _planned(self) -> tuple[dict[bytes, Any], tuple[int, ...], int]:
        """Values to store, the segments in their order, and the next number."""
        values: dict[bytes, Any] = {}
        numbers, next_segment = [], self.state.next_segment + len(self._ahead)
        for segment in self.snapshot.segments:
            columns = segment.columns
            if isinstance(columns, StoredColumns):
                numbers.append(columns.number)
                if segment.alive is not columns.alive:
                    values |= removal_values(columns.record, segment)
            else:
                values |= segment_values(next_segment, segment)
                numbers.append(next_segment)
                next_segment += 1
        return values, tuple(numbers), next_segment

    def _write_ahead(self) -> None:
        held, self._held = self._held, []
        self._let_go()
        for segment in held:
            number = self.state.next_segment + len(self._ahead)
            values = segment_values(number, segment)
            self._store.put(values)
            record = unpack_record(values[segment_key(number)], self._store.path, "segment")
            self._ahead.append(Segment(StoredColumns(record, self._store.recipe, None)))
        _, self.snapshot = self._store.load()
        self._before = self.snapshot

    def _let_go(self) -> None:
        """Releases the map, which may have to grow."""
        self.snapshot = self._before = Snapshot()
        self._held = []
