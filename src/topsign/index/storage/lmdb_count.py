"""The count: how far the file has come, beside LMDB's first meta page.

A damaged or lost meta page must not pass an older state off as the newest. So every change writes its sequence number
and the number of entries into bytes of page 0 that LMDB leaves alone, after its transaction is on disk. A newest state
behind the count is damage; one ahead of it is a writer that died in between, or a program that writes no count.
"""

from __future__ import annotations

import os
import struct
import zlib

from ...errors import StorageError

BODY = struct.Struct("<16sQQ")
MAGIC = b"topsign count 1\0"
SIZE = BODY.size + 4

Count = tuple[int, int]
"""Sequence number of a state, and its entries alive."""


def write_count(path: str, count: Count) -> None:
    """Says how far the file has come; the caller is its only writer."""
    body = BODY.pack(MAGIC, *count)
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, body + zlib.crc32(body).to_bytes(4, "little"), _place(descriptor))
    finally:
        os.close(descriptor)


def read_count(path: str, descriptor: int) -> Count | None:
    """How far the file had come when it was last written, None where nobody said."""
    for _ in range(10):  # a writer may be at it
        found = os.pread(descriptor, SIZE, _place(descriptor))
        if not any(found):
            return None
        if len(found) == SIZE and int.from_bytes(found[-4:], "little") == zlib.crc32(found[:-4]):
            magic, sequence, n_entries = BODY.unpack(found[:-4])
            if magic == MAGIC:
                return sequence, n_entries
    raise StorageError(path, "count", "damaged: its checksum does not fit; restore the file from a copy")


def check_count(path: str, stated: Count | None, found: Count) -> None:
    """Raises StorageError where the newest state is behind the count that was read before it."""
    if stated is not None and (found[0] < stated[0] or (found[0] == stated[0] and found[1] != stated[1])):
        raise StorageError(
            path,
            "count",
            f"damaged: the file had come to change {stated[0]} with {stated[1]} entries, but its newest state is "
            f"change {found[0]} with {found[1]}; restore the file from a copy",
        )


def _place(descriptor: int) -> int:
    """The middle of page 0, whose size stands at byte 40."""
    return int.from_bytes(os.pread(descriptor, 4, 40), "little") // 2
