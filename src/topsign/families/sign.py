"""Sign codes: the signs of all projections of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64
from .._checks import check_choice, check_count, check_pool
from ..kernels import Layout
from .adaptive import SignsRecipe
from .base import SCORINGS
from .sign_codes import SignCodes
from .weight_coding import float_scale_bytes


@dataclass(frozen=True, eq=False)
class SignRecipe(SignsRecipe):
    """Recipe of sign codes."""

    family: ClassVar[str] = "sign"
    codes_type: ClassVar[type[SignCodes]] = SignCodes

    @classmethod
    def make(  # type: ignore[override]
        cls,
        *,
        n_features: int,
        n_pool: int | None = None,
        n_bits: int | None = None,
        layout: str = "signs",
        **options: Any,
    ) -> Self:
        """Return a recipe from the parameters of a constructor; ``n_pool`` is ``n_features`` by default."""
        n_pool = check_pool(1, n_features if n_pool is None else n_pool)[1]
        if layout != "signs" or n_bits not in (None, n_pool):
            raise ValueError(f"sign codes keep all {n_pool} signs, got n_bits={n_bits} in the layout {layout!r}")
        return cls._of_layout(Layout("signs", n_pool, n_pool), n_features=n_features, **options)

    @classmethod
    def for_weights(
        cls, weights: Array, *, n_bits: int | None = None, n_bytes: int | None = None, **options: Any
    ) -> Self:
        """Return a recipe for weight vectors; ``n_bits`` is the number of projections, all of which are kept."""
        n_bytes = float_scale_bytes(n_bytes)
        sizes = {} if n_bytes is None else {"n_pool": 8 * n_bytes}
        sizes |= {} if n_bits is None else {"n_pool": check_count(n_bits, "n_bits")}
        return cls.make(n_features=weights.shape[1], **options | sizes)

    def packed(self, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
        totals = kernels.active().magnitude_sums(projected, n_threads=n_threads)
        return kernels.active().pack_bits(projected, n_threads=n_threads), totals

    def sign_rows(self, codes: Bytes, *, n_threads: int = 1) -> Float32:
        bits = np.unpackbits(codes, axis=1, count=self.n_pool, bitorder="little")
        return bits.astype(np.float32) * 2 - 1

    def code_pvalues(self, codes: Bytes) -> Float64:
        """Return p-values of the mismatches of all pairs, which are binomial."""
        from scipy.stats import binom  # takes long to import

        signs = self.sign_rows(codes)
        mismatches = (self.n_pool - signs @ signs.T) / 2
        return np.asarray(binom.cdf(np.rint(mismatches), self.n_pool, 0.5))

    def _kept(self, scoring: str, adaptive_bits: object) -> int | None:
        check_choice(scoring, "scoring", SCORINGS)
        return None if adaptive_bits is None else check_count(adaptive_bits, "adaptive_bits", maximum=self.n_pool)
