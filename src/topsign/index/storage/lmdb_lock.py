"""Locks of an LMDB file: bound to the file itself, whatever its name.

LMDB keeps its readers in a lock file beside the data, found by name alone. A file that is reached by two names, or
replaced while it is open, would then be read and written under locks that know nothing of each other. So the lock file
says which file it serves (device and inode, in bytes that LMDB leaves alone), a lock file of another file is replaced,
and every process marks the data file with the lock file that it uses: a process that would use another is refused.

The lock file is written in full before LMDB maps it, because touching a hole in a map kills the process when the disk
is full.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Never

from ..._files import draft_of
from ...errors import StorageError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

Key = tuple[int, int]
"""Device and inode of a file."""

READERS = 1024
"""Snapshots that all processes together may hold open of one file."""

WAIT_SECONDS = 60.0
"""How long opening waits for other processes that are opening the same file."""

# LMDB divides what follows its header into slots of 64 bytes; the rest, less than one slot, is ours.
LOCK_BYTES = 192 + 64 * (READERS - 1)
IDENTITY = struct.Struct("<16sQQ16x")
MAGIC = b"topsign lock 1\0\0"

# Marks of the data file are locks of single bytes far beyond its end, one per lock file.
MARKS, N_MARKS = 2**62, 2**30
FLOCK = struct.Struct("hhqqi0q")


class ReplacedError(StorageError):
    """The path leads to another file than the one that is open."""


def key_of(found: os.stat_result) -> Key:
    return found.st_dev, found.st_ino


def check_same(path: str, key: Key) -> None:
    """Raises ReplacedError where the path does not lead to the file of this key."""
    try:
        same = key_of(os.stat(path)) == key
    except OSError:
        same = False
    if not same:
        raise_replaced(path)


def claim_lock(path: str, descriptor: int, held: Mapping[Key, int]) -> int:
    """A descriptor of the lock file that serves the open data file, with the right to open LMDB (``flock``).

    ``held`` has the lock files that this process has open: one must not be opened and closed again, which would end
    all POSIX locks that the process has on it. The returned descriptor is one that was not held before.

    ReplacedError where the path has come to lead to another file: the lock file is that one's, and others may use it.
    """
    name, data = f"{path}-lock", os.fstat(descriptor)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            found = os.lstat(name)
            _check_lock_file(path, name, found, data)
            ours = held.get(key_of(found))
            lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW) if ours is None else ours
        except FileNotFoundError:
            _create(path, name, data)
            continue
        claimed = False
        try:
            if _try_flock(path, lock) and _same(name, lock):
                if _identity(lock) == key_of(data):
                    claimed = True
                    return lock
                check_same(path, key_of(data))  # with the lock in hand: nobody gets to open what comes after
                os.unlink(name)  # of a file that was here before; who has that one open keeps its lock
                _create(path, name, data)
            elif ours is None and not _same(name, lock):
                continue
            else:
                time.sleep(0.002)
        finally:
            if not claimed:
                fcntl.flock(lock, fcntl.LOCK_UN)
                if ours is None:
                    os.close(lock)
    raise StorageError(path, "lock file", f"other processes held it for {WAIT_SECONDS:g} s; try again")


def mark_file(path: str, descriptor: int, lock: int) -> None:
    """Marks the data file with our lock file; StorageError where a process has it open under another one."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return
    at = MARKS + os.fstat(lock).st_ino % N_MARKS
    for start, length in ((MARKS, at - MARKS), (at + 1, MARKS + N_MARKS - at - 1)):
        if length:
            wanted = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
            blocking = FLOCK.unpack(_fcntl(path, descriptor, fcntl.F_OFD_GETLK, wanted))
            if blocking[0] != fcntl.F_UNLCK:
                raise StorageError(
                    path,
                    "lock file",
                    "another process has this file open under another name, or under a lock file that was removed; "
                    "close it there, then open it by one name alone",
                )
    _fcntl(path, descriptor, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, at, 1, 0))


def check_single_name(path: str, descriptor: int) -> None:
    """StorageError where the file has several hard links, whose lock files would know nothing of each other."""
    if os.fstat(descriptor).st_nlink <= 1:
        return
    folder, name = os.path.split(path)
    for entry in os.listdir(folder or "."):  # what a process that was killed while it made the file left behind
        other = os.path.join(folder, entry)
        drafted = entry.startswith(f".{name}.") and len(entry) == len(name) + 18
        with suppress(FileNotFoundError):  # who makes the file right now removes its draft too
            if drafted and key_of(os.lstat(other)) == key_of(os.fstat(descriptor)):
                os.unlink(other)
    n_links = os.fstat(descriptor).st_nlink
    if n_links > 1:
        raise StorageError(
            path,
            "file",
            f"has {n_links} names (hard links); processes that open it by different names would overwrite each "
            "other's entries: keep one name, or make a real copy (cp)",
        )


def _create(path: str, name: str, data: os.stat_result) -> None:
    """A lock file of the data file, unless another process is faster."""
    with draft_of(name) as draft:
        lock = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(lock, stat.S_IMODE(data.st_mode) & 0o666 | 0o600)
            _write(lock, bytes(LOCK_BYTES) + IDENTITY.pack(MAGIC, *key_of(data)))
            os.fsync(lock)  # where blocks are allocated late, errors come now
        except OSError as error:
            raise StorageError(path, "lock file", f"cannot be made: {error}") from None
        finally:
            os.close(lock)
        try:
            os.link(draft, name)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            if not os.path.lexists(name):
                os.rename(draft, name)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _check_lock_file(path: str, name: str, found: os.stat_result, data: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(path, "lock file", f"{name} is a link or a special file, not a lock file; remove it")
    shared = data.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not shared and found.st_uid not in (os.geteuid(), data.st_uid, 0):
        raise StorageError(
            path,
            "lock file",
            f"{name} belongs to user {found.st_uid}, who owns neither this process nor the index; remove it",
        )


def _try_flock(path: str, lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        raise_no_locks(path, error)


def _same(name: str, descriptor: int) -> bool:
    """Whether the name still leads to the open file."""
    try:
        return key_of(os.lstat(name)) == key_of(os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _identity(lock: int) -> Key | None:
    """The file that a lock file serves; None where it does not say."""
    text = os.pread(lock, IDENTITY.size, LOCK_BYTES)
    if len(text) < IDENTITY.size or os.fstat(lock).st_size != LOCK_BYTES + IDENTITY.size:
        return None
    magic, device, inode = IDENTITY.unpack(text)
    return (device, inode) if magic == MAGIC else None


def _fcntl(path: str, descriptor: int, command: int, argument: bytes) -> bytes:
    try:
        return fcntl.fcntl(descriptor, command, argument)
    except OSError as error:
        raise_no_locks(path, error)


def raise_replaced(path: str) -> Never:
    """The file that is open has lost its name."""
    raise ReplacedError(
        path,
        "file",
        "was replaced, moved or deleted since it was opened: changes would be lost with the old file; "
        "close this index and open it again",
    )


def raise_locked(path: str, timeout: float) -> Never:
    """Gives up waiting for another writer."""
    raise TimeoutError(
        f"{path} is being written by another process or thread, waited {timeout:g} s; "
        "try again later, or give a longer timeout (None waits as long as it takes)"
    )


def raise_no_locks(path: str, error: OSError) -> Never:
    """The file system refuses locks."""
    reason = errno.errorcode.get(error.errno or 0, "unknown error")
    raise StorageError(
        path, "file", f"cannot be locked ({reason}: {error.strerror}); keep indexes on a local file system"
    ) from None
