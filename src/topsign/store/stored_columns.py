"""Columns of a stored segment, read from memory-mapped files.

The first use of a column in a process verifies its shape, its checksums, and that its content is valid for the recipe,
because kernels do not validate. If only a few codes are read, only those are verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._arrays import Array, Bytes, Int64
from .._lazy import lazy
from ..families import Recipe
from ..kernels import BLOCK, CodeBlocks
from .backend import Backend
from .extras import EXTRA_COLUMNS, EXTRA_FILES, EXTRA_TYPES, extra_shape
from .manifest import FileRecord, SegmentRecord
from .segments import Columns, Segment
from .stored_file import FileWriter, StoredFile
from .texts import Metadata, TextIds, parse_notes

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
        self._pending_extras: dict[str, Array] = {}
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
    def metadata_bytes(self) -> int:
        files = [file for file in (self.file, self._overlay) if file is not None]
        return sum(file.column_bytes(f"metadata.{name}") for name in METADATA for file in files)

    @property
    def nbytes(self) -> int:
        regions = self.record.regions
        return self.file.nbytes + (0 if regions is None else 2 * len(self))

    @property
    def originals_nbytes(self) -> int:
        return 0 if self.record.originals is None else self.record.originals.n_bytes

    @lazy
    def ids(self) -> Int64:
        ids = self.file["ids"]
        if ids[0] < 0 or (np.diff(ids) <= 0).any():
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
        stored = [name for file in self._extras for name in EXTRA_FILES[file]]
        return tuple(dict.fromkeys([*stored, *self._pending_extras]))

    def extra(self, name: str) -> Array:
        if name in self._pending_extras:
            return self._pending_extras[name]
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

    def with_extras(self, extras: Mapping[str, Array]) -> StoredColumns:
        """Return the columns with additional ones, which :meth:`write` stores."""
        changed = self._copied()
        changed._pending_extras = {**self._pending_extras, **extras}
        return changed

    def _copied(self) -> StoredColumns:
        copied = StoredColumns(self.record, self._recipe, self.file, self._removed, self._overlay, self._extras)
        copied._pending, copied._pending_extras = self._pending, self._pending_extras
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
        if name in EXTRA_COLUMNS and name not in self._pending_extras:
            file = self._extra_file(name)
            found = file.rows(name, positions)
            if found.dtype.kind == "f" and not np.isfinite(found).all():
                file.refuse(name, "values must be finite")
            return found
        if name != "codes":
            return (self.ids if name == "ids" else self._pending_extras[name])[positions]
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
        new |= _write_extras(writer, self._pending_extras, len(self))
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
        if self.ids[-1] >= next_id:
            self.file.refuse("ids", f"id {self.ids[-1]}, but the next new id is {next_id}")
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
