"""Measured points, progress callbacks and conversion to JSON, shared by the parts of the reproduction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .._arrays import Float64
from .._checks import check_count

Advance = Callable[[float], None]
"""Progress callback; its argument is the completed fraction."""


def unwatched(fraction: float) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class Points:
    """Means over independent draws, with standard errors and exact values."""

    x: Float64
    measured: Float64
    standard_error: Float64
    exact: Float64

    @classmethod
    def of(cls, x: Float64, samples: list[Float64], exact: Float64) -> Self:
        """Return the points of values with one row per draw."""
        rows = np.array(samples)
        return cls(x, rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows)), exact)

    @property
    def deviations(self) -> Float64:
        """Measured minus exact, in standard errors."""
        return (self.measured - self.exact) / self.standard_error


def signs_of(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Return +1 for true and -1 for false; products of such rows are the equal minus the different bits."""
    return np.where(bits, np.float32(1), np.float32(-1))


def kept_signs(projected: npt.NDArray[np.float32], n_bits: int) -> npt.NDArray[np.float32]:
    """Return adaptive codes as rows of +1, -1 and 0, from the projections of their references.

    Matrix products with these rows give the scores. With signs of queries the product is ``n_bits`` minus twice the
    mismatches. Ties are resolved in favour of the lower row, as in encoders.
    """
    locations = np.argsort(-np.abs(projected), axis=1, kind="stable")[:, :n_bits]
    signs = np.zeros(projected.shape, np.float32)
    np.put_along_axis(signs, locations, np.where(np.take_along_axis(projected, locations, axis=1) >= 0, 1, -1), axis=1)
    return signs


def grouped_signs(projected: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return grouped codes as rows of +1, -1 and 0; the number of projections is a multiple of eight."""
    return kept_signs(projected.reshape(-1, 8), 1).reshape(projected.shape)


def check_draws(n_draws: object, name: str = "n_draws") -> int:
    """Return the number of draws; raise ValueError below two, because a standard error needs at least two."""
    return check_count(n_draws, name, minimum=2)


def plain(value: Any) -> Any:
    """Convert dataclasses and arrays to JSON values; NaN and infinity become null, and a class its name."""
    if isinstance(value, type):
        return value.__name__
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
