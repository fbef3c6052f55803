"""Matrices and products as the kernels take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arrays import Float32, Int64

PANEL = 32  # columns that stand together in memory


@dataclass(frozen=True, eq=False)
class Panels:
    """A matrix that signals are multiplied with, in panels of columns."""

    values: Float32  # (n_panels, n_features, 32); columns after the last are zeros
    n_columns: int

    @classmethod
    def of(cls, columns: Float32) -> Panels:
        """Return the matrix with these columns, (n_columns, n_features)."""
        n_columns, n_features = columns.shape
        padded = np.zeros((-(-n_columns // PANEL) * PANEL, n_features), np.float32)
        padded[:n_columns] = columns
        return cls(np.ascontiguousarray(padded.reshape(-1, PANEL, n_features).transpose(0, 2, 1)), n_columns)


@dataclass(frozen=True, eq=False)
class Product:
    """A product of signals with a matrix, computed together with others."""

    panels: Panels
    minus: Float32 | None = None  # (n_features,), subtracted from the signals
    rows: Int64 | None = None  # signals that are multiplied; None: all
    out: Float32 | None = None  # where the product is written, in C order; None: a new array
