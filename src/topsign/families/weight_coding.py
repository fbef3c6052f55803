"""Codes of the weight vectors of linear heads, and inner products of inputs with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._arrays import Array, Float32, Int64
from ..projections.blocks import Block, float_blocks
from .base import Encoded, Recipe, check_real_valued
from .blocks import rank_blocks, within_blocks

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
    def values(self, weights: Encoded, *, n_threads: int) -> Array:
        """Return the products of all inputs with all weight vectors, (n_inputs, n_vectors)."""

    def rank(self, weights: Encoded, k: int, *, n_threads: int) -> tuple[Int64, Array]:
        """Return positions and values, (n_inputs, k), of the k highest products; ties by ascending position."""
        return rank_blocks(self._blocks(weights, n_threads), len(self), k)

    def within(self, weights: Encoded, bounds: Float32, *, n_threads: int) -> tuple[Int64, Int64, Array]:
        """Return starts, positions and values of every product that reaches the bound of its input."""
        return within_blocks(self._blocks(weights, n_threads), bounds)

    def _blocks(self, weights: Encoded, n_threads: int) -> Iterator[tuple[Int64, Int64, Array]]:
        for start in range(0, len(weights.codes), BLOCK_VECTORS):
            part = weights.rows(slice(start, start + BLOCK_VECTORS))
            positions = np.arange(start, start + len(part.codes))
            yield positions, positions, self.values(part, n_threads=n_threads)


@dataclass(frozen=True, eq=False)
class WeightCoding(ABC):
    """Coding of weight vectors by a recipe, with scales for unbiased estimates of products with inputs."""

    column_names: ClassVar[tuple[str, ...]] = ()  # float32 columns stored with the codes of weight vectors

    recipe: Any  # of the family that the coding is for

    def encode(self, weights: Array, *, n_threads: int) -> Encoded:
        """Return the codes of weight vectors, read block by block; the products of a zero vector are zero."""
        n_rows = self.recipe.block_signals
        blocks = float_blocks(weights, n_rows, n_threads=n_threads, name="weights")
        parts = [self.encode_block(block, n_threads=n_threads) for block in blocks]
        codes = np.concatenate([part.codes for part in parts])
        names = self.column_names
        return Encoded(codes, {name: np.concatenate([part.columns[name] for part in parts]) for name in names})

    @abstractmethod
    def encode_block(self, block: Block, *, n_threads: int) -> Encoded:
        """Return the codes of a block of weight vectors."""

    def logits(
        self,
        inputs: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        n_threads: int = 1,
        name: str = "inputs",
    ) -> Logits:
        """Return the products of these inputs, or a part of them, with any codes of this recipe."""
        check_real_valued(self.recipe, scoring, None)
        return self._logits(inputs, scoring, part=part, n_threads=n_threads, name=name)

    @abstractmethod
    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        """Return what :meth:`logits` does, for a scoring that the recipe has."""

    @abstractmethod
    def decode(self, weights: Encoded) -> Float32:
        """Return estimates of the weight vectors: logits are products with them, within the rounding of inputs."""

    @abstractmethod
    def error(self, weights: Array) -> float:
        """Return the standard deviation of an estimated logit relative to |w| |x|, for orthogonal w and x."""

    @property
    def nbytes(self) -> int:
        """Bytes of one weight vector: its code and its columns."""
        return int(self.recipe.code_bytes) + 4 * len(self.column_names)

    @property
    def size(self) -> str:
        """Size of the codes in the words of the constructors, for messages."""
        n_bits = self.recipe.n_bits
        return f"n_bits={n_bits}, {n_bits / self.recipe.n_features:.3g} per weight"

    def size_warning(self) -> str | None:
        """Return the reason if codes of this size are not worthwhile, otherwise None."""
        plain = 2 * self.recipe.n_features
        if self.nbytes < plain:
            return None
        return f"codes of {self.nbytes} bytes per class are not smaller than float16 rows of {plain}; lower n_bits"


@dataclass(frozen=True, eq=False)
class DecodedWeights(WeightCoding):
    """Default coding: products with reconstructions, which works for every family but is slow.

    The scale of a weight vector w and its reconstruction r is ``|w|**2 / <w, r>``.
    """

    recipe: Recipe

    def __post_init__(self) -> None:
        if self.recipe.center is not None:
            raise ValueError("a head needs a recipe without center, because logits are products with whole vectors")

    @property
    def column_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.recipe.column_names, "logit_scales")

    def encode_block(self, block: Block, *, n_threads: int) -> Encoded:
        made = self.recipe.encode(block, n_threads=n_threads)
        scales = unbiased_scales(block, self.recipe.decode(made.codes, made.columns))
        return Encoded(made.codes, {**made.columns, "logit_scales": scales.astype(np.float32)})

    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        blocks = float_blocks(inputs, self.recipe.block_signals, part=part, n_threads=n_threads, name=name)
        empty = np.empty((0, self.recipe.n_features), np.float32)
        return DecodedLogits(self, np.concatenate([empty, *(block.values for block in blocks)]))

    def decode(self, weights: Encoded) -> Float32:
        own = {name: weights.columns[name] for name in self.recipe.column_names}
        return self.recipe.decode(weights.codes, own) * weights.columns["logit_scales"][:, np.newaxis]

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

    def values(self, weights: Encoded, *, n_threads: int) -> Float32:
        out = np.empty((len(self), len(weights.codes)), np.float32)
        step = max(1, BLOCK_BYTES // (4 * self.inputs.shape[1]))
        for start in range(0, len(weights.codes), step):
            part = slice(start, start + step)
            # Not a matrix product, whose last bits depend on the number of rows multiplied together.
            vectors = self.coding.decode(weights.rows(part))
            out[:, part] = np.einsum("qi,ei->qe", self.inputs, vectors, dtype=np.float64)
        return out


def unbiased_scales(block: Block, reconstructions: Float32) -> Array:
    """Return the scales ``|w|**2 / <w, r>`` of the reconstructions r of weight vectors w, zero for w = 0."""
    products = (reconstructions * block.values).sum(axis=1, dtype=np.float64)
    return np.asarray(np.divide(block.square_norms, products, out=np.zeros(len(products)), where=products > 0))


def isotropic_error(cosine: float, n_features: int) -> float:
    """Return the relative error of logits for reconstructions with this mean cosine."""
    return float(np.sqrt(max(cosine**-2 - 1, 0.0) / n_features))


def size_steps(least: int, most: int) -> list[int]:
    """Return numbers of bits for an automatic choice: whole bytes, two per factor of two."""
    sizes = {round(2 ** (step / 2) / 8) * 8 for step in range(6, 2 * max(1, most).bit_length() + 2)}
    return sorted(size for size in sizes if least <= size <= most)


def float_scale_bytes(n_bytes: int | None) -> int | None:
    """Return the bytes left for a code if code and float32 scale take ``n_bytes``."""
    if n_bytes is not None and n_bytes <= 4:
        raise ValueError(f"a weight vector takes at least 5 bytes, 4 of them its scale, got {n_bytes}")
    return None if n_bytes is None else n_bytes - 4
