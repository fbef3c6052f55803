"""What a file holds: small records (JSON behind a CRC-32), and the columns of segments.

Columns are plain arrays, whose CRC-32 stands in the record of their segment. They are read where LMDB has them mapped,
and compared with their checksums at the first touch in a process. ``docs/file-format.md`` has the details.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Int64
from .._files import pack_record, unpack_record
from ..errors import StorageError
from .environment import Environment, View
from .metadata import Metadata
from .segments import COLUMNS, Segment
from .store import Record

MAGIC = "topsign index"
FORMAT = 1

DTYPES = {"ids": "<i8", "codes": "|u1", "norms": "<f4", "scales": "<f4", "weights": "<f4"}


class StoredColumns:
    """Columns of a segment in a file, read in place."""

    def __init__(self, record: Record, view: View | None) -> None:
        self.record = record
        self.number: int = record["number"]
        self._view = view  # None: written ahead, not to be read before it is loaded
        self._found: dict[str, npt.NDArray[Any] | None] = {}

    def __len__(self) -> int:
        entries: int = self.record["entries"]
        return entries

    @property
    def nbytes(self) -> int:
        return sum(column["bytes"] for column in self.record["columns"].values())

    @property
    def ids(self) -> Int64:
        return self._needed("ids")

    @property
    def codes(self) -> Bytes:
        return self._needed("codes").reshape(len(self), -1)

    @property
    def norms(self) -> Float32 | None:
        return self._column("norms")

    @property
    def scales(self) -> Float32 | None:
        return self._column("scales")

    @property
    def weights(self) -> Float32 | None:
        return self._column("weights")

    @property
    def alive(self) -> Bytes | None:
        return self._column("alive")

    @property
    def metadata(self) -> Metadata | None:
        value = self._column("metadata")
        return None if value is None else Metadata.from_bytes(value, len(self))

    def _needed(self, name: str) -> npt.NDArray[Any]:
        column = self._column(name)
        if column is None:
            raise StorageError(self._file.path, f"segment {self.number}", f"has no {name}")
        return column

    @property
    def _file(self) -> Environment:
        assert self._view is not None
        return self._view.environment

    def _column(self, name: str) -> npt.NDArray[Any] | None:
        if name not in self._found:
            told = self.record["columns"].get(name)
            self._found[name] = None if told is None else self._read(name, told["bytes"], told["crc32"])
        return self._found[name]

    def _read(self, name: str, n_bytes: int, checksum: int) -> npt.NDArray[Any]:
        environment, section = self._file, f"segment {self.number}, {name}"
        assert self._view is not None
        value = self._view.get(column_key(name, self.number))
        if value is None or len(value) != n_bytes:
            found = "nothing" if value is None else f"{len(value)} bytes"
            raise StorageError(environment.path, section, f"damaged: {n_bytes} bytes expected, {found} found")
        touched = (section, checksum)
        if touched not in environment.checked:
            computed = zlib.crc32(value.data)
            if computed != checksum:
                raise StorageError.bad_checksum(environment.path, section, stored=checksum, computed=computed)
            environment.checked.add(touched)
        if value.ctypes.data % 8:
            value = value.copy()  # a small value shares a page with others and may begin anywhere
        return value.view(DTYPES.get(name, "|u1"))


@dataclass(frozen=True)
class State:
    """What one transaction left: which segments there are, in which order, and what comes next."""

    sequence: int = 0
    next_id: int = 0
    next_segment: int = 0
    segments: tuple[int, ...] = ()
    sources: dict[str, Record] = field(default_factory=dict)

    def to_record(self) -> Record:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_record(cls, record: Record) -> State:
        return cls(**(record | {"segments": tuple(record["segments"])}))


def segment_key(number: int) -> bytes:
    return b"segment/%012d" % number


def column_key(name: str, number: int) -> bytes:
    return b"%s/%012d" % (name.encode(), number)


def segment_values(number: int, segment: Segment) -> dict[bytes, Any]:
    """What is stored of a segment: its columns, and the record that describes them."""
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        column = getattr(segment.columns, name)
        if column is not None:
            columns[name] = np.ascontiguousarray(column, DTYPES[name]).view(np.uint8).reshape(-1)
    if segment.columns.metadata is not None:
        columns["metadata"] = segment.columns.metadata.to_bytes()
    if segment.alive is not None:
        columns["alive"] = segment.alive
    record = {
        "number": number,
        "entries": len(segment),
        "alive": segment.n_alive,
        "columns": {name: {"bytes": value.nbytes, "crc32": zlib.crc32(value)} for name, value in columns.items()},
    }
    return {column_key(name, number): value.data for name, value in columns.items()} | {
        segment_key(number): pack_record(record)
    }


def removal_values(record: Record, segment: Segment) -> dict[bytes, Any]:
    """What changes when entries of a stored segment stop taking part."""
    assert segment.alive is not None
    told = {"bytes": segment.alive.nbytes, "crc32": zlib.crc32(segment.alive.data)}
    changed = record | {"alive": segment.n_alive, "columns": record["columns"] | {"alive": told}}
    number = record["number"]
    return {column_key("alive", number): segment.alive.data, segment_key(number): pack_record(changed)}


def read_record(view: View, key: bytes, section: str) -> Record:
    value = view.get(key)
    if value is None:
        raise StorageError(view.environment.path, section, "missing; is this a topsign index at all?")
    return unpack_record(value.tobytes(), view.environment.path, section)


def read_state(view: View) -> State:
    return State.from_record(read_record(view, b"state", "state"))
