"""Columns of a segment in an LMDB file, read in place.

Columns are plain arrays that are used where LMDB has them mapped. The first touch in a process checks a column: its
length, its CRC-32, and that its content is what the recipe of the index says, so that no kernel meets other bytes. Of
codes that are read a few at a time, the content of those is checked.
"""

from __future__ import annotations

import zlib
from typing import Any, NoReturn

import numpy as np

from ..._arrays import Array, Bytes, Float32, Int64
from ..._files import Record
from ...codes import check_content
from ...errors import StorageError
from ...recipe import Recipe
from .lmdb_environment import Environment
from .lmdb_records import DTYPES, column_key
from .lmdb_view import View
from .metadata import Metadata
from .names import Names, problem_of_names

REALS = ("norms", "scales", "weights")


class StoredColumns:
    """Columns of one stored segment, as :class:`Columns` describes them."""

    def __init__(self, record: Record, recipe: Recipe, view: View | None) -> None:
        self.record = record
        self.number: int = record["number"]
        if type(self.number) is not int or type(record["entries"]) is not int or record["entries"] < 1:
            raise ValueError(f"a segment of number {record['number']!r} with {record['entries']!r} entries")
        for name, described in record["columns"].items():
            if not all(type(described[key]) is int and described[key] >= 0 for key in ("bytes", "crc32")):
                raise ValueError(f"a column {name!r} of {described!r}")
        self._recipe = recipe
        self._view = view  # None: written ahead, not to be read before it is loaded
        self._found: dict[str, Array | None] = {}

    def __len__(self) -> int:
        n_entries: int = self.record["entries"]
        return n_entries

    @property
    def metadata_bytes(self) -> int:
        described: Record = self.record["columns"].get("metadata", {"bytes": 0})
        n_bytes: int = described["bytes"]
        return n_bytes

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
        return self._real("norms")

    @property
    def scales(self) -> Float32 | None:
        return self._real("scales")

    @property
    def weights(self) -> Float32 | None:
        return self._real("weights")

    @property
    def alive(self) -> Bytes | None:
        return self._column("alive")

    @property
    def metadata(self) -> Metadata | None:
        value = self._column("metadata")
        return None if value is None else Metadata.from_bytes(value, len(self))

    @property
    def names(self) -> Names | None:
        value = self._column("names")
        return None if value is None else Names.from_bytes(value, len(self))

    def rows(self, name: str, positions: Int64) -> Array:
        if name != "codes" or name in self._found or len(positions) == len(self):
            column: Array = getattr(self, name)
            return column[positions]
        described = self.record["columns"].get(name)
        if described is None:
            self._refuse_missing(name)
        value = self._checked_bytes(name, described)
        problem = _length_problem(name, value, len(self), self._recipe)
        taken = value[:0] if problem else value.reshape(len(self), -1)[positions]
        self._refuse(name, problem or _codes_problem(taken, self._recipe))
        return taken

    def _real(self, name: str) -> Float32 | None:
        return self._needed(name) if self._recipe.beside else None

    def _needed(self, name: str) -> Array:
        column = self._column(name)
        return self._refuse_missing(name) if column is None else column

    def _refuse_missing(self, name: str) -> NoReturn:
        raise StorageError(self._file.path, f"segment {self.number}", f"damaged: has no {name}")

    def _refuse(self, name: str, problem: str | None) -> None:
        if problem:
            raise StorageError(self._file.path, f"segment {self.number}, {name}", f"damaged: {problem}")

    @property
    def _file(self) -> Environment:
        assert self._view is not None
        return self._view.environment

    def _column(self, name: str) -> Array | None:
        if name not in self._found:
            described = self.record["columns"].get(name)
            self._found[name] = None if described is None else self._read(name, described)
        return self._found[name]

    def _read(self, name: str, described: Record) -> Array:
        value = self._checked_bytes(name, described)
        if value.ctypes.data % 8:
            value = value.copy()  # a small value shares a page with others and may begin anywhere
        checked = self._file.checked[self.number]
        if (name, described["crc32"]) not in checked:
            self._refuse(name, _problem(name, value, len(self), self._recipe))
            checked.add((name, described["crc32"]))
        return value.view(DTYPES.get(name, "|u1"))

    def _checked_bytes(self, name: str, described: Record) -> Bytes:
        """A column as it is stored, its checksum compared."""
        environment, section = self._file, f"segment {self.number}, {name}"
        assert self._view is not None
        n_bytes, checksum = described["bytes"], described["crc32"]
        value = self._view.get(column_key(name, self.number))
        if value is None or len(value) != n_bytes:
            found = "nothing" if value is None else f"{len(value)} bytes"
            raise StorageError(environment.path, section, f"damaged: {n_bytes} bytes expected, {found} found")
        checked = environment.checked.setdefault(self.number, set())
        if (f"bytes of {name}", checksum) not in checked:
            computed = zlib.crc32(value.data)
            if computed != checksum:
                raise StorageError.bad_checksum(environment.path, section, stored=checksum, computed=computed)
            checked.add((f"bytes of {name}", checksum))
        return value


def _length_problem(name: str, value: Bytes, n_entries: int, recipe: Recipe) -> str | None:
    widths = {"codes": recipe.layout.code_bytes, "ids": 8} | dict.fromkeys(REALS, 4)
    expected = n_entries * widths[name] if name in widths else -(-n_entries // 8) if name == "alive" else None
    if expected is None or len(value) == expected:
        return None
    return f"{len(value)} bytes for {n_entries} entries, {expected} expected"


def _codes_problem(codes: Bytes, recipe: Recipe) -> str | None:
    try:
        check_content(recipe.layout, codes, name="the column")
    except ValueError as error:
        return str(error)
    return None


def _problem(name: str, value: Bytes, n_entries: int, recipe: Recipe) -> str | None:
    """What is wrong with the content of a column, whose checksum is right; None for a sound one."""
    if problem := _length_problem(name, value, n_entries, recipe):
        return problem
    if name == "codes":
        return _codes_problem(value.reshape(n_entries, -1), recipe)
    if name == "ids":
        ids = value.view("<i8")
        if not n_entries or ids[0] < 0 or (np.diff(ids) <= 0).any():
            return "ids must be ascending and at least 0"
    elif name == "alive":
        if n_entries % 8 and value[-1] >> n_entries % 8:
            return f"bits are set after the last of {n_entries} entries"
    elif name == "metadata":
        return _metadata_problem(value, n_entries)
    elif name == "names":
        return problem_of_names(value, n_entries)
    elif name in REALS:
        reals = value.view("<f4")
        if not (np.isfinite(reals).all() and (reals >= 0).all()):
            return "values must be finite and at least 0"
    return None


def _metadata_problem(value: Bytes, n_entries: int) -> str | None:
    cut = 8 * (n_entries + 1)
    if len(value) < cut:
        return f"{len(value)} bytes for the starts of {n_entries} texts, at least {cut} expected"
    starts: Any = value[:cut].view("<i8")
    if starts[0] != 0 or starts[-1] != len(value) - cut or (np.diff(starts) < 0).any():
        return "the starts of its texts must ascend from 0 to the end"
    return None
