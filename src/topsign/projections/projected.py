"""Projected queries that carry the identifier of their projection."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._arrays import Float32


class Space(Protocol):
    """Anything with a ``space``, a projection or a recipe; codes and queries must share it to be comparable."""

    @property
    def space(self) -> str: ...


class Projected(np.ndarray[Any, np.dtype[np.float32]]):
    """Array of projections that keeps its space, also through slicing and arithmetic."""

    source: Space | None = None

    def __array_finalize__(self, made_from: object) -> None:
        self.source = getattr(made_from, "source", None)

    @classmethod
    def of(cls, values: Float32, source: Space) -> Projected:
        """Return a view of the values that carries their space."""
        projected = values.view(cls)
        projected.source = source
        return projected

    @property
    def space(self) -> str | None:
        """Digest of the projection and of the subtracted mean, or None if unknown."""
        return None if self.source is None else self.source.space
