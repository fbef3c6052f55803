"""Columns of stored segments: memory-mapped safetensors files with checksums per block.

The first use of a column in a process verifies its shape, its checksums, and that its content is valid for the recipe,
because kernels do not validate. If only a few rows are read, only their blocks are verified.
"""

from __future__ import annotations

import math
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._lazy import lazy
from .._safetensors import KINDS, Header, Tensor, header_size, pack_header, parse_header
from ..errors import StorageError
from ..families import Recipe
from ..kernels import BLOCK, CodeBlocks, LazyBlocks
from .backends import Backend, Content
from .segments import (
    EXTRA_COLUMNS,
    EXTRA_FILES,
    EXTRA_TYPES,
    Columns,
    Metadata,
    Segment,
    TextIds,
    Texts,
    hash_text_ids,
    parse_notes,
)
from .versions import FileRecord, SegmentRecord

BLOCK_BYTES = 2**20
"""Bytes of a column per checksum, so that a few rows can be verified without reading the whole column."""

MISSING = "missing; restore it from a copy"

BLOCK_BYTES_OF = {"originals": 2**16}
"""Bytes per checksum of columns that searches read row by row."""

FINITE = EXTRA_FILES["originals"]
"""Columns of which a block with a value that is not finite is refused like a damaged one."""

INLINE_BYTES = 2**14
"""Maximum size of files that are stored in the manifest."""

MANIFEST_BYTES = 2**16
"""Maximum total bytes of files in a manifest; half of them are reserved for segments."""


@dataclass(eq=False)
class FileWriter:
    """Writer of the new files of a change; small ones go into the manifest."""

    backend: Backend
    n_inline: float = math.inf  # bytes of files that are already in the manifest
    written: dict[str, StoredFile] = field(default_factory=dict)  # open new files by path
    folders: set[str] = field(default_factory=set)  # of new files

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
        names, sizes = [*columns], [-array.dtype.itemsize for array in columns.values()]
        in_order = [names[i] for i in np.argsort(sizes, kind="stable")]  # so that all are aligned without gaps
        arrays = {name: np.ascontiguousarray(columns[name]) for name in in_order}
        checksums = {}
        for column, array in arrays.items():
            content, size = array.reshape(-1).view(np.uint8), BLOCK_BYTES_OF.get(column, BLOCK_BYTES)
            blocks = (content[at : at + size].data for at in range(0, len(content), size))
            checksums[f"crc32:{column}"] = "".join(f"{zlib.crc32(block):08x}" for block in blocks)
        head = pack_header(arrays, checksums)
        ends = [*accumulate((array.nbytes for array in arrays.values()), initial=len(head))]
        record = FileRecord(folder, name or secrets.token_hex(16), ends[-1], zlib.crc32(head), n_entries)
        limit = MANIFEST_BYTES if is_segment else MANIFEST_BYTES // 2
        if ends[-1] <= INLINE_BYTES and self.n_inline + ends[-1] <= limit:
            self.n_inline += ends[-1]
            record = replace(record, content=b"".join([head, *(array.tobytes() for array in arrays.values())]))
        else:
            self.backend.create(record.path, [head, *arrays.values()])
            self.folders.add(folder)
        tensors = {
            name: Tensor(KINDS[array.dtype.newbyteorder("<")], array.shape, start, start + array.nbytes)
            for (name, array), start in zip(arrays.items(), ends, strict=False)
        }
        self.written[record.path] = StoredFile(self.backend, record, header=Header(tensors, checksums))
        return record

    def delete(self) -> None:
        """Delete the files that were written for a change that no version will name."""
        for file in self.written.values():
            if file.record.content is None:
                self.backend.delete(file.record.path)


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


class StoredFile(Mapping[str, Array]):
    """Columns of one file. Opening checks its size and header; reading a column verifies the blocks it reads.

    If ``is_optional``, a damaged file raises StorageError only when a column is read; if ``is_lenient``, this also
    applies to a missing file.
    """

    def __init__(
        self,
        backend: Backend,
        record: FileRecord,
        *,
        header: Header | None = None,
        is_optional: bool = False,
        is_lenient: bool = False,
    ) -> None:
        self.record = record
        self.derived: dict[str, Any] = {}  # values computed from the columns
        self._path = backend.path
        self._views: dict[str, Array] = {}  # columns that rows were read from
        self.whole: set[str] = set()  # columns whose blocks are all read and verified
        self._verified: dict[str, Array] = {}  # whether each block of a column is verified
        self.problem: StorageError | None = None
        try:
            content = record.content
            self._content = backend.map(record.path) if content is None else Content(np.frombuffer(content, np.uint8))
            n_bytes = len(self._content.buffer)
            if n_bytes != record.n_bytes:
                self._refuse(f"damaged: {record.n_bytes} bytes expected, {n_bytes} found")
            self._header = header or self._checked_header(n_bytes)
        except FileNotFoundError:
            if not (is_optional and is_lenient):
                raise
            self.problem = StorageError(self._path, record.path, MISSING)
        except OSError as error:
            self.problem = StorageError(self._path, record.path, f"cannot be read: {error.strerror}")
        except StorageError as error:
            self.problem = error
        if self.problem is not None and not is_optional:
            raise self.problem from None
        for name, tensor in (self._header.tensors if self.problem is None else {}).items():
            n_blocks = -(-(tensor.stop - tensor.start) // BLOCK_BYTES_OF.get(name, BLOCK_BYTES))
            self._verified[name] = np.zeros(n_blocks, bool)

    def _checked_header(self, n_bytes: int) -> Header:
        try:
            head = read_head(self._content)
            computed = zlib.crc32(head)
            if computed != self.record.crc32:
                raise StorageError.bad_checksum(
                    self._path, f"{self.record.path}, header", stored=self.record.crc32, computed=computed
                )
            header = parse_header(head[8:], n_bytes)
        except ValueError as error:
            self._refuse(f"damaged: {error}")
        for name, tensor in header.tensors.items():
            text = header.metadata.get(f"crc32:{name}", "")
            n_blocks = -(-(tensor.stop - tensor.start) // BLOCK_BYTES_OF.get(name, BLOCK_BYTES))
            if not re.fullmatch("[0-9a-f]*", text) or len(text) != 8 * n_blocks:
                self.refuse(name, f"{n_blocks} checksums expected")
            if tensor.dtype is None or tensor.start % tensor.dtype.itemsize:
                self.refuse(name, f"type {tensor.kind} at byte {tensor.start} cannot be read in place")
        return header

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Type, shape and place of each column."""
        if self.problem is not None:
            raise self.problem
        return self._header.tensors

    __eq__, __hash__ = object.__eq__, object.__hash__  # identity, not content

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def shape(self, name: str, dtype: str) -> tuple[int, ...]:
        """Return the shape of a column after checking its dtype."""
        tensor = self.tensors.get(name)
        if tensor is None:
            self._refuse(f"damaged: has no {name}")
        if tensor.kind != KINDS[np.dtype(dtype)]:
            self.refuse(name, f"type {tensor.kind}, {np.dtype(dtype)} expected")
        return tensor.shape

    def __getitem__(self, name: str) -> Array:
        """Read and verify a whole column."""
        if name not in self.tensors:
            raise KeyError(name)
        self._verify(name, range(len(self._verified[name])))
        return self.tensors[name].view(self._content.buffer)

    def rows(self, name: str, positions: Int64) -> Array:
        """Read rows of a column and verify only the blocks that hold them."""
        return self.verified(name, positions)[positions]

    def verified(self, name: str, positions: Int64) -> Array:
        """Return a view of a column in which the blocks that hold these rows are verified."""
        column = self._views.get(name)
        if column is None:
            column = self._views[name] = self.tensors[name].view(self._content.buffer)
        if name in self.whole:
            return column
        width, size = column.nbytes // max(1, len(column)), BLOCK_BYTES_OF.get(name, BLOCK_BYTES)
        first, last = positions * width // size, ((positions + 1) * width - 1) // size
        verified = self._verified[name]
        # A row no wider than a block touches its first and last block only.
        if positions.size and width and (width > size or not (verified[first] & verified[last]).all()):
            touched = np.zeros(len(verified) + 1, np.int64)
            np.add.at(touched, first, 1)
            np.add.at(touched, last + 1, -1)
            self._verify(name, np.flatnonzero(np.cumsum(touched[:-1])))
            if verified.all():
                self.whole.add(name)
        return column

    def lazily(self, name: str) -> tuple[Array, LazyBlocks]:
        """Return a column and its blocks, which are read and verified, and whose values are checked, if needed."""
        column, verified = self.verified(name, np.empty(0, np.int64)), self._verified[name]
        size, wanted = BLOCK_BYTES_OF.get(name, BLOCK_BYTES), np.zeros(len(verified), np.uint8)
        return column, LazyBlocks(size, verified, wanted, partial(self._verify, name))

    def verify(self) -> dict[str, str]:
        """Read every block again; return problems by section."""
        if self.problem is not None:
            return {self.problem.section: self.problem.problem}
        problems = {}
        self.whole.clear()
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

    def _verify(self, name: str, blocks: range | Int64) -> None:
        """Read and verify these blocks, in ascending order, and adjacent ones with one request."""
        tensor, size = self.tensors[name], BLOCK_BYTES_OF.get(name, BLOCK_BYTES)
        checksums = self._header.metadata.get(f"crc32:{name}", "")
        todo = [int(block) for block in blocks if not self._verified[name][block]]
        breaks = [0, *(i for i in range(1, len(todo)) if todo[i] > todo[i - 1] + 1), len(todo)]
        runs = [range(todo[first], todo[last - 1] + 1) for first, last in pairwise(breaks) if last > first]
        ranges = [(tensor.start + run[0] * size, min(tensor.start + run.stop * size, tensor.stop)) for run in runs]
        for run, (begin, _), part in zip(runs, ranges, self._content.read(ranges) if runs else [], strict=True):
            for at, block in enumerate(run):
                stored = int(checksums[8 * block : 8 * block + 8], 16)
                content = part[at * size : (at + 1) * size]
                computed = zlib.crc32(content.data)
                if computed != stored:
                    section = f"{self.record.path}, {name}"
                    raise StorageError.bad_checksum(self._path, section, stored=stored, computed=computed)
                if name in FINITE and tensor.dtype is not None and not np.isfinite(content.view(tensor.dtype)).all():
                    self.refuse(name, "values must be finite")
            if self._content.fetch is not None:
                self._content.buffer[begin : begin + len(part)] = part
            self._verified[name][run[0] : run.stop] = True


SomeTexts = TypeVar("SomeTexts", Metadata, TextIds)

CHECKED_BYTES = 2**24
"""Bytes of codes that are validated at a time."""


class StoredColumns:
    """Columns of a stored segment, whose ``files`` hold columns, replaced metadata, removed entries and extras."""

    def __init__(self, record: SegmentRecord, recipe: Recipe, files: Mapping[str, StoredFile]) -> None:
        self.record, self.file = record, files["columns"]
        self._recipe, self._files = recipe, files
        self._n_entries = record.file.entries
        if self._n_entries < 1:
            self.file.refuse("ids", "a segment must have entries")
        for name, dtype, expected in (
            ("ids", "<i8", (self._n_entries,)),
            ("codes", "|u1", (-(-self._n_entries // BLOCK), recipe.code_bytes, BLOCK)),
        ):
            if (shape := self.file.shape(name, dtype)) != expected:
                self.file.refuse(name, f"shape {shape}, {expected} expected")
        self._pending: tuple[Int64, Metadata] | None = None  # replaced metadata not written yet
        self._checked_extras: set[str] = set()  # whose type and shape were checked

    @classmethod
    def open(
        cls,
        backend: Backend,
        record: SegmentRecord,
        recipe: Recipe,
        known: Mapping[str, StoredFile],
        *,
        lenient: bool = False,
    ) -> StoredColumns:
        """Open the files of a segment, except those already open in ``known``.

        A damaged file of extra columns raises only when a column is read, because most searches need none. If
        ``lenient``, this also applies to a missing file.
        """
        files = {"columns": open_file(backend, record.file, known)}
        for name, one in record.others.items():
            is_extra = name in EXTRA_FILES
            files[name] = open_file(backend, one, known, is_optional=is_extra, is_lenient=is_extra and lenient)
        return cls(record, recipe, files)

    @property
    def files(self) -> list[StoredFile]:
        return [*self._files.values()]

    def __len__(self) -> int:
        return self._n_entries

    @property
    def sizes(self) -> Counter[str]:
        found = Counter(manifest=self.record.file.n_bytes)
        for column, tensor in self.file.tensors.items():
            found[column.partition(".")[0]] += tensor.stop - tensor.start
            found["manifest"] -= tensor.stop - tensor.start
        for name, record in self.record.others.items():
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
        return tuple(name for file in self._files if file in EXTRA_FILES for name in EXTRA_FILES[file])

    def extra(self, name: str) -> Array:
        return self._extra_file(name)[name]

    def _extra_file(self, name: str) -> StoredFile:
        """Return the file of an extra column after checking dtype and shape."""
        file = self._files[EXTRA_COLUMNS[name]]
        if name in self._checked_extras:
            return file
        expected = (len(self), self._recipe.n_features) if name == "originals" else (len(self),)
        kinds = EXTRA_TYPES[name]
        tensor = file.tensors.get(name)
        if tensor is None or tensor.shape != expected or tensor.dtype not in [np.dtype(kind) for kind in kinds]:
            file.refuse(name, f"shape {expected} and type {' or '.join(kinds)} expected")
        self._checked_extras.add(name)
        return file

    def lazily(self, name: str) -> tuple[Array, LazyBlocks | None]:
        return self._extra_file(name).lazily(name)

    @property
    def derived(self) -> dict[str, Any]:
        """Cache of values computed from the columns, kept with the file, which later versions share."""
        return self.file.derived

    @property
    def has_text_ids(self) -> bool:
        return "text_ids.starts" in self.file.tensors

    @lazy
    def text_ids(self) -> TextIds | None:
        if not self.has_text_ids:
            return None
        return self._texts(TextIds, self.file, len(self))

    @lazy
    def metadata(self) -> Metadata | None:
        found = self._texts(Metadata, self.file, len(self)) if "metadata.starts" in self.file.tensors else None
        if self.overlay is not None:
            found = found or Metadata(np.zeros(len(self) + 1, np.int64), np.empty(0, np.uint8))
            found = found.replaced(*self.overlay)
        return found

    @lazy
    def alive(self) -> Bytes | None:
        """Packed bitmap of the live entries, or None if all are alive."""
        file, record = self._files.get("removed"), self.record.removed
        if file is None or record is None:
            return None
        n_bytes, past = -(-len(self) // 8), len(self) % 8
        if file.shape("removed", "|u1") != (n_bytes,):
            file.refuse("removed", f"{n_bytes} bytes expected")
        removed = file["removed"]
        if past and removed[-1] >> past:
            file.refuse("removed", f"bits are set after the last of {len(self)} entries")
        n_removed = int(np.bitwise_count(removed).sum())
        if n_removed != record.entries or n_removed == len(self):
            file.refuse("removed", f"{n_removed} entries are removed, {record.entries} expected")
        alive = ~removed
        if past:
            alive[-1] &= (1 << past) - 1
        return alive

    def rows(self, name: str, positions: Int64) -> Array:
        if name in EXTRA_COLUMNS:
            return self._extra_file(name).rows(name, positions)
        if name != "codes":
            return self.ids[positions]
        if "codes" in self.__dict__ or len(positions) == len(self):
            return self.codes.rows(positions)
        codes = CodeBlocks(self.file.verified("codes", positions // BLOCK), len(self)).rows(positions)
        self._check_codes(codes, "the column")
        return codes

    def with_metadata(self, rows: Int64, texts: Sequence[bytes]) -> StoredColumns:
        """Return the columns with the metadata of these ascending rows replaced; :meth:`write` stores it."""
        changed = StoredColumns(self.record, self._recipe, self._files)
        texts_of = dict(zip(rows.tolist(), texts, strict=True))
        if self.overlay is not None:
            before = self.overlay[0].tolist()
            texts_of = dict(zip(before, self.overlay[1].texts(range(len(before))), strict=True)) | texts_of
        replaced = sorted(texts_of)
        changed._pending = np.array(replaced, np.int64), Metadata.of(texts_of[row] for row in replaced)
        return changed

    @lazy
    def overlay(self) -> tuple[Int64, Metadata] | None:
        """Ascending rows whose metadata were replaced since the segment was written, and their texts."""
        file = self._files.get("metadata")
        if self._pending is not None or file is None:
            return self._pending
        n_rows = file.record.entries
        if file.shape("rows", "<i8") != (n_rows,) or not n_rows:
            file.refuse("rows", f"{n_rows} rows expected")
        rows = file["rows"]
        if rows[0] < 0 or rows[-1] >= len(self) or (np.diff(rows) <= 0).any():
            file.refuse("rows", f"rows must ascend below {len(self)}")
        return rows, self._texts(Metadata, file, n_rows)

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
        known = {file.record.path: file for file in self.files} | writer.written
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
        if (found := self.text_ids) is not None:
            texts = found.texts(found.order.astype(np.int64))
            if (hash_text_ids(texts) != found.hashes).any():
                self.file.refuse("text_ids", "the hashes are not those of its text ids")

    def _texts(self, kind: type[SomeTexts], file: StoredFile, n_texts: int) -> SomeTexts:
        """Read the columns of texts after checking their types and shapes."""
        found = {}
        for name, dtype in kind.types.items():
            column = f"{kind.prefix}.{name}"
            shape, expected = file.shape(column, dtype), {"starts": (n_texts + 1,), "text": None}.get(name, (n_texts,))
            if shape != expected and (expected is not None or len(shape) != 1):
                file.refuse(column, f"shape {shape}, {expected} expected")
            found[name] = file[column]
        texts = kind(**found)
        if problem := texts.problem:
            file.refuse(kind.prefix, problem)
        return texts

    def _check_codes(self, codes: Bytes, name: str) -> None:
        try:
            self._recipe.check(codes, name=name)
        except ValueError as error:
            self.file.refuse("codes", str(error))


def open_segment(
    backend: Backend, record: SegmentRecord, recipe: Recipe, known: Mapping[str, StoredFile], *, lenient: bool = False
) -> Segment:
    """Open a stored segment; only its bitmap of removed entries is read."""
    columns = StoredColumns.open(backend, record, recipe, known, lenient=lenient)
    return Segment(columns, columns.alive)


def open_file(backend: Backend, record: FileRecord, known: Mapping[str, StoredFile], **options: Any) -> StoredFile:
    """Open a file with options of :class:`StoredFile`, or return it if it is open."""
    file = known.get(record.path)
    return StoredFile(backend, record, **options) if file is None or file.problem else file


def write_segment(writer: FileWriter, columns: Columns, names: Mapping[str, str] | None = None) -> SegmentRecord:
    """Write the files of a segment that is in memory, under given names: of its columns and of extra ones."""
    found: dict[str, Array] = {"ids": columns.ids, "codes": columns.codes.planes}
    held: list[Texts] = [texts for texts in (columns.text_ids, columns.metadata) if texts is not None]
    for texts in held:
        for name, dtype in texts.types.items():
            found[f"{texts.prefix}.{name}"] = getattr(texts, name).astype(dtype, copy=False)
    names, extras = names or {}, {name: columns.extra(name) for name in columns.extra_names}
    others = {
        file: writer.write("segments", {name: extras[name] for name in held}, len(columns), name=names.get(file))
        for file, held in EXTRA_FILES.items()
        if held[0] in extras
    }
    file = writer.write("segments", found, len(columns), is_segment=True, name=names.get("columns"))
    return SegmentRecord(file, **others)
