"""Projections of queries that know what they were made with."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._arrays import Float32


class Space(Protocol):
    """A projection, or a recipe: what codes and queries must share to be compared."""

    @property
    def space(self) -> str: ...


class Projected(np.ndarray[Any, np.dtype[np.float32]]):
    """An array of projections that remembers its space, through slices and arithmetic too."""

    source: Space | None = None

    def __array_finalize__(self, made_from: object) -> None:
        self.source = getattr(made_from, "source", None)

    @classmethod
    def of(cls, values: Float32, source: Space) -> Projected:
        """The same values, with their space."""
        projected = values.view(cls)
        projected.source = source
        return projected

    @property
    def space(self) -> str | None:
        """Digest of the projection and of the mean that was removed; None where it is not known."""
        return None if self.source is None else self.source.space
