"""Shared parts of the readers: file descriptions, array selection, and errors that name the file."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from .._arrays import Array
from .._checks import as_signals
from .._files import MALFORMED
from .._rows import Rows
from ..errors import StorageError
from .place import Place


class Described(NamedTuple):
    """Contents of a file according to its header."""

    n_signals: int
    n_features: int
    dtype: np.dtype[Any]
    array: str | None = None  # array or column that holds the signals
    names: tuple[str, ...] | None = None  # column names, if each feature is a column


@contextmanager
def reading(place: Place, section: str = "signals") -> Iterator[None]:
    """Convert the errors of a format's parser into a StorageError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except MALFORMED as error:
        raise StorageError(place.url, section, str(error)) from None


def described(
    place: Place,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    array: str | None = None,
    names: tuple[str, ...] | None = None,
) -> Described:
    """Describe a real matrix with one signal per row, or a single signal; raise StorageError for anything else."""
    section = array or "signals"
    if len(shape) == 1:
        shape = (1, *shape)
    if len(shape) != 2:
        problem = f"must hold one matrix (n_signals, n_features), got shape {tuple(shape)}"
        raise StorageError(place.url, section, problem)
    with reading(place, section):
        as_signals(np.empty((0, shape[1]), dtype))
    return Described(int(shape[0]), int(shape[1]), dtype, array, names)


def choose(place: Place, names: Sequence[str], wanted: str | None, what: str) -> str:
    """Return the requested array, or the only one; otherwise raise ValueError and list the available arrays."""
    if wanted is not None and wanted not in names:
        raise ValueError(f"{place.url} has no {what} {wanted!r}; it has {', '.join(names) or 'none'}")
    if wanted is None and not names:
        raise StorageError(place.url, "signals", f"has no {what} that could hold signals")
    if wanted is None and len(names) != 1:
        raise ValueError(f"{place.url} has {len(names)} {what}s ({', '.join(names)}); choose one with array= (--array)")
    return names[0] if wanted is None else wanted


class RawRows(Rows):
    """Contiguous rows of a file that cannot be memory-mapped; closes the file when it is garbage-collected."""

    def __init__(
        self, place: Place, file: Any, offset: int, shape: tuple[int, int], dtype: np.dtype[Any], opened: ExitStack
    ) -> None:
        super().__init__(shape, dtype)
        self._place, self._file, self._offset = place, file, offset
        weakref.finalize(self, opened.pop_all().close)

    def read(self, start: int, stop: int) -> Array:
        row_bytes = self.shape[1] * self.dtype.itemsize
        with reading(self._place):
            self._file.seek(self._offset + start * row_bytes)
            content = self._file.read((stop - start) * row_bytes)
            if stop == self.shape[0]:
                self._file.read(1)  # zipfile verifies the checksum when it reaches the end
        if len(content) != (stop - start) * row_bytes:
            raise StorageError(self._place.url, "signals", f"truncated: it ends before row {stop - 1}")
        return np.frombuffer(content, self.dtype).reshape(stop - start, self.shape[1])
