"""Grouped codes: the location and the sign of the largest projection of each group of eight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from .. import kernels
from .._arrays import Bytes, Float32, Float64
from .._checks import check_count
from .sign_codes import GroupedCodes
from .signs_recipe import SignsRecipe
from .weight_coding import size_steps

GROUP = 8  # projections of a group
PER_BYTE = 2 * GROUP  # projections


@dataclass(frozen=True, eq=False)
class GroupedRecipe(SignsRecipe):
    """Recipe of grouped codes, which need no training.

    Nibble g belongs to projections 8 g to 8 g + 7: its low three bits are the location of the largest magnitude (the
    lower location of equal ones), its high bit is the sign there. The low nibble of a byte comes first.
    """

    family: ClassVar[str] = "grouped"
    codes_type: ClassVar[type[GroupedCodes]] = GroupedCodes
    kind: ClassVar[str] = "groups"

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
        return 8 * self.n_bytes

    @property
    def n_kept(self) -> int:
        return self.n_pool // GROUP

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        return size_steps(1, n_features // 2) or [1]

    def packed(self, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
        return kernels.active().encode_groups(projected, n_threads=n_threads)

    def selection(self, n_compared: int) -> tuple[int, ...]:
        return 1, GROUP, n_compared
