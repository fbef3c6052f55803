"""Views of sign, grouped and adaptive codes: locations, signs, distances and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Int32, Int64
from .._checks import check_choice
from ..codes import Codes, as_projected
from ..codes import query_norms as norms_of
from ..kernels import CodeBlocks
from .base import METRICS
from .comparison import counted, signs_of

if TYPE_CHECKING:
    import scipy.sparse

    from .adaptive import AdaptiveRecipe
    from .signs import GroupedRecipe, SignsRecipe


class SignCodes(Codes):
    """Signs of the projections of many signals on a whole pool.

    Made by :meth:`topsign.SignIndex.get`.
    """

    recipe: SignsRecipe
    forms: ClassVar[tuple[str, ...]] = ("codes", "bits", "dense")

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.recipe.n_pool

    @property
    def n_kept(self) -> int:
        """Projections whose signs a code keeps."""
        return self.recipe.n_kept

    @property
    def signs(self) -> npt.NDArray[np.int8]:
        """Signs of the kept projections, +1 or -1: (n_codes, n_kept) int8."""
        return self.recipe.levels(self.data)

    def to_bits(self) -> Bytes:
        """Return the packed signs, (n_codes, n_pool / 8) uint8, little-endian bits.

        The plain Hamming distance to the packed signs of a query's projections is the number of mismatches.
        """
        return np.ascontiguousarray(self.data[:, : self.recipe.n_bytes])

    @classmethod
    def from_bits(cls, bits: npt.ArrayLike, *, recipe: Any, factors: npt.ArrayLike | None = None) -> Self:
        """Return the codes whose :meth:`to_bits` these are; raise ValueError for anything else.

        ``factors`` are the last two bytes of each code if it keeps the norm of its signal.
        """
        packed = np.asarray(bits)
        if packed.dtype != np.uint8 or packed.ndim != 2:
            raise ValueError(f"bits must be a uint8 matrix, got dtype {packed.dtype} and shape {packed.shape}")
        return cls(_with_factors(packed, factors), recipe=recipe)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a form for other programs; ``form="bits"`` is :meth:`to_bits`."""
        self.check_form(form)
        return {"bits": self.to_bits()} | self._factors() if form == "bits" else super().to_form(form)

    @classmethod
    def _of_form(cls, form: str, values: Mapping[str, npt.ArrayLike], *, recipe: Any) -> Self:
        if form != "bits":
            return super()._of_form(form, values, recipe=recipe)
        return cls.from_bits(values["bits"], recipe=recipe, factors=values.get("factor"))

    def _factors(self) -> dict[str, Array]:
        """Return the factors at the ends of codes as a column, if they have any."""
        n_bytes = self.recipe.n_bytes
        return {} if self.recipe.factor is None else {"factor": np.ascontiguousarray(self.data[:, n_bytes:])}

    def mismatches(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Int32:
        """Return how many signs of each query differ from each code's, (n_queries, n_codes) int32.

        ``projected`` is what ``project`` of the encoder or index returned: (n_queries, n_pool).
        """
        queries = as_projected(projected, n_pool=self.n_pool, space=self.recipe.space)
        agreements = kernels.active().scores(
            self.recipe.scoring_of(None),
            CodeBlocks.of(self.data),
            counted(signs_of(queries)),
            n_threads=kernels.n_threads(n_threads),
        )
        return (self.n_kept - agreements.astype(np.int32)) // 2

    def scores(
        self,
        projected: npt.ArrayLike,
        *,
        metric: str | None = None,
        query_norms: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Float32:
        """Return asymmetric estimates from real-valued queries, (n_queries, n_codes) float32.

        Parameters
        ----------
        projected : array of shape (n_queries, n_pool)
        metric : "correlation" or "inner_product"
            That of the recipe by default. The inner product needs codes that keep the norms of their signals.
        query_norms : array of shape (n_queries,), optional
            Norms of the queries, for the correlation. Taken from the projections when not given: exact for
            a Hadamard or unimodular pool with n_pool = n_features, within 1/sqrt(2 * n_pool) otherwise.
        """
        metric = check_choice(self.recipe.metric if metric is None else metric, "metric", METRICS)
        if metric == "inner_product" and query_norms is not None:
            raise ValueError('query_norms go with metric="correlation"; an inner product does not use them')
        if metric == "inner_product" and self.recipe.factor is None:
            raise ValueError(
                "these codes keep no norms, so inner products cannot be estimated; "
                'ask for metric="correlation", or encode with metric="inner_product"'
            )
        queries = as_projected(projected, n_pool=self.n_pool, space=self.recipe.space)
        factors, threads = np.full(len(queries), float(self.recipe.law().expected_scale)), kernels.n_threads(n_threads)
        if metric == "correlation":
            norms = norms_of(queries, query_norms)
            factors = np.divide(factors, norms, out=np.zeros(len(norms)), where=norms > 0)
        scorer = self.recipe.scoring_of(self.recipe.factor if metric == "inner_product" else None)
        rounded = self.recipe.rounded(queries, factors, threads)
        return kernels.active().scores(scorer, CodeBlocks.of(self.data), rounded, n_threads=threads)


class LocatedCodes(SignCodes):
    """Base class of codes that keep some projections of a pool with their locations."""

    forms: ClassVar[tuple[str, ...]] = ("codes", "bits", "sparse", "dense")

    @classmethod
    def from_locations(
        cls, locations: npt.ArrayLike, signs: npt.ArrayLike, *, recipe: Any, factors: npt.ArrayLike | None = None
    ) -> Self:
        """Return codes from locations (n_codes, n_kept), ascending in each row, and signs +1 or -1 of the same shape.

        ``factors`` are the last two bytes of each code if it keeps the norm of its signal.

        >>> import topsign as ts
        >>> recipe = ts.AdaptiveEncoder(n_bits=2, random_state=7).fit(np.ones((1, 8))).recipe_
        >>> codes = ts.AdaptiveCodes.from_locations([[3, 5]], [[1, -1]], recipe=recipe)
        >>> codes.locations, codes.signs
        (array([[3, 5]], dtype=int32), array([[ 1, -1]], dtype=int8))
        """
        kept, signed = np.asarray(locations), np.asarray(signs)
        n_kept, n_pool = recipe.n_kept, recipe.n_pool
        if kept.ndim != 2 or kept.dtype.kind not in "iu" or kept.shape[1] != n_kept or signed.shape != kept.shape:
            raise ValueError(
                f"locations and signs must be integer matrices of shape (n_codes, {n_kept}), "
                f"got shapes {kept.shape} and {signed.shape}"
            )
        if not np.isin(signed, (-1, 1)).all():
            raise ValueError("signs must be +1 or -1")
        if kept.size and (kept.min() < 0 or kept.max() >= n_pool or (np.diff(kept.astype(np.int64)) <= 0).any()):
            raise ValueError(f"locations must ascend without repeats in each row and lie in [0, {n_pool})")
        packed = cls._packed(recipe, kept.astype(np.int64), signed > 0)
        return cls(_with_factors(packed, factors), recipe=recipe)

    @staticmethod
    @abstractmethod
    def _packed(recipe: Any, locations: Int64, positive: npt.NDArray[np.bool_]) -> Bytes:
        """Return the bytes of codes without factors."""

    @property
    @abstractmethod
    def locations(self) -> Int32:
        """Locations in the pool that each code keeps, ascending: (n_codes, n_kept) int32."""

    def to_bits(self) -> Bytes:
        """Return one-hot codes for any Hamming engine, (n_codes, ceil(2 * n_pool / 8)) uint8, little-endian bits.

        Bit j stands for location j kept with a positive sign, bit n_pool + j for a negative one. The plain
        Hamming distance to :func:`query_bits` is ``n_pool - n_kept + 2 * mismatches``, exactly.
        """
        out = np.empty((len(self), -(-2 * self.n_pool // 8)), np.uint8)
        n_rows = max(1, 2**24 // self.n_pool)  # unpacked bits held at a time: 32 MB
        for start in range(0, len(self), n_rows):
            part = self[start : start + n_rows]
            bits = np.zeros((len(part), 2 * self.n_pool), bool)
            np.put_along_axis(bits, part.locations + np.where(part.signs > 0, 0, self.n_pool), True, axis=1)
            out[start : start + n_rows] = np.packbits(bits, axis=1, bitorder="little")
        return out

    @classmethod
    def from_bits(cls, bits: npt.ArrayLike, *, recipe: Any, factors: npt.ArrayLike | None = None) -> Self:
        """Return the codes whose :meth:`to_bits` these are; raise ValueError for anything else."""
        n_kept, n_pool = recipe.n_kept, recipe.n_pool
        packed = np.asarray(bits)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-2 * n_pool // 8):
            raise ValueError(
                f"one-hot codes with n_pool={n_pool} must be uint8 of shape (n_codes, {-(-2 * n_pool // 8)}), "
                f"got dtype {packed.dtype} and shape {packed.shape}"
            )
        locations = np.empty((len(packed), n_kept), np.int32)
        signs = np.empty((len(packed), n_kept), np.int8)
        for row, one in enumerate(packed):
            positive, negative = np.unpackbits(one, count=2 * n_pool, bitorder="little").reshape(2, n_pool)
            kept = np.flatnonzero(positive | negative)
            if len(kept) != n_kept or (positive & negative).any():
                raise ValueError(f"bits are not a one-hot code at row {row}: {n_kept} rows must have one sign each")
            locations[row], signs[row] = kept, np.where(positive[kept], 1, -1)
        return cls.from_locations(locations, signs, recipe=recipe, factors=factors)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a form for other programs; ``form="sparse"`` are locations and signs."""
        self.check_form(form)
        if form != "sparse":
            return super().to_form(form)
        located: dict[str, Array] = {"locations": self.locations, "signs": self.signs}
        return located | self._factors()

    @classmethod
    def _of_form(cls, form: str, values: Mapping[str, npt.ArrayLike], *, recipe: Any) -> Self:
        if form != "sparse":
            return super()._of_form(form, values, recipe=recipe)
        return cls.from_locations(values["locations"], values["signs"], recipe=recipe, factors=values.get("factor"))

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return codes as rows of +-1, (n_codes, n_pool) float32 CSR.

        The dot product with a query's signs is ``n_kept - 2 * mismatches``; with its projections, the sum
        that :meth:`scores` scales.
        """
        import scipy.sparse

        starts = np.arange(0, (len(self) + 1) * self.n_kept, self.n_kept)
        values = self.signs.astype(np.float32).ravel()
        shape = (len(self), self.n_pool)
        return scipy.sparse.csr_array((values, self.locations.ravel(), starts), shape=shape)


class AdaptiveCodes(LocatedCodes):
    """Codes of many signals, each with the locations that its own largest projections chose.

    Made by :meth:`topsign.AdaptiveEncoder.encode`, or from locations and signs by :meth:`from_locations`.
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


class GroupedCodes(LocatedCodes):
    """Codes of many signals: the location and the sign of the largest projection of each group of eight.

    Made by :meth:`topsign.GroupedIndex.get`, or from locations and signs by :meth:`from_locations`. Any bytes are a
    valid code.
    """

    recipe: GroupedRecipe

    @staticmethod
    def _packed(recipe: GroupedRecipe, locations: Int64, positive: npt.NDArray[np.bool_]) -> Bytes:
        groups = np.arange(recipe.n_kept)
        if locations.size and (locations // 8 != groups).any():
            raise ValueError("locations must be one of each group of eight projections")
        nibbles = (locations % 8 | positive * 8).astype(np.uint8)
        return np.asarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4, np.uint8)

    @property
    def _nibbles(self) -> Bytes:
        data = self.data[:, : self.recipe.n_bytes]
        return np.stack([data & 15, data >> 4], axis=2).reshape(len(data), self.n_kept)

    @property
    def locations(self) -> Int32:
        return np.asarray((self._nibbles & 7) + np.arange(0, self.n_pool, 8), np.int32)

    @property
    def signs(self) -> npt.NDArray[np.int8]:
        return (self._nibbles >> 3).astype(np.int8) * 2 - 1


def _with_factors(codes: Bytes, factors: npt.ArrayLike | None) -> Bytes:
    return codes if factors is None else np.hstack([codes, np.asarray(factors, np.uint8)])
