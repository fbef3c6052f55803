"""Adaptive codes: the locations and signs of each signal's largest projections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64
from .._checks import check_choice, check_count, check_flag, check_pool
from .._files import Record
from .._lazy import lazy
from .._random import RandomState
from ..kernels import LAYOUTS, Layout
from ..projections import Projection, resolve_projection
from ..projections.blocks import Block
from .base import Encoded, Recipe, check_metric, check_real_valued, unit
from .comparison import Comparison, Pairing
from .projected import (
    ProjectedRecipe,
    check_sizes,
    claim_fingerprint,
    given_mean,
    mean_signal,
    read_mean,
    read_projection,
    transpose,
)
from .sets import pack_sets, unpack_sets
from .sign_codes import AdaptiveCodes, SignCodes
from .weight_coding import WeightCoding, float_scale_bytes

MIN_TOTAL = 1e-5
"""Minimum sum of kept magnitudes for a signal of norm one; for a normal signal it is about ``n_bits``."""


@dataclass(frozen=True, eq=False)
class SignsRecipe(ProjectedRecipe):
    """Base class of recipes whose codes are signs of projections: adaptive and sign codes."""

    layout: Layout = field(kw_only=True)

    @property
    def n_bits(self) -> int:
        """Number of signs per code."""
        return self.layout.n_bits

    @property
    def code_bytes(self) -> int:
        return self.layout.code_bytes

    @property
    def column_names(self) -> tuple[str, ...]:
        return ("norms", "scales") if self.norms else ()

    @property
    def center(self) -> Float32 | None:  # type: ignore[override]
        return self.mean

    @property
    def scorings(self) -> tuple[str, ...]:
        return ("hamming", "asymmetric")

    @classmethod
    def needs_sample(cls, *, center: bool | npt.ArrayLike = False, **parameters: Any) -> bool:
        cls.make(**parameters)
        return is_true(center)

    @classmethod
    def learn(
        cls,
        sample: Array,
        *,
        part: slice | None = None,
        center: bool | npt.ArrayLike = False,
        **parameters: Any,
    ) -> Self:
        recipe = cls.make(**parameters)
        mean = mean_signal(sample, part) if is_true(center) else given_mean(center, recipe.n_features)
        return replace(recipe, mean=mean)

    @classmethod
    @abstractmethod
    def make(cls, **parameters: Any) -> Self:
        """Return the recipe for the parameters of a constructor, without a mean."""

    @classmethod
    def _of_layout(
        cls,
        layout: Layout,
        *,
        n_features: int,
        projection: str | Projection = "hadamard",
        norms: bool = True,
        metric: str = "correlation",
        random_state: RandomState = None,
    ) -> Self:
        """Return the recipe of a layout, after checking the parameters that adaptive and sign codes share."""
        metric = check_metric(metric, check_flag(norms, "norms"))
        made = resolve_projection(projection, n_features=n_features, n_pool=layout.n_pool, random_state=random_state)
        check_sizes(made.n_features, made.n_pool)
        return cls(made, norms, metric, layout=layout)

    @classmethod
    def agree(cls, stored: Recipe, *, center: bool | npt.ArrayLike = False, **parameters: Any) -> str | None:
        """Compare parameters with a stored recipe.

        ``n_pool=None``, ``random_state=None`` and ``center=True`` accept the stored values; all others must be equal.
        """
        problem = super().agree(stored, **parameters)
        if problem is not None or not isinstance(stored, cls):
            return problem
        parameters = cls._completed(stored, parameters)
        if is_true(center) and stored.mean is None:
            return "center=False, got center=True"
        mean = stored.mean if is_true(center) else given_mean(center, stored.n_features)
        have, want = stored.difference(replace(cls.make(**parameters), mean=mean))
        return f"{have}, got {want}" if have else None

    def parameters(self) -> dict[str, Any]:
        """Return parameters that leave ``n_bits``, ``n_pool`` and ``random_state`` open for :meth:`agree`."""
        kept = {"metric": self.metric, "norms": self.norms, "center": self.mean is not None}
        return super().parameters() | kept | {"projection": self.projection.kind}

    @classmethod
    def _completed(cls, stored: Self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters, with open ones filled in from the stored recipe."""
        done = dict(parameters)
        if done.get("n_pool") is None:
            done["n_pool"] = stored.n_pool
        if done.get("random_state") is None and isinstance(done.get("projection", "hadamard"), str):
            done["random_state"] = stored.seed
        return done

    def encode(self, block: Block, *, n_threads: int = 1) -> Encoded:
        self.check_projection()
        projected = np.empty((len(block.values), self.n_pool), np.float32)
        self.projection.project_block(block.values, None, projected, n_threads)
        codes, totals = self.packed(projected, n_threads)
        return self.with_columns(block, codes, totals)

    @abstractmethod
    def packed(self, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
        """Return the codes of projections, and the sums of their kept magnitudes."""

    def with_columns(self, block: Block, codes: Bytes, totals: Float64) -> Encoded:
        """Return codes with norms and scales; raise ValueError for signals nearly orthogonal to the pool."""
        norms = np.sqrt(block.square_norms).astype(np.float32)
        # Totals near zero: the signal is nearly orthogonal to the pool, and scales would not be finite.
        empty = (totals <= MIN_TOTAL * norms) & (block.square_norms > 0)
        if np.count_nonzero(empty):
            row, kind = block.row(int(empty.argmax())), self.projection.kind
            raise ValueError(
                f"{row}: all its kept projections are zero on this {kind} pool of {self.n_pool}, so its code "
                "is empty; use a larger n_pool or a dense projection, or drop that row"
            )
        if not self.norms:
            return Encoded(codes, {})
        scales = np.divide(block.square_norms, totals, out=np.zeros(len(totals)), where=totals > 0)
        return Encoded(codes, {"norms": norms, "scales": scales.astype(np.float32)})

    @abstractmethod
    def sign_rows(self, codes: Bytes, *, n_threads: int = 1) -> Float32:
        """Return codes as rows of +-1 and 0, (n_codes, n_pool)."""

    def decode(self, codes: Bytes, columns: Mapping[str, Float32]) -> Float32:
        """Return the back-projection of the signs, scaled to the signal's norm if it is kept, plus the mean."""
        signals = unit(transpose(self.projection, self.sign_rows(codes)))
        if "norms" in columns:
            signals = signals * columns["norms"][:, np.newaxis]
        return signals if self.mean is None else signals + self.mean

    def reference(self, codes: Bytes, columns: Mapping[str, Float32]) -> Float32:
        """Return the weighted signs of the kept projections, which estimate correlations without bias."""
        vectors = transpose(self.projection, self.sign_rows(codes))
        if self.norms:
            weights = columns["scales"] if self.metric == "inner_product" else columns["scales"] / columns["norms"]
            return np.asarray(vectors * weights[:, np.newaxis], np.float32)
        return np.asarray(vectors * self.law().expected_scale, np.float32)

    def check(self, codes: Bytes, *, name: str = "data") -> None:
        super().check(codes, name=name)
        valid = kernels.active().valid_codes(
            self.layout, np.ascontiguousarray(codes), n_threads=kernels.n_threads(None)
        )
        bad = np.flatnonzero(~valid)
        if bad.size:
            raise ValueError(
                f"{name} is not a packed code at row {bad[0]} ({bad.size} such rows): its bytes are not "
                f"{self.n_bits} ascending locations in the {self.layout.name} layout"
            )

    def check_columns(self, columns: Mapping[str, Float32]) -> None:
        super().check_columns(columns)
        with np.errstate(all="ignore"):
            if columns and not np.isfinite(columns["scales"] / columns["norms"]).all():
                raise ValueError("the weights of entries, scales / norms, must be finite")

    def law(self, n_bits: int | None = None) -> Any:
        """Return the null distribution of isotropic signals for codes that compare ``n_bits`` signs (default: all)."""
        from .laws import shared_law  # SciPy takes long to import

        return shared_law(n_bits or self.n_bits, self.n_pool, self.n_features, self._law_pool, self.norms)

    @lazy
    def _law_pool(self) -> str:
        """Kind of projection whose null distribution applies."""
        flat = self.projection.options.get("spectrum", "unimodular") == "unimodular"
        return self.projection.kind if flat else "gaussian"

    def prepare(
        self,
        queries: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        n_threads: int = 1,
    ) -> Comparison:
        from .sign_comparison import (  # which needs SciPy
            AsymmetricComparison,
            ChosenRowsComparison,
            ExpectedScaleComparison,
            HammingComparison,
            SignQueries,
        )

        n_kept = self._kept(scoring, adaptive_bits)
        prepared = SignQueries(*self.project(queries, part=part, n_threads=n_threads))
        law = self.law(n_kept)
        if n_kept is not None:
            prepared = prepared.keep_largest(n_kept, n_threads)
        if scoring == "hamming":
            return HammingComparison(self.layout, prepared, law, self.metric)
        kind = AsymmetricComparison if self.norms else ExpectedScaleComparison
        return (kind if n_kept is None else ChosenRowsComparison)(self.layout, prepared, law, self.metric)

    def _kept(self, scoring: str, adaptive_bits: object) -> int | None:
        """Return the number of projections kept by each query, or None for all."""
        check_real_valued(self, scoring, adaptive_bits)
        return None

    def expected_match(self, correlation: float) -> dict[str, Any]:
        from ..theory import correlation_interval, expected_hamming, hamming_variance  # SciPy takes long to import

        shape = {"n_bits": self.n_bits, "n_pool": self.n_pool}
        interval = correlation_interval(correlation, scoring="asymmetric", **shape)
        return {
            "distance": float(expected_hamming(correlation, **shape)),
            "deviation": float(np.sqrt(hamming_variance(correlation, **shape))),
            "interval": [float(end) for end in interval],
        }

    def pairing(self) -> Pairing:
        from .agreement import AgreementPairing  # which needs SciPy

        return AgreementPairing(self)

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        cls.for_weights(np.empty((0, n_features), np.float32), **options)
        return False

    def weight_coding(self) -> WeightCoding:
        from .sign_weights import SignWeights

        return SignWeights(self)

    @property
    def summary(self) -> str:
        return f"n_features={self.n_features}, n_pool={self.n_pool}, metric={self.metric!r}, seed={self.seed}"

    def to_json(self) -> Record:
        return super().to_json() | {"n_bits": self.n_bits, "layout": self.layout.name}

    @classmethod
    def parse(cls, record: Record) -> Self:
        names = ("n_features", "n_bits", "n_pool", "layout", "metric", "norms")
        made = cls.make(projection=read_projection(record), **{name: record[name] for name in names})
        recipe = replace(made, mean=read_mean(record.get("mean"), made.n_features))
        claim_fingerprint(recipe, record)
        return recipe


@dataclass(frozen=True, eq=False)
class AdaptiveRecipe(SignsRecipe):
    """Recipe of adaptive codes, the paper's codes, which need no training."""

    family: ClassVar[str] = "adaptive"
    codes_type: ClassVar[type[SignCodes]] = AdaptiveCodes

    @classmethod
    def make(  # type: ignore[override]
        cls,
        *,
        n_features: int,
        n_bits: int | str | None = "auto",
        n_bytes: int | None = None,
        n_pool: int | None = None,
        layout: str = "compact",
        **options: Any,
    ) -> Self:
        """Return a recipe from the parameters of a constructor.

        ``n_pool`` is ``n_features`` by default; ``n_bits="auto"`` is an eighth of the pool, at least 16, or as many as
        fit into ``n_bytes``.
        """
        n_pool = n_features if n_pool is None else n_pool
        n_bits, n_pool = check_pool(resolve_bits(n_bits, n_bytes, n_pool, layout), n_pool)
        shape = Layout(check_choice(layout, "layout", LAYOUTS), n_bits, n_pool)
        return cls._of_layout(shape, n_features=n_features, **options)

    @classmethod
    def _completed(cls, stored: Self, parameters: dict[str, Any]) -> dict[str, Any]:
        done = super()._completed(stored, parameters)
        if done.get("n_bits", "auto") == "auto" and done.get("n_bytes") is None:
            done["n_bits"] = stored.n_bits
        return done

    @classmethod
    def for_weights(cls, weights: Array, *, n_bytes: int | None = None, **options: Any) -> Self:
        return cls.make(n_features=weights.shape[1], n_bytes=float_scale_bytes(n_bytes), **options)

    @classmethod
    def weight_sizes(cls, n_features: int, *, n_pool: int | None = None, **options: Any) -> list[int]:
        from .sign_weights import pool_sizes

        return pool_sizes(check_pool(1, n_features if n_pool is None else n_pool)[1])

    def weight_coding(self) -> WeightCoding:
        from .sign_weights import AdaptiveWeights

        return AdaptiveWeights(self)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"layout": self.layout.name}

    def with_layout(self, layout: str) -> Self:
        """Return the recipe of the same codes in another layout."""
        return replace(self, layout=Layout(check_choice(layout, "layout", LAYOUTS), self.n_bits, self.n_pool))

    def packed(self, projected: Float32, n_threads: int) -> tuple[Bytes, Float64]:
        locations, signs, totals = kernels.active().select(projected, self.n_bits, n_threads=n_threads)
        return kernels.active().pack_codes(self.layout, locations, signs, n_threads=n_threads), totals

    def sign_rows(self, codes: Bytes, *, n_threads: int = 1) -> Float32:
        locations, packed = kernels.active().unpack_codes(self.layout, np.ascontiguousarray(codes), n_threads=n_threads)
        bits = np.unpackbits(packed, axis=1, count=self.n_bits, bitorder="little")
        out = np.zeros((len(codes), self.n_pool), np.float32)
        np.put_along_axis(out, locations.astype(np.int64), bits.astype(np.float32) * 2 - 1, axis=1)
        return out

    def pack(self, codes: Bytes) -> bytes:
        return pack_sets(self.layout, codes)

    def unpack(self, packed: bytes, n_codes: int) -> Bytes:
        return unpack_sets(self.layout, packed, n_codes)

    def code_pvalues(self, codes: Bytes) -> Float64:
        """Return p-values of the agreements of all pairs.

        The number of common locations is approximately Poisson, so the difference of agreeing and differing signs
        follows a Skellam distribution.
        """
        from scipy.stats import skellam  # takes long to import

        signs = self.sign_rows(codes)
        shared = self.n_bits**2 / self.n_pool
        return np.asarray(skellam.sf(np.rint(signs @ signs.T) - 1, shared / 2, shared / 2))

    @property
    def summary(self) -> str:
        return (
            f"n_features={self.n_features}, n_bits={self.n_bits}, n_pool={self.n_pool}, {self.layout.name}, "
            f"metric={self.metric!r}, seed={self.seed}"
        )


def is_true(center: bool | npt.ArrayLike) -> bool:
    """Return whether to learn a mean."""
    return isinstance(center, (bool, np.bool_)) and bool(center)


def resolve_bits(n_bits: int | str | None, n_bytes: int | None, n_pool: int, layout: str) -> int:
    """Return the number of projections to keep: as given, as many as fit into ``n_bytes``, or an eighth of the pool."""
    if n_bits is not None and n_bits != "auto":
        if n_bytes is not None:
            raise ValueError(f"give n_bits or n_bytes, not both, got n_bits={n_bits!r} and n_bytes={n_bytes!r}")
        if isinstance(n_bits, str):
            raise ValueError(f'n_bits must be a number or "auto", got {n_bits!r}')
        return n_bits
    n_pool = check_pool(1, n_pool)[1]
    if n_bytes is None:
        return min(n_pool, max(16, n_pool // 8))
    check_choice(layout, "layout", LAYOUTS)
    most, n_bytes = n_pool, check_count(n_bytes, "n_bytes")
    fewest = Layout(layout, 1, n_pool).code_bytes
    if n_bytes < fewest:
        raise ValueError(
            f"n_bytes must be at least {fewest}, the bytes of one bit of a pool of {n_pool}, got {n_bytes}"
        )
    least = 1
    while least < most:  # the bytes of a code grow with its bits
        middle = (least + most + 1) // 2
        least, most = (middle, most) if Layout(layout, middle, n_pool).code_bytes <= n_bytes else (least, middle - 1)
    return least
