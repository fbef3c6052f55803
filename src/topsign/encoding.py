"""Encoding: the loop that reads, checks and encodes signals block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from ._arrays import Array, Bytes, Float32
from .families import Recipe
from .projections import Projection
from .projections.blocks import Block, float_blocks


class BlockEncoder(Protocol):
    """Encoder of one recipe on another device, with the same bytes as the recipe's own."""

    def encode(self, block: Block) -> Bytes:
        """Return the codes of a block: see :meth:`topsign.families.Recipe.encode`."""


def encode(
    recipe: Recipe,
    signals: Array,
    *,
    part: slice | None = None,
    name: str = "signals",
    allow_zero: bool = False,
    encoder: BlockEncoder | None = None,
    observe: Callable[[Block], None] | None = None,
) -> Bytes:
    """Return codes of signals, or of a part of them; error messages name rows of the whole array.

    Signals are read block by block, so memory maps may be larger than memory. A zero signal raises ValueError, because
    it has no direction; with ``allow_zero`` it gets an arbitrary code. ``observe`` is called with every block.
    """
    first, end, _ = (part or slice(None)).indices(len(signals))
    codes = np.empty((end - first, recipe.code_bytes), np.uint8)
    n_rows, center = recipe.encoded_signals, recipe.center
    for block in float_blocks(signals, n_rows, part=slice(first, end), minus=center, name=name):
        if not allow_zero:
            _check_directions(recipe, block)
        if observe is not None:
            observe(block)
        rows = slice(block.rows.start - first, block.rows.stop - first)
        codes[rows] = (encoder or recipe).encode(block)
    return codes


def check_signals(recipe: Recipe, signals: Array, *, part: slice) -> None:
    """Raise the errors of :func:`encode` for unusable signals, without encoding."""
    for block in float_blocks(signals, recipe.encoded_signals, part=part, minus=recipe.center):
        _check_directions(recipe, block)


def project_blocks(projection: Projection, signals: Array) -> Iterator[tuple[Block, Float32]]:
    """Yield blocks of signals with their projections, which the next block overwrites."""
    n_rows = projection.block_signals
    projected = np.empty((min(n_rows, len(signals)), projection.n_pool), np.float32)
    for block in float_blocks(signals, n_rows):
        here = projected[: len(block.values)]
        projection.project_block(block.values, None, here)
        yield block, here


def _check_directions(recipe: Recipe, block: Block) -> None:
    if np.count_nonzero(block.square_norms) < len(block.square_norms):
        signal = block.row(int(np.argmin(block.square_norms)))
        why = "is all zeros" if recipe.center is None else "equals the mean that center=True removes"
        raise ValueError(f"{signal} {why} and cannot be encoded; drop that row")
