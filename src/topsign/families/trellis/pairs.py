"""Exact cosines between the reconstructions of trellis codes, computed in integers.

A reconstruction is rounded to multiples of ``2**-23``. Inner products of such vectors are integers below ``2**53``,
which float64 sums exactly in any order. The score of a pair therefore does not depend on the order of the pair, the
block size or the machine. Equal codes score exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64, Int64
from ..blocks import grouped, rank_blocks
from ..comparison import Pairing, Range
from .cells import Cell, LocalCell, WholeCell
from .recipe import TrellisRecipe

UNIT = 2.0**23  # integer that represents a length of one
FINER = 2.0**10  # factor by which axes of local cells are rounded more finely than reconstructions
COMPARED_BYTES = 2**22  # bytes of reconstructions per block
MANY = 64  # if more than 1 in 64 pairs is needed, a matrix product is faster than single products


@dataclass(frozen=True, eq=False)
class TrellisPairing(Pairing):
    """Pairing by the cosine of reconstructions.

    The values of the levels are computed once and sent to the workers of a cluster, because the last digits of BLAS and
    LAPACK results depend on the machine and the number of threads, and all workers must round the same numbers.
    """

    recipe: TrellisRecipe
    cells: list[ReconstructionTable]

    @classmethod
    def of(cls, recipe: TrellisRecipe) -> TrellisPairing:
        """Return the pairing of a recipe's codes."""
        return cls(recipe, [_table(cell) for cell in recipe.cells])

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_features

    def prepare(self, codes: Bytes, columns: Mapping[str, Float32], *, n_threads: int) -> CosineComparison:
        return CosineComparison(self, self.reconstruct(codes))

    def scores(self, values: Array) -> Float64:
        return np.asarray(values, np.float64)

    def bound(self, score: float) -> float:
        return score

    def reconstruct(self, codes: Bytes) -> Reconstructions:
        """Return the reconstructions of codes in integers."""
        rows = np.empty((len(codes), len(self.cells[0].middle)))
        for cell, positions in self.recipe.cells.of_codes(codes):
            levels = kernels.active().trellis_decode(cell.tables, codes[positions], n_threads=kernels.n_threads(None))
            rows[positions] = self.cells[cell.number].reconstruct(levels)
        return Reconstructions(rows)


@dataclass(frozen=True, eq=False)
class CosineComparison:
    """Codes of some entries, prepared for comparison with others."""

    pairing: TrellisPairing
    mine: Reconstructions

    def __len__(self) -> int:
        return len(self.mine.rows)

    def rank(self, ranges: Sequence[Range], k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return rank_blocks(self._nearest(ranges, k), len(self), k)

    def _nearest(self, ranges: Sequence[Range], k: int) -> Iterator[tuple[Int64, Int64, Float64]]:
        """Yield ids, rows and cosines of blocks; -inf instead of those that are not among the k largest."""
        for ids, rows, theirs in self._blocks(ranges):
            query, column = self.mine.near(theirs, -1.0, k)
            values = np.full((len(self), len(rows)), -np.inf)
            values[query, column] = self.mine.cosines(theirs, query, column)
            yield ids, rows, values

    def within(self, ranges: Sequence[Range], bounds: Array, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        least = float(bounds.min(initial=np.inf))
        queries, rows, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
        for _, some_rows, theirs in self._blocks(ranges):
            query, column = self.mine.near(theirs, least, None)
            cosines = self.mine.cosines(theirs, query, column)
            kept = cosines >= bounds[query]
            queries.append(query[kept])
            rows.append(some_rows[column[kept]])
            values.append(cosines[kept])
        return grouped(np.concatenate(queries), np.concatenate(rows), np.concatenate(values), len(self))

    def _blocks(self, ranges: Sequence[Range]) -> Iterator[tuple[Int64, Int64, Reconstructions]]:
        """Yield ids, rows and reconstructions of the entries of all ranges."""
        n_rows = max(1, COMPARED_BYTES // max(1, self.mine.rows[:1].nbytes))
        for one in ranges:
            for positions in one.blocks(n_rows):
                codes = np.ascontiguousarray(one.columns.codes[positions])
                yield one.columns.ids[positions], one.first_row + positions, self.pairing.reconstruct(codes)


class Reconstructions:
    """Block of reconstructions that others are compared with."""

    def __init__(self, rows: Float64) -> None:
        self.rows = rows  # whole numbers
        self.squares = np.einsum("ij,ij->i", rows, rows)
        lengths = np.sqrt(self.squares)[:, np.newaxis]
        self.units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float32)

    def near(self, others: Reconstructions, least: float, k: int | None) -> tuple[Int64, Int64]:
        """Return a superset of the rows and columns with cosines of at least ``least``, or of the k largest per row.

        Computed in float32 with a margin for the rounding error of inner products of unit vectors in any order.
        """
        cosines = self.units @ others.units.T
        error = (self.rows.shape[1] + 4) * 2.0**-23
        limits = np.full((len(cosines), 1), least - error, np.float32)
        if k is not None:
            n_left = max(0, len(others.rows) - k)
            limits = np.partition(cosines, n_left, axis=1)[:, [n_left]] - np.float32(2 * error)
        return np.nonzero(cosines >= limits)  # type: ignore[return-value]

    def cosines(self, others: Reconstructions, rows: Int64, columns: Int64) -> Float64:
        """Return exact cosines; the square root of a squared integer is exact, so equal codes give 1."""
        lengths = np.sqrt(self.squares[rows] * others.squares[columns])
        products, zeros = self._products(others, rows, columns), np.zeros(len(rows))
        return np.asarray(np.divide(products, lengths, out=zeros, where=lengths > 0))

    def _products(self, others: Reconstructions, rows: Int64, columns: Int64) -> Float64:
        if MANY * len(rows) > len(self.rows) * len(others.rows):
            return np.asarray((self.rows @ others.rows.T)[rows, columns])
        products, n_rows = np.empty(len(rows)), max(1, COMPARED_BYTES // self.rows[:1].nbytes)
        for start in range(0, len(rows), n_rows):
            part = slice(start, start + n_rows)
            products[part] = np.einsum("ij,ij->i", self.rows[rows[part]], others.rows[columns[part]])
        return products


@dataclass(frozen=True, eq=False)
class ReconstructionTable:
    """Reconstruction of the levels of one cell.

    If the whole space is one cell, coordinates in its basis replace signals: ``steps`` are the values of a level of one
    in each coordinate, and an additional coordinate holds the part of the mean outside the coded ones. For a local
    cell, ``steps`` are the axes scaled by these values.
    """

    steps: Any  # (n_coded,) float64, or (n_coded, n_features) int32
    middle: Float64  # the mean

    def reconstruct(self, levels: Any) -> Float64:
        """Return the reconstructions of levels as whole numbers."""
        if self.steps.ndim == 2:
            sums = levels.astype(np.float64) @ self.steps.astype(np.float64)
            return np.asarray(np.rint(sums / FINER + self.middle))
        rows = np.tile(self.middle, (len(levels), 1))
        rows[:, :-1] += levels * self.steps
        return np.rint(rows)


def _table(cell: Cell) -> ReconstructionTable:
    if isinstance(cell, LocalCell):
        n_features = cell.projection.n_features
        axes = cell.projection.matrix[cell.projection.rows_of(cell.number)].astype(np.float64)
        steps = axes * (cell.design.values[:, np.newaxis] * (FINER * UNIT / n_features))
        steps = np.rint(np.clip(steps, 1 - 2**31, 2**31 - 1)).astype(np.int32)
        return ReconstructionTable(steps, cell.mean.astype(np.float64) * UNIT)
    assert isinstance(cell, WholeCell)
    n_features, scale = cell.projection.n_features, UNIT / np.sqrt(cell.projection.n_features)
    projected = np.zeros((1, n_features), np.float32)
    if cell.mean is not None:
        cell.projection.project_block(cell.mean[np.newaxis], None, projected, 1)
    mean = projected[0].astype(np.float64) * scale
    uncoded = np.delete(mean, cell.design.coded)
    return ReconstructionTable(
        cell.design.values * scale, np.append(mean[cell.design.coded], np.sqrt((uncoded * uncoded).sum()))
    )
