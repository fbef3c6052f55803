"""Simulation of storage on Windows: Linux without the calls that Windows lacks, and with its restrictions.

    python tests/faults/windows.py

The library sees the platform "win32", a module msvcrt in place of fcntl, and no fork, fchmod or O_NONBLOCK. Files that
are open or mapped cannot be deleted or renamed, nor a folder that holds one; renaming never replaces; a folder cannot
be opened. It does not prove that the library works on Windows, but it fails if the library uses a call that Windows
lacks.
"""

import contextlib
import ctypes  # noqa: F401  (modules that look at the platform are imported before it changes)
import errno
import fcntl
import gc
import importlib.metadata  # noqa: F401
import os
import shutil
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np
import sklearn.base  # noqa: F401

from topsign import kernels

flock, unlink, rename, open_file = fcntl.flock, os.unlink, os.rename, os.open


def in_use(path):
    """Return files below a path that this process has open or mapped."""
    path = os.path.realpath(path)
    names = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in names if name == path or name.startswith(path + "/")]


def refuse_used(path):
    if in_use(path):
        raise PermissionError(errno.EACCES, "The process cannot access the file", path)


def windows_unlink(path, **options):
    refuse_used(path)
    unlink(path, **options)


def windows_rename(source, target, **options):
    refuse_used(source)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", target)
    rename(source, target, **options)


def windows_open(path, flags, *arguments, **options):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return open_file(path, flags, *arguments, **options)


def locking(descriptor, mode, n_bytes):
    try:
        flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def become_windows():
    assert "topsign._files" not in sys.modules
    kernels.info()
    shutil._use_fd_functions = False
    os.unlink = os.remove = windows_unlink
    os.rename, os.open = windows_rename, windows_open
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    sys.modules["fcntl"] = sys.modules["resource"] = None
    for name in ("fork", "register_at_fork", "fchmod", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "getuid", "chown"):
        delattr(os, name)
    sys.platform = "win32"


def n_files(path):
    return sum(file.is_file() for file in Path(path).rglob("*"))


def main():
    become_windows()
    warnings.simplefilter("ignore")
    import topsign as ts
    from topsign.store import segments, stored_columns

    stored_columns.INLINE_BYTES, segments.MERGED_ENTRIES = 0, 64
    signals = np.random.default_rng(0).standard_normal((300, 32)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "i.topsign")
        index = ts.Index(32, family="adaptive", n_bits=8, random_state=1, center=True, path=path)
        index.add(signals[:150])
        reader = ts.open_index(path, readonly=True)
        before = reader.search(signals[:3], k=5).ids.tolist()
        for start in range(150, 300, 30):
            index.add(signals[start : start + 30], metadata=30 * [{"start": start}])
        index.upsert(signals[:10], ids=range(10))
        index.update_metadata([3], [{"a": 1}])
        index.remove(range(20, 40))
        index.calibrate(np.random.default_rng(1).standard_normal((200, 32)))
        index.compact()
        index.verify()
        with ts.open_index(path, timeout=0) as other, other._store.change():
            try:
                ts.open_index(path, timeout=0.01).add(signals[:1])
                raise AssertionError("two writers")
            except TimeoutError:
                pass
        assert reader.search(signals[:3], k=5).ids.tolist() == before, "a reader lost its files"
        left = n_files(path)
        said = ""
        try:
            index.remove([5], erase=True)
        except ts.StorageError as error:
            said = str(error)
        assert "the entries are removed, but some of their files cannot be deleted yet" in said
        reader.close()
        del reader
        gc.collect()
        index.compact()  # nothing to merge, but cleans what could not be deleted
        assert n_files(path) < left, "files were not deleted later"
        named = {file.path for file in index._store.now.manifest.files}
        assert n_files(path) == len(named) + 2
        assert len(index) == 279
        index.save(os.path.join(folder, "copy.topsign"))
        for one in (path, os.path.join(folder, "copy.topsign")):
            with ts.open_index(one, readonly=True) as found:
                found.verify()
                assert len(found) == 279
        index.close()
        del index, found, other
        gc.collect()
    print("storage needs nothing that Windows lacks")


if __name__ == "__main__":
    main()
