"""Records of an LMDB file: JSON behind a CRC-32, and the values that are stored for segments.

``docs/file-format.md`` has the details.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._files import Record, pack_record, unpack_record
from ...errors import StorageError
from .lmdb_view import View
from .segments import COLUMNS, Segment

MAGIC = "topsign index"
FORMAT = 1

DTYPES = {"ids": "<i8", "codes": "|u1", "norms": "<f4", "scales": "<f4", "weights": "<f4"}


@dataclass(frozen=True)
class State:
    """State after one transaction: the segments in order, and the next numbers."""

    sequence: int = 0
    next_id: int = 0
    next_segment: int = 0
    segments: tuple[int, ...] = ()
    sources: dict[str, Record] = field(default_factory=dict)

    def to_record(self) -> Record:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_record(cls, record: Record) -> State:
        state = cls(**(record | {"segments": tuple(record["segments"])}))
        numbers = (state.sequence, state.next_id, state.next_segment, *state.segments)
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise ValueError("numbers must be integers, and at least 0")
        if len(set(state.segments)) != len(state.segments) or not isinstance(state.sources, dict):
            raise ValueError("a segment is named twice, or sources are not an object")
        return state


def segment_key(number: int) -> bytes:
    return b"segment/%012d" % number


def column_key(name: str, number: int) -> bytes:
    return b"%s/%012d" % (name.encode(), number)


def segment_values(number: int, segment: Segment) -> dict[bytes, Any]:
    """Keys and values of a new segment: its columns, and the record that describes them."""
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        column = getattr(segment.columns, name)
        if column is not None:
            columns[name] = np.ascontiguousarray(column, DTYPES[name]).view(np.uint8).reshape(-1)
    if segment.columns.metadata is not None:
        columns["metadata"] = segment.columns.metadata.to_bytes()
    if segment.columns.names is not None:
        columns["names"] = segment.columns.names.to_bytes()
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
    """Keys and values that change when entries of a stored segment are removed."""
    assert segment.alive is not None
    described = {"bytes": segment.alive.nbytes, "crc32": zlib.crc32(segment.alive.data)}
    changed = record | {"alive": segment.n_alive, "columns": record["columns"] | {"alive": described}}
    number = record["number"]
    return {column_key("alive", number): segment.alive.data, segment_key(number): pack_record(changed)}


def read_record(view: View, key: bytes, section: str) -> Record:
    value = view.get(key)
    if value is None:
        raise StorageError(view.environment.path, section, "missing; is this a topsign index at all?")
    return unpack_record(value.tobytes(), view.environment.path, section)


def read_state(view: View) -> State:
    record = read_record(view, b"state", "state")
    try:
        return State.from_record(record)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(view.environment.path, "state", f"damaged: {error}; restore the file from a copy") from None
