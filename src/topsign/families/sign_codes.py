"""Views of adaptive and sign codes: locations, signs, distances and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Int32
from .._checks import check_choice
from ..codes import Codes, as_projected
from ..codes import query_norms as norms_of
from .base import METRICS

if TYPE_CHECKING:
    import scipy.sparse

    from .adaptive import AdaptiveRecipe, SignsRecipe


class SignCodes(Codes):
    """Signs of the projections of many signals on a whole pool.

    Made by :meth:`topsign.SignIndex.get`. Columns are "norms" and "scales", if the recipe keeps them.
    """

    recipe: SignsRecipe
    forms: ClassVar[tuple[str, ...]] = ("codes", "bits", "dense")

    @property
    def n_bits(self) -> int:
        """Signs kept by each code."""
        return self.recipe.n_bits

    @property
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.recipe.n_pool

    @property
    def scales(self) -> Float32 | None:
        """``|u|**2 / (sum of the kept |projections|)`` of each signal, None if they are not kept.

        A scale times the sum of a query's projections, each with the code's sign, estimates the inner product without
        bias.
        """
        return self.columns.get("scales")

    @property
    def signs(self) -> npt.NDArray[np.int8]:
        """Signs of the kept projections, +1 or -1: (n_codes, n_bits) int8."""
        bits = np.unpackbits(self._packed_signs(), axis=1, count=self.n_bits, bitorder="little")
        return bits.astype(np.int8) * 2 - 1

    def _packed_signs(self) -> Bytes:
        return self.data

    def to_bits(self) -> Bytes:
        """Return the packed signs, (n_codes, ceil(n_pool / 8)) uint8, little-endian bits.

        The plain Hamming distance to the packed signs of a query's projections is the number of mismatches.
        """
        return self._packed_signs()

    @classmethod
    def from_bits(cls, bits: npt.ArrayLike, *, recipe: Any, columns: Mapping[str, npt.ArrayLike] | None = None) -> Self:
        """Return the codes whose :meth:`to_bits` these are; raise ValueError for anything else."""
        return cls(bits, recipe=recipe, columns=columns)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a form for other programs; ``form="bits"`` is :meth:`to_bits`."""
        self.check_form(form)
        return {"bits": self.to_bits()} if form == "bits" else super().to_form(form)

    @classmethod
    def _of_form(cls, form: str, values: Mapping[str, npt.ArrayLike], **made: Any) -> Self:
        return cls.from_bits(values["bits"], **made) if form == "bits" else super()._of_form(form, values, **made)

    def mismatches(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Int32:
        """Return how many signs of each query differ from each code's, (n_queries, n_codes) int32.

        ``projected`` is what :meth:`topsign.AdaptiveEncoder.project` returned: (n_queries, n_pool).
        """
        queries = as_projected(projected, n_pool=self.n_pool, space=self.recipe.space)
        threads = kernels.n_threads(n_threads)
        bits = kernels.active().pack_bits(queries, n_threads=threads)
        return kernels.active().mismatches(self.recipe.layout, self.data, bits, n_threads=threads)

    def scores(
        self,
        projected: npt.ArrayLike,
        *,
        metric: str = "inner_product",
        query_norms: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Float32:
        """Return asymmetric estimates from real-valued queries, (n_queries, n_codes) float32.

        Parameters
        ----------
        projected : array of shape (n_queries, n_pool)
        metric : "inner_product" or "correlation"
            The inner product needs the stored scales. The correlation takes them where they are kept, and
            otherwise the scale expected of a normal signal.
        query_norms : array of shape (n_queries,), optional
            Norms of the queries, for the correlation. Taken from the projections when not given: exact for
            a Hadamard or unimodular pool with n_pool = n_features, within 1/sqrt(2 * n_pool) otherwise.
        """
        check_choice(metric, "metric", METRICS)
        if metric == "inner_product" and query_norms is not None:
            raise ValueError('query_norms go with metric="correlation"; an inner product does not use them')
        if metric == "inner_product" and self.scales is None:
            raise ValueError(
                "these codes keep no scales (norms=False), so inner products cannot be estimated; "
                'ask for metric="correlation", or encode with norms=True'
            )
        queries = as_projected(projected, n_pool=self.n_pool, space=self.recipe.space)
        threads = kernels.n_threads(n_threads)
        scores = kernels.active().score_sums(self.recipe.layout, self.data, queries, n_threads=threads)
        if self.scales is None or self.norms is None:
            from ..theory import mean_kept_magnitude  # SciPy takes long to import

            kept = mean_kept_magnitude(n_bits=self.n_bits, n_pool=self.n_pool)
            scores *= np.float32(1 / (self.n_bits * kept))
        else:
            scores *= self.scales if metric == "inner_product" else self.scales / self.norms
        return scores if metric == "inner_product" else _divide_rows(scores, norms_of(queries, query_norms))


class AdaptiveCodes(SignCodes):
    """Codes of many signals, each with the locations that its own largest projections chose.

    Made by :meth:`topsign.AdaptiveEncoder.encode`, or from locations and signs by :meth:`from_locations`. Columns are
    "norms" and "scales", if the recipe keeps them.
    """

    recipe: AdaptiveRecipe
    forms: ClassVar[tuple[str, ...]] = ("codes", "bits", "sparse", "dense")

    @classmethod
    def from_locations(
        cls,
        locations: npt.ArrayLike,
        signs: npt.ArrayLike,
        *,
        recipe: AdaptiveRecipe,
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> Self:
        """Return codes from locations (n_codes, n_bits), ascending in each row, and signs +1 or -1 of the same shape.

        >>> import topsign as ts
        >>> recipe = ts.AdaptiveEncoder(n_bits=2, norms=False, random_state=7).fit(np.ones((1, 8))).recipe_
        >>> codes = AdaptiveCodes.from_locations([[3, 5]], [[1, -1]], recipe=recipe)
        >>> codes.locations, codes.signs
        (array([[3, 5]], dtype=int32), array([[ 1, -1]], dtype=int8))
        """
        kept, signed = np.asarray(locations), np.asarray(signs)
        n_bits, n_pool = recipe.n_bits, recipe.n_pool
        if kept.ndim != 2 or kept.dtype.kind not in "iu" or kept.shape[1] != n_bits or signed.shape != kept.shape:
            raise ValueError(
                f"locations and signs must be integer matrices of shape (n_codes, {n_bits}), "
                f"got shapes {kept.shape} and {signed.shape}"
            )
        if not np.isin(signed, (-1, 1)).all():
            raise ValueError("signs must be +1 or -1")
        if kept.size and (kept.min() < 0 or kept.max() >= n_pool or (np.diff(kept.astype(np.int64)) <= 0).any()):
            raise ValueError(f"locations must ascend without repeats in each row and lie in [0, {n_pool})")
        packed_signs = np.packbits(signed > 0, axis=1, bitorder="little")
        data = kernels.active().pack_codes(recipe.layout, np.ascontiguousarray(kept, np.int32), packed_signs)
        return cls(data, recipe=recipe, columns=columns)

    @property
    def layout(self) -> str:
        """ "compact" or "fast"."""
        return self.recipe.layout.name

    @property
    def locations(self) -> Int32:
        """Locations in the pool that each code keeps, ascending: (n_codes, n_bits) int32."""
        return kernels.active().unpack_codes(self.recipe.layout, self.data)[0]

    def _packed_signs(self) -> Bytes:
        return kernels.active().unpack_codes(self.recipe.layout, self.data)[1]

    def to_layout(self, layout: str) -> AdaptiveCodes:
        """Return the same codes in the other layout; nothing is lost."""
        wanted = self.recipe.with_layout(layout)
        if wanted == self.recipe:
            return self
        contents = kernels.active().unpack_codes(self.recipe.layout, self.data)
        return self.unchecked(kernels.active().pack_codes(wanted.layout, *contents), wanted, self.columns)

    def to_bits(self) -> Bytes:
        """Return one-hot codes for any Hamming engine, (n_codes, ceil(2 * n_pool / 8)) uint8, little-endian bits.

        Bit j stands for location j kept with a positive sign, bit n_pool + j for a negative one. The plain
        Hamming distance to :func:`query_bits` is ``n_pool - n_bits + 2 * mismatches``, exactly.
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
    def from_bits(
        cls, bits: npt.ArrayLike, *, recipe: AdaptiveRecipe, columns: Mapping[str, npt.ArrayLike] | None = None
    ) -> Self:
        """Return the codes whose :meth:`to_bits` these are; raise ValueError for anything else."""
        n_bits, n_pool = recipe.n_bits, recipe.n_pool
        packed = np.asarray(bits)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-2 * n_pool // 8):
            raise ValueError(
                f"one-hot codes with n_pool={n_pool} must be uint8 of shape (n_codes, {-(-2 * n_pool // 8)}), "
                f"got dtype {packed.dtype} and shape {packed.shape}"
            )
        locations = np.empty((len(packed), n_bits), np.int32)
        signs = np.empty((len(packed), n_bits), np.int8)
        for row, one in enumerate(packed):
            positive, negative = np.unpackbits(one, count=2 * n_pool, bitorder="little").reshape(2, n_pool)
            kept = np.flatnonzero(positive | negative)
            if len(kept) != n_bits or (positive & negative).any():
                raise ValueError(f"bits are not a one-hot code at row {row}: {n_bits} rows must have one sign each")
            locations[row], signs[row] = kept, np.where(positive[kept], 1, -1)
        return cls.from_locations(locations, signs, recipe=recipe, columns=columns)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a form for other programs; ``form="sparse"`` are locations and signs."""
        self.check_form(form)
        return {"locations": self.locations, "signs": self.signs} if form == "sparse" else super().to_form(form)

    @classmethod
    def _of_form(cls, form: str, values: Mapping[str, npt.ArrayLike], **made: Any) -> Self:
        if form == "sparse":
            return cls.from_locations(values["locations"], values["signs"], **made)
        return super()._of_form(form, values, **made)

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return codes as rows of +-1, (n_codes, n_pool) float32 CSR.

        The dot product with a query's signs is ``n_bits - 2 * mismatches``; with its projections, the sum
        that :meth:`scores` scales.
        """
        import scipy.sparse

        starts = np.arange(0, (len(self) + 1) * self.n_bits, self.n_bits)
        values = self.signs.astype(np.float32).ravel()
        shape = (len(self), self.n_pool)
        return scipy.sparse.csr_array((values, self.locations.ravel(), starts), shape=shape)


def _divide_rows(sums: Float32, norms: Float32) -> Float32:
    """Return each row over its norm; a zero query is correlated with nothing."""
    divisors = norms[:, np.newaxis]
    quotients: Float32 = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
    return quotients
