"""Signals in files, as memory-mapped matrices."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals
from .app import errors, fail

SUFFIXES = (".npy", ".npz", ".parquet", ".safetensors")

SAFE_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}
SAFE_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}


@dataclass(frozen=True)
class Source:
    """The signals of one file."""

    name: str
    signals: Array

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same when a build goes on: shape, type, and the first and last signal."""
        ends = np.ascontiguousarray(self.signals[[0, -1]] if len(self.signals) else self.signals)
        shape = [int(n) for n in self.signals.shape]
        return {"shape": shape, "dtype": str(self.signals.dtype), "crc32": zlib.crc32(ends.tobytes())}


@contextmanager
def open_sources(path: Path, array: str | None = None) -> Iterator[list[Source]]:
    """The sources in a file, or in a directory of .npy files in the order of their names.

    Parquet and compressed .npz cannot be mapped: they are unpacked, a part at a time, into a temporary file first.
    """
    if not path.exists():
        raise fail(f"{path} does not exist", code=2)
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    if not files:
        raise fail(f"{path} is a directory without .npy files", code=2)
    with tempfile.TemporaryDirectory(prefix="topsign-") as scratch:
        yield [Source(file.name, _read(file, array, Path(scratch))) for file in files]


def _read(file: Path, array: str | None, scratch: Path) -> Array:
    readers = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet, ".safetensors": _read_safetensors}
    if file.suffix not in readers:
        raise fail(f"{file} must be one of {', '.join(SUFFIXES)}, or a directory of .npy files", code=2)
    if array is not None and file.suffix == ".npy":
        raise fail(f"--array goes with .npz, .parquet and .safetensors; {file} has one array only", code=2)
    try:
        return as_signals(readers[file.suffix](file, array, scratch))
    except (ValueError, TypeError, OSError, KeyError, zipfile.BadZipFile, struct.error) as error:
        raise fail(f"{file}: {error}", code=1) from None


def _read_npy(file: Path, array: str | None, scratch: Path) -> Array:
    signals: Array = np.load(file, mmap_mode="r")
    return signals


def _read_npz(file: Path, array: str | None, scratch: Path) -> Array:
    with zipfile.ZipFile(file) as members:
        names = [name.removesuffix(".npy") for name in members.namelist()]
        member = members.getinfo(_chosen(file, names, array) + ".npy")
        if member.compress_type == zipfile.ZIP_STORED:
            with open(file, "rb") as raw:
                raw.seek(member.header_offset + 26)
                skipped = sum(struct.unpack("<HH", raw.read(4)))  # the name and extra field of the local header
                return _mapped_npy(file, raw, member.header_offset + 30 + skipped)
        unpacked = scratch / f"{file.stem}.npy"
        _say_unpacking(file, member.file_size)
        with members.open(member) as source, open(unpacked, "wb") as target:
            shutil.copyfileobj(source, target, 2**20)
    return _read_npy(unpacked, None, scratch)


def _mapped_npy(file: Path, raw: Any, offset: int) -> Array:
    """An array in .npy form that begins somewhere in a file."""
    raw.seek(offset)
    version = np.lib.format.read_magic(raw)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read_header(raw)
    return np.memmap(file, dtype, "r", raw.tell(), shape, "F" if in_columns else "C")


def _read_safetensors(file: Path, array: str | None, scratch: Path) -> Array:
    with open(file, "rb") as raw:
        (size,) = struct.unpack("<Q", raw.read(8))
        if size > file.stat().st_size:
            raise ValueError("not a safetensors file")
        header = json.loads(raw.read(size))
    header.pop("__metadata__", None)
    told = header[_chosen(file, list(header), array)]
    if told["dtype"] not in SAFE_DTYPES:
        raise ValueError(f"dtype {told['dtype']} cannot be read; convert it to F32 first")
    return np.memmap(file, SAFE_DTYPES[told["dtype"]], "r", 8 + size + told["data_offsets"][0], tuple(told["shape"]))


def _read_parquet(file: Path, array: str | None, scratch: Path) -> Array:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise fail("reading .parquet needs pyarrow: pip install 'topsign[files]'", code=2) from None
    table = parquet.ParquetFile(file)
    kinds = {field.name: field.type for field in table.schema_arrow}
    lists = [name for name, kind in kinds.items() if _is_list(arrow, kind)]
    column = _chosen(file, lists, array)
    _say_unpacking(file, file.stat().st_size)
    unpacked: Array | None = None
    row = 0
    for batch in table.iter_batches(batch_size=4096, columns=[column]):
        values = batch.column(0)
        if values.null_count:
            raise ValueError(f"column {column} has empty cells")
        flat = values.flatten().to_numpy(zero_copy_only=False)
        if len(flat) % len(values):
            raise ValueError(f"the signals in column {column} differ in length")
        signals = flat.reshape(len(values), -1)
        if unpacked is None:
            shape = (table.metadata.num_rows, signals.shape[1])
            unpacked = np.lib.format.open_memmap(scratch / f"{file.stem}.npy", "w+", signals.dtype, shape)
        if signals.shape[1] != unpacked.shape[1]:
            raise ValueError(f"the signals in column {column} differ in length")
        unpacked[row : row + len(signals)] = signals
        row += len(signals)
    if unpacked is None:
        raise ValueError("no rows")
    del unpacked
    return _read_npy(scratch / f"{file.stem}.npy", None, scratch)


def _is_list(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _chosen(file: Path, names: list[str], wanted: str | None) -> str:
    """The array asked for, or the only one."""
    if wanted is not None and wanted not in names:
        raise fail(f"{file} has no array {wanted!r}; it has {', '.join(names) or 'none'}", code=2)
    if wanted is None and len(names) != 1:
        raise fail(f"{file} has {len(names)} arrays of signals ({', '.join(names)}); choose one with --array", code=2)
    return names[0] if wanted is None else wanted


def _say_unpacking(file: Path, n_bytes: int) -> None:
    errors.print(f"{file} cannot be mapped: unpacking {n_bytes / 1e6:,.1f} MB into a temporary file", highlight=False)
