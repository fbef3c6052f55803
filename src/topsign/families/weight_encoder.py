"""Codes of the weight vectors of linear heads, and inner products of inputs with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Int64
from ..kernels import FACTOR_BYTES, CodeBlocks, CodeRange, RoundedQueries, Scoring, pack_log_factors, unpack_factors
from ..projections.blocks import float_blocks
from .base import check_real_valued
from .comparison import count_signs, products, rank_blocks, signs_of

if TYPE_CHECKING:
    from .projected import ProjectedRecipe

BLOCK_BYTES = 2**22  # reconstructions computed at a time
SAMPLE = 1000  # approximate number of weight vectors on which an error is measured


@dataclass(frozen=True, eq=False)
class WeightEncoder:
    """Encoder of weight vectors: rows of a code and two bytes for a scale, for unbiased products with inputs.

    This default, products with reconstructions, works for every family but is slow. The scale of a weight vector w and
    its reconstruction r is ``|w|**2 / <w, r>``.
    """

    recipe: Any  # whose codes are used

    def __post_init__(self) -> None:
        if self.recipe.center is not None:
            raise ValueError("a head needs a recipe without center, because logits are products with whole vectors")

    @property
    def nbytes(self) -> int:
        """Bytes of one weight vector: its code and its scale."""
        return int(self.recipe.code_bytes) + FACTOR_BYTES

    def encode(self, weights: Array) -> Bytes:
        """Return one row per weight vector, read block by block; the products of a zero vector are zero."""
        blocks = float_blocks(weights, self.recipe.block_signals, name="weights")
        rows = [np.empty((0, self.nbytes), np.uint8)]
        for block in blocks:
            codes, scales = self.recipe.encode_weights(block)
            rows.append(np.hstack([codes, pack_log_factors(scales)]))
        return np.concatenate(rows)

    def decode(self, weights: Bytes) -> Float32:
        """Return estimates of the weight vectors: logits are products with them, within the rounding of inputs."""
        scales = unpack_factors(weights, "log")[:, np.newaxis]
        return np.asarray(
            self.recipe.weight_vectors(np.ascontiguousarray(weights[:, :-FACTOR_BYTES])) * scales, np.float32
        )

    def logits(self, inputs: Array, scoring: str, *, part: slice | None = None, name: str = "inputs") -> Logits:
        """Return the products of these inputs, or a part of them, with any rows of this recipe."""
        check_real_valued(self.recipe, scoring, None)
        blocks = float_blocks(inputs, self.recipe.block_signals, part=part, name=name)
        empty = np.empty((0, self.recipe.n_features), np.float32)
        return Logits(self, np.concatenate([empty, *(block.values for block in blocks)]))

    def error(self, weights: Array) -> float:
        """Return the standard deviation of an estimated logit relative to |w| |x|, for orthogonal w and x.

        Approximation: errors are isotropic and orthogonal to the weights.
        """
        sample = np.asarray(weights[:: max(1, len(weights) // SAMPLE)], np.float32)
        found = self.decode(self.encode(sample))
        norms = np.linalg.norm(sample, axis=1) * np.linalg.norm(found, axis=1)
        cosines = (sample * found).sum(axis=1)[norms > 0] / norms[norms > 0]
        return isotropic_error(float(cosines.mean()) if cosines.size else 1.0, self.recipe.n_features)

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
class Logits:
    """Inputs of a head, ready to be multiplied with rows of weight vectors."""

    encoder: WeightEncoder
    inputs: Float32  # (n_inputs, n_features)

    def __len__(self) -> int:
        return len(self.inputs)

    def values(self, weights: CodeBlocks) -> Float32:
        """Return the products of all inputs with all weight vectors, (n_inputs, n_vectors)."""
        return np.hstack([np.empty((len(self), 0), np.float32), *(values for _, _, values in self._blocks(weights))])

    def rank(self, weights: CodeBlocks, k: int) -> tuple[Int64, Array]:
        """Return positions and values, (n_inputs, k), of the k highest products; ties by ascending position."""
        return rank_blocks(self._blocks(weights), len(self), k)

    def _blocks(self, weights: CodeBlocks) -> Iterator[tuple[Int64, Int64, Float32]]:
        step = max(1, BLOCK_BYTES // (4 * self.inputs.shape[1]))
        for start in range(0, len(weights), step):
            positions = np.arange(start, min(start + step, len(weights)))
            yield positions, positions, products(self.inputs, self.encoder.decode(weights.rows(positions)))


@dataclass(frozen=True, eq=False)
class LevelWeightEncoder(WeightEncoder):
    """Encoder of a built-in family: a product is the scale times the sum of the input's values at the code's levels."""

    recipe: ProjectedRecipe

    @property
    def nbytes(self) -> int:
        return self.recipe.n_bytes + FACTOR_BYTES

    def logits(self, inputs: Array, scoring: str, *, part: slice | None = None, name: str = "inputs") -> Logits:
        check_real_valued(self.recipe, scoring, None)
        recipe = self.recipe
        projected, norms = recipe.project(inputs, part=part, name=name)
        if scoring == "hamming":
            return CodedLogits(self, count_signs(signs_of(projected)), recipe.scoring_of(None, code_bytes=self.nbytes))
        rounded = recipe.rounded(projected, norms if recipe.projects_units else np.ones(len(norms)))
        return CodedLogits(self, rounded, recipe.scoring_of("log", code_bytes=self.nbytes))

    def error(self, weights: Array | None = None) -> float:
        return self.recipe.logit_error()


@dataclass(frozen=True, eq=False)
class CodedLogits(Logits):
    """Rounded inputs, which kernels compare with codes.

    With ``scoring="hamming"``, values are the number of equal signs minus the number of different signs.
    """

    inputs: RoundedQueries  # type: ignore[assignment]
    scorer: Scoring

    def values(self, weights: CodeBlocks) -> Float32:
        return kernels.active().scores(self.scorer, weights, self.inputs)

    def rank(self, weights: CodeBlocks, k: int) -> tuple[Int64, Float32]:
        return kernels.active().rank(self.scorer, [CodeRange(weights)], self.inputs, k)


def isotropic_error(cosine: float, n_features: int) -> float:
    """Return the relative error of logits for reconstructions with this mean cosine."""
    return float(np.sqrt(max(cosine**-2 - 1, 0.0) / n_features))


def size_steps(least: int, most: int) -> list[int]:
    """Return sizes for an automatic choice, two per factor of two."""
    sizes = {round(2 ** (step / 2)) for step in range(2 * max(1, most).bit_length() + 2)}
    return sorted(size for size in sizes if least <= size <= most)
