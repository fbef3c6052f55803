"""What the parts of the reproduction share: measured points, and their way into JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

import numpy as np

from .._checks import check_count
from ..theory.order_statistics import Floats

Advance = Callable[[float], None]
"""Told after every piece of work, with the fraction that is done."""


def unwatched(fraction: float) -> None:
    """For those who do not wait."""


@dataclass(frozen=True)
class Points:
    """Means over independent draws with their standard errors, beside what is exact."""

    x: Floats
    measured: Floats
    standard_error: Floats
    exact: Floats

    @classmethod
    def of(cls, x: Floats, samples: list[Floats], exact: Floats) -> Self:
        """From one row of values a draw."""
        rows = np.array(samples)
        return cls(x, rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows)), exact)

    @property
    def deviations(self) -> Floats:
        """Of the measured from the exact, in standard errors."""
        return (self.measured - self.exact) / self.standard_error


def check_draws(n_draws: object, name: str = "n_draws") -> int:
    """At least two, or there is no standard error."""
    return check_count(n_draws, name, minimum=2)


def plain(value: Any) -> Any:
    """Dataclasses and arrays as the dictionaries, lists and numbers that JSON has; what is not a number as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return None if isinstance(value, float) and np.isnan(value) else value
