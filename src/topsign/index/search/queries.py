"""Queries as scans read them: checked, projected and packed once per search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64
from ..._checks import check_count
from ..._lazy import lazy
from ...encoding import project
from ...recipe import Recipe

QUERY_BYTES = 2**26
"""Projections of queries held at a time."""


@dataclass(frozen=True, eq=False)
class Queries:
    """A block of prepared queries."""

    projected: Float32  # (n_queries, n_pool); zero outside the masks
    norms: Float64  # (n_queries,)
    masks: Bytes | None = None  # (n_queries, ceil(n_pool / 8)), the rows of the pool that a query keeps; None: all

    def __len__(self) -> int:
        return len(self.projected)

    @lazy
    def bits(self) -> Bytes:
        """Packed signs of the projections."""
        return kernels.active().pack_bits(self.projected, n_threads=kernels.n_threads(None))

    def keep_largest(self, n_kept: int, n_threads: int) -> Queries:
        """The same queries, each with only its ``n_kept`` largest projections."""
        locations, _, _ = kernels.active().select(self.projected, n_kept, n_threads=n_threads)
        kept = np.zeros(self.projected.shape, bool)
        np.put_along_axis(kept, locations, True, axis=1)
        projected = np.where(kept, self.projected, np.float32(0))
        return Queries(projected, self.norms, np.packbits(kept, axis=1, bitorder="little"))


def check_kept(recipe: Recipe, adaptive_bits: object) -> int | None:
    """Projections that each query keeps, checked; None keeps all."""
    if adaptive_bits is None:
        return None
    if recipe.family != "sign":
        raise ValueError("adaptive_bits goes with a sign index; each entry of this one chose its own projections")
    return check_count(adaptive_bits, "adaptive_bits", maximum=recipe.n_pool)


def prepare_queries(
    recipe: Recipe, queries: Array, *, n_kept: int | None, n_threads: int, n_bytes: int | None = None
) -> Iterator[tuple[slice, Queries]]:
    """Blocks of prepared queries, ``n_bytes`` of projections at a time; bad queries raise with their row."""
    n_rows = max(1, (n_bytes or QUERY_BYTES) // (4 * max(recipe.projection.shape)))
    for start in range(0, len(queries), n_rows):
        rows = slice(start, min(start + n_rows, len(queries)))
        prepared = Queries(*project(recipe, queries, part=rows, n_threads=n_threads))
        yield rows, prepared if n_kept is None else prepared.keep_largest(n_kept, n_threads)
