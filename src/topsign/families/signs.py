"""Sign and grouped codes, and the base classes that adaptive codes share with them: codes of signs of projections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int32, Int64
from .._checks import check_choice, check_count, suggests_keywords
from .._files import Record
from .._lazy import lazy
from .._random import RandomState
from ..codes import Codes, as_projected
from ..codes import query_norms as norms_of
from ..kernels import CodeBlocks, RoundedQueries, pack_log_factors, unpack_factors
from ..projections import Projection, resolve_projection
from ..projections.blocks import Block
from .base import METRICS, SCORINGS, check_real_valued
from .comparison import CodeComparison, Comparison, HammingComparison, Null, Pairing, count_signs, signs_of, unit
from .projected import ProjectedRecipe, check_sizes, given_mean, mean_signal, read_mean, read_projection
from .weight_encoder import size_steps

if TYPE_CHECKING:
    import scipy.sparse

    from ..significance.null_distributions import IsotropicNull

GROUP = 8  # projections of a group
MIN_TOTAL = 1e-5
"""Minimum sum of kept magnitudes for a signal of norm one; for a normal signal it is about the number of signs."""


@dataclass(frozen=True, eq=False)
class ProjectionSignsRecipe(ProjectedRecipe):
    """Base class of recipes whose codes are signs of projections.

    The kept projections of a signal, each with its sign, estimate correlations by their sum with the projections of a
    query, scaled as for a normal signal.
    """

    per_byte: ClassVar[int]  #: projections of the pool per byte of a code

    @lazy
    def n_bytes(self) -> int:
        return self.n_pool // self.per_byte

    @property
    @abstractmethod
    def n_kept(self) -> int:
        """Number of projections whose signs a code keeps."""

    @lazy
    def center(self) -> Float32 | None:
        return self.mean

    @lazy
    def scorings(self) -> tuple[str, ...]:
        return SCORINGS

    # Making

    @classmethod
    def needs_sample(cls, *, center: bool | npt.ArrayLike = False, **parameters: Any) -> bool:
        cls.make(**parameters)
        return is_true(center)

    @classmethod
    def learn(
        cls, sample: Array, *, part: slice | None = None, center: bool | npt.ArrayLike = False, **parameters: Any
    ) -> Self:
        recipe = cls.make(**parameters)
        mean = mean_signal(sample, part) if is_true(center) else given_mean(center, recipe.n_features)
        return replace(recipe, mean=mean)

    @classmethod
    def make(cls, *, n_features: int, n_bytes: int | None = None, **options: Any) -> Self:
        """Return a recipe without a mean from the parameters of a constructor.

        By default there are at most ``n_features`` projections.
        """
        n_bytes = max(1, n_features // cls.per_byte) if n_bytes is None else check_count(n_bytes, "n_bytes")
        return cls(*pool_of(cls.per_byte * n_bytes, n_features=n_features, **options))

    # Coding

    def encode(self, block: Block) -> Bytes:
        codes, _ = self._packed(block)
        return codes if self.factor is None else np.hstack([codes, pack_log_factors(np.sqrt(block.square_norms))])

    def _packed(self, block: Block) -> tuple[Bytes, Float64]:
        """Return the codes of signals, and the sums of their kept magnitudes."""
        projected = np.empty((len(block.values), self.n_pool), np.float32)
        self.operator.project_block(block.values, None, projected)
        codes, totals = self.packed(projected)
        empty = (totals <= MIN_TOTAL * np.sqrt(block.square_norms)) & (block.square_norms > 0)
        if np.count_nonzero(empty):
            row, kind = block.row(int(empty.argmax())), self.projection.kind
            raise ValueError(
                f"{row}: all its kept projections are zero on this {kind} pool of {self.n_pool}, so its code "
                "is empty; use a larger pool or a dense projection, or drop that row"
            )
        return codes, totals

    @abstractmethod
    def packed(self, projected: Float32) -> tuple[Bytes, Float64]:
        """Return the codes of projections, and the sums of their kept magnitudes."""

    def decode(self, codes: Bytes) -> Float32:
        """Return the back-projection of the signs, scaled to the signal's norm if it is kept, plus the mean."""
        signals, norms = unit(self.weight_vectors(codes)), self.norms(codes)
        signals = signals if norms is None else signals * norms[:, np.newaxis]
        return signals if self.mean is None else signals + self.mean

    def reference(self, codes: Bytes) -> Float32:
        """Return the scaled signs of the kept projections, which estimate correlations without bias."""
        vectors, norms = self.weight_vectors(codes) * self.isotropic_null().expected_scale, self.norms(codes)
        return vectors if norms is None else vectors * norms[:, np.newaxis]

    def norms(self, codes: Bytes) -> Float32 | None:
        return None if self.factor is None else unpack_factors(codes, self.factor)

    # Comparing

    def isotropic_null(self, n_compared: int | None = None) -> IsotropicNull:
        """Return the distributions of isotropic signals for codes that compare this many signs (default: all)."""
        from ..significance.null_distributions import shared_null
        from ..theory.order_statistics import Selection  # SciPy takes long to import

        kept = Selection(*self.selection(n_compared or self.n_kept))
        return shared_null(kept, self.n_features, self._null_pool)

    def selection(self, n_compared: int) -> tuple[int, ...]:
        """Return the rule of :class:`topsign.theory.order_statistics.Selection` by which projections are kept."""
        return n_compared, self.n_pool

    @lazy
    def _expected_scale(self) -> float:
        """Factor of sums of kept projections, such that they estimate inner products with the query."""
        return float(self.isotropic_null().expected_scale)

    @lazy
    def _null_pool(self) -> str:
        """Kind of projection whose null distribution applies."""
        flat = self.projection.options.get("spectrum", "unimodular") == "unimodular"
        return self.projection.kind if flat else "gaussian"

    @lazy
    def null(self) -> Null:
        from ..significance.null_distributions import ScoreNull

        return ScoreNull(self.isotropic_null())

    def prepare(
        self,
        queries: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
    ) -> Comparison:
        n_kept = self._n_queried(scoring, adaptive_bits)
        projected, norms = self.project(queries, part=part)
        signs, spreads, n_compared = signs_of(projected), None, min(self.n_kept, n_kept)
        if n_kept < self.n_pool:
            locations, _, _ = kernels.active().select(projected, n_kept)
            kept = np.zeros(projected.shape, bool)
            np.put_along_axis(kept, locations.astype(np.int64), True, axis=1)
            projected, signs = np.where(kept, projected, np.float32(0)), signs * kept
        shared = self, norms, self.metric, signs, n_compared
        if scoring == "hamming":
            return HammingComparison(self.scoring_of(None), count_signs(signs), *shared)
        if n_kept < self.n_pool:
            factors, spreads = self._kept_scales(projected, norms)
        else:
            factors = np.divide(self._expected_scale, norms, out=np.zeros(len(norms)), where=norms > 0)
        return CodeComparison(self.scorer, self.rounded(projected, factors), *shared, spreads)

    def _n_queried(self, scoring: str, adaptive_bits: object) -> int:
        """Return the number of projections that each query keeps."""
        check_real_valued(self, scoring, adaptive_bits)
        return self.n_pool

    def _kept_scales(self, projected: Float32, norms: Float64) -> tuple[Float64, Float64]:
        """Return factors of sums if queries keep only their largest projections z, and deviations of impostors.

        Approximation for small correlations: the expected sign of an entry is ``sqrt(2 / pi) rho z / |v|``, so
        ``sqrt(pi / 2) |v| sum(sign z) / sum(z**2)`` estimates rho. With a sixteenth of the pool it is 0.5% low at 0.1,
        4% at 0.3 and 12% at 0.5. For an impostor the sum is modelled as normal with variance ``sum(z**2)``; if the
        pool's rows are independent, the sample correlation of the two signals adds its variance, as in every estimate.
        """
        from ..theory.tails import effective_features  # SciPy takes long to import

        energies = kernels.active().square_norms(projected)
        over = np.divide(norms, energies, out=np.zeros(len(norms)), where=energies > 0)
        variances = 1 / effective_features(self._null_pool, self.n_features, self.n_pool) + np.pi / 2 * norms * over
        return np.sqrt(np.pi / 2) * over, np.sqrt(np.where(energies > 0, variances, 1.0))

    def rounded(self, projected: Float32, factors: Float64) -> RoundedQueries:
        values, steps = kernels.active().round(projected, self.scorer.limit)
        scales = (steps * factors).astype(np.float32)
        return RoundedQueries(values, scales, np.zeros(len(scales), np.float32))

    def expected_match(self, correlation: float) -> dict[str, Any]:
        return self.isotropic_null().expected_match(correlation)

    def pairing(self) -> Pairing:
        from .agreement import AgreementPairing  # which needs SciPy

        return AgreementPairing(self)

    def code_pvalues(self, codes: Bytes) -> Float64:
        """Return p-values of the agreements of all pairs."""
        from ..significance import probabilities

        signs = self.levels(codes).astype(np.float32)
        agreements = np.rint(signs @ signs.T).astype(np.int64)
        return probabilities(self.pairing().log10_p_values(agreements.ravel())).reshape(agreements.shape)

    # Heads

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        cls.for_weights(np.empty((0, n_features), np.float32), **options)
        return False

    @classmethod
    def for_weights(cls, weights: Array, **options: Any) -> Self:
        return cls.make(n_features=weights.shape[1], **options)

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        return size_steps(1, 8 * n_features // cls.per_byte) or [1]

    def encode_weights(self, block: Block) -> tuple[Bytes, Float64]:
        codes, totals = self._packed(block)
        return codes, np.divide(block.square_norms, totals, out=np.zeros(len(totals)), where=totals > 0)

    def weight_vectors(self, codes: Bytes) -> Float32:
        return self.projection.transposed(self.levels(codes).astype(np.float32))

    def features(self, codes: Bytes, norms: Float32) -> Any:
        """Return rows of +-1 at the locations of a code, sparse unless a code keeps all."""
        rows: scipy.sparse.csr_array = self.codes_type(codes, recipe=self, checked=True).to_sparse()  # type: ignore[attr-defined]
        if not norms.all():
            rows.data[np.repeat(norms == 0, self.n_kept)] = 0
            rows.eliminate_zeros()
        return rows

    def logit_error(self) -> float:
        """Return the error of logits.

        Exact for a Gaussian pool given the kept magnitudes: sqrt(1 / N) with N = n_kept * lambda**2, lambda the mean
        kept magnitude. For orthonormal pools 1 / N - 1 / n_features under the root: approximation.
        """
        effective = self.n_kept * self.isotropic_null().kept.mean_magnitude ** 2
        blocks = max(1, self.n_pool // self.n_features)  # independent blocks share no orthogonality
        shared = 1 / (self.n_features * blocks) if self._null_pool in ("hadamard", "circulant") else 0.0
        return float(np.sqrt(max(1 / effective - shared, 0.0)))

    # Describing

    @property
    def summary(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in self.sizes)
        return f"n_features={self.n_features}, {sizes}, metric={self.metric!r}, seed={self.seed}"

    def to_json(self) -> Record:
        return super().to_json() | {name: getattr(self, name) for name in self.sizes}

    @classmethod
    def parse(cls, record: Record) -> Self:
        names = ("n_features", "metric", *cls.sizes)
        made = cls.make(basis=read_projection(record), **{name: record[name] for name in names})
        return replace(made, mean=read_mean(record.get("mean"), made.n_features)).expect_fingerprint(record)


@suggests_keywords
class SignCodes(Codes):
    """Signs of the projections of many signals on a whole pool.

    Made by :meth:`topsign.Encoder.encode`.
    """

    recipe: ProjectionSignsRecipe
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
        """Return the codes of this ``recipe`` whose :meth:`to_bits` are ``bits``; raise ValueError for anything else.

        ``factors`` are the last two bytes of each code if it keeps the norm of its signal.
        """
        packed = np.asarray(bits)
        if packed.dtype != np.uint8 or packed.ndim != 2:
            raise ValueError(f"bits must be a uint8 matrix, got dtype {packed.dtype} and shape {packed.shape}")
        return cls(_with_factors(packed, factors), recipe=recipe)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a ``form`` for other programs; ``form="bits"`` is :meth:`to_bits`."""
        return {"bits": self.to_bits()} | self._factors() if form == "bits" else super().to_form(form)

    @classmethod
    def from_form(cls, form: str, values: Mapping[str, npt.ArrayLike], *, recipe: Any) -> Self:
        if form != "bits":
            return super().from_form(form, values, recipe=recipe)
        return cls.from_bits(values["bits"], recipe=recipe, factors=values.get("factor"))

    def _factors(self) -> dict[str, Array]:
        """Return the factors at the ends of codes as a column, if they have any."""
        n_bytes = self.recipe.n_bytes
        return {} if self.recipe.factor is None else {"factor": np.ascontiguousarray(self.data[:, n_bytes:])}

    def mismatches(self, projected: npt.ArrayLike) -> Int32:
        """Return how many signs of each query differ from each code's, (n_queries, n_codes) int32.

        ``projected`` is what ``project`` of the encoder or index returned: (n_queries, n_pool).
        """
        queries = as_projected(projected, n_pool=self.n_pool, space=self.recipe.space)
        scorer, blocks = self.recipe.scoring_of(None), CodeBlocks.of(self.data)
        agreements = kernels.active().scores(scorer, blocks, count_signs(signs_of(queries)))
        return (self.n_kept - agreements.astype(np.int32)) // 2

    def scores(
        self,
        projected: npt.ArrayLike,
        *,
        metric: str | None = None,
        query_norms: npt.ArrayLike | None = None,
    ) -> Float32:
        """Return asymmetric estimates from real-valued ``projected`` queries, (n_queries, n_codes) float32.

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
        factors = np.full(len(queries), float(self.recipe.isotropic_null().expected_scale))
        if metric == "correlation":
            norms = norms_of(queries, query_norms)
            factors = np.divide(factors, norms, out=np.zeros(len(norms)), where=norms > 0)
        scorer = self.recipe.scoring_of(self.recipe.factor if metric == "inner_product" else None)
        rounded = self.recipe.rounded(queries, factors)
        return kernels.active().scores(scorer, CodeBlocks.of(self.data), rounded)


@suggests_keywords
class LocatedCodes(SignCodes):
    """Base class of codes that keep some projections of a pool with their locations."""

    forms: ClassVar[tuple[str, ...]] = ("codes", "bits", "sparse", "dense")

    @classmethod
    def from_locations(
        cls, locations: npt.ArrayLike, signs: npt.ArrayLike, *, recipe: Any, factors: npt.ArrayLike | None = None
    ) -> Self:
        """Return codes of this ``recipe`` from ``locations`` and ``signs``, both (n_codes, n_kept).

        Locations ascend in each row, and signs are +1 or -1.

        ``factors`` are the last two bytes of each code if it keeps the norm of its signal.

        >>> import topsign as ts
        >>> recipe = ts.Encoder(8, family="adaptive", n_bits=2, random_state=7).fit(np.ones((1, 8))).recipe_
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
        """Return the codes of this ``recipe`` whose :meth:`to_bits` are ``bits``, or raise ValueError."""
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
        """Return the codes in a ``form`` for other programs; ``form="sparse"`` are locations and signs."""
        if form != "sparse":
            return super().to_form(form)
        located: dict[str, Array] = {"locations": self.locations, "signs": self.signs}
        return located | self._factors()

    @classmethod
    def from_form(cls, form: str, values: Mapping[str, npt.ArrayLike], *, recipe: Any) -> Self:
        if form != "sparse":
            return super().from_form(form, values, recipe=recipe)
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


class GroupedCodes(LocatedCodes):
    """Codes of many signals: the location and the sign of the largest projection of each group of eight.

    Made by :meth:`topsign.Encoder.encode`, or from locations and signs by :meth:`from_locations`. Any bytes are a
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


@dataclass(frozen=True, eq=False)
class SignRecipe(ProjectionSignsRecipe):
    """Recipe of sign codes: bit j of byte b is the sign of projection 8 b + j."""

    family: ClassVar[str] = "sign"
    codes_type: ClassVar[type[SignCodes]] = SignCodes
    kind: ClassVar[str] = "signs"
    per_byte: ClassVar[int] = 8

    @lazy
    def n_kept(self) -> int:
        return self.n_pool

    def packed(self, projected: Float32) -> tuple[Bytes, Float64]:
        totals = kernels.active().magnitude_sums(projected)
        return kernels.active().pack_bits(projected), totals

    def features(self, codes: Bytes, norms: Float32) -> Float32:
        return np.asarray(self.levels(codes) * np.sign(norms)[:, np.newaxis])

    def _n_queried(self, scoring: str, adaptive_bits: object) -> int:
        check_choice(scoring, "scoring", SCORINGS)
        most = self.n_pool
        return most if adaptive_bits is None else check_count(adaptive_bits, "adaptive_bits", maximum=most)


@dataclass(frozen=True, eq=False)
class GroupedRecipe(ProjectionSignsRecipe):
    """Recipe of grouped codes, which need no training.

    Nibble g belongs to projections 8 g to 8 g + 7: its low three bits are the location of the largest magnitude (the
    lower location of equal ones), its high bit is the sign there. The low nibble of a byte comes first.
    """

    family: ClassVar[str] = "grouped"
    codes_type: ClassVar[type[GroupedCodes]] = GroupedCodes
    kind: ClassVar[str] = "groups"
    per_byte: ClassVar[int] = 2 * GROUP

    @lazy
    def n_kept(self) -> int:
        return self.n_pool // GROUP

    def packed(self, projected: Float32) -> tuple[Bytes, Float64]:
        return kernels.active().encode_groups(projected)

    def selection(self, n_compared: int) -> tuple[int, ...]:
        return 1, GROUP, n_compared


def pool_of(
    n_pool: int,
    *,
    n_features: int,
    basis: str | Projection = "hadamard",
    metric: str = "correlation",
    random_state: RandomState = None,
) -> tuple[Projection, str]:
    """Return the projection and the metric of a recipe, after checking the parameters that all families share."""
    check_choice(metric, "metric", METRICS)
    made = resolve_projection(basis, n_features=n_features, n_pool=n_pool, random_state=random_state, name="basis")
    check_sizes(made.n_features, made.n_pool)
    return made, metric


def _with_factors(codes: Bytes, factors: npt.ArrayLike | None) -> Bytes:
    return codes if factors is None else np.hstack([codes, np.asarray(factors, np.uint8)])


def is_true(center: bool | npt.ArrayLike) -> bool:
    """Return whether to learn a mean."""
    return isinstance(center, (bool, np.bool_)) and bool(center)
