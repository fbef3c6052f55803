"""File operations that differ between POSIX systems and Windows: locks, syncs, names that replace nothing, maps."""

from __future__ import annotations

import ctypes
import errno
import io
import mmap
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

POLL_SECONDS = 0.002
"""Pause between two attempts to lock a file that another process has locked."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a planted pipe must not block
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.EINVAL}
_NO_EXCLUSIVE_RENAME = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}

if sys.platform == "win32":
    import msvcrt

    def lock_file(file: IO[bytes], *, wait: bool) -> bool:
        """Lock a file for this file object (LockFileEx underneath); return False if another has it and not ``wait``."""
        while True:
            try:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return True
            except PermissionError:
                if not wait:
                    return False
                time.sleep(POLL_SECONDS)

    def sync_folder(folder: str) -> None:
        """Do nothing: Windows has no call that syncs a folder, and NTFS keeps a journal of names."""

    def rename_new(source: str, target: str) -> None:
        """Rename unless the target exists; Windows never replaces one."""
        os.rename(source, target)

else:
    import fcntl

    def lock_file(file: IO[bytes], *, wait: bool) -> bool:
        """Lock a file for this file object; return False if another has it and not ``wait``."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def sync_folder(folder: str) -> None:
        """Make the names in a folder survive a power loss."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename_new(source: str, target: str) -> None:
        """Rename unless the target exists, in one step; OSError in words if the system has no such call."""
        call = _exclusive_rename()
        number = errno.ENOSYS
        if call is not None:
            if call(os.fsencode(source), os.fsencode(target)) == 0:
                return
            number = ctypes.get_errno()
        if number in (errno.EEXIST, errno.ENOTEMPTY):
            raise FileExistsError(number, os.strerror(number), target)
        if number not in _NO_EXCLUSIVE_RENAME:
            raise OSError(number, os.strerror(number), target)
        if not os.path.isdir(source):
            raise OSError(errno.ENOTSUP, "this file system can neither link nor rename without replacing", target)
        os.rename(source, target)  # of a folder: refuses to replace anything but an empty one


def _exclusive_rename() -> Callable[[bytes, bytes], int] | None:
    """Return the system's rename that never replaces, None if it has none."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        at_cwd, no_replace = -100, 1
        return lambda source, target: int(library.renameat2(at_cwd, source, at_cwd, target, no_replace))
    if hasattr(library, "renamex_np"):
        exclusive = 4
        return lambda source, target: int(library.renamex_np(source, target, exclusive))
    return None


def give_name(draft: str, target: str) -> None:
    """Give a file its name unless that is taken: by a hard link, or by renaming if there are none."""
    try:
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_new(draft, target)


def set_mode(file: IO[bytes], mode: int) -> None:
    """Give a file these permissions whatever the umask of this process, if its file system has any."""
    if hasattr(os, "fchmod"):
        with suppress(OSError):
            os.fchmod(file.fileno(), mode)


def open_regular(path: str) -> io.FileIO:
    """Open a file to read; OSError for a folder, a pipe or a device."""
    file = io.FileIO(path, "rb", opener=lambda name, _: os.open(name, _READ))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return file


def map_file(file: IO[bytes], n_bytes: int) -> mmap.mmap:
    """Map a file to read, without a descriptor of its own where Python allows that."""
    options: dict[str, Any] = {"access": mmap.ACCESS_READ}
    if sys.platform != "win32" and sys.version_info >= (3, 13):
        options["trackfd"] = False
    return mmap.mmap(file.fileno(), n_bytes, **options)


def write_all(file: IO[bytes], content: Any) -> None:
    """Write all of a buffer: one system call takes at most 2 GiB, and fewer bytes on a full disk."""
    left = memoryview(content).cast("B") if memoryview(content).nbytes else memoryview(b"")
    while left:
        left = left[file.write(left[: 2**30]) :]


def why(error: OSError) -> str:
    """Return the reason of a failed operation in words; a full disk says so."""
    if error.errno == errno.ENOSPC:
        return "the disk is full (no space or no inodes are left)"
    if error.errno == errno.EDQUOT:
        return "the disk quota is used up"
    return error.strerror or str(error)
