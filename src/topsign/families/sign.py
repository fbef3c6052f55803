"""Sign codes: the signs of all projections of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .. import kernels
from .._arrays import Bytes, Float32, Float64
from .._checks import check_choice, check_count
from .base import SCORINGS
from .sign_codes import SignCodes
from .signs_recipe import SignsRecipe
from .weight_coding import size_steps

PER_BYTE = 8  # projections


@dataclass(frozen=True, eq=False)
class SignRecipe(SignsRecipe):
    """Recipe of sign codes: bit j of byte b is the sign of projection 8 b + j."""

    family: ClassVar[str] = "sign"
    codes_type: ClassVar[type[SignCodes]] = SignCodes
    kind: ClassVar[str] = "signs"

    @classmethod
    def make(cls, *, n_features: int, n_bytes: int | None = None, **options: Any) -> Self:  # type: ignore[override]
        """Return a recipe from the parameters of a constructor; by default there are at most n_features projections."""
        n_bytes = max(1, n_features // PER_BYTE) if n_bytes is None else check_count(n_bytes, "n_bytes")
        return cls._of_pool(PER_BYTE * n_bytes, n_features=n_features, **options)

    @property
    def n_bytes(self) -> int:
        return self.n_pool // PER_BYTE

    @property
    def n_bits(self) -> int:
        return self.n_pool

    @property
    def n_kept(self) -> int:
        return self.n_pool

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        return size_steps(1, n_features) or [1]

    def packed(self, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
        totals = kernels.active().magnitude_sums(projected, n_threads=n_threads)
        return kernels.active().pack_bits(projected, n_threads=n_threads), totals

    def _n_queried(self, scoring: str, adaptive_bits: object) -> int:
        check_choice(scoring, "scoring", SCORINGS)
        return (
            self.n_pool if adaptive_bits is None else check_count(adaptive_bits, "adaptive_bits", maximum=self.n_pool)
        )

    def _kept_scales(self, projected: Float32, norms: Float64) -> tuple[Float64, Float64]:
        """Return factors of sums if queries keep only their largest projections z, and deviations of impostors.

        Approximation for small correlations: the expected sign of an entry is ``sqrt(2 / pi) rho z / |v|``, so
        ``sqrt(pi / 2) |v| sum(sign z) / sum(z**2)`` estimates rho. With a sixteenth of the pool it is 0.5% low at 0.1,
        4% at 0.3 and 12% at 0.5. For an impostor the sum is modelled as normal with variance ``sum(z**2)``; if the
        pool's rows are independent, the sample correlation of the two signals adds its variance, as in every estimate.
        """
        from ..theory.pools import effective_features  # SciPy takes long to import

        energies = kernels.active().square_norms(projected)
        over = np.divide(norms, energies, out=np.zeros(len(norms)), where=energies > 0)
        variances = 1 / effective_features(self._law_pool, self.n_features, self.n_pool) + np.pi / 2 * norms * over
        return np.sqrt(np.pi / 2) * over, np.sqrt(np.where(energies > 0, variances, 1.0))
