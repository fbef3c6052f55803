"""Weight vectors of heads as trellis codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ... import kernels
from ..._arrays import Array, Float32, Int64
from ..._checks import check_choice, check_count
from ..._random import RandomState
from ...kernels import QueriedCells, TrellisRange
from ...kernels.trellis import NORM_BITS, pack_norms
from ...projections import Projection
from ...projections.blocks import Block
from ..base import Encoded
from ..weight_coding import Logits, WeightCoding, isotropic_error, unbiased_scales
from .codes import cosines, unpacked_norms
from .recipe import BASES, TrellisRecipe

Made = TypeVar("Made", bound=TrellisRecipe)


def learn_weights(
    family: type[Made],
    weights: Array,
    *,
    n_bits: int | None = None,
    n_bytes: int | None = None,
    n_pool: int | None = None,
    projection: str | Projection | None = None,
    layout: str | None = None,
    random_state: RandomState = None,
) -> Made:
    """Return a recipe of ``n_bits`` bits and two bytes for a scale, over a random basis or principal axes."""
    if n_pool not in (None, weights.shape[1]) or layout is not None:
        raise ValueError(f'n_pool and layout do not go with family="trellis", got n_pool={n_pool}, layout={layout!r}')
    basis = "hadamard" if projection is None else projection
    if not isinstance(basis, Projection):
        check_choice(basis, "projection", BASES)
    return family.learn(
        weights,
        n_bits=check_count(n_bits, "n_bits") if n_bytes is None else 8 * n_bytes - NORM_BITS,
        basis=basis,
        center=basis == "principal",
        norms=True,
        fine=False,
        random_state=random_state,
    )


@dataclass(frozen=True, eq=False)
class TrellisWeights(WeightCoding):
    """Codes whose norms are scales.

    The scale of a weight vector w and its reconstruction r of norm one is ``|w|**2 / <w, r>``.
    """

    recipe: TrellisRecipe

    def __post_init__(self) -> None:
        if not self.recipe.norms or self.recipe.n_local > 1:
            raise ValueError("a head needs trellis codes of one basis with norms")

    def encode_block(self, block: Block, *, n_threads: int) -> Encoded:
        codes = self.recipe.encode(block, n_threads=n_threads).codes
        codes[:, -2:] = pack_norms(unbiased_scales(block, self.recipe.directions(codes)))
        return Encoded(codes, {})

    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        projected, norms = self.recipe.project(inputs, part=part, n_threads=n_threads, name=name)
        queries, lengths = self.recipe.cells.round(projected, n_threads=n_threads), norms.astype(np.float32)
        scaled = replace(queries, scales=queries.scales * lengths, constants=queries.constants * lengths)
        return TrellisLogits(QueriedCells(self.recipe.cells.tables, scaled, norms=True))

    def decode(self, weights: Encoded) -> Float32:
        return self.recipe.directions(weights.codes) * unpacked_norms(weights.codes)[:, np.newaxis]

    def error(self, weights: Array) -> float:
        """Return the error (approximation: errors are isotropic and orthogonal to the weights)."""
        return isotropic_error(self.recipe.reconstruction_cosine, self.recipe.n_features)


@dataclass(frozen=True, eq=False)
class TrellisLogits(Logits):
    """Rounded inputs, with their norms in scales and constants."""

    cells: QueriedCells  # one

    def __len__(self) -> int:
        return self.cells.queries.n_queries

    def values(self, weights: Encoded, *, n_threads: int) -> Float32:
        (tables,), (queries,) = self.cells.tables.cells, self.cells.queries
        return cosines(tables, weights.codes, queries, n_threads=n_threads, norms=unpacked_norms(weights.codes))

    def rank(self, weights: Encoded, k: int, *, n_threads: int) -> tuple[Int64, Float32]:
        return kernels.active().rank_trellis(self.cells, [TrellisRange(weights.codes)], k, n_threads=n_threads)

    def within(self, weights: Encoded, bounds: Float32, *, n_threads: int) -> tuple[Int64, Int64, Float32]:
        return kernels.active().within_trellis(self.cells, [TrellisRange(weights.codes)], bounds, n_threads=n_threads)
