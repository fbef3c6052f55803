"""Backend for object stores and other file systems of fsspec.

Objects appear atomically. A new version is created with a conditional put, which fails if the name exists. Some object
stores silently ignore the condition, so a probe checks it once per store before the first change.
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
from .._system import why
from ..errors import ConflictError, StorageError, install
from .backend import Buffer, UnsettledError

HEAD_BYTES = 2**16
"""Bytes read when a file is opened: the header, or all of a small file."""

ATTEMPTS = 4
"""Attempts of a conditional put that fails without saying whether the name exists."""

_creating = threading.Lock()  # in-memory file systems check and create in two steps
_probed: set[str] = set()  # stores of this process whose conditional puts were checked


class Bucket:
    """Backend with objects under a URL."""

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
            self._create_new(name, b"1")
            self._create_new(name, b"2")
        except FileExistsError:
            _probed.add(self.path)
        except TypeError:  # no support for the condition
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
        """Read a range of bytes, fewer if the file ends before."""
        with _as_oserror():
            content: bytes = self._fs.cat_file(self.at(name), start=start, end=stop)
            return content

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
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


class RemoteFile:
    """Bytes of an object; each slice is fetched once.

    Opening fetches the first bytes. Another client may delete the object later because a newer version does not need
    it, which raises ConflictError.
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
