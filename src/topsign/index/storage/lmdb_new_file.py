"""New LMDB files."""

from __future__ import annotations

import os
from contextlib import suppress

import lmdb

from ..._files import draft_of, publish
from ...errors import StorageError


def create(path: str, records: dict[bytes, bytes]) -> None:
    """A new file with these records, complete from the moment it exists; one made meanwhile is left alone."""
    check_folder(path)
    try:
        with draft_of(path) as draft:
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
            new = lmdb.open(draft, subdir=False, map_size=2**24, lock=False, lib_version=0)
            with new, new.begin(write=True) as transaction:
                for key, value in records.items():
                    transaction.put(key, value)
            with suppress(FileExistsError):
                publish(draft, path, new=True)
    except (lmdb.Error, OSError) as error:
        raise StorageError(path, "file", f"cannot be made: {error}") from None


def check_folder(path: str) -> None:
    """Raises StorageError where there is no folder to make this file in."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StorageError(path, "file", f"cannot be made: the folder {folder} does not exist; make it first")
