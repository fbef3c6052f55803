"""Signals in files that workers read, block by block: .npy and Parquet, wherever fsspec finds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from .._arrays import Array
from .._checks import as_signals, check_location, raise_no_sources
from .folders import Location
from .shards import Record

SUFFIXES = (".npy", ".parquet")
BATCH_ROWS = 1024
"""Rows of a Parquet file decoded at a time."""


@dataclass(frozen=True)
class Source:
    """One file of signals, and what must be the same when a job goes on."""

    url: str
    rows: int
    n_features: int
    dtype: str
    bytes: int
    changed: str  # ETag or time of the last change
    column: str | None = None  # of a Parquet file

    @property
    def record(self) -> Record:
        return asdict(self)

    def signals(self) -> Rows | Array:
        """The signals, read as they are sliced."""
        if self.column is not None:
            return ParquetRows(self)
        fs, path = url_to_fs(self.url)
        if isinstance(fs, LocalFileSystem):
            mapped: Array = np.load(path, mmap_mode="r")
            return mapped
        return NpyRows(self)


def list_sources(location: Location) -> list[str]:
    """The files in a folder or under a prefix, in the order of their names, or the one file named."""
    url = check_location(location)
    fs, root = url_to_fs(url if "://" in url else os.path.abspath(url))
    fs.invalidate_cache()
    if root.endswith(SUFFIXES) and fs.isfile(root):
        return [str(fs.unstrip_protocol(root))]
    found = [path for path in fs.find(root, maxdepth=1) if path.endswith(SUFFIXES)]
    names = sorted(path for path in found if not path.rsplit("/", 1)[-1].startswith("."))
    if not names:
        raise_no_sources(url)
    return [str(fs.unstrip_protocol(path)) for path in names]


def describe(url: str, column: str | None) -> Source:
    """What a file holds, from its header alone."""
    fs, path = url_to_fs(url)
    info = fs.info(path)
    marks = (info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "created"))
    state: dict[str, Any] = {
        "url": url,
        "bytes": int(info["size"]),
        "changed": str(next((one for one in marks if one), "")),
    }
    try:
        with fs.open(path, "rb") as file:
            if path.endswith(".npy"):
                shape, dtype, _ = _npy_header(file)
                return Source(rows=shape[0], n_features=shape[1], dtype=str(dtype), **state)
            table = pyarrow.parquet.ParquetFile(file)
            chosen = _list_column(table, column)
            n_rows = table.metadata.num_rows
            first = next(_batches(table, range(table.num_row_groups), chosen)) if n_rows else np.empty((0, 0))
        return Source(rows=n_rows, n_features=first.shape[1], dtype=str(first.dtype), column=chosen, **state)
    except (ValueError, TypeError, OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{url}: {error}") from None


class Rows:
    """Rows of a file, numbered from its beginning; slices are asked for in ascending order."""

    def __init__(self, source: Source) -> None:
        self.shape = (source.rows, source.n_features)
        self.dtype = np.dtype(source.dtype)
        self._last = slice(0, 0), np.empty((0, source.n_features))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | int) -> Array:
        if not isinstance(rows, slice):  # the row of an error, in the block that was read last
            return np.asarray(self._last[1][rows - self._last[0].start])
        values = self._read(rows)
        self._last = rows, values
        return values

    def _read(self, rows: slice) -> Array:
        raise NotImplementedError


class NpyRows(Rows):
    """Of an .npy file that cannot be mapped."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        fs, path = url_to_fs(source.url)
        self._file = fs.open(path, "rb")
        _, _, self._start = _npy_header(self._file)

    def _read(self, rows: slice) -> Array:
        row_bytes = self.shape[1] * self.dtype.itemsize
        self._file.seek(self._start + rows.start * row_bytes)
        content = self._file.read((rows.stop - rows.start) * row_bytes)
        return np.frombuffer(content, self.dtype).reshape(-1, self.shape[1])


class ParquetRows(Rows):
    """Of a column of lists, decoded a batch at a time from the row group where reading begins."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        fs, path = url_to_fs(source.url)
        self._table = pyarrow.parquet.ParquetFile(fs.open(path, "rb"))
        self._column = source.column
        self._batches: Iterator[Array] | None = None
        self._held = np.empty((0, self.shape[1]), self.dtype)
        self._at = 0  # row of the file at which what is held begins

    def _read(self, rows: slice) -> Array:
        if self._batches is None or rows.start < self._at:
            self._seek(rows.start)
        assert self._batches is not None
        while self._at + len(self._held) < rows.stop:
            batch = next(self._batches)
            if batch.shape[1] != self.shape[1]:
                raise ValueError(f"signals of {batch.shape[1]} features, the first has {self.shape[1]}")
            skipped = max(0, min(len(self._held), rows.start - self._at))
            self._held = np.concatenate([self._held[skipped:], batch])
            self._at += skipped
        return self._held[rows.start - self._at : rows.stop - self._at]

    def _seek(self, row: int) -> None:
        self._at, group = 0, 0
        while self._at + (size := self._table.metadata.row_group(group).num_rows) <= row:
            self._at, group = self._at + size, group + 1
        self._held = self._held[:0]
        self._batches = _batches(self._table, range(group, self._table.num_row_groups), self._column)


def _npy_header(file: Any) -> tuple[tuple[int, int], np.dtype[Any], int]:
    """Shape, type, and where the values begin."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read_header(file)
    if len(shape) != 2 or in_columns:
        raise ValueError(f"must hold one matrix (n_signals, n_features) row after row, got shape {shape}")
    as_signals(np.empty((0, shape[1]), dtype))
    return shape, dtype, file.tell()


def _list_column(table: Any, wanted: str | None) -> str:
    kinds = pyarrow.types
    lists = [
        field.name
        for field in table.schema_arrow
        if kinds.is_list(field.type) or kinds.is_large_list(field.type) or kinds.is_fixed_size_list(field.type)
    ]
    if wanted is not None and wanted not in lists:
        raise ValueError(
            f"no column {wanted!r} of lists; there {'are' if lists else 'is'} {', '.join(lists) or 'none'}"
        )
    if wanted is None and len(lists) != 1:
        raise ValueError(f"{len(lists)} columns of lists ({', '.join(lists)}); choose one with column=")
    return lists[0] if wanted is None else wanted


def _batches(table: Any, groups: range, column: str | None) -> Iterator[Array]:
    row = sum(table.metadata.row_group(group).num_rows for group in range(groups.start))
    for batch in table.iter_batches(batch_size=BATCH_ROWS, row_groups=list(groups), columns=[column]):
        values = batch.column(0)
        if values.null_count:
            raise ValueError(f"column {column} has empty cells between rows {row} and {row + len(values) - 1}")
        flat = values.flatten().to_numpy(zero_copy_only=False)
        lengths = np.asarray(pyarrow.compute.list_value_length(values))
        other = lengths != lengths[0]
        if other.any():
            raise ValueError(f"the signals in column {column} differ in length, first at row {row + other.argmax()}")
        yield as_signals(flat.reshape(len(values), -1))
        row += len(values)
