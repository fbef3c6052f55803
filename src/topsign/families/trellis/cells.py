"""Cells of trellis codes, each with a basis, a mean and a design."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64, Int64
from ..._lazy import lazy
from ...kernels import (
    CellColumns,
    CellPositions,
    CellTables,
    Panels,
    Product,
    RoundedCells,
    TrellisSignals,
    TrellisTables,
)
from ...projections import Local, Projection
from ...projections.blocks import Block
from ...projections.learned import transposed
from ..projected import inverse_norms, unit_rows
from .design import TrellisDesign

MAX_CELLS = 256  # the cell number must fit the last byte of a code


@dataclass(frozen=True, eq=False)
class Cell(ABC):
    """Coding of the signals of one cell, relative to its mean and along its axes.

    All values are in units of projections, sqrt(n_features) times coordinates.
    """

    design: TrellisDesign
    code_bytes: int
    number: int
    projection: Projection

    @abstractmethod
    def signals(self, levels: Array) -> Float32:
        """Return mean plus reconstruction, (n_codes, n_features), without normalisation."""

    @property
    @abstractmethod
    def _middle(self) -> tuple[Float64, float]:
        """Coded coordinates of the mean, and its squared norm."""

    @lazy
    def tables(self) -> TrellisTables:
        """Tables for the kernels."""
        return self.design.tables(*self._middle, self.code_bytes)

    @lazy
    def weights(self) -> Float64:
        """Factors of the coordinates of queries."""
        return np.asarray(self.design.values / np.sqrt(self._n_features))

    @property
    def _n_features(self) -> int:
        return self.projection.n_features


@dataclass(frozen=True, eq=False)
class WholeCell(Cell):
    """Single cell that covers the whole space, with an orthonormal basis."""

    mean: Float32 | None

    @lazy
    def panels(self) -> Panels | None:
        """Matrix of the coded axes, if signals are projected by matrix multiplication."""
        return self.projection.panels(self.design.coded)

    def coordinates(self, block: Block, n_threads: int) -> Float32:
        """Return the coded coordinates of the unit signals of a block, (n_signals, n_coded)."""
        if self.panels is not None:
            products, factors = [Product(self.panels, self.mean)], inverse_norms(block)
            return kernels.active().multiply(block.values, products, factors=factors, n_threads=n_threads)[0]
        values = unit_rows(block)
        values = values if self.mean is None else values - self.mean
        projected = np.empty_like(values)
        self.projection.project_block(values, None, projected, n_threads)
        return np.ascontiguousarray(projected[:, self.design.coded])

    def signals(self, levels: Array) -> Float32:
        coordinates = np.zeros((len(levels), self._n_features), np.float32)
        coordinates[:, self.design.coded] = levels * self.design.values.astype(np.float32)
        signals = transposed(self.projection, coordinates) / np.float32(self._n_features)
        return signals if self.mean is None else signals + self.mean

    @lazy
    def _projected_mean(self) -> Float64:
        if self.mean is None:
            return np.zeros(self._n_features)
        out = np.empty((1, self._n_features), np.float32)
        self.projection.project_block(self.mean[np.newaxis], None, out, 1)
        return np.asarray(out[0], np.float64)

    @property
    def _middle(self) -> tuple[Float64, float]:
        mean = self._projected_mean
        return mean[self.design.coded], float(mean @ mean)

    def mean_products(self, projected: Float32, n_threads: int) -> Float64:
        """Return the inner products of projected queries with the mean, (1, n_queries)."""
        products = kernels.active().inner_products(projected, self._projected_mean, n_threads=n_threads)
        return np.asarray(products[np.newaxis] / np.sqrt(self._n_features))


@dataclass(frozen=True, eq=False)
class LocalCell(Cell):
    """One of several clusters, with its own axes."""

    projection: Local

    @property
    def mean(self) -> Float32:
        """Mean of the unit signals of the cell."""
        return np.asarray(self.projection.means[self.number], np.float32)

    @lazy
    def panels(self) -> Panels:
        """Axes of the cell."""
        return self.projection.panels(np.arange(self.projection.n_pool)[self.projection.rows_of(self.number)])

    def signals(self, levels: Array) -> Float32:
        values = levels * (self.design.values / self._n_features).astype(np.float32)
        axes = self.projection.matrix[self.projection.rows_of(self.number)]
        return np.asarray(values @ axes + self.mean, np.float32)

    @property
    def _middle(self) -> tuple[Float64, float]:
        mean = self.mean.astype(np.float64)
        (projected,) = kernels.active().multiply(self.mean[np.newaxis], [Product(self.panels)])
        return projected[0].astype(np.float64), float(self._n_features * (mean @ mean))


class Cells:
    """All cells of a recipe; codes store their cell number in the low bits of the ring's last byte."""

    def __init__(
        self, projection: Projection, mean: Float32 | None, designs: Sequence[TrellisDesign], code_bytes: int
    ) -> None:
        self._last = -(-(designs[0].n_bits + cell_bits(len(designs))) // 8) - 1
        self._local = projection if isinstance(projection, Local) else None
        self._cells: list[Cell] = (
            [WholeCell(designs[0], code_bytes, 0, projection, mean)]
            if self._local is None
            else [LocalCell(design, code_bytes, number, self._local) for number, design in enumerate(designs)]
        )

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells)

    def __getitem__(self, number: int) -> Cell:
        return self._cells[number]

    @property
    def last_byte(self) -> int:
        """Position of the byte that holds the cell number."""
        return self._last

    def coordinates(self, block: Block, n_threads: int) -> list[TrellisSignals]:
        """Return the coordinates of the unit signals of a block by cell; at least one cell."""
        whole = self._cells[0]
        if isinstance(whole, WholeCell):
            return [TrellisSignals(whole.tables, whole.coordinates(block, n_threads))]
        assert self._local is not None
        factors = inverse_norms(block)
        groups = list(self._members(self._grouped(self._local.nearest(block.values, factors, n_threads))))
        groups = groups or [(whole, np.empty(0, np.int64))]
        products = [Product(cell.panels, cell.mean, rows) for cell, rows in groups if isinstance(cell, LocalCell)]
        found = kernels.active().multiply(block.values, products, factors=factors, n_threads=n_threads)
        return [
            TrellisSignals(cell.tables, values, rows, cell.number)
            for (cell, rows), values in zip(groups, found, strict=True)
        ]

    @lazy
    def tables(self) -> CellTables:
        """Tables of all cells."""
        return CellTables(tuple(cell.tables for cell in self))

    def round(self, projected: Float32, *, n_threads: int = 1) -> RoundedCells:
        """Return projections of unit queries as the kernels take them, for each cell.

        Each query is rounded to 8 bits with its own scale. If few coordinates hold nearly all variance, a second digit
        preserves the small ones.
        """
        rows = np.ascontiguousarray(projected)
        constants = np.ascontiguousarray(self._constants(rows, n_threads), np.float32)
        return kernels.active().trellis_round(rows, self._columns, constants, n_threads=n_threads)

    @lazy
    def _columns(self) -> CellColumns:
        sizes = np.array([cell.design.n_coded for cell in self], np.int64)
        bits = np.array([cell.tables.fine_bits for cell in self], np.int64)
        weights = np.concatenate([cell.weights for cell in self])
        numbers = self._cells[0].design.coded if self._local is None else np.arange(sizes.sum())
        return CellColumns(numbers.astype(np.int64), weights, sizes, bits)

    def _constants(self, projected: Float32, n_threads: int) -> Array:
        """Return the inner products of projected queries with the cell means, (n_cells, n_queries)."""
        whole = self._cells[0]
        if isinstance(whole, WholeCell):
            return whole.mean_products(projected, n_threads)
        return projected[:, -len(self) :].T

    def positions(self, codes: Bytes) -> CellPositions:
        """Return the positions of the codes of each cell."""
        return self._grouped(codes[:, self._last] & np.uint8(len(self) - 1))

    def of_codes(self, codes: Bytes) -> Iterator[tuple[Cell, Int64]]:
        """Yield each non-empty cell with the positions of its codes."""
        if len(self) == 1:
            yield self._cells[0], np.arange(len(codes))
            return
        yield from self._members(self.positions(codes))

    def _grouped(self, numbers: Array) -> CellPositions:
        counts = np.bincount(numbers, minlength=len(self))
        return CellPositions(np.argsort(numbers, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))

    def _members(self, found: CellPositions) -> Iterator[tuple[Cell, Int64]]:
        for cell, (start, end) in zip(self._cells, pairwise(found.starts.tolist()), strict=True):
            if start < end:
                yield cell, found.positions[start:end]


def cell_bits(n_cells: int) -> int:
    """Return the number of bits of a cell number."""
    return (n_cells - 1).bit_length()
