"""Weight vectors and inputs as the scores compare them: projections, packed signs, universal or trellis codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32
from ..codes import reconstruct, universal_bits, universal_dither
from ..encoding import encode, project, project_blocks
from ..kernels import RoundedQueries
from ..kernels.tables import pack_norms
from ..projections import Projection
from ..projections.blocks import float_blocks
from ..recipe import Recipe


@dataclass(frozen=True)
class Universal:
    """Quantisation of the universal embedding, which codes rows scaled to length one."""

    step: float
    dither: bool

    def blocks(self, projection: Projection, signals: Array, name: str) -> Iterator[tuple[slice, Bytes, Float32]]:
        """Blocks of rows with their packed codes and norms; a zero row stays zero."""
        n_bits, threads = projection.n_pool, kernels.n_threads(None)
        dither = universal_dither(projection.seed, n_bits, self.step) if self.dither else np.zeros(n_bits)
        for block in float_blocks(signals, projection.block_signals, name=name):
            norms = np.sqrt(block.square_norms).astype(np.float32)
            units = (block.values / np.where(norms > 0, norms, 1)[:, np.newaxis]).astype(np.float32)
            projected = np.empty((len(units), n_bits), np.float32)
            projection.project_block(units, None, projected, threads)
            yield block.rows, universal_bits(projected, dither, self.step), norms


def encode_weights(recipe: Recipe, universal: Universal | None, weights: Array) -> tuple[Bytes, Float32 | None]:
    """Codes of weight vectors, read block by block, and scales that are zero for zero vectors alone.

    Trellis codes have their scales inside, as norms: of a weight vector and its reconstruction r of norm one,
    ``|w|**2 / <w, r>``, so that logits are estimated without bias.
    """
    if recipe.family == "trellis":
        return _encode_trellis(recipe, weights), None
    if universal is None:
        made = encode(recipe, weights, allow_zero=True, name="weights")
        assert made.scales is not None
        return made.codes, made.scales
    parts = [part[1:] for part in universal.blocks(recipe.projection, weights, "weights")]
    codes, norms = (np.concatenate(part) for part in zip(*parts, strict=True))
    return codes, norms


def _encode_trellis(recipe: Recipe, weights: Array) -> Bytes:
    codes = encode(recipe, weights, allow_zero=True, name="weights").codes
    for block in float_blocks(weights, recipe.projection.block_signals, name="weights"):
        products = (reconstruct(recipe, codes[block.rows]) * block.values).sum(axis=1, dtype=np.float64)
        scales = np.divide(block.square_norms, products, out=np.zeros(len(products)), where=products > 0)
        codes[block.rows, -2:] = pack_norms(scales)
    return codes


def trellis_queries(recipe: Recipe, signals: Array, name: str) -> Iterator[tuple[slice, RoundedQueries]]:
    """Blocks of inputs as the kernels of trellis codes take them, with their norms in scales and constants."""
    for start in range(0, len(signals), recipe.projection.block_signals):
        rows = slice(start, min(start + recipe.projection.block_signals, len(signals)))
        yield rows, rounded_inputs(recipe, signals, name, part=rows)


def rounded_inputs(recipe: Recipe, signals: Array, name: str, *, part: slice | None = None) -> RoundedQueries:
    """Inputs, or a part of them, as the kernels of trellis codes of one basis take them."""
    (cell,) = recipe.cells
    projected, norms = project(recipe, signals, part=part, name=name)
    queries, lengths = cell.round(projected), norms.astype(np.float32)
    return replace(queries, scales=queries.scales * lengths, constants=queries.constants * lengths)


def query_blocks(
    recipe: Recipe, universal: Universal | None, scoring: str, signals: Array, name: str
) -> Iterator[tuple[slice, Any]]:
    """Blocks of inputs with what their scores compare: real projections for logits, packed bits for Hamming scores."""
    if universal is not None:
        yield from ((rows, bits) for rows, bits, _ in universal.blocks(recipe.projection, signals, name))
        return
    if recipe.family == "trellis":
        yield from trellis_queries(recipe, signals, name)
        return
    threads = kernels.n_threads(None)
    for block, projected in project_blocks(recipe.projection, signals, n_threads=threads, name=name):
        signs = scoring == "hamming"
        yield block.rows, kernels.active().pack_bits(projected, n_threads=threads) if signs else projected
