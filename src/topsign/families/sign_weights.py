"""Weight vectors of heads as adaptive or sign codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..kernels import CodeRange
from ..projections.blocks import Block
from .base import Encoded
from .projected import transpose
from .weight_coding import BLOCK_VECTORS, Logits, WeightCoding, size_steps

if TYPE_CHECKING:
    from .adaptive import SignsRecipe

# For 128 bits of a pool of 1,024, a sum takes 155 ns per pair, and a matrix product with unpacked codes 25 ns, so
# unpacking pays if many inputs share it. Smaller heads always use sums, whose bits do not depend on the batch.
MANY_VECTORS, MANY_INPUTS = 256, 32
MOST_OF_POOL = 4  # a code that keeps more than a quarter of its pool gains little from the choice


@dataclass(frozen=True, eq=False)
class SignWeights(WeightCoding):
    """Codes with a scale: the product is the scale times the sum of the input's projections with the code's signs."""

    column_names: ClassVar[tuple[str, ...]] = ("scales",)

    recipe: SignsRecipe

    def __post_init__(self) -> None:
        if not self.recipe.norms or self.recipe.center is not None:
            raise ValueError(f"a head needs {self.recipe.family} codes with norms and without center")

    def encode_block(self, block: Block, *, n_threads: int) -> Encoded:
        made = self.recipe.encode(block, n_threads=n_threads)
        return Encoded(made.codes, {"scales": made.columns["scales"]})

    def _logits(self, inputs: Array, scoring: str, *, part: slice | None, n_threads: int, name: str) -> Logits:
        projected, _ = self.recipe.project(inputs, part=part, n_threads=n_threads, name=name)
        if scoring == "hamming":
            return SignAgreements(self.recipe, kernels.active().pack_bits(projected, n_threads=n_threads))
        return SignLogits(self.recipe, projected)

    def decode(self, weights: Encoded) -> Float32:
        vectors = transpose(self.recipe.projection, self.recipe.sign_rows(weights.codes))
        return np.asarray(vectors * weights.columns["scales"][:, np.newaxis], np.float32)

    def error(self, weights: Array | None = None) -> float:
        recipe = self.recipe
        orthonormal = recipe.projection.kind in ("hadamard", "circulant")
        return relative_error(recipe.n_bits, recipe.n_pool, recipe.n_features, orthonormal=orthonormal)


class AdaptiveWeights(SignWeights):
    """Coding of weight vectors by adaptive codes, whose size is a part of the pool."""

    @property
    def size(self) -> str:
        return f"n_bits={self.recipe.n_bits} of n_pool={self.recipe.n_pool} (a larger n_pool may help)"

    def size_warning(self) -> str | None:
        """Return a warning if most of the pool is kept, or if float16 rows are as small."""
        n_bits, n_pool, n_features = self.recipe.n_bits, self.recipe.n_pool, self.recipe.n_features
        most, large = MOST_OF_POOL * n_bits > n_pool, self.nbytes >= 2 * n_features
        if not (most or large):
            return None
        best = min(pool_sizes(n_pool), key=lambda size: relative_error(size, n_pool, n_features))
        error, least = self.error(), relative_error(best, n_pool, n_features)
        why = "the head is small"
        if most:
            why = f"n_bits={n_bits} of n_pool={n_pool} keeps more than a quarter of the pool"
        advice = "no n_bits of this pool errs less"
        if least < error:
            advice = f"n_bits={best} of the same pool errs by {least:.1%}"
        return (
            f"{why}: estimated logits err by {error:.1%} of |w| |x| at {self.nbytes} bytes per class, float16 rows by "
            f"0.03% at {2 * n_features}; {advice}; raise n_pool, keep a shortlist, or leave a head of {n_features} "
            "features as it is"
        )


@dataclass(frozen=True, eq=False)
class SignLogits(Logits):
    """Projected inputs, which are summed with the signs of codes."""

    recipe: SignsRecipe
    projected: Float32  # (n_inputs, n_pool)

    def __len__(self) -> int:
        return len(self.projected)

    def values(self, weights: Encoded, *, n_threads: int) -> Float32:
        if len(weights.codes) >= MANY_VECTORS and len(self) >= MANY_INPUTS:
            values = self._products(weights.codes)
        else:
            layout, codes = self.recipe.layout, weights.codes
            values = kernels.active().score_sums(layout, codes, self.projected, n_threads=n_threads)
        values *= weights.columns["scales"]
        return values

    def _products(self, codes: Bytes) -> Float32:
        """Return the same values within rounding, by matrix products with unpacked blocks of codes."""
        out = np.empty((len(self), len(codes)), np.float32)
        for start in range(0, len(codes), BLOCK_VECTORS):
            part = slice(start, start + BLOCK_VECTORS)
            np.matmul(self.projected, self.recipe.sign_rows(codes[part]).T, out=out[:, part])
        return out

    def rank(self, weights: Encoded, k: int, *, n_threads: int) -> tuple[Int64, Float32]:
        ranges = [CodeRange(weights.codes, weights=weights.columns["scales"])]
        return kernels.active().rank_scores(self.recipe.layout, ranges, self.projected, k, n_threads=n_threads)

    def within(self, weights: Encoded, bounds: Float32, *, n_threads: int) -> tuple[Int64, Int64, Float32]:
        ranges = [CodeRange(weights.codes, weights=weights.columns["scales"])]
        return kernels.active().within_scores(self.recipe.layout, ranges, self.projected, bounds, n_threads=n_threads)


@dataclass(frozen=True, eq=False)
class SignAgreements(Logits):
    """Signs of projected inputs; values are the number of signs equal to a code's minus the number of others."""

    recipe: SignsRecipe
    bits: Bytes

    def __len__(self) -> int:
        return len(self.bits)

    def values(self, weights: Encoded, *, n_threads: int) -> Float64:
        mismatches = kernels.active().mismatches(self.recipe.layout, weights.codes, self.bits, n_threads=n_threads)
        return np.asarray(self.recipe.n_bits - 2.0 * mismatches)

    def rank(self, weights: Encoded, k: int, *, n_threads: int) -> tuple[Int64, Float64]:
        positions, mismatches = kernels.active().rank_mismatches(
            self.recipe.layout, [CodeRange(weights.codes)], self.bits, k, n_threads=n_threads
        )
        return positions, np.asarray(self.recipe.n_bits - 2.0 * mismatches)


def pool_sizes(n_pool: int) -> list[int]:
    """Return the numbers of bits that an automatic choice tries, from small to half of the pool."""
    return size_steps(8, n_pool // 2) or [max(1, n_pool // 2)]


def relative_error(n_bits: int, n_pool: int, n_features: int, *, orthonormal: bool = True) -> float:
    """Return the standard deviation of an estimated logit relative to |w| |x|, for orthogonal w and x.

    Exact for a Gaussian pool given the kept magnitudes: sqrt(1 / N) with N = n_bits * lambda**2, lambda the mean kept
    magnitude. For orthonormal pools 1 / N - 1 / n_features under the root: approximation.

    >>> round(relative_error(64, 1024, 1024), 3), round(relative_error(64, 64, 64), 3)
    (0.046, 0.094)
    """
    from ..theory import mean_kept_magnitude  # SciPy takes long to import

    effective = n_bits * float(mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool)) ** 2
    blocks = max(1, n_pool // n_features)  # independent blocks share no orthogonality
    variance = 1 / effective - (1 / (n_features * blocks) if orthonormal else 0)
    return float(np.sqrt(max(variance, 0.0)))
