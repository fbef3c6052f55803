"""Columns of stored segments: memory-mapped safetensors files with checksums per block.

The first use of a column in a process verifies its shape, its checksums, and that its content is valid for the recipe,
because kernels do not validate. If only a few rows are read, only their blocks are verified.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._lazy import lazy
from .._safetensors import Header, Tensor, header_size, in_file_order, pack_header, parse_header
from ..errors import StorageError
from ..families import Recipe
from ..kernels import BLOCK, CodeBlocks
from .backends import Backend, Content
from .segments import (
    EXTRA_COLUMNS,
    EXTRA_FILES,
    EXTRA_TYPES,
    Columns,
    Metadata,
    Segment,
    TextIds,
    extra_shape,
    parse_notes,
)
from .versions import FileRecord, SegmentRecord, new_name

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
        head = read_head(content)
        parse_header(head[8:], len(content.buffer))
    except (FileNotFoundError, ValueError):
        return None
    return replace(record, n_bytes=len(content.buffer), crc32=zlib.crc32(head))


def read_head(content: Content) -> bytes:
    """Return the header with its size; raise ValueError unless this is a safetensors file."""
    n_bytes = len(content.buffer)
    size = header_size(content.read([(0, min(8, n_bytes))])[0].tobytes(), n_bytes)
    return content.read([(0, 8 + size)])[0].tobytes()


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
            self._content = (
                backend.map(record.path) if record.content is None else Content(np.frombuffer(record.content, np.uint8))
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        if (n_bytes := len(self._content.buffer)) != record.n_bytes:
            self._refuse(f"damaged: {record.n_bytes} bytes expected, {n_bytes} found")
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
        return self._tensors[name].view(self._content.buffer)

    def is_verified(self, name: str) -> bool:
        """Whether all blocks of a column have been read and verified."""
        return name in self._whole

    def rows(self, name: str, positions: Int64) -> Array:
        """Read rows of a column and verify only the blocks that hold them."""
        return self.verified(name, positions)[positions]

    def verified(self, name: str, positions: Int64) -> Array:
        """Return a view of a column in which the blocks that hold these rows are verified."""
        column = self._views.get(name)
        if column is None:
            column = self._views[name] = self._tensors[name].view(self._content.buffer)
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
            head = read_head(self._content)
            computed = zlib.crc32(head)
            if computed != self.record.crc32:
                raise StorageError.bad_checksum(
                    self._path, f"{self.record.path}, header", stored=self.record.crc32, computed=computed
                )
            return parse_header(head[8:], len(self._content.buffer))
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
        """Read and verify these blocks, in ascending order, and adjacent ones with one request."""
        tensor, size = self._tensors[name], _block_bytes(name)
        todo = [int(block) for block in blocks if not self._verified[name][block]]
        breaks = [0, *(i for i in range(1, len(todo)) if todo[i] > todo[i - 1] + 1), len(todo)]
        runs = [range(todo[first], todo[last - 1] + 1) for first, last in pairwise(breaks) if last > first]
        ranges = [(tensor.start + run[0] * size, min(tensor.start + run.stop * size, tensor.stop)) for run in runs]
        for run, (begin, _), part in zip(runs, ranges, self._content.read(ranges) if runs else [], strict=True):
            for at, block in enumerate(run):
                computed, stored = zlib.crc32(part[at * size : (at + 1) * size].data), int(self._expected[name][block])
                if computed != stored:
                    section = f"{self.record.path}, {name}"
                    raise StorageError.bad_checksum(self._path, section, stored=stored, computed=computed)
            self._content.keep(begin, part)
            self._verified[name][run[0] : run.stop] = True


TEXT_IDS = {"starts": "<i8", "hashes": "<u8", "order": "<i4", "text": "|u1"}
METADATA = {"starts": "<i8", "text": "|u1"}

CHECKED_BYTES = 2**24
"""Bytes of codes that are validated at a time."""


class StoredColumns:
    """Columns of a stored segment."""

    def __init__(
        self,
        record: SegmentRecord,
        recipe: Recipe,
        file: StoredFile,
        removed: StoredFile | None = None,
        overlay: StoredFile | None = None,
        extras: Mapping[str, StoredFile] | None = None,
    ) -> None:
        self.record, self.file = record, file
        self._recipe, self._removed, self._overlay = recipe, removed, overlay
        self._extras = extras or {}  # files of extra columns
        self._n_entries = record.file.entries
        if self._n_entries < 1:
            file.refuse("ids", "a segment must have entries")
        self._check_shape("ids", "<i8", (self._n_entries,))
        self._check_shape("codes", "|u1", (-(-self._n_entries // BLOCK), recipe.code_bytes, BLOCK))
        self._pending: tuple[Int64, Metadata] | None = None  # metadata not written yet
        self._checked_extras: set[str] = set()  # whose type and shape were checked

    @classmethod
    def open(
        cls,
        backend: Backend,
        record: SegmentRecord,
        recipe: Recipe,
        known: dict[str, StoredFile],
        *,
        lenient: bool = False,
    ) -> StoredColumns:
        """Open the files of a segment, except those already open in ``known``.

        A damaged file of extra columns raises only when a column is read, because most searches need none. If
        ``lenient``, this also applies to a missing file.
        """

        def opened(name: str) -> StoredFile | None:
            if name not in record.other_files:
                return None
            is_extra = name in EXTRA_FILES
            options = {"is_optional": is_extra, "is_lenient": is_extra and lenient}
            return open_file(backend, record.other_files[name], known, **options)

        extras = {name: file for name in EXTRA_FILES if (file := opened(name)) is not None}
        return cls(
            record, recipe, open_file(backend, record.file, known), opened("removed"), opened("metadata"), extras
        )

    @property
    def files(self) -> list[StoredFile]:
        return [one for one in (self.file, self._removed, self._overlay, *self._extras.values()) if one is not None]

    def __len__(self) -> int:
        return self._n_entries

    @property
    def sizes(self) -> Counter[str]:
        found = Counter(manifest=self.record.file.n_bytes - self.file.nbytes)
        for column in self.file:
            found[column.partition(".")[0]] += self.file.column_bytes(column)
        for name, record in self.record.other_files.items():
            found[name] += record.n_bytes
        return found

    @lazy
    def ids(self) -> Int64:
        ids = self.file["ids"]
        if self.record.regions is not None and (ids < 0).any():  # in the order of their regions
            self.file.refuse("ids", "ids must be at least 0")
        if self.record.regions is None and (ids[0] < 0 or (np.diff(ids) <= 0).any()):
            self.file.refuse("ids", "ids must be ascending and at least 0")
        return ids

    @lazy
    def codes(self) -> CodeBlocks:
        codes = CodeBlocks(self.file["codes"], len(self))
        if codes.planes[-1, :, (len(self) - 1) % BLOCK + 1 :].any():
            self.file.refuse("codes", f"bytes are set after the last of {len(self)} codes")
        if type(self._recipe).check is not Recipe.check:  # otherwise all bytes are codes
            n_rows = max(1, CHECKED_BYTES // self._recipe.code_bytes)
            for start in range(0, len(self), n_rows):
                name = f"the column from code {start} on" if start else "the column"
                self._check_codes(codes.rows(slice(start, start + n_rows)), name)
        return codes

    @property
    def extra_names(self) -> tuple[str, ...]:
        return tuple(name for file in self._extras for name in EXTRA_FILES[file])

    def extra(self, name: str) -> Array:
        return self._extra_file(name)[name]

    def _extra_file(self, name: str) -> StoredFile:
        """Return the file of an extra column after checking dtype and shape."""
        file = self._extras[EXTRA_COLUMNS[name]]
        if name in self._checked_extras:
            return file
        expected = extra_shape(name, len(self), self._recipe)
        kinds = EXTRA_TYPES[name]
        found = [file.shape(name, kind) for kind in kinds if file.has_type(name, kind)]
        if found != [expected]:
            file.refuse(name, f"shape {expected} and type {' or '.join(kinds)} expected")
        self._checked_extras.add(name)
        return file

    def verified(self, name: str) -> Array | None:
        file = self._extra_file(name)
        if not file.is_verified(name):
            return None
        if name not in self.derived:  # checked once
            self.derived[name] = bool(np.isfinite(file[name]).all())
        if not self.derived[name]:
            file.refuse(name, "values must be finite")
        return file[name]

    def _copied(self) -> StoredColumns:
        copied = StoredColumns(self.record, self._recipe, self.file, self._removed, self._overlay, self._extras)
        copied._pending = self._pending
        return copied

    @property
    def derived(self) -> dict[str, Any]:
        """Cache of values computed from the columns, kept with the file, which later versions share."""
        return self.file.derived

    @property
    def has_text_ids(self) -> bool:
        return "text_ids.starts" in self.file

    @lazy
    def text_ids(self) -> TextIds | None:
        if not self.has_text_ids:
            return None
        shapes = {"starts": (len(self) + 1,), "hashes": (len(self),), "order": (len(self),), "text": None}
        found = TextIds(**self._table(self.file, "text_ids", TEXT_IDS, shapes))
        if problem := found.problem:
            self.file.refuse("text_ids", problem)
        return found

    @lazy
    def metadata(self) -> Metadata | None:
        found = self._texts(self.file, len(self)) if "metadata.starts" in self.file else None
        for rows, texts in self._overlays:
            found = (found or Metadata(np.zeros(len(self) + 1, np.int64), np.empty(0, np.uint8))).replaced(rows, texts)
        return found

    @lazy
    def alive(self) -> Bytes | None:
        """Packed bitmap of the live entries, or None if all are alive."""
        if self._removed is None:
            return None
        assert self.record.removed is not None
        n_bytes, past = -(-len(self) // 8), len(self) % 8
        if self._removed.shape("removed", "|u1") != (n_bytes,):
            self._removed.refuse("removed", f"{n_bytes} bytes expected")
        removed = self._removed["removed"]
        if past and removed[-1] >> past:
            self._removed.refuse("removed", f"bits are set after the last of {len(self)} entries")
        n_removed = int(np.bitwise_count(removed).sum())
        if n_removed != self.record.removed.entries or n_removed == len(self):
            self._removed.refuse("removed", f"{n_removed} entries are removed, {self.record.removed.entries} expected")
        alive = ~removed
        if past:
            alive[-1] &= (1 << past) - 1
        return alive

    def rows(self, name: str, positions: Int64) -> Array:
        if name in EXTRA_COLUMNS:
            file = self._extra_file(name)
            found = file.rows(name, positions)
            if found.dtype.kind == "f" and not np.isfinite(found).all():
                file.refuse(name, "values must be finite")
            return found
        if name != "codes":
            return self.ids[positions]
        if "codes" in self.__dict__ or len(positions) == len(self):
            return self.codes.rows(positions)
        codes = CodeBlocks(self.file.verified("codes", positions // BLOCK), len(self)).rows(positions)
        self._check_codes(codes, "the column")
        return codes

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> StoredColumns:
        """Return the columns with the metadata of these ascending rows replaced; :meth:`write` stores it."""
        changed = self._copied()
        changed._pending = _merged([*self._overlays, (rows, Metadata.of(texts))])
        return changed

    @property
    def _overlays(self) -> list[tuple[Int64, Metadata]]:
        """Yield overlays of the segment's metadata: stored ones, then those not written yet."""
        stored = [] if self._overlay is None else [self._overlaid]
        return stored if self._pending is None else [*stored, self._pending]

    @property
    def n_overlaid(self) -> int:
        """Number of rows whose metadata were replaced since the segment was written."""
        if self._pending is not None:
            return len(self._pending[0])
        return 0 if self.record.metadata is None else self.record.metadata.entries

    def write(self, writer: FileWriter, alive: Bytes | None) -> StoredColumns:
        """Write changes of the bitmap, the metadata and the extra columns."""
        new: dict[str, FileRecord] = {}
        if alive is not self.alive:
            assert alive is not None
            removed = ~alive
            if len(self) % 8:
                removed[-1] &= (1 << len(self) % 8) - 1
            new["removed"] = writer.write("removed", {"removed": removed}, int(np.bitwise_count(removed).sum()))
        if self._pending is not None:
            rows, texts = self._pending
            columns: dict[str, Array] = {"rows": rows, "metadata.starts": texts.starts, "metadata.text": texts.text}
            new["metadata"] = writer.write("metadata", columns, len(rows))
        if not new:
            return self
        known = {file.record.path: file for file in self.files}
        return self.open(writer.backend, replace(self.record, **new), self._recipe, known)

    def read(self) -> None:
        """Read and validate all columns that searches use."""
        for name in ("ids", "codes", "text_ids", "alive", "metadata"):
            getattr(self, name)

    def verify(self, next_id: int) -> None:
        """Validate the content of all columns, after their checksums."""
        self.read()
        for name in self.extra_names:
            self.rows(name, np.arange(len(self)))
        if len(np.unique(self.ids)) < len(self):
            self.file.refuse("ids", "ids must be different")
        if self.ids.max() >= next_id:
            self.file.refuse("ids", f"id {self.ids.max()}, but the next new id is {next_id}")
        if self.metadata is not None:
            parse_notes(self.metadata.texts(range(len(self))))

    @lazy
    def _overlaid(self) -> tuple[Int64, Metadata]:
        """Return the ascending rows of an overlay and their texts."""
        overlay = self._overlay
        assert overlay is not None
        n_rows = overlay.record.entries
        if overlay.shape("rows", "<i8") != (n_rows,) or not n_rows:
            overlay.refuse("rows", f"{n_rows} rows expected")
        rows = overlay["rows"]
        if rows[0] < 0 or rows[-1] >= len(self) or (np.diff(rows) <= 0).any():
            overlay.refuse("rows", f"rows must ascend below {len(self)}")
        return rows, self._texts(overlay, n_rows)

    def _texts(self, file: StoredFile, n_texts: int) -> Metadata:
        texts = Metadata(**self._table(file, "metadata", METADATA, {"starts": (n_texts + 1,), "text": None}))
        if problem := texts.problem:
            file.refuse("metadata", problem)
        return texts

    def _table(self, file: StoredFile, prefix: str, types: dict[str, str], shapes: dict[str, Any]) -> dict[str, Array]:
        found = {}
        for name, dtype in types.items():
            shape, expected = file.shape(f"{prefix}.{name}", dtype), shapes[name]
            if shape != expected and (expected is not None or len(shape) != 1):
                file.refuse(f"{prefix}.{name}", f"shape {shape}, {expected} expected")
            found[name] = file[f"{prefix}.{name}"]
        return found

    def _check_shape(self, name: str, dtype: str, expected: tuple[int, ...]) -> None:
        shape = self.file.shape(name, dtype)
        if shape != expected:
            self.file.refuse(name, f"shape {shape}, {expected} expected")

    def _check_codes(self, codes: Bytes, name: str) -> None:
        try:
            self._recipe.check(codes, name=name)
        except ValueError as error:
            self.file.refuse("codes", str(error))


def open_segment(
    backend: Backend, record: SegmentRecord, recipe: Recipe, known: dict[str, StoredFile], *, lenient: bool = False
) -> Segment:
    """Open a stored segment; only its bitmap of removed entries is read."""
    columns = StoredColumns.open(backend, record, recipe, known, lenient=lenient)
    return Segment(columns, columns.alive)


def open_file(backend: Backend, record: FileRecord, known: Mapping[str, StoredFile], **options: bool) -> StoredFile:
    """Open a file with options of :class:`StoredFile`, or return it if it is open."""
    file = known.get(record.path)
    return StoredFile(backend, record, **options) if file is None or file.problem else file


def _merged(overlays: list[tuple[Int64, Metadata]]) -> tuple[Int64, Metadata]:
    """Merge overlays; later ones take precedence."""
    texts: dict[int, bytes] = {}
    for rows, metadata in overlays:
        texts |= zip(rows.tolist(), metadata.texts(range(len(rows))), strict=True)
    order = sorted(texts)
    return np.array(order, np.int64), Metadata.of(texts[row] for row in order)


def columns_of(columns: Columns) -> dict[str, Array]:
    """Return the named arrays of a segment's file."""
    found: dict[str, Array] = {"ids": columns.ids, "codes": columns.codes.planes}
    for prefix, table, types in (("text_ids", columns.text_ids, TEXT_IDS), ("metadata", columns.metadata, METADATA)):
        if table is not None:
            found |= {
                f"{prefix}.{name}": getattr(table, name).astype(dtype, copy=False) for name, dtype in types.items()
            }
    return found


def write_segment(writer: FileWriter, columns: Columns) -> SegmentRecord:
    """Write the files of a segment that is in memory."""
    file = writer.write("segments", columns_of(columns), len(columns), is_segment=True)
    extras = {name: columns.extra(name) for name in columns.extra_names}
    return SegmentRecord(file, **_write_extras(writer, extras, len(columns)))


def _write_extras(writer: FileWriter, extras: Mapping[str, Array], n_entries: int) -> dict[str, FileRecord]:
    """Write files of extra columns; return their records by content."""
    return {
        file: writer.write("segments", {name: extras[name] for name in names}, n_entries)
        for file, names in EXTRA_FILES.items()
        if names[0] in extras
    }
