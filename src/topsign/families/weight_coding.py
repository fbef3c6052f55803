"""Codes of the weight vectors of linear heads, and inner products of inputs with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..kernels import FACTOR_BYTES, CodeBlocks, CodeRange, RoundedQueries, Scoring, pack_log_factors, unpack_factors
from ..projections.blocks import Block, float_blocks
from .base import Recipe, check_real_valued
from .comparison import rank_blocks
from .decoded import products

if TYPE_CHECKING:
    from .projected import ProjectedRecipe

BLOCK_VECTORS = 2**14  # weight vectors multiplied at a time
BLOCK_BYTES = 2**22  # reconstructions computed at a time
SAMPLE = 1000  # approximate number of weight vectors on which an error is measured


class Logits(ABC):
    """Prepared inputs of a head, ready to be multiplied with codes of weight vectors.

    With ``scoring="hamming"``, values are the number of equal signs minus the number of different signs.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of inputs."""

    @abstractmethod
    def values(self, weights: CodeBlocks, *, n_threads: int) -> Float32:
        """Return the products of all inputs with all weight vectors, (n_inputs, n_vectors)."""

    @abstractmethod
    def rank(self, weights: CodeBlocks, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        """Return positions and values, (n_inputs, k), of the k highest products; ties by ascending position."""


@dataclass(frozen=True, eq=False)
class WeightCoding(ABC):
    """Coding of weight vectors: rows of a code and two bytes for a scale, for unbiased products with inputs."""

    recipe: Any  # of the family that the coding is for

    def encode(self, weights: Array, *, n_threads: int) -> Bytes:
        """Return one row per weight vector, read block by block; the products of a zero vector are zero."""
        blocks = float_blocks(weights, self.recipe.block_signals, n_threads=n_threads, name="weights")
        empty = np.empty((0, self.nbytes), np.uint8)
        return np.concatenate([empty, *(self.encode_block(block, n_threads=n_threads) for block in blocks)])

    @abstractmethod
    def encode_block(self, block: Block, *, n_threads: int) -> Bytes:
        """Return the rows of a block of weight vectors."""

    def logits(
        self,
        inputs: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        n_threads: int = 1,
        name: str = "inputs",
    ) -> Logits:
        """Return the products of these inputs, or a part of them, with any rows of this recipe."""
        check_real_valued(self.recipe, scoring, None)
        return self._logits(inputs, scoring, part=part, n_threads=n_threads, name=name)

    @abstractmethod
    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        """Return what :meth:`logits` does, for a scoring that the recipe has."""

    @abstractmethod
    def decode(self, weights: Bytes) -> Float32:
        """Return estimates of the weight vectors: logits are products with them, within the rounding of inputs."""

    @abstractmethod
    def error(self, weights: Array) -> float:
        """Return the standard deviation of an estimated logit relative to |w| |x|, for orthogonal w and x."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of one weight vector: its code and its scale."""

    @property
    def size(self) -> str:
        """Size of the codes in the words of the constructors, for messages."""
        return f"n_bytes={self.nbytes - FACTOR_BYTES}, {8 * self.nbytes / self.recipe.n_features:.3g} bits per weight"

    def size_warning(self) -> str | None:
        """Return the reason if codes of this size are not worthwhile, otherwise None."""
        plain = 2 * self.recipe.n_features
        if self.nbytes < plain:
            return None
        return f"codes of {self.nbytes} bytes per class are not smaller than float16 rows of {plain}; lower n_bytes"


@dataclass(frozen=True, eq=False)
class CodedWeights(WeightCoding):
    """Coding by a built-in family: a product is the scale times the sum of the input's values at the code's levels."""

    recipe: ProjectedRecipe

    def __post_init__(self) -> None:
        _check_center(self.recipe)

    @property
    def nbytes(self) -> int:
        return self.recipe.n_bytes + FACTOR_BYTES

    def encode_block(self, block: Block, *, n_threads: int) -> Bytes:
        codes, scales = self.recipe.encode_weights(block, n_threads=n_threads)
        return np.hstack([codes, pack_log_factors(scales)])

    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        factor = "log" if scoring == "asymmetric" else None
        rounded = self.recipe.round_inputs(inputs, scoring, part=part, n_threads=n_threads, name=name)
        return CodedLogits(self.recipe.scoring_of(factor, code_bytes=self.nbytes), rounded)

    def decode(self, weights: Bytes) -> Float32:
        scales = unpack_factors(weights, "log")
        return np.asarray(self.recipe.weight_vectors(weights) * scales[:, np.newaxis], np.float32)

    def error(self, weights: Array | None = None) -> float:
        return self.recipe.logit_error()


@dataclass(frozen=True, eq=False)
class CodedLogits(Logits):
    """Rounded inputs, which kernels compare with codes."""

    scorer: Scoring
    rounded: RoundedQueries

    def __len__(self) -> int:
        return len(self.rounded)

    def values(self, weights: CodeBlocks, *, n_threads: int) -> Float32:
        return kernels.active().scores(self.scorer, weights, self.rounded, n_threads=n_threads)

    def rank(self, weights: CodeBlocks, k: int, *, n_threads: int) -> tuple[Int64, Float32]:
        return kernels.active().rank(self.scorer, [CodeRange(weights)], self.rounded, k, n_threads=n_threads)


@dataclass(frozen=True, eq=False)
class DecodedWeights(WeightCoding):
    """Default coding: products with reconstructions, which works for every family but is slow.

    The scale of a weight vector w and its reconstruction r is ``|w|**2 / <w, r>``.
    """

    recipe: Recipe

    def __post_init__(self) -> None:
        _check_center(self.recipe)

    @property
    def nbytes(self) -> int:
        return self.recipe.code_bytes + FACTOR_BYTES

    def encode_block(self, block: Block, *, n_threads: int) -> Bytes:
        codes = self.recipe.encode(block, n_threads=n_threads)
        return np.hstack([codes, pack_log_factors(unbiased_scales(block, self.recipe.decode(codes)))])

    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        blocks = float_blocks(inputs, self.recipe.block_signals, part=part, n_threads=n_threads, name=name)
        empty = np.empty((0, self.recipe.n_features), np.float32)
        return DecodedLogits(self, np.concatenate([empty, *(block.values for block in blocks)]))

    def decode(self, weights: Bytes) -> Float32:
        codes = np.ascontiguousarray(weights[:, :-FACTOR_BYTES])
        return self.recipe.decode(codes) * unpack_factors(weights, "log")[:, np.newaxis]

    def error(self, weights: Array) -> float:
        """Return the error (approximation: errors are isotropic and orthogonal to the weights)."""
        sample = np.asarray(weights[:: max(1, len(weights) // SAMPLE)], np.float32)
        found = self.decode(self.encode(sample, n_threads=1))
        norms = np.linalg.norm(sample, axis=1) * np.linalg.norm(found, axis=1)
        cosines = (sample * found).sum(axis=1)[norms > 0] / norms[norms > 0]
        return isotropic_error(float(cosines.mean()) if cosines.size else 1.0, self.recipe.n_features)


@dataclass(frozen=True, eq=False)
class DecodedLogits(Logits):
    """Inputs to be multiplied with reconstructions."""

    coding: DecodedWeights
    inputs: Float32  # (n_inputs, n_features)

    def __len__(self) -> int:
        return len(self.inputs)

    def values(self, weights: CodeBlocks, *, n_threads: int) -> Float32:
        parts = [values for _, _, values in self._blocks(weights)]
        return np.hstack([np.empty((len(self), 0), np.float32), *parts])

    def rank(self, weights: CodeBlocks, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        return rank_blocks(self._blocks(weights), len(self), k)

    def _blocks(self, weights: CodeBlocks) -> Iterator[tuple[Int64, Int64, Float32]]:
        step = max(1, min(BLOCK_VECTORS, BLOCK_BYTES // (4 * self.inputs.shape[1])))
        for start in range(0, len(weights), step):
            positions = np.arange(start, min(start + step, len(weights)))
            yield positions, positions, products(self.inputs, self.coding.decode(weights.rows(positions)))


def unbiased_scales(block: Block, reconstructions: Float32) -> Float64:
    """Return the scales ``|w|**2 / <w, r>`` of the reconstructions r of weight vectors w, zero for w = 0."""
    inner = (reconstructions * block.values).sum(axis=1, dtype=np.float64)
    return np.asarray(np.divide(block.square_norms, inner, out=np.zeros(len(inner)), where=inner > 0))


def isotropic_error(cosine: float, n_features: int) -> float:
    """Return the relative error of logits for reconstructions with this mean cosine."""
    return float(np.sqrt(max(cosine**-2 - 1, 0.0) / n_features))


def size_steps(least: int, most: int) -> list[int]:
    """Return sizes for an automatic choice, two per factor of two."""
    sizes = {round(2 ** (step / 2)) for step in range(2 * max(1, most).bit_length() + 2)}
    return sorted(size for size in sizes if least <= size <= most)


def _check_center(recipe: Recipe) -> None:
    if recipe.center is not None:
        raise ValueError("a head needs a recipe without center, because logits are products with whole vectors")
