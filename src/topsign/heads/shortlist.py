"""Shortlists: exact logits, from the weights themselves, of the classes with the highest estimated logits.

Weights are kept as given (in memory or memory-mapped), or converted to float16 or to int8 with a scale per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array, Float32, Float64, Int64
from .._checks import as_signals, check_choice, check_count
from .._files import Record

STORAGES = ("original", "float16", "int8")


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Weights of all classes, and the number of classes per input that they rank."""

    size: int
    weights: Array  # (n_vectors, n_features): floats or int8 rows
    row_scales: Float32 | None = None  # (n_vectors,) of int8 rows

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

    @property
    def storage(self) -> str:
        """Description of the storage of the weights."""
        return "int8" if self.row_scales is not None else str(self.weights.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self.weights.nbytes + (0 if self.row_scales is None else self.row_scales.nbytes)

    def products(self, signals: Array, rows: Int64) -> Float64:
        """Return the inner products of each signal with its own rows of the weights, in the shape of ``rows``."""
        products = [self.rows(chosen) @ signal for chosen, signal in zip(rows, signals, strict=True)]
        return np.stack(products) if products else np.empty(rows.shape)

    def rows(self, chosen: Array) -> Array:
        """Return some weight vectors as floats."""
        rows = self.weights[chosen]
        if self.row_scales is not None:
            return rows * self.row_scales[chosen][:, np.newaxis]
        return rows if rows.dtype.itemsize > 2 else rows.astype(np.float32)

    # Files

    def to_file(self) -> tuple[Record, dict[str, Array]]:
        """Return the record and arrays of a head file."""
        record: Record = {"size": self.size, "storage": self.storage}
        scales: dict[str, Array] = {} if self.row_scales is None else {"weight_scales": self.row_scales}
        return record, {"weights": self.weights} | scales

    @classmethod
    def from_file(cls, record: Any, arrays: dict[str, Array], shape: tuple[int, int]) -> Self:
        """Read the shortlist of a head file; raise ValueError if its parts are inconsistent."""
        size = check_count(record["size"], "shortlist")
        weights, scales = arrays["weights"], arrays.get("weight_scales")
        if weights.shape != shape or weights.dtype.kind not in "fiu":
            raise ValueError(f"weights must be numbers of shape {shape}, got {weights.dtype} of shape {weights.shape}")
        if scales is not None and (scales.shape != shape[:1] or scales.dtype != np.float32):
            raise ValueError(f"weight_scales must be float32 of shape {shape[:1]}, got {scales.dtype} {scales.shape}")
        if not np.isfinite(weights).all() or (scales is not None and not np.isfinite(scales).all()):
            raise ValueError("weights holds NaN or infinity")
        return cls(size, weights, scales)


def exact_weights(weights: object, n_features: int, n_vectors: int) -> Array:
    """Check the weights of a shortlist against its head."""
    array = as_signals(weights, n_features=n_features, name="weights")
    if len(array) != n_vectors:
        raise ValueError(f"a shortlist needs the weights of all {n_vectors} weight vectors, got {len(array)}")
    return array
