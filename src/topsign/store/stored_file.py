"""Files of columns: safetensors with checksums per block, mapped, and verified where they are read."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._safetensors import Header, header_size, in_file_order, pack_header, parse_header
from ..errors import StorageError
from .backend import Backend, Content
from .manifest import FileRecord, new_name

BLOCK_BYTES = 2**20
"""A checksum covers so many bytes of a column, so that a few rows can be verified without reading all of it."""

SPARSE_BLOCK_BYTES = {"originals": 2**16}
"""The same for columns of which searches read single rows."""


INLINE_BYTES = 2**14
"""Files of at most so many bytes are kept in the manifest."""


def write_columns(
    backend: Backend,
    folder: str,
    columns: Mapping[str, Array],
    n_entries: int,
    *,
    name: str | None = None,
    inline_bytes: int | None = None,
) -> FileRecord:
    """Write a new file of these columns, or keep it for the manifest if it is small and no name is given."""
    arrays = {name: np.ascontiguousarray(array) for name, array in in_file_order(columns).items()}
    checksums = {f"crc32:{name}": _checksums(name, array).tobytes().hex() for name, array in arrays.items()}
    header = pack_header(arrays, checksums)
    n_bytes = len(header) + sum(array.nbytes for array in arrays.values())
    record = FileRecord(folder, name or new_name(), n_bytes, zlib.crc32(header), n_entries)
    if n_bytes <= (INLINE_BYTES if inline_bytes is None else inline_bytes) and name is None:
        return replace(record, content=b"".join([header, *(array.tobytes() for array in arrays.values())]))
    backend.create(record.path, [header, *arrays.values()])
    return record


def find_columns(backend: Backend, folder: str, name: str, n_entries: int) -> FileRecord | None:
    """The record of a file that is there already; None if there is none, or one that was not written to its end."""
    record = FileRecord(folder, name, 0, 0, n_entries)
    try:
        content = backend.map(record.path)
        head = content[: 8 + header_size(content[:8].tobytes(), len(content))].tobytes()
        parse_header(head[8:], len(content))
    except (FileNotFoundError, ValueError):
        return None
    return replace(record, n_bytes=len(content), crc32=zlib.crc32(head))


def _bytes_of(array: Array) -> Bytes:
    return array.reshape(-1).view(np.uint8)


def _block_bytes(name: str) -> int:
    """Bytes of a column that one checksum covers."""
    return SPARSE_BLOCK_BYTES.get(name, BLOCK_BYTES)


def _checksums(name: str, array: Array) -> Array:
    """CRC-32 of each block, big-endian, so that its hexadecimal digits read as usual."""
    content, size = _bytes_of(array), _block_bytes(name)
    return np.array([zlib.crc32(content[at : at + size].data) for at in range(0, len(content), size)], ">u4")


class StoredFile:
    """Columns of one file. Opening checks its size and its header; reading a column checks the blocks it reads."""

    def __init__(self, backend: Backend, record: FileRecord) -> None:
        self.record = record
        self.derived: dict[str, Any] = {}  # values computed from the columns
        self._path = backend.path
        try:
            self._content: Content = (
                backend.map(record.path) if record.content is None else np.frombuffer(record.content, np.uint8)
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        if len(self._content) != record.n_bytes:
            self._refuse(f"damaged: {record.n_bytes} bytes expected, {len(self._content)} found")
        self._header = self._read_header()
        self._expected = {name: self._read_checksums(name) for name in self._header.tensors}
        self._verified = {name: np.zeros(len(sums), bool) for name, sums in self._expected.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._header.tensors

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self._header.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(tensor.stop - tensor.start for tensor in self._header.tensors.values())

    def column_bytes(self, name: str) -> int:
        tensor = self._header.tensors.get(name)
        return 0 if tensor is None else tensor.stop - tensor.start

    def shape(self, name: str, dtype: str) -> tuple[int, ...]:
        """Shape of a column that must have this type."""
        tensor = self._header.tensors.get(name)
        if tensor is None:
            self._refuse(f"damaged: has no {name}")
        if tensor.dtype != np.dtype(dtype):
            self.refuse(name, f"type {tensor.kind}, {np.dtype(dtype)} expected")
        return tensor.shape

    def has_type(self, name: str, dtype: str) -> bool:
        """Whether there is a column of this name and type."""
        tensor = self._header.tensors.get(name)
        return tensor is not None and tensor.dtype == np.dtype(dtype)

    def column(self, name: str) -> Array:
        """All of a column, verified."""
        self._verify(name, range(len(self._expected[name])))
        return self._header.tensors[name].view(self._content)

    def rows(self, name: str, positions: Int64) -> Array:
        """Rows of a column; only the blocks that hold them are verified."""
        column = self._header.tensors[name].view(self._content)
        width, size = column.nbytes // max(1, len(column)), _block_bytes(name)
        first, last = positions * width // size, ((positions + 1) * width - 1) // size
        if positions.size and width:
            touched = np.zeros(len(self._expected[name]) + 1, np.int64)
            np.add.at(touched, first, 1)
            np.add.at(touched, last + 1, -1)
            self._verify(name, np.flatnonzero(np.cumsum(touched[:-1])))
        return column[positions]

    def verify(self) -> dict[str, str]:
        """Read every block again; returns problems by section."""
        problems = {}
        for name, verified in self._verified.items():
            verified[:] = False
            try:
                self._verify(name, range(len(verified)))
            except StorageError as error:
                problems[error.section] = error.problem
        return problems

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise StorageError that names a column."""
        raise StorageError(self._path, f"{self.record.path}, {name}", f"damaged: {problem}")

    def _refuse(self, problem: str) -> NoReturn:
        raise StorageError(self._path, self.record.path, problem)

    def _read_header(self) -> Header:
        try:
            end = 8 + header_size(self._content[:8].tobytes(), len(self._content))
            head = self._content[:end].tobytes()
            computed = zlib.crc32(head)
            if computed != self.record.crc32:
                raise StorageError.bad_checksum(
                    self._path, f"{self.record.path}, header", stored=self.record.crc32, computed=computed
                )
            return parse_header(head[8:], len(self._content))
        except ValueError as error:
            self._refuse(f"damaged: {error}")

    def _read_checksums(self, name: str) -> Array:
        text = self._header.metadata.get(f"crc32:{name}", "")
        n_blocks = -(-self.column_bytes(name) // _block_bytes(name))
        if not re.fullmatch("[0-9a-f]*", text) or len(text) != 8 * n_blocks:
            self.refuse(name, f"{n_blocks} checksums expected")
        tensor = self._header.tensors[name]
        if tensor.dtype is None or tensor.start % tensor.dtype.itemsize:
            self.refuse(name, f"type {tensor.kind} at byte {tensor.start} cannot be read in place")
        return np.frombuffer(bytes.fromhex(text), ">u4")

    def _verify(self, name: str, blocks: range | Int64) -> None:
        verified, tensor, size = self._verified[name], self._header.tensors[name], _block_bytes(name)
        content = self._content[tensor.start : tensor.stop]
        for block in blocks:
            if not verified[block]:
                start = int(block) * size
                computed = zlib.crc32(content[start : start + size].data)
                stored = int(self._expected[name][block])
                if computed != stored:
                    section = f"{self.record.path}, {name}"
                    raise StorageError.bad_checksum(self._path, section, stored=stored, computed=computed)
                verified[block] = True
