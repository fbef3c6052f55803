"""Backend for a folder on a local or mounted file system."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from .._arrays import Bytes
from .._system import give_name, map_file, open_regular, rename_new, set_mode, sync_folder, why, write_all
from ..errors import StorageError
from .backend import FOLDERS, Buffer, UnsettledError
from .lock import hold_lock

STALE_SECONDS = 3600
"""Age in seconds from which a folder with a temporary name is considered abandoned if it is not locked."""

_is_junction = getattr(os.path, "isjunction", os.path.islink)  # links of folders on Windows, from Python 3.12 on


class LocalFolder:
    """Backend with files in a folder."""

    is_shared = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._mode = stat.S_IMODE(os.stat(path).st_mode)  # new files get the folder's permissions

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"  # Windows accepts this separator too

    def _own(self, name: str) -> str:
        """Return the path of a file to write or delete; raise OSError if a link leads out of the index."""
        top = name.partition("/")[0]
        if os.path.islink(self._at(top)) or _is_junction(self._at(top)):
            raise OSError(errno.ELOOP, f"{top} is a link, and nothing is written or deleted through links", name)
        return self._at(name)

    @contextmanager
    def lock(self, timeout: float | None) -> Iterator[None]:
        *_, path = map(self._own, (*FOLDERS, "lock"))
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
            sync_folder(self._at(folder))

    def publish(self, name: str, content: bytes) -> None:
        folder = name.split("/")[0]
        draft = f"{folder}/.{secrets.token_hex(16)}"
        self.create(draft, [content])
        try:
            give_name(self._at(draft), self._at(name))
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
        return os.stat(self._at(name)).st_mtime


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
