"""Signal files: their descriptions, rows and table columns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import check_feature_names
from .._files import Record
from .._rows import Rows
from . import tables
from .arrays import open_array
from .place import Location, Place
from .tables import TableRows, notes_of, plain_values, read_columns

SUFFIXES = (".npy", ".npz", ".parquet", ".safetensors", ".arrow", ".feather", ".csv", ".fvecs", ".bvecs")


@dataclass(frozen=True)
class SignalFile:
    """A signal file, with the properties that must not change while a job runs."""

    url: str  #: path or URL of the file
    n_signals: int  #: number of signals
    n_features: int  #: length of a signal
    dtype: str  #: type of the numbers in the file
    n_bytes: int  #: size of the file
    changed: str  #: modification time, or the ETag of an object store
    array: str | None = None  #: array or column that holds the signals
    aside: tuple[str, ...] = ()  #: table columns that hold ids and metadata
    feature_names: tuple[str, ...] | None = None  #: column names, if each feature is a column

    @property
    def name(self) -> str:
        """Name of the file without its folder."""
        return Place(self.url).name

    def rows(self) -> Array | Rows:
        """Return the signals: a memory map if possible, otherwise rows that are read when sliced."""
        return _open_rows(Place(self.url), self.array, self.aside)[0]

    def columns(self, names: Sequence[str], rows: slice | None = None) -> dict[str, Any]:
        """Return the columns ``names`` of a table as Arrow arrays, optionally only some ``rows`` of them."""
        place = Place(self.url)
        _check_table(place)
        return read_columns(place, names, rows)

    def to_json(self) -> Record:
        """Return the record that manifests store."""
        place = Place(self.url)
        return {
            "url": f"file://{self.url}" if place.is_local else self.url,
            "rows": self.n_signals,
            "n_features": self.n_features,
            "dtype": self.dtype,
            "bytes": self.n_bytes,
            "changed": self.changed,
            "column": self.array,
        }

    def identity(self) -> Record:
        """Return shape, dtype and the CRC-32 of the first and last signal, which a resumed build compares."""
        rows, n = self.rows(), self.n_signals
        ends = [np.ascontiguousarray(rows[slice(at, at + 1)]) for at in (0, n - 1) if n]
        checksum = zlib.crc32(b"".join(end.tobytes() for end in ends))
        return {"shape": [n, self.n_features], "dtype": self.dtype, "crc32": checksum}


class FilesRows(Rows):
    """Signals of several files as one matrix, read when sliced, with one file open at a time.

    Parameters
    ----------
    files : sequence of SignalFile
        Result of :func:`open_files`; all signals must have the same length.
    """

    def __init__(self, files: Sequence[SignalFile]) -> None:
        self._files = [file for file in files if file.n_signals] or list(files[:1])
        first = self._files[0]
        for file in self._files:
            if file.n_features != first.n_features:
                what = f"{file.url} has signals of {file.n_features} features, {first.url} of {first.n_features}"
                raise ValueError(f"{what}; all signals must have the same length")
        self._starts = np.cumsum([0, *(file.n_signals for file in self._files)])
        dtype = np.result_type(*(np.dtype(file.dtype) for file in self._files))
        super().__init__((int(self._starts[-1]), first.n_features), dtype)
        self.names = first.feature_names
        self._open: tuple[int, Array | Rows] | None = None

    def read(self, start: int, stop: int) -> Array:
        return self.read_every(start, stop, 1)

    def read_every(self, start: int, stop: int, step: int) -> Array:
        """Read every ``step``-th row from ``start`` to ``stop``."""
        parts = [np.empty((0, self.shape[1]), self.dtype)]
        for number, (first, end) in enumerate(pairwise(self._starts.tolist())):
            begin = start + max(0, -(-(first - start) // step)) * step  # first requested row in this file
            if begin < min(end, stop):
                if self._open is None or self._open[0] != number:
                    self._open = number, self._files[number].rows()
                rows = self._open[1][slice(begin - first, min(end, stop) - first, step)]
                parts.append(np.asarray(rows, self.dtype))
        return np.concatenate(parts)


@dataclass(frozen=True)
class TableColumns:
    """Names of the table columns that hold ids and metadata."""

    id_column: str | None = None
    metadata_columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all these columns, the id column first."""
        return (*((self.id_column,) if self.id_column else ()), *self.metadata_columns)

    def read(self, file: SignalFile) -> Callable[[slice], dict[str, Any]]:
        """Return a function from a slice of rows to the ``ids`` and ``metadata`` arguments of ``add``."""
        columns = file.columns(self.names) if self.names else {}
        return lambda rows: self._values({name: column[rows.start : rows.stop] for name, column in columns.items()})

    def read_rows(self, file: SignalFile, rows: slice) -> dict[str, Any]:
        """Return ids and metadata of some rows, reading only those rows if the format permits it."""
        return self._values(file.columns(self.names, rows) if self.names else {})

    def _values(self, columns: dict[str, Any]) -> dict[str, Any]:
        ids = plain_values(columns[self.id_column]) if self.id_column else None
        return {"ids": ids, "metadata": notes_of({name: columns[name] for name in self.metadata_columns})}


def list_files(location: Location) -> list[Place]:
    """Return the file at a ``location``, or the files of a folder or prefix, sorted by name."""
    return Place.at(location).files(SUFFIXES)


def open_file(place: Place, vector_column: str | None = None, aside: Sequence[str] = ()) -> SignalFile:
    """Describe a signal file at a ``place`` by reading only its header.

    Vectors are the lists of ``vector_column``; columns ``aside`` hold no features.

    Raises ValueError if the arguments do not fit the file (its format, the requested column), StorageError if its
    contents cannot be read as signals, and ImportError if a required package is missing.
    """
    if place.suffix not in SUFFIXES:
        raise ValueError(f"{place.url} must be one of {', '.join(SUFFIXES)}, or a folder of such files")
    if aside:
        _check_table(place)
    n_bytes, changed = place.state()
    rows, array = _open_rows(place, vector_column, aside)
    names = rows.names if isinstance(rows, Rows) else None
    n_signals, n_features = rows.shape
    return SignalFile(place.url, n_signals, n_features, str(rows.dtype), n_bytes, changed, array, tuple(aside), names)


def _open_rows(place: Place, array: str | None, aside: Sequence[str]) -> tuple[Array | Rows, str | None]:
    """Return the signals of a file, and the name of the array or column that holds them."""
    if place.suffix in tables.SUFFIXES:
        rows = TableRows(place, array, aside)
        return rows, rows.column
    return open_array(place, array)


def _check_table(place: Place) -> None:
    if place.suffix not in tables.SUFFIXES:
        raise ValueError(f"{place.url} is not a table; id and metadata columns need .parquet, .arrow, .feather or .csv")


def open_files(location: Location, vector_column: str | None = None, aside: Sequence[str] = ()) -> list[SignalFile]:
    """Describe all files at a ``location``; :func:`topsign.signals.open_file` has ``vector_column`` and ``aside``."""
    files = [open_file(place, vector_column, aside) for place in list_files(location)]
    check_same_columns(files)
    return files


def check_same_columns(files: Sequence[SignalFile]) -> None:
    """Raise ValueError if the feature columns differ in name or order from those of the first table."""
    named = [file for file in files if file.feature_names is not None]
    for file in named:
        check_feature_names(file.feature_names or (), named[0].feature_names or (), file.url)
