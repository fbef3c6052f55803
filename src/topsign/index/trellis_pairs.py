"""Cosines of trellis codes with each other: those of their reconstructions, in whole numbers and therefore exact.

A reconstruction is rounded to multiples of ``2**-23``. Products of such vectors are whole numbers below ``2**53``,
which float64 adds without error in any order: a pair has one score, whichever of the two comes first, however many
entries are compared at a time, and whoever compares them. Equal codes score exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from .._arrays import Bytes, Float64, Int64
from ..cells import Cell, LocalCell, WholeCell
from ..recipe import Recipe
from .search import Hits
from .storage import Snapshot

UNIT = 2.0**23
"""What a length of one becomes."""

FINER = 2.0**10
"""Axes of local cells are rounded so much more finely than what they add up to."""

COMPARED_BYTES = 2**22
"""Reconstructions that a block is compared with at a time."""

MANY = 64
"""Where more than one of so many pairs is wanted, all products together take less time than those alone."""


@dataclass(frozen=True, eq=False)
class Cosines:
    """What levels of codes are worth in each cell of a recipe, and cosines of the reconstructions.

    Made once and sent to the workers of a cluster: the last digits of what libraries of linear algebra compute from a
    recipe depend on machines and on threads, and all must round the same numbers.
    """

    cells: list[Worth]

    @classmethod
    def of(cls, recipe: Recipe) -> Cosines:
        """For the codes of a recipe."""
        return cls([_worth(cell) for cell in recipe.cells])

    def scores(self, cosines: Float64) -> Float64:
        """Cosines are scores as they are."""
        return np.asarray(cosines, np.float64)

    def p_values(self, cosines: Float64) -> Float64:
        """None are known: nan."""
        return np.full(len(cosines), np.nan)

    def compare(
        self, recipe: Recipe, numbers: Int64, codes: Bytes, snapshot: Snapshot, *, least: float, k: int | None
    ) -> Hits:
        """For each code the entries whose cosine is at least ``least``, or the ``k`` entries of the largest cosines.

        Without ``k``, blocks of entries whose numbers are below those of all codes are left out: each pair is found
        from its smaller number.
        """
        mine = self._reconstruct(recipe, codes)
        parts = [Hits.merge([], descending=True)]
        for ids, places, others in living_blocks(snapshot, max(1, COMPARED_BYTES // mine.rows[:1].nbytes)):
            if k is None and ids[-1] < numbers[0]:
                continue
            theirs = self._reconstruct(recipe, others)
            rows, columns = mine.near(theirs, least, k)
            hits = Hits(rows, places[columns], ids[columns], mine.cosines(theirs, rows, columns))
            if k is None:
                parts.append(hits[hits.values >= least])
            else:
                parts = [Hits.merge([*parts, hits], descending=True, k=k)]
        return Hits.merge(parts, descending=True)

    def _reconstruct(self, recipe: Recipe, codes: Bytes) -> Reconstructions:
        rows = np.empty((len(codes), len(self.cells[0].middle)))
        for cell, places in recipe.cells.of_codes(codes):
            levels = kernels.active().trellis_decode(cell.tables, codes[places], n_threads=kernels.n_threads(None))
            rows[places] = self.cells[cell.number].reconstruct(levels)
        return Reconstructions(rows)


class Reconstructions:
    """A block of reconstructions, and others compared with them."""

    def __init__(self, rows: Float64) -> None:
        self.rows = rows  # whole numbers
        self.squares = np.einsum("ij,ij->i", rows, rows)
        lengths = np.sqrt(self.squares)[:, np.newaxis]
        self.units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float32)

    def near(self, others: Reconstructions, least: float, k: int | None) -> tuple[Int64, Int64]:
        """Rows and columns of all cosines of at least ``least``, or of the k largest of each row; and of some more.

        In float32, which errs by less than the bound on sums of products of unit vectors in any order.
        """
        cosines = self.units @ others.units.T
        error = (self.rows.shape[1] + 4) * 2.0**-23
        limits = np.full((len(cosines), 1), least - error, np.float32)
        if k is not None:
            n_left = max(0, len(others.rows) - k)
            limits = np.partition(cosines, n_left, axis=1)[:, [n_left]] - np.float32(2 * error)
        return np.nonzero(cosines >= limits)  # type: ignore[return-value]

    def cosines(self, others: Reconstructions, rows: Int64, columns: Int64) -> Float64:
        """Exactly. The root of the square of a whole number is that number: equal codes give 1."""
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
class Worth:
    """What the levels of one cell add up to.

    Where the whole space is one cell, coordinates in its basis do as well as signals: ``steps`` are what a level of one
    adds to its own coordinate, and one coordinate more has what the mean has beside those coded. Of a local cell,
    ``steps`` are its axes times that.
    """

    steps: Any  # (n_coded,) float64, or (n_coded, n_features) int32
    middle: Float64  # the mean

    def reconstruct(self, levels: Any) -> Float64:
        """Whole numbers."""
        if self.steps.ndim == 2:
            sums = levels.astype(np.float64) @ self.steps.astype(np.float64)
            return np.asarray(np.rint(sums / FINER + self.middle))
        rows = np.tile(self.middle, (len(levels), 1))
        rows[:, :-1] += levels * self.steps
        return np.rint(rows)


def _worth(cell: Cell) -> Worth:
    if isinstance(cell, LocalCell):
        n_features = cell.projection.n_features
        axes = cell.projection.matrix[cell.projection.rows_of(cell.number)].astype(np.float64)
        steps = axes * (cell.design.values[:, np.newaxis] * (FINER * UNIT / n_features))
        steps = np.rint(np.clip(steps, 1 - 2**31, 2**31 - 1)).astype(np.int32)
        return Worth(steps, cell.mean.astype(np.float64) * UNIT)
    assert isinstance(cell, WholeCell)
    n_features, scale = cell.projection.n_features, UNIT / np.sqrt(cell.projection.n_features)
    projected = np.zeros((1, n_features), np.float32)
    if cell.mean is not None:
        cell.projection.project_block(cell.mean[np.newaxis], None, projected, 1)
    mean = projected[0].astype(np.float64) * scale
    beside = np.delete(mean, cell.design.coded)
    return Worth(cell.design.values * scale, np.append(mean[cell.design.coded], np.sqrt((beside * beside).sum())))


def living_blocks(snapshot: Snapshot, n_rows: int) -> Iterator[tuple[Int64, Int64, Bytes]]:
    """Numbers, which ascend, places and codes of the entries that are alive."""
    for start, segment in zip(snapshot.starts, snapshot.segments, strict=False):
        living = np.flatnonzero(segment.living)
        for first in range(0, len(living), n_rows):
            rows = living[first : first + n_rows]
            yield segment.ids[rows], start + rows, np.ascontiguousarray(segment.codes[rows])
