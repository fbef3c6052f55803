"""A store's folder in an object store or any other file system that fsspec reaches.

Objects appear complete or not at all. A new version is created with a conditional put, which fails if the name is
taken; some object stores ignore the condition in silence, so a probe checks it once per store before the first change.
"""

from __future__ import annotations

import errno
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from .._arrays import Bytes
from ..errors import ConflictError, StorageError, install
from .backend import Buffer

HEAD_BYTES = 2**16
"""Bytes of a file that are read when it is opened: its header, and all of a small file."""

ATTEMPTS = 4
"""How often a conditional put is tried that fails without saying whether the name is taken."""

_creating = threading.Lock()  # file systems in memory look before they create
_probed: set[str] = set()  # stores of this process whose conditional puts were checked


class Bucket:
    """Objects under a URL; see :class:`Backend`."""

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
        return Bucket, (self.path,)  # a file system belongs to the process that made it

    def at(self, name: str) -> str:
        """A file's path in its file system."""
        return f"{self._root}/{name}"

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        """Threads of this index take turns; other clients may commit first."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"{self.path} is being written by another thread, waited {timeout:g} s")
        try:
            self.check_exclusive()
            yield
        finally:
            self._lock.release()

    def check_exclusive(self) -> None:
        """Check once that a name can be created only once; StorageError in words if it can be twice."""
        if self.path in _probed:
            return
        name = f"probe/{secrets.token_hex(16)}"
        try:
            self._create_new(name, b"1")
            self._create_new(name, b"2")
        except FileExistsError:
            _probed.add(self.path)
        except TypeError:  # a file system that does not know the condition
            self._refuse_unsafe()
        else:
            self._refuse_unsafe()
        finally:
            self.delete(name)

    def _refuse_unsafe(self) -> None:
        raise StorageError(
            self.path,
            "versions",
            "cannot be written: this store creates a name twice (it has no conditional put), so that clients could "
            "overwrite each other's changes; write to a local folder and copy it, or use another store",
        )

    def list(self, folder: str) -> list[str]:
        try:
            with _as_oserror():
                found = self._fs.ls(self.at(folder), detail=False)
        except FileNotFoundError:
            if folder == "versions":
                raise
            return []
        return [path.rsplit("/", 1)[-1] for path in found if not path.endswith("/")]

    def read(self, name: str, limit: int) -> bytes:
        content = self.fetch(name, 0, limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"has more than {limit} bytes", name)
        return content

    def fetch(self, name: str, start: int, stop: int) -> bytes:
        """Bytes of a file from one position to another, fewer if it ends before."""
        with _as_oserror():
            content: bytes = self._fs.cat_file(self.at(name), start=start, end=stop)
            return content

    def size(self, name: str) -> int:
        """Bytes of a file."""
        with _as_oserror():
            return int(self._fs.size(self.at(name)))

    def map(self, name: str) -> RemoteFile:
        return RemoteFile(self, name)

    def create(self, name: str, buffers: Iterable[Buffer]) -> None:
        content = b"".join(memoryview(buffer).cast("B") for buffer in buffers if memoryview(buffer).nbytes)
        with _as_oserror():
            self._fs.pipe_file(self.at(name), content)

    def sync(self, folders: Iterable[str]) -> None:
        """Objects are durable once they are created."""

    def publish(self, name: str, content: bytes) -> None:
        for attempt in range(ATTEMPTS):
            try:
                return self._create_new(name, content)
            except FileExistsError:
                raise
            except OSError:  # the condition failed, two clients met, or the reply was lost: an object settles it
                with suppress(FileNotFoundError):
                    self.size(name)
                    raise FileExistsError(errno.EEXIST, "was created by another client", name) from None
                if attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(0.05 * 2**attempt)

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

    def age(self, name: str) -> float:
        with _as_oserror():
            changed: datetime = self._fs.modified(self.at(name))
        aware = changed if changed.tzinfo else changed.replace(tzinfo=UTC)
        return (datetime.now(UTC) - aware).total_seconds()


class RemoteFile:
    """The bytes of an object as slices, each of which is fetched once.

    The object is opened with its first bytes. Another client may delete it later, because a newer version does not
    need it; ConflictError then says so.
    """

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        self._n_bytes = bucket.size(name)
        self._head = self._fetched(0, min(HEAD_BYTES, self._n_bytes))
        self._parts: dict[tuple[int, int], Bytes] = {}

    def __len__(self) -> int:
        return self._n_bytes

    def __getitem__(self, part: slice) -> Bytes:
        start, stop, _ = part.indices(self._n_bytes)
        if stop <= len(self._head):
            return self._head[start:stop]
        if (start, stop) not in self._parts:
            try:
                self._parts[start, stop] = self._fetched(start, stop)
            except FileNotFoundError:
                problem = "is gone: another client compacted the index since this version was opened; refresh the index"
                raise ConflictError(self._bucket.path, self._name, problem) from None
        return self._parts[start, stop]

    def _fetched(self, start: int, stop: int) -> Bytes:
        if start >= stop:
            return np.empty(0, np.uint8)
        content = np.frombuffer(self._bucket.fetch(self._name, start, stop), np.uint8)
        if len(content) != stop - start:
            raise StorageError(self._bucket.path, self._name, f"damaged: it ends before byte {stop}")
        return content


def is_url(path: str) -> bool:
    """Whether this is a URL of an object store, not a path of this machine."""
    return "://" in path and not path.startswith("file://")


@contextmanager
def _as_oserror() -> Iterator[None]:
    """Raise OSError for the errors of clients of object stores, which have types of their own."""
    try:
        yield
    except (OSError, TypeError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error
