"""States of an LMDB file: found, checked and read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..._files import Record, unpack_record
from ...errors import StorageError
from ...recipe import Recipe
from .lmdb_columns import StoredColumns
from .lmdb_count import Count, check_count, read_count
from .lmdb_environment import Environment
from .lmdb_pages import Meta
from .lmdb_records import State, read_record, read_state, segment_key
from .lmdb_view import View
from .segments import Segment
from .snapshot import Snapshot

CHECK_SECONDS = 30.0
"""How long checking pages is tried while others write."""


def sound_view(environment: Environment) -> View:
    """The newest state, whose pages were all checked."""
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
    _raise_restless(environment)


def first_view(environment: Environment) -> tuple[View, Count | None]:
    """The newest state of a file that was not looked at before, and the count that it must have reached."""
    count = read_count(environment.path, environment.pages.descriptor)
    _check_order(environment)
    return sound_view(environment), count


def _check_order(environment: Environment) -> None:
    """A damaged meta page must not pass an older state off as the newest."""
    pages = environment.pages
    deadline = time.monotonic() + CHECK_SECONDS
    while time.monotonic() < deadline:
        newer, older = pages.metas()
        if older.transaction == 0:
            return
        try:
            sequences = [_sequence(environment, meta) for meta in (newer, older)]
            if sequences[0] >= sequences[1]:
                return
            problem = f"damaged: the newer one leads to state {sequences[0]}, the older one to {sequences[1]}"
            raise StorageError(environment.path, "meta pages", problem)
        except StorageError:
            if pages.metas()[0] == newer:  # else a writer reused the pages while they were read
                raise
    _raise_restless(environment)


def _sequence(environment: Environment, meta: Meta) -> int:
    value = environment.pages.value(meta, b"state")
    if value is None:
        raise StorageError(environment.path, "state", "missing")
    with told_records(environment.path):
        return State.from_record(unpack_record(value, environment.path, "state")).sequence


def _raise_restless(environment: Environment) -> NoReturn:
    problem = f"did not stay as they are for long enough to be checked in {CHECK_SECONDS:g} s"
    raise StorageError(environment.path, "pages", problem)


def read_snapshot(view: View, header: Record, recipe: Recipe) -> tuple[State, Snapshot]:
    """The state of a view, its records checked, its columns not yet touched."""
    environment = view.environment
    if read_record(view, b"header", "header") != header:
        raise StorageError(environment.path, "header", "is not what it was: another file was written over this one")
    state = read_state(view)
    for number in environment.checked.keys() - set(state.segments):
        environment.checked.pop(number, None)
    with told_records(environment.path):
        return state, Snapshot(tuple(_segment(view, number, recipe) for number in state.segments))


def check_reached(path: str, stated: Count | None, loaded: tuple[State, Snapshot]) -> None:
    """Raises StorageError where this state is behind the count."""
    check_count(path, stated, (loaded[0].sequence, len(loaded[1])))


def _segment(view: View, number: int, recipe: Recipe) -> Segment:
    section = f"segment {number}"
    record = read_record(view, segment_key(number), section)
    columns = StoredColumns(record, recipe, view)
    segment = Segment(columns, columns.alive)
    if record["number"] != number or segment.n_alive != record["alive"]:
        described = f"number {record['number']} with {record['alive']} entries alive"
        raise StorageError(view.environment.path, section, f"damaged: {described}, but {segment.n_alive} are")
    return segment


@contextmanager
def told_records(path: str) -> Iterator[None]:
    """Turns what records of other shapes cause into an error that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise StorageError(path, "records", f"damaged: {error!r}; restore the file from a copy") from None
