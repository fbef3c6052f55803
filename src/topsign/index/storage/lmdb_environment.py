"""An open LMDB file: shared by all indexes of this process on it, safe between threads and processes.

LMDB allows a file to be opened once in a process, so indexes on the same file share an :class:`Environment`. Readers
never wait. Writers take turns by a lock on the file itself (``flock``, released by the system when a process dies), so
that a change may take several LMDB transactions, of which the last makes it visible, and so that waiting can end.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import lmdb
import numpy as np

from ..._arrays import Bytes
from ...errors import StorageError
from .lmdb_pages import PageReader

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

MAP_BYTES = 2**40
"""Addresses reserved for a file (no memory, no disk); it is mapped anew when it grows beyond them."""

READERS = 1024
"""Snapshots that all processes together may hold open of one file."""

GROW_SECONDS = 60.0
"""How long growing beyond the reserved addresses waits for searches to end."""

Key = tuple[int, int]


class View:
    """The file as one transaction left it; its pages stay as they are until nothing refers to it any more."""

    def __init__(self, environment: Environment, transaction: lmdb.Transaction) -> None:
        self.environment = environment
        self._transaction = transaction
        self._lock = threading.Lock()
        self.number = transaction.id()

    def get(self, key: bytes) -> Bytes | None:
        """A value where it lies in the map, or None. The array keeps this view open."""
        with self._lock:
            value = self._transaction.get(key)
        if value is None:
            return None
        return np.asarray(_Value(self, np.frombuffer(value, np.uint8)))

    def __del__(self) -> None:
        if self.environment.is_ours:  # a forked child must not free its parent's reader slot
            self._transaction.abort()
            self.environment.view_closed()


class _Value:
    """Bytes of the map that keep their view open: NumPy holds on to the object whose interface it took."""

    def __init__(self, view: View, value: Bytes) -> None:
        self.view = view
        self.__array_interface__ = value.__array_interface__


class Environment:
    """An open file. ``checked`` remembers which values were compared with their checksums in this process."""

    _open: ClassVar[weakref.WeakValueDictionary[Key, Environment]] = weakref.WeakValueDictionary()
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str) -> None:
        self.path = path
        self.checked: set[tuple[str, int]] = set()
        self.sound = -1  # the last transaction whose pages were checked
        self._process = os.getpid()
        self._writing = threading.Lock()
        self._transacting = threading.Lock()  # the map must not change under a transaction that writes
        self._views = threading.Condition(threading.RLock())
        self._n_views = 0
        self._growing = False
        self._dropping: weakref.WeakSet[object] = weakref.WeakSet()
        self._descriptor = os.open(path, os.O_RDONLY)
        self.pages = PageReader(path, self._descriptor)
        self.pages.metas()  # before LMDB follows them
        self.writable = os.access(path, os.W_OK)
        self._lmdb = self._map()

    @classmethod
    def at(cls, path: str) -> Environment:
        """The open file of this process, opened when it is not."""
        if fcntl is None:
            raise StorageError(path, "file", "durable indexes need a POSIX system (Linux, macOS)")
        with cls._opening:
            found = os.stat(path)
            key = found.st_dev, found.st_ino
            environment = cls._open.get(key)
            if environment is None:
                environment = cls._open[key] = cls(path)
            environment.check_process()
            return environment

    def view(self) -> View:
        """The newest state of the file."""
        self.check_process()
        while True:
            with self._views:
                while self._growing:
                    self._views.wait()
                try:
                    transaction = self._lmdb.begin(buffers=True)
                    self._n_views += 1
                    return View(self, transaction)
                except lmdb.MapResizedError:  # another process has mapped more
                    pass
                except lmdb.Error as error:
                    raise StorageError(self.path, "file", f"cannot be read: {error}") from None
            self._grow(0)

    @contextmanager
    def exclusive(self, timeout: float | None) -> Iterator[None]:
        """The only writer among all threads and processes."""
        self.check_process()
        if not self.writable:
            raise_readonly(self.path, "the file or its folder is read-only; open it with readonly=True")
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._writing.acquire(timeout=-1 if timeout is None else timeout):
            raise_locked(self.path, timeout or 0.0)
        try:
            while True:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if deadline is None else fcntl.LOCK_NB))
                    break
                except BlockingIOError:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise_locked(self.path, timeout or 0.0)
                    time.sleep(0.005)
            try:
                self._lmdb.reader_check()  # slots of processes that died
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._writing.release()

    def write(self, work: Callable[[lmdb.Transaction], None]) -> None:
        """One transaction: all of the work, on disk when this returns, or none of it."""
        while True:
            try:
                with self._transacting, self._lmdb.begin(write=True) as transaction:
                    number = transaction.id()
                    work(transaction)
                self.sound = number  # LMDB wrote it just now, upon pages that were checked
                return
            except lmdb.MapFullError:
                wanted = 2 * self._lmdb.info()["map_size"]
            except lmdb.MapResizedError:
                wanted = 0
            except lmdb.Error as error:
                raise StorageError(self.path, "file", f"could not be written, nothing was changed: {error}") from None
            self._grow(wanted)

    def drop_when_growing(self, holder: object) -> None:
        """``holder.drop()`` will be called when the map must grow: views must be released then."""
        self._dropping.add(holder)

    def _grow(self, wanted: int) -> None:
        """Maps the file anew, ``wanted`` bytes of it (0: what another process mapped), once no view is open."""
        with self._transacting, self._views:
            self._growing = True
            try:
                for holder in list(self._dropping):
                    holder.drop()  # type: ignore[attr-defined]
                if not self._views.wait_for(lambda: self._n_views == 0, GROW_SECONDS):
                    why = f"must be mapped anew to grow, but searches went on for {GROW_SECONDS:g} s"
                    raise StorageError(self.path, "file", f"{why}; nothing was changed")
                self._lmdb.set_mapsize(wanted)
            except lmdb.Error as error:
                raise StorageError(self.path, "file", f"cannot be mapped anew: {error}") from None
            finally:
                self._growing = False
                self._views.notify_all()

    def view_closed(self) -> None:
        """Counts a view that is gone."""
        with self._views:
            self._n_views -= 1
            self._views.notify_all()

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, not one that it was forked from."""
        return self._process == os.getpid()

    def check_process(self) -> None:
        """LMDB's files do not survive a fork."""
        if not self.is_ours:
            raise StorageError(
                self.path, "file", "opened before this process was forked; close() it here and open it again"
            )

    def _map(self) -> lmdb.Environment:
        size = max(MAP_BYTES, 2 * os.fstat(self._descriptor).st_size)
        while True:
            try:
                return self._open_lmdb(size)
            except MemoryError:
                size = self._less(size)
            except lmdb.Error as error:
                if error.args and "annot allocate memory" in str(error):
                    size = self._less(size)
                    continue
                raise StorageError(self.path, "file", f"cannot be opened: {error}") from None

    def _less(self, size: int) -> int:
        """Half the addresses, where so many cannot be reserved; at least the file must fit."""
        if size // 2 < os.fstat(self._descriptor).st_size + 2**20:
            raise StorageError(self.path, "file", f"cannot be mapped: {size} bytes of addresses are refused")
        return size // 2

    def _open_lmdb(self, size: int) -> lmdb.Environment:
        options: dict[str, Any] = {"subdir": False, "create": False, "lib_version": 0, "map_size": size}
        options |= {"max_readers": READERS, "max_spare_txns": 0}  # a spare one would be shared with forked children
        try:
            return lmdb.open(self.path, readonly=not self.writable, **options)
        except lmdb.Error as error:
            if not any(os.strerror(code) in str(error) for code in (errno.EACCES, errno.EROFS, errno.EPERM)):
                raise
        # No lock file can be made here, so LMDB could not see us reading: a shared lock keeps writers out instead.
        self.writable = False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise_locked(self.path, 0.0)
        return lmdb.open(self.path, readonly=True, lock=False, **options)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)

    @classmethod
    def _after_fork(cls) -> None:
        """A child must not keep the lock of a parent that dies."""
        for environment in list(cls._open.values()):
            os.close(environment._descriptor)
            del environment._descriptor


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Environment._after_fork)


def create(path: str, records: dict[bytes, bytes]) -> None:
    """A new file with these records, complete from the moment it exists; one made meanwhile is left alone."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise StorageError(path, "file", f"cannot be made: the folder {folder} does not exist; make it first")
    draft = folder / f".{Path(path).name}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        new = lmdb.open(str(draft), subdir=False, map_size=2**24, lock=False, lib_version=0)
        with new, new.begin(write=True) as transaction:
            for key, value in records.items():
                transaction.put(key, value)
        with suppress(FileExistsError):
            try:
                os.link(draft, path)
            except (PermissionError, NotImplementedError):  # a file system without hard links
                if not os.path.lexists(path):
                    os.rename(draft, path)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except (lmdb.Error, OSError) as error:
        raise StorageError(path, "file", f"cannot be made: {error}") from None
    finally:
        draft.unlink(missing_ok=True)


def raise_readonly(path: str, why: str) -> NoReturn:
    """Refuses a change of a file that cannot be written."""
    raise StorageError(path, "file", f"cannot be written: {why}")


def raise_locked(path: str, timeout: float) -> NoReturn:
    """Gives up waiting for another writer."""
    raise TimeoutError(
        f"{path} is being written by another process or thread, waited {timeout:g} s; "
        "try again later, or give a longer timeout (None waits as long as it takes)"
    )
