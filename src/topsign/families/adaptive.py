"""Adaptive codes: the locations and signs of each signal's largest projections."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int32, Int64
from .._checks import check_count, check_pool
from ..kernels import Layout
from .signs import LocatedCodes, ProjectionSignsRecipe, pool_of
from .weight_encoder import LevelWeightEncoder, WeightEncoder, size_steps

MOST_OF_POOL = 4  # a code that keeps more than a quarter of its pool gains little from the choice
SETS = struct.Struct("<I")  # header of packed codes: bytes of one set of locations


class AdaptiveCodes(LocatedCodes):
    """Codes of many signals, each with the locations that its own largest projections chose.

    Made by :meth:`topsign.Encoder.encode`, or from locations and signs by :meth:`from_locations`.
    """

    recipe: AdaptiveRecipe

    @staticmethod
    def _packed(recipe: AdaptiveRecipe, locations: Int64, positive: npt.NDArray[np.bool_]) -> Bytes:
        signs = np.packbits(positive, axis=1, bitorder="little")
        return kernels.active().pack_codes(recipe.layout, np.ascontiguousarray(locations, np.int32), signs)

    @property
    def locations(self) -> Int32:
        return self.recipe.unpacked(self.data)[0]

    @property
    def signs(self) -> npt.NDArray[np.int8]:
        packed = self.recipe.unpacked(self.data)[1]
        return np.unpackbits(packed, axis=1, count=self.n_kept, bitorder="little").astype(np.int8) * 2 - 1


@dataclass(frozen=True, eq=False)
class AdaptiveRecipe(ProjectionSignsRecipe):
    """Recipe of adaptive codes, the paper's codes, which need no training."""

    family: ClassVar[str] = "adaptive"
    codes_type: ClassVar[type[AdaptiveCodes]] = AdaptiveCodes
    kind: ClassVar[str] = "kept"
    sizes: ClassVar[tuple[str, ...]] = ("n_bits", "n_pool")
    size_name: ClassVar[str] = "n_bits"

    layout: Layout = field(kw_only=True)  #: sizes of the parts of an adaptive code

    @classmethod
    def make(
        cls, *, n_features: int, n_bits: int | str | None = "auto", n_pool: int | None = None, **options: Any
    ) -> Self:
        """Return a recipe from the parameters of a constructor.

        ``n_pool`` is ``n_features`` by default; ``n_bits="auto"`` is an eighth of the pool, at least 16.
        """
        n_pool = n_features if n_pool is None else n_pool
        layout = Layout(*check_pool(resolve_bits(n_bits, n_pool), n_pool))
        return cls(*pool_of(layout.n_pool, n_features=n_features, **options), layout=layout)

    @classmethod
    def size_warning(
        cls, *, n_features: int, n_bits: int | str = "auto", n_pool: int | None = None, **parameters: Any
    ) -> str | None:
        n_pool = n_features if n_pool is None else n_pool
        layout = Layout(resolve_bits(n_bits, n_pool), n_pool)
        if 4 * layout.n_bits <= n_pool or n_bits == n_pool:
            return None
        return (
            f"n_bits={n_bits} keeps {layout.n_bits / n_pool:.0%} of the pool of {n_pool}, in {layout.code_bytes} bytes "
            f'per code; more than a quarter gains little over family="sign", which keeps all signs in '
            f"{-(-n_pool // 8)} bytes: lower n_bits, raise n_pool, or use sign codes"
        )

    @property
    def n_bits(self) -> int:
        """Number of projections kept by a code."""
        return self.layout.n_bits

    @property
    def n_kept(self) -> int:
        return self.layout.n_bits

    @property
    def n_bytes(self) -> int:
        return self.layout.code_bytes

    @property
    def _shape(self) -> dict[str, Any]:
        return {"layout": self.layout}

    @classmethod
    def for_weights(cls, weights: Array, *, n_bytes: int | None = None, **options: Any) -> Self:
        """Return a recipe for weight vectors; ``n_bytes`` keeps as many projections as fit."""
        n_features = weights.shape[1]
        if n_bytes is not None:
            if options.get("n_bits", "auto") != "auto":
                raise ValueError(f"give n_bits or n_bytes, not both, got n_bits={options['n_bits']} and {n_bytes=}")
            options["n_bits"] = bits_within(n_bytes, options.get("n_pool") or n_features)
        return cls.make(n_features=n_features, **options)

    @classmethod
    def weight_sizes(cls, n_features: int, *, n_pool: int | None = None, **options: Any) -> list[int]:
        return pool_sizes(check_pool(1, n_features if n_pool is None else n_pool)[1])

    def weight_encoder(self) -> WeightEncoder:
        return AdaptiveWeights(self)

    def packed(self, projected: Float32) -> tuple[Bytes, Float64]:
        locations, signs, totals = kernels.active().select(projected, self.n_bits)
        return kernels.active().pack_codes(self.layout, locations, signs), totals

    def check(self, codes: Bytes, *, name: str = "data") -> None:
        super().check(codes, name=name)
        rows = np.ascontiguousarray(codes[:, : self.n_bytes])
        bad = np.flatnonzero(~kernels.active().valid_codes(self.layout, rows))
        if bad.size:
            raise ValueError(
                f"{name} is not a packed code at row {bad[0]} ({bad.size} such rows): its bytes are not "
                f"{self.n_bits} ascending locations"
            )

    def pack(self, codes: Bytes) -> bytes:
        """Serialise ``codes`` near their entropy, ``n_bits + log2 C(n_pool, n_bits)`` bits per code.

        The bytes per set of locations, all factors, all signs, and all sets by an arithmetic coder, which takes its
        entropy within 2% and two bytes.
        """
        locations, signs = self.unpacked(codes)
        chosen, capacity = kernels.active(), self._entropy_bytes + 16
        sets, lengths = chosen.encode_sets(locations, self.n_pool, capacity)
        set_bytes = int(lengths.max(initial=0))  # all sets have the same size within two bytes
        parts = codes[:, self.n_bytes :], signs, sets[:, :set_bytes]
        return SETS.pack(set_bytes) + b"".join(part.tobytes() for part in parts)

    def unpack(self, packed: bytes, n_codes: int) -> Bytes:
        if len(packed) < SETS.size:
            raise ValueError(f"{n_codes} codes take at least {SETS.size} bytes, got {len(packed)}")
        (set_bytes,) = SETS.unpack_from(packed)
        # Every set of locations takes about its entropy, so that codes are never much larger than their message.
        least = self._entropy_bytes - 2
        if n_codes and not least <= set_bytes <= least + 32:
            raise ValueError(f"sets of {self.n_bits} out of {self.n_pool} locations cannot take {set_bytes} bytes each")
        widths = self.code_bytes - self.n_bytes, self.layout.sign_bytes, set_bytes
        if SETS.size + n_codes * sum(widths) != len(packed):
            raise ValueError(f"{n_codes} codes take {SETS.size + n_codes * sum(widths)} bytes, got {len(packed)}")
        parts, start = [], SETS.size
        for width in widths:
            parts.append(np.frombuffer(packed, np.uint8, n_codes * width, start).reshape(n_codes, width))
            start += n_codes * width
        factors, signs, sets = parts
        locations = kernels.active().decode_sets(sets, self.n_bits, self.n_pool)
        codes = kernels.active().pack_codes(self.layout, locations, signs)
        return np.hstack([codes, factors])

    def unpacked(self, codes: Bytes) -> tuple[Int32, Bytes]:
        """Return the locations of ``codes``, (n_codes, n_bits) int32, and their packed signs."""
        rows = np.ascontiguousarray(codes[:, : self.n_bytes])
        return kernels.active().unpack_codes(self.layout, rows)

    @property
    def _entropy_bytes(self) -> int:
        """Entropy of a set of locations in whole bytes."""
        from ..theory import storage_bits  # SciPy takes long to import

        return int(storage_bits(n_bits=self.n_bits, n_pool=self.n_pool) - self.n_bits) // 8


class AdaptiveWeights(LevelWeightEncoder):
    """Coding of weight vectors by adaptive codes, whose size is a part of the pool."""

    recipe: AdaptiveRecipe

    @property
    def size(self) -> str:
        return f"n_bits={self.recipe.n_bits} of n_pool={self.recipe.n_pool} (a larger n_pool may help)"

    def size_warning(self) -> str | None:
        """Return a warning if most of the pool is kept, or if float16 rows are as small."""
        recipe = self.recipe
        n_bits, n_pool, n_features = recipe.n_bits, recipe.n_pool, recipe.n_features
        most, large = MOST_OF_POOL * n_bits > n_pool, self.nbytes >= 2 * n_features
        if not (most or large):
            return None
        errors = {size: replace(recipe, layout=Layout(size, n_pool)).logit_error() for size in pool_sizes(n_pool)}
        best, error = min(errors, key=errors.__getitem__), self.error()
        why = "the head is small"
        if most:
            why = f"n_bits={n_bits} of n_pool={n_pool} keeps more than a quarter of the pool"
        advice = "no n_bits of this pool errs less"
        if errors[best] < error:
            advice = f"n_bits={best} of the same pool errs by {errors[best]:.1%}"
        return (
            f"{why}: estimated logits err by {error:.1%} of |w| |x| at {self.nbytes} bytes per class, float16 rows by "
            f"0.03% at {2 * n_features}; {advice}; raise n_pool, keep a shortlist, or leave a head of {n_features} "
            "features as it is"
        )


def pool_sizes(n_pool: int) -> list[int]:
    """Return the numbers of bits that an automatic choice tries, from small to half of the pool."""
    return [8 * size for size in size_steps(1, n_pool // 16)] or [max(1, n_pool // 2)]


def bits_within(n_bytes: int, n_pool: int) -> int:
    """Return the most projections of a pool whose code takes at most ``n_bytes``."""
    n_pool = check_pool(1, n_pool)[1]
    n_bytes, fewest = check_count(n_bytes, "n_bytes"), Layout(1, n_pool).code_bytes
    if n_bytes < fewest:
        raise ValueError(
            f"n_bytes must be at least {fewest}, the bytes of one bit of a pool of {n_pool}, got {n_bytes}"
        )
    sizes = range(1, n_pool + 1)  # the bytes of a code grow with its bits
    return bisect_right(sizes, n_bytes, key=lambda n_bits: Layout(n_bits, n_pool).code_bytes)


def resolve_bits(n_bits: int | str | None, n_pool: int) -> int:
    """Return the number of projections to keep: as given, or an eighth of the pool."""
    if n_bits is None or n_bits == "auto":
        n_pool = check_pool(1, n_pool)[1]
        return min(n_pool, max(16, n_pool // 8))
    if isinstance(n_bits, str):
        raise ValueError(f'n_bits must be a number or "auto", got {n_bits!r}')
    return n_bits
