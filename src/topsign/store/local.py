"""A store's folder on a local or mounted file system."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from .._arrays import Bytes
from .._system import give_name, map_file, open_regular, rename_new, set_mode, sync_file, sync_folder, write_all
from .backend import FOLDERS, Buffer
from .lock import hold_lock

STALE_SECONDS = 3600
"""Age from which a folder under a temporary name is the remainder of a process that died."""


class LocalFolder:
    """Files in a folder; see :class:`Backend`."""

    is_shared = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._mode = stat.S_IMODE(os.stat(path).st_mode)  # new files are as open as the folder, whatever the umask

    def _at(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/"))

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        path = self._at("lock")
        if not os.path.exists(path):
            with open(path, "ab") as file:
                set_mode(file, self._mode & 0o666)
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
        with open_regular(self._at(name)) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise OSError(errno.EFBIG, f"has more than {limit} bytes", name)
            return file.readall()

    def map(self, name: str) -> Bytes:
        with open_regular(self._at(name)) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            if n_bytes == 0:  # cannot be mapped
                return np.empty(0, np.uint8)
            pages = map_file(file, n_bytes)
        return np.frombuffer(pages, np.uint8)

    def create(self, name: str, buffers: Iterable[Buffer]) -> None:
        path = self._at(name)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder) and os.path.isdir(self.path):
            with suppress(FileExistsError):
                os.mkdir(folder)
                os.chmod(folder, self._mode)
            sync_folder(self.path)
        try:
            with open(path, "xb", buffering=0) as file:
                set_mode(file, self._mode & 0o666)
                for buffer in buffers:
                    write_all(file, buffer)
        except BaseException as error:
            if not isinstance(error, FileExistsError):
                with suppress(OSError):
                    os.unlink(path)
            raise

    def sync(self, names: Iterable[str]) -> None:
        for path in sorted(map(self._at, names), key=os.path.isdir):  # files first: their journal entry has the names
            (sync_folder if os.path.isdir(path) else sync_file)(path)

    def publish(self, name: str, content: bytes, after: Iterable[str]) -> None:
        folder = name.split("/")[0]
        draft = f"{folder}/.{secrets.token_hex(16)}"
        self.create(draft, [content])
        try:
            self.sync([*after, draft])
            give_name(self._at(draft), self._at(name))
            try:
                self.sync([folder])
            except OSError:
                self.delete(name)  # a second sync could succeed although the first lost the name
                raise
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
        rename_new(draft, path)
        try:
            sync_folder(parent)
        except OSError:
            os.rename(path, draft)
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_stale(parent: str, name: str) -> None:
    """Remove what processes that died left of this name."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            prefix, _, token = entry.name.rpartition(".")
            if prefix == f".{name}" and len(token) == 32 and time.time() - entry.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)
