"""Shrinking: a compacted copy takes the place of the file, beside processes that have it open.

The copy is written under a name of its own, by the only writer of the file, and complete on disk before it is given
the file's name. The last transaction of the old file names its successor, and the copy keeps the names of all whose
successor it is. A process that has the old file open compares them and goes over to the new one; a file that somebody
else put there has no such name and is refused. A writer that dies leaves the old file as it is, and a draft that the
next change removes.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import lmdb

from ..._files import Record, pack_record, sync_folder
from ...errors import StorageError
from .lmdb_count import write_count
from .lmdb_environment import Environment
from .lmdb_records import State, read_record, read_state, segment_values
from .lmdb_view import View
from .segments import merge_segments
from .snapshot import Snapshot

SUCCESSOR, LINEAGE = b"successor", b"lineage"

MOST_NAMES = 1000
"""Names that a file keeps of those before it; a process that slept longer than so many shrinkings opens again."""


def write_shrunk(environment: Environment, header: Record, state: State, snapshot: Snapshot, *, limit: int) -> None:
    """Writes the copy and gives it the path of the file, whose only writer the caller is."""
    path, name = environment.path, secrets.token_hex(8)
    draft = _draft(path)
    numbers = range(state.next_segment, state.next_segment + len(snapshot.groups(limit=limit)))
    after = State(state.sequence + 1, state.next_id, numbers.stop, tuple(numbers), state.sources)
    records = {
        b"header": pack_record(header),
        b"state": pack_record(after.to_record()),
        LINEAGE: pack_record({"names": [*_names(environment.view()), name][-MOST_NAMES:]}),
    }
    try:
        _create(draft, environment)
        _fill(draft, records, snapshot, numbers, limit)
        write_count(draft, (after.sequence, len(snapshot)))
        _sync(draft)
        environment.write(partial(_put, {SUCCESSOR: pack_record({"name": name})}))
        environment.check_identity()
        os.replace(draft, path)
    except (lmdb.Error, OSError) as error:
        remove_draft(path)
        raise StorageError(path, "file", f"could not be shrunk, and is as it was: {error}") from None
    except BaseException:
        remove_draft(path)
        raise
    sync_folder(os.path.dirname(path))


def is_successor(old: View, new: View) -> bool:
    """Whether the second file was made by shrinking the first, or one that was."""
    if old.get(SUCCESSOR) is None:
        return False
    name = read_record(old, SUCCESSOR, "successor").get("name")
    return name in _names(new) and read_state(new).sequence > read_state(old).sequence


def remove_draft(path: str) -> None:
    """Removes what a shrinking that was interrupted left behind; the caller is the only writer."""
    with suppress(FileNotFoundError):
        os.unlink(_draft(path))


def _draft(path: str) -> str:
    """One name, since a file has one writer: what a killed one leaves is found again."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.shrinking")


def _names(view: View) -> list[str]:
    found = [] if view.get(LINEAGE) is None else read_record(view, LINEAGE, "lineage").get("names")
    return found if isinstance(found, list) else []


def _create(draft: str, environment: Environment) -> None:
    """An empty file that belongs to whom the old one does."""
    old = os.stat(environment.path)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        new = os.fstat(descriptor)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)  # PermissionError: others would lose their access
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    finally:
        os.close(descriptor)


def _fill(draft: str, records: dict[bytes, bytes], snapshot: Snapshot, numbers: range, limit: int) -> None:
    """The records and all segments, one transaction each, so that memory stays bounded."""
    size = 2**26 + 2 * sum(segment.nbytes for segment in snapshot.segments)
    with lmdb.open(draft, subdir=False, map_size=size, lock=False, sync=False, lib_version=0) as copy:
        with copy.begin(write=True) as transaction:  # first: both meta pages must lead to a state
            _put(records, transaction)
        for number, group in zip(numbers, snapshot.groups(limit=limit), strict=True):
            together = snapshot.segments[group]
            whole = len(together) == 1 and together[0].alive is None
            values = segment_values(number, together[0] if whole else merge_segments(together))
            with copy.begin(write=True) as transaction:
                _put(values, transaction)
        copy.sync(True)


def _put(values: Mapping[bytes, Any], transaction: lmdb.Transaction) -> None:
    for key, value in values.items():
        transaction.put(key, value)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
