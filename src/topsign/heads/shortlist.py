"""Shortlists: exact logits of the classes that codes find best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from .._arrays import Array, Float64, Int64


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Original weights, in memory or memory-mapped, and how many classes of each input they decide among."""

    size: int
    weights: Array  # (n_vectors, n_features)

    def products(self, signals: Array, rows: Int64) -> Float64:
        """Exact inner products of each signal with its own rows of the weights, the shape of ``rows``."""
        return np.stack([self.weights[chosen] @ signal for chosen, signal in zip(rows, signals, strict=True)])

    def extended(self, weights: Array) -> Self:
        """With more rows; a memory map is in memory from here on."""
        return replace(self, weights=np.concatenate([self.weights, weights]))

    def kept(self, rows: Array) -> Self:
        """With some of the rows alone."""
        return replace(self, weights=self.weights[rows])
