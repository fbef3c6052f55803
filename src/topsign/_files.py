"""Files: atomic writes, strict JSON, the errors of parsers, and operations that differ between POSIX and Windows."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import math
import mmap
import os
import secrets
import stat
import struct
import sys
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

Path = str | os.PathLike[str]
Record = dict[str, Any]

MALFORMED = (
    *(ValueError, TypeError, KeyError, IndexError, OverflowError, EOFError, OSError, MemoryError, RuntimeError),
    *(SyntaxError, struct.error, tokenize.TokenError, zlib.error, zipfile.BadZipFile),
)
"""Errors that parsers raise for malformed bytes; those of pyarrow derive from these."""

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


_is_junction = getattr(os.path, "isjunction", os.path.islink)  # links of folders on Windows, from Python 3.12 on


def is_link(path: Path) -> bool:
    """Return whether this is a symbolic link, or a junction of Windows."""
    return os.path.islink(path) or bool(_is_junction(path))


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


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: it appears once ``write`` has returned and its bytes are synced.

    Devices, pipes and symbolic links are written through, not replaced by a regular file.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            write(file)
        return
    with draft_of(target) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with open(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        publish(draft, target)


@contextmanager
def draft_of(target: str) -> Iterator[str]:
    """Yield a random temporary name next to ``target``, and remove the file at the end if it still exists."""
    folder, name = os.path.split(os.path.abspath(target))
    draft = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def publish(draft: str, target: str) -> None:
    """Rename a complete file to its target and sync the folder."""
    os.replace(draft, target)
    sync_folder(os.path.dirname(target))


def parse_json(text: bytes) -> Any:
    """Parse standard JSON; raise ValueError for NaN, duplicate keys and excessive nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("an object has duplicate keys")
    return record
