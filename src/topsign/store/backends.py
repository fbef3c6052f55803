"""File operations that a store needs: their interface, local folders, and object stores by way of fsspec."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import shutil
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Protocol

import numpy as np

from .._arrays import Bytes
from .._files import (
    POLL_SECONDS,
    give_name,
    is_link,
    lock_file,
    map_file,
    open_regular,
    rename_new,
    set_mode,
    sync_folder,
    why,
    write_all,
)
from ..errors import ConflictError, StorageError, install

FOLDERS = ("versions", "segments", "removed", "metadata", "recipes")
"""Subfolders of a store."""


class UnsettledError(OSError):
    """A creation failed, but the file may exist or appear later."""


Ranges = Sequence[tuple[int, int]]
"""First byte and end of each part of a file."""

Parts = list[Bytes]


@dataclass(frozen=True, eq=False)
class Content:
    """Bytes of an open file, which are mapped, or fetched and kept in ``buffer`` once they are verified."""

    buffer: Bytes
    fetch: Callable[[Ranges], Parts] | None = None

    def read(self, ranges: Ranges) -> Parts:
        """Return parts of the file that are not verified yet."""
        if self.fetch is not None:
            return self.fetch(ranges)
        return [self.buffer[start:stop] for start, stop in ranges]


class Backend(Protocol):
    """Folder of a store. Names are relative, with ``/`` between folder and file.

    Files are immutable: each is created once under a unique name and deleted at most once. Operations raise OSError; a
    missing file raises FileNotFoundError.
    """

    path: str  # path or URL, for users
    is_shared: bool  # whether other clients may commit while this one holds the lock

    def lock(self, timeout: float | None) -> AbstractContextManager[None]:
        """Acquire the writer lock if the system has one; raise TimeoutError after ``timeout`` seconds."""

    def list(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; raise FileNotFoundError if a local one does not exist."""

    def read(self, name: str, limit: int) -> bytes:
        """Read a small file; raise OSError if it has more than ``limit`` bytes."""

    def map(self, name: str) -> Content:
        """Open a file; parts that were read stay valid after the file is deleted."""

    def create(self, name: str, buffers: Iterable[Any]) -> None:
        """Write a new file of bytes and contiguous arrays; it is durable once its folder is synced."""

    def sync(self, folders: Iterable[str]) -> None:
        """Sync folders, so that the names in them are durable."""

    def publish(self, name: str, content: bytes) -> None:
        """Create a complete and durable file atomically.

        Raise FileExistsError if the name exists and UnsettledError if it is unknown whether the file was created.
        """

    def delete(self, name: str) -> bool:
        """Delete a file if the system permits it now; return whether it is gone."""

    def modified(self, name: str) -> float:
        """Return when a file was written, in seconds of the store's own clock."""


_held: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


@contextmanager
def hold_lock(path: str, timeout: float | None, *, folder: str) -> Iterator[None]:
    """Hold the writer lock of a folder; wait at most ``timeout`` seconds, or without limit for None.

    One thread of one process on a machine holds it. Each acquisition opens the lock file again, so threads exclude each
    other like processes. A file object owns the descriptor and closes it exactly once, so an interrupt cannot close a
    descriptor of the application.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with open(path, "a+b", buffering=0) as file:
            _held.add(file)
            try:
                while not lock_file(file, wait=deadline is None):
                    if deadline is not None and time.monotonic() >= deadline:
                        raise TimeoutError(
                            f"{folder} is being written by another process or thread, waited {timeout:g} s"
                        )
                    time.sleep(POLL_SECONDS)
            except TimeoutError:
                raise
            except OSError as error:
                problem = (
                    f"cannot be locked: {error.strerror}; use a file system with locks, or open it with readonly=True"
                )
                raise StorageError(folder, "lock", problem) from None
            try:
                is_present = os.path.samestat(os.stat(path), os.fstat(file.fileno()))
            except FileNotFoundError:
                is_present = False
            if is_present:
                yield
                return
        # The folder was replaced, or the lock file deleted, while this process waited: lock the present one.


def _close_inherited() -> None:
    """Close inherited lock files in a forked child, so that the lock ends with the parent; this does not unlock it."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


STALE_SECONDS = 3600
"""Age in seconds from which a folder with a temporary name is considered abandoned if it is not locked."""


class LocalFolder:
    """Backend with files in a folder."""

    is_shared = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._mode = stat.S_IMODE(os.stat(path).st_mode)  # new files get the folder's permissions

    def _own(self, name: str) -> str:
        """Return the path of a file to write or delete; raise OSError if a link leads out of the index."""
        top = f"{self.path}/{name.partition('/')[0]}"  # Windows accepts this separator too
        if is_link(top):
            problem = f"{os.path.basename(top)} is a link, and nothing is written or deleted through links"
            raise OSError(errno.ELOOP, problem, name)
        return f"{self.path}/{name}"

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        *_, path = map(self._own, (*FOLDERS, "lock"))
        if not os.path.exists(path):
            with open(path, "ab") as file:
                set_mode(file, self._mode & 0o666)
        with hold_lock(path, timeout, folder=self.path):
            yield

    def list(self, folder: str) -> list[str]:
        return os.listdir(f"{self.path}/{folder}")

    def read(self, name: str, limit: int) -> bytes:
        with open_regular(f"{self.path}/{name}") as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise OSError(errno.EFBIG, f"has more than {limit} bytes", name)
            return file.readall()

    def map(self, name: str) -> Content:
        with open_regular(f"{self.path}/{name}") as file:
            n_bytes = os.fstat(file.fileno()).st_size
            pages = map_file(file, n_bytes) if n_bytes else b""  # an empty file cannot be mapped
        return Content(np.frombuffer(pages, np.uint8))

    def create(self, name: str, buffers: Iterable[Any]) -> None:
        path = self._own(name)
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:  # copies by way of a bucket or git lack empty folders
            os.mkdir(os.path.dirname(path))
            os.chmod(os.path.dirname(path), self._mode)
            sync_folder(self.path)
            file = open(path, "xb", buffering=0)  # noqa: SIM115
        try:
            with file:
                set_mode(file, self._mode & 0o666)
                for buffer in buffers:
                    write_all(file, buffer)
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise

    def sync(self, folders: Iterable[str]) -> None:
        for folder in folders:
            sync_folder(f"{self.path}/{folder}")

    def publish(self, name: str, content: bytes) -> None:
        folder = name.split("/")[0]
        draft = f"{folder}/.{secrets.token_hex(16)}"
        self.create(draft, [content])
        try:
            give_name(f"{self.path}/{draft}", f"{self.path}/{name}")
        finally:
            self.delete(draft)  # or the next change deletes it
        try:
            self.sync([folder])
        except OSError as error:  # a second sync could succeed although the first lost the name
            if not self.delete(name):
                raise UnsettledError(error.errno, why(error), name) from None
            raise

    def delete(self, name: str) -> bool:
        try:
            os.unlink(self._own(name))
        except FileNotFoundError:
            return True
        except OSError:  # Windows does not delete mapped files; the next change tries again
            return False
        return True

    def modified(self, name: str) -> float:
        return os.stat(f"{self.path}/{name}").st_mtime


def make_folder(path: str, fill: Callable[[LocalFolder], None]) -> None:
    """Create a folder atomically: fill it under a temporary name, rename it and sync its parent.

    Raises FileExistsError if the name exists.
    """
    parent, name = os.path.split(path)
    draft = os.path.join(parent, f".{name}.{secrets.token_hex(16)}")
    try:
        os.mkdir(draft)
        made = LocalFolder(draft)
        with ExitStack() as held:
            with suppress(StorageError):  # a file system without locks
                held.enter_context(made.lock(0))
            _remove_stale(parent, name, os.stat(draft).st_mtime)
            for folder in FOLDERS:
                os.mkdir(os.path.join(draft, folder))
            fill(made)
            made.sync([*FOLDERS, ""])
            os.utime(draft)  # Windows renames no folder with open files, so that the lock must end before
        rename_new(draft, path)
        try:
            sync_folder(parent)
        except OSError as error:
            try:
                os.rename(path, draft)
            except OSError:
                raise UnsettledError(error.errno, why(error), path) from None
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_stale(parent: str, name: str, now: float) -> None:
    """Remove temporary folders of this name that are old and whose creators do not hold their locks any more."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            prefix, _, token = entry.name.rpartition(".")
            if prefix != f".{name}" or len(token) != 32 or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError, StorageError):  # its creator has finished, or is at work
                if now - entry.stat().st_mtime > STALE_SECONDS:
                    with LocalFolder(entry.path).lock(0):
                        pass
                    shutil.rmtree(entry.path, ignore_errors=True)


HEAD_BYTES = 2**16
"""Bytes read when a file is opened: the header, or all of a small file."""

ATTEMPTS = 4
"""Attempts of a conditional put that fails without saying whether the name exists."""

_creating = threading.Lock()  # in-memory file systems check and create in two steps
_probed: set[str] = set()  # stores of this process whose conditional puts were checked


class Bucket:
    """Backend with objects under a URL.

    Objects appear atomically. A new version is created with a conditional put, which fails if the name exists. Some
    object stores silently ignore the condition, so a probe checks it once per store before the first change.
    """

    is_shared = True

    def __init__(self, url: str) -> None:
        self.path = url.rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ImportError(f"{url} needs fsspec, which is not installed; {install('distributed')}") from None
        self._fs, root = url_to_fs(url, use_listings_cache=False)
        self._root = root.rstrip("/")
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.path,)  # file systems must not be shared between processes

    def at(self, name: str) -> str:
        """Return the path of a file in its file system."""
        return f"{self._root}/{name}"

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        """Serialise the threads of this index; other clients may still commit first."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"{self.path} is being written by another thread, waited {timeout:g} s")
        try:
            self.check_exclusive()
            yield
        finally:
            self._lock.release()

    def check_exclusive(self) -> None:
        """Check once per store that an existing name cannot be created again; otherwise raise StorageError."""
        if self.path in _probed:
            return
        name = f"removed/.{secrets.token_hex(16)}"  # if it cannot be deleted now, it is an orphan
        try:
            with suppress(TypeError):  # no support for the condition
                self._create_new(name, b"1")
                self._create_new(name, b"2")
        except FileExistsError:
            _probed.add(self.path)
            return
        finally:
            self.delete(name)
        raise StorageError(
            self.path,
            "versions",
            "cannot be written: this store creates a name twice (it has no conditional put), so that clients could "
            "overwrite each other's changes; write to a local folder and copy it, or use another store",
        )

    def list(self, folder: str) -> list[str]:
        with _as_oserror():
            found = self._fs.ls(self.at(folder), detail=False)
        return [path.rsplit("/", 1)[-1] for path in found if not path.endswith("/")]

    def read(self, name: str, limit: int) -> bytes:
        (content,) = self.fetch(name, [(0, limit + 1)])
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"has more than {limit} bytes", name)
        return content

    def fetch(self, name: str, ranges: Ranges) -> Sequence[bytes]:
        """Read parts of a file at the same time, fewer bytes if the file ends before."""
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        with _as_oserror():
            found: Sequence[Any] = self._fs.cat_ranges([self.at(name)] * len(ranges), starts, stops)
            for part in found:
                if isinstance(part, Exception):
                    raise part
            return found

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with _as_oserror():
            return int(self._fs.size(self.at(name)))

    def map(self, name: str) -> Content:
        """Open a file and fetch its first bytes, which hold the header."""
        n_bytes = self.size(name)
        (head,) = self._parts(name, [(0, min(HEAD_BYTES, n_bytes))])
        if len(head) == n_bytes:
            return Content(head)

        def fetch(ranges: Ranges) -> Parts:
            try:
                fetched = iter(self._parts(name, [one for one in ranges if one[1] > len(head)]))
            except FileNotFoundError:
                problem = "is gone: another client compacted the index since this version was opened; refresh the index"
                raise ConflictError(self.path, name, problem) from None
            return [next(fetched) if stop > len(head) else head[start:stop] for start, stop in ranges]

        return Content(np.frombuffer(mmap.mmap(-1, n_bytes), np.uint8), fetch)  # pages take memory once they are filled

    def _parts(self, name: str, ranges: Ranges) -> Parts:
        parts = [np.frombuffer(part, np.uint8) for part in self.fetch(name, ranges)]
        for part, (start, stop) in zip(parts, ranges, strict=True):
            if len(part) != stop - start:
                raise StorageError(self.path, name, f"damaged: it ends before byte {stop}")
        return parts

    def create(self, name: str, buffers: Iterable[Any]) -> None:
        content = b"".join(memoryview(buffer).cast("B") for buffer in buffers if memoryview(buffer).nbytes)
        with _as_oserror():
            self._fs.pipe_file(self.at(name), content)

    def sync(self, folders: Iterable[str]) -> None:
        """Objects are durable once they are created."""

    def publish(self, name: str, content: bytes) -> None:
        for attempt in range(ATTEMPTS):
            try:
                return self._create_new(name, content)
            except (FileExistsError, PermissionError):
                if attempt == 0:
                    raise
                break  # the earlier attempts may have succeeded
            except OSError as error:
                problem = why(error)  # the name exists, clients collided, or the put or its reply was lost
            time.sleep(0.05 * 2**attempt)
            with suppress(OSError):
                self.size(name)
                break
        raise UnsettledError(errno.EIO, problem, name)

    def _create_new(self, name: str, content: bytes) -> None:
        in_process = nullcontext() if getattr(self._fs, "async_impl", False) else _creating
        with in_process, _as_oserror():
            self._fs.pipe_file(self.at(name), content, mode="create")

    def delete(self, name: str) -> bool:
        try:
            with _as_oserror():
                self._fs.rm_file(self.at(name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def modified(self, name: str) -> float:
        with _as_oserror():
            changed: datetime = self._fs.modified(self.at(name))
        return (changed if changed.tzinfo else changed.replace(tzinfo=UTC)).timestamp()


def is_url(path: str) -> bool:
    """Return whether this is a URL of an object store instead of a local path."""
    return "://" in path and not path.startswith("file://")


@contextmanager
def _as_oserror() -> Iterator[None]:
    """Convert the exceptions of object-store clients to OSError."""
    try:
        yield
    except (OSError, TypeError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error
