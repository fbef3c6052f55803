"""Exact cosines between the reconstructions of trellis codes, computed in integers.

A reconstruction is rounded to multiples of ``2**-23``. Inner products of such vectors are integers below ``2**53``,
which float64 sums exactly in any order. The score of a pair therefore does not depend on the order of the pair, the
block size or the machine. Equal codes score exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._arrays import Array, Bytes, Float64, Int64
from ..kernels import CodeRange
from .comparison import Pairing, code_blocks, group_by_query, rank_blocks
from .trellis import TrellisRecipe

UNIT = 2.0**23  # integer that represents a length of one
COMPARED_BYTES = 2**22  # bytes of reconstructions per block
MANY = 64  # if more than 1 in 64 pairs is needed, a matrix product is faster than single products


@dataclass(frozen=True, eq=False)
class TrellisPairing(Pairing):
    """Pairing by the cosine of reconstructions, as coordinates in the basis.

    An additional coordinate holds the part of the mean outside the coded ones. The projections of the mean are computed
    once and sent to the workers of a cluster, because the last digits of BLAS and LAPACK results depend on the machine
    and the number of threads, and all workers must round the same numbers.
    """

    recipe: TrellisRecipe
    steps: Float64  # (n_coded,) values of a level of one
    middle: Float64  # (n_coded + 1,) the mean

    @classmethod
    def of(cls, recipe: TrellisRecipe) -> TrellisPairing:
        """Return the pairing of a recipe's codes."""
        scale, coded = UNIT / np.sqrt(recipe.n_features), recipe.design.coded
        mean = recipe.projected_mean * scale
        uncoded = np.delete(mean, coded)
        middle = np.append(mean[coded], np.sqrt((uncoded * uncoded).sum()))
        return cls(recipe, recipe.design.values * scale, middle)

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return 4 * self.recipe.n_features

    def prepare(self, codes: Bytes) -> ExactCosines:
        return ExactCosines(self, self.reconstruct(codes))

    def reconstruct(self, codes: Bytes) -> Reconstructions:
        """Return the reconstructions of codes in integers."""
        rows = np.tile(self.middle, (len(codes), 1))
        rows[:, :-1] += self.recipe.levels(codes) * self.steps
        return Reconstructions(np.rint(rows))


@dataclass(frozen=True, eq=False)
class ExactCosines:
    """Codes of some entries, prepared for comparison with others."""

    pairing: TrellisPairing
    mine: Reconstructions

    def __len__(self) -> int:
        return len(self.mine.rows)

    def rank(self, ranges: Sequence[CodeRange], k: int) -> tuple[Int64, Array]:
        return rank_blocks(self._nearest(ranges, k), len(self), k)

    def _nearest(self, ranges: Sequence[CodeRange], k: int) -> Iterator[tuple[Int64, Int64, Float64]]:
        """Yield ids, rows and cosines of blocks; -inf instead of those that are not among the k largest."""
        for ids, rows, theirs in self._blocks(ranges):
            query, column = self.mine.near(theirs, -1.0, k)
            values = np.full((len(self), len(rows)), -np.inf)
            values[query, column] = self.mine.cosines(theirs, query, column)
            yield ids, rows, values

    def within(self, ranges: Sequence[CodeRange], bounds: Array) -> tuple[Int64, Int64, Array]:
        return group_by_query(self._reaching(ranges, bounds), len(self))

    def _reaching(self, ranges: Sequence[CodeRange], bounds: Array) -> Iterator[tuple[Int64, Int64, Float64]]:
        """Yield queries, rows and cosines of the pairs of each block that reach the bound of their query."""
        least = float(bounds.min(initial=np.inf))
        for _, rows, theirs in self._blocks(ranges):
            query, column = self.mine.near(theirs, least, None)
            cosines = self.mine.cosines(theirs, query, column)
            kept = cosines >= bounds[query]
            yield query[kept], rows[column[kept]], cosines[kept]

    def _blocks(self, ranges: Sequence[CodeRange]) -> Iterator[tuple[Int64, Int64, Reconstructions]]:
        """Yield ids, rows and reconstructions of the entries of all ranges."""
        n_rows = max(1, COMPARED_BYTES // max(1, self.mine.rows[:1].nbytes))
        for ids, rows, codes in code_blocks(ranges, n_rows):
            yield ids, rows, self.pairing.reconstruct(codes)


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
