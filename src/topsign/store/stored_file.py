"""Column files: memory-mapped safetensors with checksums per block, verified when read."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._safetensors import Header, Tensor, header_size, in_file_order, pack_header, parse_header
from ..errors import StorageError
from .backend import Backend, Content
from .manifest import FileRecord, new_name

BLOCK_BYTES = 2**20
"""Bytes of a column per checksum, so that a few rows can be verified without reading the whole column."""

MISSING = "missing; restore it from a copy"

SPARSE_BLOCK_BYTES = {"originals": 2**16}
"""Bytes per checksum for columns that searches read row by row."""

INLINE_BYTES = 2**14
"""Maximum size of files that are stored in the manifest."""

MANIFEST_BYTES = 2**16
"""Maximum total bytes of files in a manifest; half of them are reserved for segments."""


class FileWriter:
    """Writer of the new files of a change; small ones go into the manifest, which already holds ``n_inline`` bytes."""

    def __init__(self, backend: Backend, n_inline: float = math.inf) -> None:
        self.backend = backend
        self._n_inline = n_inline
        self._written: list[FileRecord] = []
        self._folders: set[str] = set()  # of new files

    def write(
        self,
        folder: str,
        columns: Mapping[str, Array],
        n_entries: int,
        *,
        is_segment: bool = False,
        name: str | None = None,
    ) -> FileRecord:
        """Write a file of these columns, optionally under a given name, or keep it for the manifest."""
        arrays = {name: np.ascontiguousarray(array) for name, array in in_file_order(columns).items()}
        checksums = {f"crc32:{name}": _checksums(name, array).tobytes().hex() for name, array in arrays.items()}
        header = pack_header(arrays, checksums)
        n_bytes = len(header) + sum(array.nbytes for array in arrays.values())
        record = FileRecord(folder, name or new_name(), n_bytes, zlib.crc32(header), n_entries)
        limit = MANIFEST_BYTES if is_segment else MANIFEST_BYTES // 2
        if n_bytes <= INLINE_BYTES and self._n_inline + n_bytes <= limit:
            self._n_inline += n_bytes
            return replace(record, content=b"".join([header, *(array.tobytes() for array in arrays.values())]))
        self.backend.create(record.path, [header, *arrays.values()])
        self._written.append(record)
        self._folders.add(folder)
        return record

    def adopt(self, records: Iterable[FileRecord]) -> None:
        """Register files that others wrote for this change; they are kept if it fails, because it may be repeated."""
        self._folders |= {record.folder for record in records}

    def sync(self) -> None:
        """Sync the files."""
        self.backend.sync(self._folders)

    def delete(self) -> None:
        """Delete the files that were written for a change that no version will name."""
        for record in self._written:
            self.backend.delete(record.path)


def find_columns(backend: Backend, folder: str, name: str, n_entries: int) -> FileRecord | None:
    """Return the record of an existing file, or None if it is missing or incomplete."""
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
    """Return the bytes per checksum of a column."""
    return SPARSE_BLOCK_BYTES.get(name, BLOCK_BYTES)


def _checksums(name: str, array: Array) -> Array:
    """Return the CRC-32 of each block, big-endian, so that hexadecimal digits are in the usual order."""
    content, size = _bytes_of(array), _block_bytes(name)
    return np.array([zlib.crc32(content[at : at + size].data) for at in range(0, len(content), size)], ">u4")


class StoredFile(Mapping[str, Array]):
    """Columns of one file. Opening checks its size and header; reading a column verifies the blocks it reads.

    If ``is_optional``, a damaged file raises StorageError only when a column is read; if ``is_lenient``, this also
    applies to a missing file.
    """

    def __init__(
        self, backend: Backend, record: FileRecord, *, is_optional: bool = False, is_lenient: bool = False
    ) -> None:
        self.record = record
        self.derived: dict[str, Any] = {}  # values computed from the columns
        self._path = backend.path
        self._views: dict[str, Array] = {}  # columns that rows were read from
        self._whole: set[str] = set()  # columns whose blocks are all verified
        self.problem: StorageError | None = None
        try:
            self._open(backend)
        except StorageError as error:
            if not is_optional:
                raise
            self.problem = error
        except FileNotFoundError:
            if not is_lenient:
                raise
            self.problem = StorageError(self._path, record.path, MISSING)

    def _open(self, backend: Backend) -> None:
        record = self.record
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

    @property
    def _tensors(self) -> dict[str, Tensor]:
        if self.problem is not None:
            raise self.problem
        return self._header.tensors

    __eq__, __hash__ = object.__eq__, object.__hash__  # identity, not content

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(tensor.stop - tensor.start for tensor in self._tensors.values())

    def column_bytes(self, name: str) -> int:
        tensor = self._tensors.get(name)
        return 0 if tensor is None else tensor.stop - tensor.start

    def shape(self, name: str, dtype: str) -> tuple[int, ...]:
        """Return the shape of a column after checking its dtype."""
        tensor = self._tensors.get(name)
        if tensor is None:
            self._refuse(f"damaged: has no {name}")
        if tensor.dtype != np.dtype(dtype):
            self.refuse(name, f"type {tensor.kind}, {np.dtype(dtype)} expected")
        return tensor.shape

    def has_type(self, name: str, dtype: str) -> bool:
        """Return whether there is a column of this name and dtype."""
        tensor = self._tensors.get(name)
        return tensor is not None and tensor.dtype == np.dtype(dtype)

    def __getitem__(self, name: str) -> Array:
        """Read and verify a whole column."""
        if name not in self._tensors:
            raise KeyError(name)
        self._verify(name, range(len(self._expected[name])))
        return self._tensors[name].view(self._content)

    def rows(self, name: str, positions: Int64) -> Array:
        """Read rows of a column and verify only the blocks that hold them."""
        return self.verified(name, positions)[positions]

    def verified(self, name: str, positions: Int64) -> Array:
        """Return a view of a column in which the blocks that hold these rows are verified."""
        column = self._views.get(name)
        if column is None:
            column = self._views[name] = self._tensors[name].view(self._content)
        if name in self._whole:
            return column
        width, size = column.nbytes // max(1, len(column)), _block_bytes(name)
        first, last = positions * width // size, ((positions + 1) * width - 1) // size
        verified = self._verified[name]
        # A row no wider than a block touches its first and last block only.
        if positions.size and width and (width > size or not (verified[first] & verified[last]).all()):
            touched = np.zeros(len(self._expected[name]) + 1, np.int64)
            np.add.at(touched, first, 1)
            np.add.at(touched, last + 1, -1)
            self._verify(name, np.flatnonzero(np.cumsum(touched[:-1])))
            if verified.all():
                self._whole.add(name)
        return column

    def verify(self) -> dict[str, str]:
        """Read every block again; return problems by section."""
        if self.problem is not None:
            return {self.problem.section: self.problem.problem}
        problems = {}
        self._whole.clear()
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
        tensor = self._tensors[name]
        if tensor.dtype is None or tensor.start % tensor.dtype.itemsize:
            self.refuse(name, f"type {tensor.kind} at byte {tensor.start} cannot be read in place")
        return np.frombuffer(bytes.fromhex(text), ">u4")

    def _verify(self, name: str, blocks: range | Int64) -> None:
        verified, tensor, size = self._verified[name], self._tensors[name], _block_bytes(name)
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
