"""Shortlists: exact logits, from the weights themselves, of the classes with the highest estimated logits.

Weights are kept as given (in memory or memory-mapped), converted to float16 or to int8 with a scale per row, or stay in
a safetensors file that the head refers to.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, check_choice, check_count
from .._files import Record
from .._safetensors import read_header

STORAGES = ("original", "float16", "int8")
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # safetensors dtypes; bfloat16 is widened row by row
SAMPLED_ROWS = 64  # rows whose digest detects a changed file


@dataclass(frozen=True)
class Source:
    """Tensor in a safetensors file, given by path and key."""

    path: str
    key: str
    kind: str  # of TYPES
    digest: str


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Weights of all classes, and the number of classes per input that they rank."""

    size: int
    weights: Array  # (n_vectors, n_features): floats, int8 rows, or bfloat16 as uint16
    row_scales: Float32 | None = None  # (n_vectors,) of int8 rows
    source: Source | None = None  # file that holds the weights, if not this head

    @classmethod
    def of(cls, size: int, weights: Array, storage: str = "original") -> Self:
        """Return a shortlist that stores the weights in one of :data:`STORAGES`."""
        size = check_count(size, "shortlist")
        check_choice(storage, "shortlist_storage", STORAGES)
        if storage == "original":
            return cls(size, weights)
        if storage == "float16":
            largest = float(np.abs(weights).max(initial=0))
            if largest > 65504:
                raise ValueError(f'weights up to {largest:.3g} do not fit float16; take shortlist_storage="int8"')
            return cls(size, np.asarray(weights, np.float16))
        scales = np.abs(weights).max(axis=1).astype(np.float32) / 127
        rows = np.rint(weights / np.where(scales > 0, scales, 1)[:, np.newaxis]).astype(np.int8)
        return cls(size, rows, scales)

    @classmethod
    def in_file(cls, size: int, path: str | os.PathLike[str], key: str) -> Self:
        """Return a shortlist whose weights stay in a memory-mapped safetensors file."""
        kind, weights = _mapped(path, key)
        return cls(size, weights, None, Source(os.fspath(path), key, kind, _digest(weights)))

    @property
    def storage(self) -> str:
        """Description of the storage of the weights."""
        if self.source is not None:
            return f"{self.source.kind} in {self.source.path}"
        return "int8" if self.row_scales is not None else str(self.weights.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, in memory or in a file."""
        return self.weights.nbytes + (0 if self.row_scales is None else self.row_scales.nbytes)

    def products(self, signals: Array, rows: Int64) -> Float64:
        """Return the inner products of each signal with its own rows of the weights, in the shape of ``rows``."""
        products = [self.rows(chosen) @ signal for chosen, signal in zip(rows, signals, strict=True)]
        return np.stack(products) if products else np.empty(rows.shape)

    def rows(self, chosen: Array) -> Array:
        """Return some weight vectors as floats."""
        rows = self.weights[chosen]
        if self.source is not None and self.source.kind == "BF16":
            return (rows.astype(np.uint32) << 16).view(np.float32)
        if self.row_scales is not None:
            return rows * self.row_scales[chosen][:, np.newaxis]
        return rows if rows.dtype.itemsize > 2 else rows.astype(np.float32)

    # Files

    def to_file(self) -> tuple[Record, dict[str, Array]]:
        """Return the record and arrays of a head file; weights in a separate file are stored as a reference."""
        record: Record = {"size": self.size, "storage": self.storage}
        if self.source is not None:
            return record | {"source": vars(self.source)}, {}
        scales: dict[str, Array] = {} if self.row_scales is None else {"weight_scales": self.row_scales}
        return record, {"weights": self.weights} | scales

    @classmethod
    def from_file(cls, record: Any, arrays: dict[str, Array], shape: tuple[int, int]) -> Self:
        """Read the shortlist of a head file; raise ValueError if its parts are inconsistent."""
        size = check_count(record["size"], "shortlist")
        if "source" in record:
            held = Source(**record["source"])
            found = cls.in_file(size, held.path, held.key)
            if found.source != held or found.weights.shape != shape:
                raise ValueError(f"{held.key!r} of {held.path} is not the tensor that this head was made with")
            return found
        weights, scales = arrays["weights"], arrays.get("weight_scales")
        if weights.shape != shape or weights.dtype.kind not in "fiu":
            raise ValueError(f"weights must be numbers of shape {shape}, got {weights.dtype} of shape {weights.shape}")
        if scales is not None and (scales.shape != shape[:1] or scales.dtype != np.float32):
            raise ValueError(f"weight_scales must be float32 of shape {shape[:1]}, got {scales.dtype} {scales.shape}")
        if not np.isfinite(weights).all() or (scales is not None and not np.isfinite(scales).all()):
            raise ValueError("weights holds NaN or infinity")
        return cls(size, weights, scales)


def _mapped(path: str | os.PathLike[str], key: str) -> tuple[str, Array]:
    """Return dtype and memory map of a matrix in a safetensors file."""
    with open(path, "rb") as file:
        try:
            tensors = read_header(file, os.path.getsize(path)).tensors
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} cannot be read as a safetensors file: {error}") from None
    if key not in tensors:
        raise ValueError(f"{os.fspath(path)} has no tensor {key!r}; it has {', '.join(sorted(tensors)[:5])}, ...")
    tensor = tensors[key]
    if tensor.kind not in TYPES or len(tensor.shape) != 2:
        found = f"{tensor.kind!r} of shape {tensor.shape}"
        raise ValueError(f"{key!r} of {os.fspath(path)} must be a matrix of {', '.join(TYPES)}, got {found}")
    dtype = np.dtype(TYPES[tensor.kind])
    if tensor.stop - tensor.start != math.prod(tensor.shape) * dtype.itemsize:  # unknown to the parser for BF16
        raise ValueError(f"{os.fspath(path)} is damaged: {key!r} does not have the bytes of {tensor.shape}")
    return tensor.kind, np.memmap(path, dtype, "r", offset=tensor.start, shape=tensor.shape)


def _digest(weights: Array) -> str:
    """Return a digest of evenly spaced rows, which detects a changed tensor without reading all of it."""
    rows = np.unique(np.linspace(0, max(0, len(weights) - 1), SAMPLED_ROWS).astype(np.int64))
    return hashlib.sha256(np.ascontiguousarray(weights[rows[: len(weights)]]).tobytes()).hexdigest()[:32]


def exact_weights(weights: object, n_features: int, n_vectors: int) -> Array:
    """Check the weights of a shortlist against its head."""
    array = as_signals(weights, n_features=n_features, name="weights")
    if len(array) != n_vectors:
        raise ValueError(f"a shortlist needs the weights of all {n_vectors} weight vectors, got {len(array)}")
    return array
