"""Forms: how a device executes each type of comparison. The engine has a table of them."""

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

MANY_CELLS = Tuning(first=2048, candidate_bytes=2**24)  # so that the searches of all cells fit in GPU memory together


class Form(ABC):
    """Queries of one comparison, prepared for a device.

    The device computes a sum for each code, multiplies it by a weight and finds the largest products. The form prepares
    the queries and converts between sums and the comparison's values.
    """

    whole: ClassVar[bool] = False  # whether values of queries are integers up to 127, which need no rounding
    weights: str | None  # column of the factors of sums
    scan_costs: ClassVar[tuple[float, float]]  # nanoseconds of an entry and of a pair, if all entries are compared

    @classmethod
    @abstractmethod
    def loader(cls, device: Device, comparison: Any) -> CodeLoader:
        """Return the loader for codes of this comparison's recipe; the queries are not used."""

    @abstractmethod
    def __init__(self, comparison: Any) -> None: ...

    @abstractmethod
    def queries(self, device: Device, block: slice) -> list[Any]:
        """Copy a block of queries to the device; return them for each cell."""

    def thresholds(self, bounds: Array) -> Float32:
        """Convert bounds of the comparison to least sums."""
        return bounds.astype(np.float32)

    def values(self, queries: Int64, sums: Float32) -> Array:
        """Convert sums to values of the comparison."""
        return sums


class SignLoader(CodeLoader):
    """Loader of adaptive and sign codes, which are one cell."""

    def __init__(self, device: Device, layout: Layout) -> None:
        self.device, self.layout, self.formats = device, layout, [Format.of(layout)]

    def nbytes(self, n_entries: int) -> int:
        return self.formats[0].nbytes(n_entries) + 8 * n_entries

    def load(self, chunk: Chunk) -> LoadedChunk:
        stripes = Stripes.load(self.device, self.layout, np.asarray(chunk.columns.codes[chunk.positions]))
        return LoadedChunk(chunk, [CellCodes(0, stripes, None, {})])


class SignForm(Form):
    """Sums of a query's values at each projection of the pool, with the signs of an entry."""

    scan_costs = (0.33, 0.022)  # codes of 512 of 8,192 on an H200
    _summed: Float32  # (n_queries, n_pool)

    @classmethod
    def loader(cls, device: Device, comparison: SignComparison) -> SignLoader:
        return SignLoader(device, comparison.layout)

    def queries(self, device: Device, block: slice) -> list[Any]:
        return [device.put(self._summed[block])]


class AsymmetricForm(SignForm):
    """Sums of real-valued projections of queries."""

    def __init__(self, comparison: AsymmetricComparison) -> None:
        self._summed, self.weights = comparison.queries.projected, comparison.weights()


class HammingForm(SignForm):
    """Sums of signs of queries: matches minus mismatches, from which mismatches follow."""

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
    """Loader of trellis codes, with separate tables for each cell."""

    waits = True
    formats: list[TrellisFormat]

    def __init__(self, device: Device, recipe: TrellisRecipe) -> None:
        self.recipe = recipe
        self.norms = recipe.metric == "inner_product"  # scores include norms
        self.formats = [TrellisFormat(device, cell.tables) for cell in recipe.cells]
        if len(self.formats) > 1:
            self.tuning = MANY_CELLS

    def nbytes(self, n_entries: int) -> int:
        form, more = self.formats[0], len(self.formats) - 1  # each cell may end with a partial group
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
    """Sums of rounded queries and levels of trellis codes."""

    scan_costs = (0.08, 0.004)  # codes of 24 bytes on an H200

    def __init__(self, comparison: TrellisComparison) -> None:
        self._rounded = comparison.rounded
        self.weights = "norms" if comparison.metric == "inner_product" else "weights"

    @classmethod
    def loader(cls, device: Device, comparison: TrellisComparison) -> TrellisLoader:
        return TrellisLoader(device, comparison.recipe)

    def queries(self, device: Device, block: slice) -> list[Any]:
        return [RoundedOnDevice.put(device, rounded[block]) for rounded in self._rounded]
