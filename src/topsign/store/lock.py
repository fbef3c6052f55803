"""Writer lock of a folder, held by one thread of one process on a machine.

Each acquisition opens the lock file again, so threads exclude each other like processes. A file object owns the
descriptor and closes it exactly once, so an interrupt cannot close a descriptor of the application.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from .._system import POLL_SECONDS, lock_file
from ..errors import StorageError

_held: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


@contextmanager
def hold_lock(path: str, timeout: float | None, *, folder: str) -> Iterator[None]:
    """Hold the lock file, creating it if necessary; wait at most ``timeout`` seconds, or without limit for None."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with open(path, "a+b", buffering=0) as file:
            _held.add(file)
            _wait(file, deadline, timeout, folder)
            if _is_at(path, file):
                yield
                return
        # The folder was replaced, or the lock file deleted, while this process waited: lock the present one.


def _wait(file: IO[bytes], deadline: float | None, timeout: float | None, folder: str) -> None:
    try:
        while not lock_file(file, wait=deadline is None):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{folder} is being written by another process or thread, waited {timeout:g} s")
            time.sleep(POLL_SECONDS)
    except TimeoutError:
        raise
    except OSError as error:
        problem = f"cannot be locked: {error.strerror}; use a file system with locks, or open it with readonly=True"
        raise StorageError(folder, "lock", problem) from None


def _is_at(path: str, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _close_inherited() -> None:
    """Close inherited lock files in a forked child, so that the lock ends with the parent; this does not unlock it."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
