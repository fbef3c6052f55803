"""Signal files that hold arrays: .npy, .npz, .safetensors, .fvecs and .bvecs."""

from __future__ import annotations

import weakref
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals
from .._rows import Rows, SparseRows
from .._safetensors import header_size, parse_header
from ..errors import StorageError
from .place import Place, reading

VECTOR_TYPES: dict[str, np.dtype[Any]] = {".fvecs": np.dtype(np.float32), ".bvecs": np.dtype(np.uint8)}
"""Types of the values of .fvecs and .bvecs files, whose rows begin with their length as an int32."""


class RowsOfFile(Rows):
    """Contiguous rows of an open file, which is closed when the object is garbage-collected.

    With ``has_lengths``, each row begins with its length as an int32.
    """

    def __init__(
        self,
        place: Place,
        file: IO[bytes],
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        opened: ExitStack,
        *,
        has_lengths: bool = False,
    ) -> None:
        super().__init__(shape, dtype)
        self._place, self._file, self._offset, self._prefix = place, file, file.tell(), 4 * has_lengths
        weakref.finalize(self, opened.pop_all().close)

    def read(self, start: int, stop: int) -> Array:
        row_bytes = self._prefix + self.shape[1] * self.dtype.itemsize
        with reading(self._place):
            self._file.seek(self._offset + start * row_bytes)
            content = self._file.read((stop - start) * row_bytes)
            if stop == self.shape[0]:
                self._file.read(1)  # zipfile verifies the checksum when it reaches the end
        if len(content) != (stop - start) * row_bytes:
            raise StorageError(self._place.url, "signals", f"truncated: it ends before row {stop - 1}")
        if not self._prefix:
            return np.frombuffer(content, self.dtype).reshape(stop - start, self.shape[1])
        values = np.frombuffer(content, np.uint8).reshape(stop - start, row_bytes)
        lengths = values[:, :4].copy().view("<i4").ravel()
        if (lengths != self.shape[1]).any():
            row = int(np.argmax(lengths != self.shape[1]))
            problem = f"signals differ in length: row {start + row} has {lengths[row]}, row 0 has {self.shape[1]}"
            raise StorageError(self._place.url, "signals", problem)
        return values[:, 4:].copy().view(self.dtype)


def open_array(place: Place, array: str | None) -> tuple[Array | Rows, str | None]:
    """Return the signals of a file and the name of their array; local .npy and .safetensors files are memory-mapped."""
    if array is not None and place.suffix == ".npy":
        raise ValueError(f"vector_column applies to .npz, .parquet and .safetensors; {place.url} has only one array")
    if array is not None and place.suffix in VECTOR_TYPES:
        raise ValueError(f"{place.url} has no named arrays or columns; omit vector_column")
    with ExitStack() as opened:
        file, in_columns = opened.enter_context(place.open()), False
        if place.suffix in VECTOR_TYPES:
            lengths = _vectors(place, file)
            return RowsOfFile(place, file, *lengths, opened, has_lengths=True), None
        if place.suffix == ".safetensors":
            array, shape, dtype = _find_tensor(place, file, array)
        else:
            if place.suffix == ".npz":
                with reading(place):
                    members = opened.enter_context(zipfile.ZipFile(file))
                names = [name.removesuffix(".npy") for name in members.namelist() if name.endswith(".npy")]
                if array is None and {"format", "shape", "data"} <= set(names):
                    return _sparse_rows(place, file), None
                array = choose(place, names, array, "array")
                with reading(place, array):
                    file = opened.enter_context(members.open(f"{array}.npy"))
            shape, in_columns, dtype = _npy_header(place, file)
        matrix = _matrix_shape(place, shape, dtype, array)
        with reading(place, array or "signals"):
            if not matrix[0] * matrix[1]:
                return np.empty(matrix, dtype), array
            if place.is_local and place.suffix != ".npz":
                return np.memmap(place.url, dtype, "r", file.tell(), matrix, "F" if in_columns else "C"), array
            if in_columns:  # rows are not contiguous
                return np.frombuffer(file.read(), dtype).reshape(matrix, order="F"), array
        return RowsOfFile(place, file, matrix, dtype, opened), array


def choose(place: Place, names: Sequence[str], wanted: str | None, what: str) -> str:
    """Return the requested array, or the only one; otherwise raise ValueError and list the available arrays."""
    if wanted is not None and wanted not in names:
        raise ValueError(f"{place.url} has no {what} {wanted!r}; it has {', '.join(names) or 'none'}")
    if wanted is None and not names:
        raise StorageError(place.url, "signals", f"has no {what} that could hold signals")
    if wanted is None and len(names) != 1:
        raise ValueError(f"{place.url} has {len(names)} {what}s ({', '.join(names)}); choose one with vector_column")
    return names[0] if wanted is None else wanted


def _matrix_shape(place: Place, shape: Sequence[int], dtype: np.dtype[Any], array: str | None) -> tuple[int, int]:
    """Return the shape of a real matrix, with one row for a vector; raise StorageError for anything else."""
    section = array or "signals"
    if len(shape) == 1:
        shape = (1, *shape)
    if len(shape) != 2:
        problem = f"must hold one matrix (n_signals, n_features), got shape {tuple(shape)}"
        raise StorageError(place.url, section, problem)
    with reading(place, section):
        as_signals(np.empty((0, shape[1]), dtype))
    return int(shape[0]), int(shape[1])


def _npy_header(place: Place, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a .npy header up to the first value; return shape, whether the order is Fortran, and dtype."""
    with reading(place):
        magic = file.read(6)
        if magic != np.lib.format.MAGIC_PREFIX:
            what = "empty: it has no bytes" if not magic else "not an array in .npy form"
            raise StorageError(place.url, "signals", f"{what}; write it with numpy.save")
        version = tuple(file.read(2))
        if version not in ((1, 0), (2, 0), (3, 0)):
            problem = f"version {version} of the .npy format; versions 1.0 to 3.0 are supported"
            raise StorageError(place.url, "signals", problem)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, dtype = read(file)
        return shape, in_columns, dtype


def _sparse_rows(place: Place, file: IO[bytes]) -> SparseRows:
    """Return the rows of a matrix written by scipy.sparse.save_npz."""
    import scipy.sparse

    with reading(place):
        file.seek(0)
        matrix = SparseRows(scipy.sparse.load_npz(file))
    _matrix_shape(place, matrix.shape, matrix.dtype, None)
    return matrix


def _find_tensor(place: Place, file: IO[bytes], wanted: str | None) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    """Read a safetensors header up to the chosen tensor; return its name, shape and dtype."""
    n_bytes, _ = place.state()
    with reading(place, "header"):
        tensors = parse_header(file.read(header_size(file.read(8), n_bytes)), n_bytes).tensors
    chosen = choose(place, list(tensors), wanted, "tensor")
    tensor = tensors[chosen]
    if tensor.dtype is None:
        raise StorageError(place.url, chosen, f"dtype {tensor.kind} cannot be read; convert it to F32 first")
    file.seek(tensor.start)
    return chosen, tensor.shape, tensor.dtype


def _vectors(place: Place, file: IO[bytes]) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Return shape and dtype of a .fvecs or .bvecs file, from its size and its first row."""
    dtype, (n_bytes, _) = VECTOR_TYPES[place.suffix], place.state()
    head = file.read(4)
    width = int.from_bytes(head, "little", signed=True) if len(head) == 4 else 0
    if width < 1 or n_bytes % (4 + width * dtype.itemsize):
        raise StorageError(place.url, "signals", f"not rows of {width} values each in {n_bytes} bytes")
    file.seek(0)
    return (n_bytes // (4 + width * dtype.itemsize), width), dtype
