"""A store's folder on a local or mounted file system."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np

from .._arrays import Bytes
from .._files import sync_folder
from .backend import FOLDERS, Buffer
from .lock import hold_lock

STALE_SECONDS = 3600
"""Age from which a folder under a temporary name is the remainder of a process that died."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a planted pipe must not block
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # else a map keeps a descriptor


class LocalFolder:
    """Files in a folder; see :class:`Backend`."""

    is_shared = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._mode = stat.S_IMODE(os.stat(path).st_mode) & 0o666  # new files are as open as the folder

    def _at(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/"))

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        path = self._at("lock")
        if not os.path.exists(path):
            with open(path, "ab") as file:
                self._allow(file)
        with hold_lock(path, timeout, folder=self.path):
            yield

    def list(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._at(folder))
        except FileNotFoundError:
            if folder == "versions":
                raise
            return []  # copies by way of a bucket or git lack empty folders

    def read(self, name: str, limit: int) -> bytes:
        with self._opened(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"has more than {limit} bytes", name)
        return content

    def map(self, name: str) -> Bytes:
        with self._opened(name) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            if n_bytes == 0:  # cannot be mapped
                return np.empty(0, np.uint8)
            pages = mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ, **_UNTRACKED)
        return np.frombuffer(pages, np.uint8)

    def create(self, name: str, buffers: Iterable[Buffer]) -> None:
        path = self._at(name)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder) and os.path.isdir(self.path):
            with suppress(FileExistsError):
                os.mkdir(folder)
            sync_folder(self.path)
        try:
            with open(path, "xb", buffering=0) as file:
                self._allow(file)
                for buffer in buffers:
                    _write_all(file, buffer)
        except BaseException as error:
            if not isinstance(error, FileExistsError):
                with suppress(OSError):
                    os.unlink(path)
            raise

    def sync(self, names: Iterable[str]) -> None:
        for path in sorted(map(self._at, names), key=os.path.isdir):  # files first: their journal entry has the names
            _sync(path)

    def publish(self, name: str, content: bytes, after: Iterable[str]) -> None:
        folder = name.split("/")[0]
        draft = f"{folder}/.{secrets.token_hex(16)}"
        self.create(draft, [content])
        try:
            self.sync([*after, draft])
            _give_name(self._at(draft), self._at(name))
            self.sync([folder])
        finally:
            with suppress(OSError):  # the next change removes it
                os.unlink(self._at(draft))

    def delete(self, name: str) -> bool:
        try:
            os.unlink(self._at(name))
        except FileNotFoundError:
            return True
        except OSError:  # Windows does not delete a mapped file; the next change tries again
            return False
        return True

    def age(self, name: str) -> float:
        return time.time() - os.stat(self._at(name)).st_mtime

    def _opened(self, name: str) -> IO[bytes]:
        file = open(self._at(name), "rb", buffering=0, opener=lambda path, _: os.open(path, _READ))  # noqa: SIM115
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "is not a regular file", name)
        return file

    def _allow(self, file: IO[bytes]) -> None:
        """Permissions of a new file follow the folder's, whatever the umask of this process."""
        if hasattr(os, "fchmod"):
            with suppress(OSError):  # a file system without permissions
                os.fchmod(file.fileno(), self._mode)


def make_folder(path: str, fill: Callable[[LocalFolder], None]) -> None:
    """Make a folder that appears complete: filled under a temporary name, renamed, and durable when this returns.

    FileExistsError if something has the name already.
    """
    parent, name = os.path.split(path)
    _remove_stale(parent, name)
    draft = os.path.join(parent, f".{name}.{secrets.token_hex(16)}")
    try:
        os.mkdir(draft)
        for folder in FOLDERS:
            os.mkdir(os.path.join(draft, folder))
        made = LocalFolder(draft)
        fill(made)
        made.sync([*FOLDERS, ""])
        _rename_new(draft, path)
        sync_folder(parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_stale(parent: str, name: str) -> None:
    """Remove what processes that died left of this name."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            prefix, _, token = entry.name.rpartition(".")
            if prefix == f".{name}" and len(token) == 32 and time.time() - entry.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)


def _sync(path: str) -> None:
    if os.path.isdir(path):
        sync_folder(path)
    else:
        with open(path, "r+b", buffering=0) as file:
            os.fsync(file.fileno())


def _write_all(file: IO[bytes], buffer: Buffer) -> None:
    """Write all of a buffer: one system call takes at most 2 GiB, and fewer bytes on a full disk."""
    left = memoryview(buffer).cast("B") if memoryview(buffer).nbytes else memoryview(b"")
    while left:
        left = left[file.write(left[: 2**30]) :]


def _give_name(draft: str, target: str) -> None:
    """Give a file its name unless the name is taken: by a hard link, or by renaming where there are none."""
    try:
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_new(draft, target)


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.EINVAL, None}


def _rename_new(source: str, target: str) -> None:
    """Rename unless the target exists, in one step; OSError in words if the system has no such call."""
    if sys.platform == "win32":
        os.rename(source, target)  # never replaces there
        return
    call = _rename_call()
    if call is None:
        raise OSError(errno.ENOTSUP, "this system can neither link nor rename without replacing; use another disk")
    if call(os.fsencode(source), os.fsencode(target)) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EEXIST, errno.ENOTEMPTY):
        raise FileExistsError(number, os.strerror(number), target)
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP) and os.path.isdir(source):
        os.rename(source, target)  # refuses to replace anything but an empty folder
        return
    raise OSError(number, os.strerror(number), target)


def _rename_call() -> Callable[[bytes, bytes], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        at_cwd, no_replace = -100, 1
        return lambda source, target: int(library.renameat2(at_cwd, source, at_cwd, target, no_replace))
    if hasattr(library, "renamex_np"):
        exclusive = 4
        return lambda source, target: int(library.renamex_np(source, target, exclusive))
    return None
