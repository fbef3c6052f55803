"""Signals in .npz archives: memory-mapped if local and uncompressed, otherwise decompressed while reading."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, Any

from .._arrays import Array
from .._rows import Rows, SparseRows
from ..errors import StorageError
from . import npy
from .contents import Described, choose, described, reading
from .place import Place

CHECKED_BYTES = 2**24
"""Bytes per read when a checksum is computed."""

REMEMBERED = 1000
"""Number of arrays whose verified checksums are remembered."""

_checked: set[tuple[int, ...]] = set()


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return shape and dtype of the chosen array."""
    if array is None and (matrix := _sparse(place)) is not None:
        return described(place, matrix.shape, matrix.dtype)
    with ExitStack() as opened:
        members, chosen = _chosen(place, opened, array)
        with reading(place, chosen):
            member = opened.enter_context(members.open(f"{chosen}.npy"))
        shape, _, dtype = npy.read_header(place, member)
    return described(place, shape, dtype, chosen)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """Return the signals."""
    if array is None and (matrix := _sparse(place)) is not None:
        return SparseRows(matrix)
    with ExitStack() as opened:
        members, chosen = _chosen(place, opened, array)
        member, file = members.getinfo(f"{chosen}.npy"), members.fp
        if place.is_local and member.compress_type == zipfile.ZIP_STORED and file is not None:
            with reading(place, chosen):
                file.seek(member.header_offset + 26)
                skipped = sum(struct.unpack("<HH", file.read(4)))  # file name and extra field
            start = member.header_offset + 30 + skipped
            found = os.fstat(file.fileno())
            _check_once(place, file, start, member, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
            file.seek(start)
            shape, in_columns, dtype = npy.read_header(place, file)
            return npy.mapped(place, file.tell(), shape, in_columns, dtype)
        with reading(place, chosen):
            unpacked = opened.enter_context(members.open(member))
        shape, in_columns, dtype = npy.read_header(place, unpacked)
        return npy.raw_rows(place, unpacked, unpacked.tell(), shape, in_columns, dtype, opened)


def _check_once(place: Place, file: IO[bytes], start: int, member: zipfile.ZipInfo, state: tuple[int, ...]) -> None:
    """Verify the archive's checksum of an array, which a memory map would skip.

    Each array is verified once as long as its file does not change.
    """
    key = (*state, start, member.file_size, member.CRC)
    if key in _checked:
        return
    _check_content(place, file, start, member, member.filename.removesuffix(".npy"))
    if len(_checked) >= REMEMBERED:
        _checked.clear()
    _checked.add(key)


def _check_content(place: Place, file: IO[bytes], start: int, member: zipfile.ZipInfo, array: str) -> None:
    file.seek(start)
    computed, left = 0, member.file_size
    while left and (part := file.read(min(left, CHECKED_BYTES))):
        computed, left = zlib.crc32(part, computed), left - len(part)
    if left or computed != member.CRC:
        raise StorageError.bad_checksum(place.url, array, stored=member.CRC, computed=computed)


def _sparse(place: Place) -> Any:
    """Return the matrix written by scipy.sparse.save_npz, or None for any other archive."""
    import scipy.sparse

    with place.open() as file, reading(place):
        if not {"format", "shape", "data"} <= set(names(zipfile.ZipFile(file))):
            return None
        file.seek(0)
        return scipy.sparse.load_npz(file)


def _chosen(place: Place, opened: ExitStack, array: str | None) -> tuple[zipfile.ZipFile, str]:
    """Open the archive and choose the array."""
    file = opened.enter_context(place.open())
    with reading(place):
        members = opened.enter_context(zipfile.ZipFile(file))
    return members, choose(place, names(members), array, "array")


def names(members: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays in an archive."""
    return [name.removesuffix(".npy") for name in members.namelist() if name.endswith(".npy")]
