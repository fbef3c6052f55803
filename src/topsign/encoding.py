"""Signals to codes: the one loop that projects, selects and packs, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from . import kernels
from ._arrays import Array, Bytes, Float32, Float64
from ._checks import as_signals
from .kernels import TrellisTables
from .kernels.tables import pack_norms
from .projections import Projection
from .projections.blocks import Block, float_blocks
from .recipe import Recipe

MIN_TOTAL = 1e-5
"""Least sum of kept magnitudes of a signal of norm one; a normal signal's is about ``n_bits``."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Packed codes of consecutive signals, and what is kept beside them."""

    codes: Bytes  # (n_signals, code_bytes)
    norms: Float32 | None  # (n_signals,), where the recipe keeps them
    scales: Float32 | None  # |u|**2 over the sum of the kept |projections|

    def rows(self, part: slice) -> Encoded:
        """Those of some of the signals."""
        norms, scales = (None if one is None else one[part] for one in (self.norms, self.scales))
        return Encoded(self.codes[part], norms, scales)


class Coder(Protocol):
    """Makes codes elsewhere than on this processor, with the bytes that its kernels make."""

    def adaptive_encode(self, values: Float32) -> tuple[Bytes, Float64]:
        """Adaptive codes of signals, and the sums of the magnitudes that they keep."""

    def trellis_encode(self, tables: TrellisTables, values: Float32, *, n_threads: int = 1) -> Bytes:
        """Trellis codes of coordinates, as :meth:`topsign.kernels.trellis.TrellisKernels.trellis_encode` makes them."""


def encode(
    recipe: Recipe,
    signals: Array,
    *,
    part: slice | None = None,
    n_threads: int | None = None,
    name: str = "signals",
    allow_zero: bool = False,
    coder: Coder | None = None,
) -> Encoded:
    """Codes of signals, or of a part of them, made by this processor or by a coder; errors name the row of the whole.

    Signals are read block by block, so that a memory map larger than memory is fine. A zero signal raises, because all
    its projections tie; with ``allow_zero`` it gets some code, and scale zero.
    """
    threads = kernels.n_threads(n_threads)
    first, end, _ = (part or slice(None)).indices(len(signals))
    if recipe.family == "trellis":
        return _encode_trellis(recipe, signals, slice(first, end), threads, name, allow_zero, coder or kernels.active())
    codes = np.empty((end - first, recipe.layout.code_bytes), np.uint8)
    norms, scales = np.empty((2, end - first), np.float32)
    for block, values in _blocks_for(recipe, signals, slice(first, end), threads, name, coder):
        rows = slice(block.rows.start - first, block.rows.stop - first)
        zeros = np.flatnonzero(block.square_norms == 0)
        if zeros.size and not allow_zero:
            _raise_zero_signal(block.rows.start + int(zeros[0]), name, centered=recipe.mean is not None)
        codes[rows], totals = _packed(recipe, values, threads) if coder is None else coder.adaptive_encode(values)
        norms[rows] = np.sqrt(block.square_norms)
        # Totals near zero: the pool has next to nothing of this signal, and scales would not be finite.
        empty = np.flatnonzero((totals <= MIN_TOTAL * norms[rows]) & (block.square_norms > 0))
        if empty.size:
            _raise_no_projections(block.rows.start + int(empty[0]), name, recipe)
        scales[rows] = np.divide(block.square_norms, totals, out=np.zeros(len(totals)), where=totals > 0)
    return Encoded(codes, norms, scales) if recipe.norms else Encoded(codes, None, None)


def check_signals(recipe: Recipe, signals: Array, *, part: slice, n_threads: int) -> None:
    """Raises what :func:`encode` would raise of signals that cannot be used, without encoding any."""
    n_rows, trellis = recipe.projection.block_signals, recipe.family == "trellis"
    mean = None if trellis else recipe.mean
    for block in float_blocks(signals, n_rows, part=part, minus=mean, n_threads=n_threads):
        zeros = block.rows.start + np.flatnonzero(block.square_norms == 0)
        if zeros.size and trellis:
            _raise_no_direction(int(zeros[0]), "signals")
        if zeros.size:
            _raise_zero_signal(int(zeros[0]), "signals", centered=mean is not None)


def mean_signal(values: object, part: slice | None = None) -> Float32:
    """The mean of signals, summed in double precision block by block; one that is not finite raises with its row."""
    signals = as_signals(values)
    first, end, _ = (part or slice(None)).indices(len(signals))
    total = np.zeros(signals.shape[1])
    for block in float_blocks(signals, max(1, 2**21 // max(1, signals.shape[1])), part=slice(first, end)):
        total += block.values.sum(axis=0, dtype=np.float64)
    return (total / max(1, end - first)).astype(np.float32)


def project(
    recipe: Recipe,
    queries: Array,
    *,
    part: slice | None = None,
    n_threads: int | None = None,
    name: str = "queries",
) -> tuple[Float32, Float64]:
    """Real projections of queries on the pool, (n_queries, n_pool), and the norms of the queries.

    Of all queries or of a part of them; errors name the row of the whole. For trellis codes the projections are those
    of unit queries, from which no mean is removed.
    """
    threads, projection = kernels.n_threads(n_threads), recipe.projection
    first, end, _ = (part or slice(None)).indices(len(queries))
    out, norms = np.empty((end - first, recipe.n_pool), np.float32), np.empty(end - first)
    n_rows = projection.block_signals
    trellis = recipe.family == "trellis"
    mean = None if trellis else recipe.mean
    for block in float_blocks(queries, n_rows, part=part, minus=mean, n_threads=threads, name=name):
        rows = slice(block.rows.start - first, block.rows.stop - first)
        projection.project_block(unit_rows(block) if trellis else block.values, None, out[rows], threads)
        norms[rows] = np.sqrt(block.square_norms)
    return out, norms


def project_blocks(
    projection: Projection,
    signals: Array,
    *,
    part: slice | None = None,
    mean: Float32 | None = None,
    n_threads: int | None = None,
    name: str = "signals",
) -> Iterator[tuple[Block, Float32]]:
    """Blocks of signals with their projections, which the next block overwrites."""
    threads, n_rows = kernels.n_threads(n_threads), projection.block_signals
    projected = np.empty((min(n_rows, len(signals)), projection.n_pool), np.float32)
    for block in float_blocks(signals, n_rows, part=part, minus=mean, n_threads=threads, name=name):
        here = projected[: len(block.values)]
        projection.project_block(block.values, None, here, threads)
        yield block, here


def unit_rows(block: Block) -> Float32:
    """Signals of a block over their norms; zero signals stay zero."""
    norms = np.sqrt(block.square_norms)
    inverse = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0).astype(np.float32)
    return block.values * inverse[:, np.newaxis]


def _encode_trellis(
    recipe: Recipe,
    signals: Array,
    part: slice,
    threads: int,
    name: str,
    allow_zero: bool,
    coder: Coder | kernels.Kernels,
) -> Encoded:
    """Trellis codes, each with its norm at the end where norms are kept."""
    codes = np.empty((part.stop - part.start, recipe.layout.code_bytes), np.uint8)
    for block in float_blocks(signals, recipe.projection.block_signals, part=part, n_threads=threads, name=name):
        start = block.rows.start - part.start
        zeros = np.flatnonzero(block.square_norms == 0)
        if zeros.size and not allow_zero:
            _raise_no_direction(block.rows.start + int(zeros[0]), name)
        values = unit_rows(block)
        for cell, places in recipe.cells.of_signals(values):
            made = coder.trellis_encode(cell.tables, cell.coordinates(values[places], threads), n_threads=threads)
            codes[start + places] = recipe.cells.mark(made, cell)
        if recipe.norms:
            codes[start : start + len(values), -2:] = pack_norms(np.sqrt(block.square_norms))
    return Encoded(codes, None, None)


def _blocks_for(
    recipe: Recipe, signals: Array, part: slice, threads: int, name: str, coder: Coder | None
) -> Iterator[tuple[Block, Float32]]:
    """Blocks of signals with what codes are made of: projections, or the signals themselves for a coder."""
    if coder is None:
        yield from project_blocks(recipe.projection, signals, part=part, mean=recipe.mean, n_threads=threads, name=name)
        return
    n_rows = recipe.projection.block_signals
    for block in float_blocks(signals, n_rows, part=part, minus=recipe.mean, n_threads=threads, name=name):
        yield block, block.values


def _packed(recipe: Recipe, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
    """Codes of projections, and the sums of the magnitudes that they keep."""
    chosen = kernels.active()
    if recipe.family == "sign":
        totals = chosen.magnitude_sums(projected, n_threads=n_threads)
        return chosen.pack_bits(projected, n_threads=n_threads), totals
    locations, signs, totals = chosen.select(projected, recipe.n_bits, n_threads=n_threads)
    return chosen.pack_codes(recipe.layout, locations, signs, n_threads=n_threads), totals


def _raise_no_projections(row: int, name: str, recipe: Recipe) -> NoReturn:
    raise ValueError(
        f"{name} row {row}: all its kept projections are zero on this {recipe.projection.kind} pool of "
        f"{recipe.n_pool}, so its code says nothing; take a larger n_pool or a dense projection, or drop that row"
    )


def _raise_no_direction(row: int, name: str) -> NoReturn:
    raise ValueError(f"{name} row {row} is zero: it has no direction; drop that row")


def _raise_zero_signal(row: int, name: str, *, centered: bool) -> NoReturn:
    why = "equals the mean that center=True removes" if centered else "is zero"
    raise ValueError(
        f"{name} row {row} {why}: all its projections tie, so it cannot be its own reference; drop that row"
    )
