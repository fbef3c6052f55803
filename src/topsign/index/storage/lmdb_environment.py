"""An open LMDB file: shared by all indexes of this process on it, safe between threads and processes.

LMDB allows a file to be opened once in a process, so indexes on the same file share an :class:`Environment`. Readers
never wait. Writers take turns by a lock on the file itself (``flock``, released by the system when a process dies), so
that a change may take several LMDB transactions, of which the last makes it visible, and so that waiting can end.

An environment is closed when no index uses it and no view of it is open. Users and views are counted in sets, whose
methods are atomic, so that finalizers take no lock: they may run at any moment, in any thread.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import lmdb

from ...errors import StorageError
from .lmdb_lock import (
    READERS,
    Key,
    ReplacedError,
    check_same,
    check_single_name,
    claim_lock,
    key_of,
    mark_file,
    raise_locked,
    raise_no_locks,
    raise_replaced,
)
from .lmdb_pages import PageReader
from .lmdb_view import View

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

MAP_BYTES = 2**40
"""Addresses reserved for a file (no memory, no disk); it is mapped anew when it grows beyond them."""

GROW_SECONDS = 60.0
"""How long growing beyond the reserved addresses waits for searches to end."""

GROW_PATIENCE = 0.05
"""How long growing keeps new views out, then lets them in, as a search may need one to end; each time twice as long."""

ATTEMPTS = 100
"""How often an operation is tried again that another process can disturb."""

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of a folder in which no lock file can be made."""

_tokens = itertools.count()


class Environment:
    """An open file. ``checked`` remembers which values were compared with their checksums in this process."""

    _open: ClassVar[dict[Key, Environment]] = {}
    _inherited: ClassVar[dict[Key, Environment]] = {}  # from the process that this one was forked from
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str) -> None:
        self.path = path
        self.checked: dict[int, set[tuple[str, int]]] = {}  # by segment: columns and their checksums
        self.sound = -1  # the last transaction whose pages were checked
        self.users: set[int] = set()
        self.open_views: set[int] = set()
        self._process = os.getpid()
        self._writing = threading.Lock()
        self._transacting = threading.Lock()  # the map must not change under a transaction that writes
        self._mapping = threading.RLock()  # held while views are opened, and while the file is mapped anew
        self._dropping: weakref.WeakSet[object] = weakref.WeakSet()
        self._lock_descriptor: int | None = None
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            self.key = key_of(os.fstat(self._descriptor))
            if self.key in Environment._open:
                raise_replaced(path)
            check_single_name(path, self._descriptor)
            self.pages = PageReader(path, self._descriptor)
            self.pages.metas()  # before LMDB follows them
            self.writable = os.access(path, os.W_OK)
            self._lmdb = self._open_locked()
        except BaseException:
            self._close_descriptors()
            raise

    @classmethod
    def at(cls, path: str) -> tuple[Environment, int]:
        """The open file of this process, opened when it is not, and the number to :meth:`leave` it with."""
        if fcntl is None:
            raise StorageError(path, "file", "durable indexes need a POSIX system (Linux, macOS)")
        with cls._opening:
            cls._close_unused()
            try:
                environment = cls._opened(path)
            except OSError as error:
                raise StorageError(path, "file", f"cannot be opened: {error.strerror}") from None
            if environment.path != path:
                raise StorageError(path, "file", f"is open in this process as {environment.path}; close it there first")
            token = next(_tokens)
            environment.users.add(token)
        cls._close_left()
        return environment, token

    @classmethod
    def _opened(cls, path: str) -> Environment:
        for attempt in range(ATTEMPTS):
            key = key_of(os.stat(path))
            if key in cls._open:
                return cls._open[key]
            try:
                cls._close_inherited(key)
                environment = cls(path)
            except ReplacedError:  # while it was opened
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                cls._open[environment.key] = environment
                return environment
        raise AssertionError

    def leave(self, token: int) -> None:
        """Ends one use; the file is closed with the last."""
        self.users.discard(token)
        self.close_if_unused()

    def close_if_unused(self) -> None:
        """Closes the file when nothing uses it, or leaves that to the thread that opens or closes one now."""
        if self.is_unused:
            Environment._close_left()

    @property
    def is_unused(self) -> bool:
        return not self.users and not self.open_views

    @classmethod
    def _close_left(cls) -> None:
        """Closes files that nothing uses, those too that others left to this thread meanwhile."""
        for _ in range(ATTEMPTS):
            if not any(one.is_unused for one in list(cls._open.values())) or not cls._opening.acquire(blocking=False):
                return
            try:
                cls._close_unused()
            finally:
                cls._opening.release()

    @classmethod
    def _close_unused(cls) -> None:
        for key, environment in list(cls._open.items()):
            if not environment.users and environment._mapping.acquire(blocking=False):
                try:
                    if not environment.open_views:
                        environment._lmdb.close()
                        environment._close_descriptors()
                        del cls._open[key]
                finally:
                    environment._mapping.release()

    @classmethod
    def _close_inherited(cls, key: Key) -> None:
        """Closes what a forked child has of its parent's environment, which LMDB would not let it open again."""
        environment = cls._inherited.pop(key, None)
        if environment is not None:
            environment._drop_views()
            if environment.open_views:
                cls._inherited[key] = environment
                raise StorageError(
                    environment.path,
                    "file",
                    "was in use by other threads when this process was forked; fork before they open it, or start "
                    "processes with spawn",
                )
            environment._lmdb.close()

    def _drop_views(self) -> None:
        for holder in list(self._dropping):
            holder.drop()  # type: ignore[attr-defined]

    def _close_descriptors(self) -> None:
        for descriptor in (self._descriptor, self._lock_descriptor):
            if descriptor is not None:
                os.close(descriptor)

    def view(self) -> View:
        """The newest state of the file."""
        self.check_process()
        for attempt in range(ATTEMPTS):
            with self._mapping:
                token = next(_tokens)
                self.open_views.add(token)
                try:
                    return View(self, self._lmdb.begin(buffers=True), token)
                except lmdb.MapResizedError:  # another process has mapped more
                    self.open_views.discard(token)
                except lmdb.ReadersFullError:
                    self.open_views.discard(token)
                    if not self._lmdb.reader_check() and attempt:  # slots of processes that died
                        problem = f"{READERS} snapshots of it are open in all processes together; close some"
                        raise StorageError(self.path, "lock file", problem) from None
                    continue
                except lmdb.Error as error:
                    self.open_views.discard(token)
                    raise StorageError(self.path, "file", f"cannot be read: {error}") from None
            self._grow(0)
        raise StorageError(self.path, "file", "grew at every attempt to map it; try again")

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
                except OSError as error:
                    raise_no_locks(self.path, error)
            try:
                self.check_identity()
                self._lmdb.reader_check()  # slots of processes that died
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._writing.release()

    def write(self, work: Callable[[lmdb.Transaction], None]) -> None:
        """One transaction: all of the work, on disk when this returns, or none of it."""
        for _ in range(ATTEMPTS):
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
        raise StorageError(self.path, "file", "grew at every attempt to map it; nothing was changed")

    def drop_when_growing(self, holder: object) -> None:
        """``holder.drop()`` will be called when the map must grow: views must be released then."""
        self._dropping.add(holder)

    def _grow(self, wanted: int) -> None:
        """Maps the file anew, ``wanted`` bytes of it (0: what another process mapped), once no view is open."""
        with self._transacting:
            deadline, patience = time.monotonic() + GROW_SECONDS, GROW_PATIENCE
            while not self._try_to_grow(wanted, min(deadline, time.monotonic() + patience)):
                if time.monotonic() > deadline:
                    why = f"must be mapped anew to grow, but searches went on for {GROW_SECONDS:g} s"
                    raise StorageError(self.path, "file", f"{why}; nothing was changed")
                time.sleep(patience)  # lets in those who hold a view, or are waited for by one, and need another
                patience *= 2

    def _try_to_grow(self, wanted: int, deadline: float) -> bool:
        """Whether all views were released by then, with new ones kept out, and the file is mapped anew."""
        with self._mapping:
            while True:
                self._drop_views()
                if not self.open_views:
                    break
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.002)
            try:
                self._lmdb.set_mapsize(wanted)
            except lmdb.Error as error:
                raise StorageError(self.path, "file", f"cannot be mapped anew: {error}") from None
            return True

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, not one that it was forked from."""
        return self._process == os.getpid()

    def check_process(self) -> None:
        """LMDB's files do not survive a fork."""
        if not self.is_ours:
            raise StorageError(self.path, "file", "opened before this process was forked; open it again here")

    def check_identity(self) -> None:
        """Raises ReplacedError where the path leads to another file than the one that is open."""
        check_same(self.path, self.key)

    def _open_locked(self) -> lmdb.Environment:
        """Opens LMDB under the lock file that serves this very file."""
        held = {
            key_of(os.fstat(other._lock_descriptor)): other._lock_descriptor
            for other in Environment._open.values()
            if other._lock_descriptor is not None
        }
        try:
            lock = claim_lock(self.path, self._descriptor, held)
        except OSError as error:
            if error.errno in READ_ONLY:
                return self._open_unlocked()
            raise StorageError(self.path, "lock file", f"cannot be opened: {error}") from None
        self._lock_descriptor = lock
        try:
            mark_file(self.path, self._descriptor, lock)
            opened = self._map(readonly=not self.writable, lock=True)
            opened.reader_check()  # slots of processes that died
            return opened
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    def _open_unlocked(self) -> lmdb.Environment:
        """Opens where no lock file can be: LMDB could not see us reading, so a shared lock keeps writers out."""
        self.writable = False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise_locked(self.path, 0.0)
        except OSError as error:
            raise_no_locks(self.path, error)
        return self._map(readonly=True, lock=False)

    def _map(self, *, readonly: bool, lock: bool) -> lmdb.Environment:
        """Opens LMDB with as many addresses as the system gives; ReplacedError where its name led to another file."""
        length = os.fstat(self._descriptor).st_size
        size = max(MAP_BYTES, 2 * length)
        options: dict[str, Any] = {"subdir": False, "create": False, "lib_version": 0, "max_readers": READERS}
        options |= {"readonly": readonly, "lock": lock}
        options |= {"max_spare_txns": 0}  # a spare one would be shared with forked children
        while True:
            try:
                opened = lmdb.open(self.path, map_size=size, **options)
            except (MemoryError, lmdb.Error) as error:
                if not isinstance(error, MemoryError) and "annot allocate memory" not in str(error):
                    raise StorageError(self.path, "file", f"cannot be opened: {error}") from None
            else:
                break
            if size // 2 < length + 2**20:
                raise StorageError(self.path, "file", f"cannot be mapped: {size} bytes of addresses are refused")
            size //= 2
        try:
            self.check_identity()
        except ReplacedError:
            opened.close()
            raise
        return opened

    @classmethod
    def _before_fork(cls) -> None:
        """No file is half open or half closed in a child."""
        cls._opening.acquire()

    @classmethod
    def _after_fork_in_parent(cls) -> None:
        cls._opening.release()

    @classmethod
    def _after_fork(cls) -> None:
        """A child starts with locks of its own, and without the locks of a parent that dies."""
        cls._opening = threading.Lock()
        for environment in cls._open.values():
            environment._close_descriptors()
        cls._inherited |= cls._open
        cls._open = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=Environment._before_fork,
        after_in_parent=Environment._after_fork_in_parent,
        after_in_child=Environment._after_fork,
    )


def raise_readonly(path: str, why: str) -> NoReturn:
    """Refuses a change of a file that cannot be written."""
    raise StorageError(path, "file", f"cannot be written: {why}")
