"""Forms: comparisons as a device executes them. A form belongs to a type of comparison; the engine has their table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from .._arrays import Array, Float32, Int64
from ..families import TrellisRecipe
from ..families.sign_comparison import AsymmetricComparison, SignComparison
from ..families.trellis.comparison import TrellisComparison
from ..kernels import Layout
from .chunks import CellCodes, Chunk, CodeLoader, LoadedChunk
from .device import Device
from .rings import RoundedOnDevice, TrellisFormat
from .scan import Tuning
from .stripes import GROUP, Format, Stripes

MANY_CELLS = Tuning(first=2048, candidate_bytes=2**24)  # so that searches of all cells fit into GPU memory together


class Form(ABC):
    """Prepared queries of one comparison on a device.

    The device computes sums over the codes' entries, times weights, and finds the largest; the form says what queries
    are there, and what the sums stand for.
    """

    whole: ClassVar[bool] = False  # whether the values of queries are whole numbers of at most 127
    weights: str | None  # column that sums are multiplied with
    scan_costs: ClassVar[tuple[float, float]]  # nanoseconds of an entry and of a pair, if all entries are compared
    visit_cost: ClassVar[float]  # nanoseconds of an entry in a region

    @classmethod
    @abstractmethod
    def loader(cls, device: Device, comparison: Any) -> CodeLoader:
        """Return how the device holds codes of this comparison's recipe; the queries are not read."""

    @abstractmethod
    def __init__(self, comparison: Any) -> None: ...

    @abstractmethod
    def queries(self, device: Device, block: slice) -> list[Any]:
        """Copy a block of queries to the device, as the codes of each cell take them."""

    def thresholds(self, bounds: Array) -> Float32:
        """Return the least sums of entries that reach the comparison's bounds."""
        return bounds.astype(np.float32)

    def values(self, queries: Int64, sums: Float32) -> Array:
        """Return the comparison's values of sums."""
        return sums


class SignLoader(CodeLoader):
    """Adaptive and sign codes: all in one cell."""

    def __init__(self, device: Device, layout: Layout) -> None:
        self.device, self.layout, self.formats = device, layout, [Format.of(layout)]

    def nbytes(self, n_entries: int) -> int:
        return self.formats[0].nbytes(n_entries) + 8 * n_entries

    def load(self, chunk: Chunk) -> LoadedChunk:
        stripes = Stripes.load(self.device, self.layout, np.asarray(chunk.columns.codes[chunk.positions]))
        return LoadedChunk(chunk, [CellCodes(0, stripes, None, {})])


class SignForm(Form):
    """Values of queries at each projection of the pool, summed with the signs of each entry."""

    scan_costs, visit_cost = (0.33, 0.022), 1.2  # codes of 512 of 8,192 on an H200
    _summed: Float32  # (n_queries, n_pool)

    @classmethod
    def loader(cls, device: Device, comparison: SignComparison) -> SignLoader:
        return SignLoader(device, comparison.layout)

    def queries(self, device: Device, block: slice) -> list[Any]:
        return [device.put(self._summed[block])]


class AsymmetricForm(SignForm):
    """Real projections of queries."""

    def __init__(self, comparison: AsymmetricComparison) -> None:
        self._summed, self.weights = comparison.queries.projected, comparison.weights()


class HammingForm(SignForm):
    """Signs of queries: agreeing less differing ones, from which mismatches follow."""

    whole, weights = True, None

    def __init__(self, comparison: SignComparison) -> None:
        layout, queries = comparison.layout, comparison.queries
        signs = np.unpackbits(queries.bits, axis=1, count=layout.n_pool, bitorder="little").astype(np.float32) * 2 - 1
        self._summed, self._compared = signs, np.full(len(signs), layout.n_bits)
        if queries.masks is not None:
            kept = np.unpackbits(queries.masks, axis=1, count=layout.n_pool, bitorder="little")
            self._summed, self._compared = signs * kept, kept.sum(axis=1, dtype=np.int64)

    def thresholds(self, bounds: Array) -> Float32:
        return (self._compared - 2 * bounds.astype(np.int64)).astype(np.float32)

    def values(self, queries: Int64, sums: Float32) -> Array:
        return ((self._compared[queries] - sums.astype(np.int64)) // 2).astype(np.int32)


class TrellisLoader(CodeLoader):
    """Trellis codes, each cell with tables of its own."""

    waits = True
    formats: list[TrellisFormat]

    def __init__(self, device: Device, recipe: TrellisRecipe) -> None:
        self.recipe = recipe
        self.norms = recipe.metric == "inner_product"  # scores have them
        self.formats = [TrellisFormat(device, cell.tables) for cell in recipe.cells]
        if len(self.formats) > 1:
            self.tuning = MANY_CELLS

    def nbytes(self, n_entries: int) -> int:
        form, more = self.formats[0], len(self.formats) - 1  # cells end in the middle of a group
        return form.nbytes(n_entries) + more * form.nbytes(GROUP) + (8 if self.norms else 4) * n_entries

    def load(self, chunk: Chunk) -> LoadedChunk:
        codes, cells = np.asarray(chunk.columns.codes[chunk.positions]), []
        for cell, positions in self.recipe.cells.of_codes(codes):
            every = len(positions) == len(codes)
            rings = self.formats[cell.number].load(codes if every else codes[positions], norms=self.norms)
            weights = {"weights": rings.weights} | ({"norms": rings.with_norms} if self.norms else {})
            cells.append(CellCodes(cell.number, rings, None if every else positions, weights))
        return LoadedChunk(chunk, cells)


class TrellisForm(Form):
    """Rounded queries of trellis codes."""

    scan_costs, visit_cost = (0.08, 0.004), 0.2  # codes of 24 bytes on an H200

    def __init__(self, comparison: TrellisComparison) -> None:
        self._rounded = comparison.rounded
        self.weights = "norms" if comparison.metric == "inner_product" else "weights"

    @classmethod
    def loader(cls, device: Device, comparison: TrellisComparison) -> TrellisLoader:
        return TrellisLoader(device, comparison.recipe)

    def queries(self, device: Device, block: slice) -> list[Any]:
        return [RoundedOnDevice.put(device, rounded[block]) for rounded in self._rounded]
