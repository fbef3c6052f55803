"""Recipe of trellis codes, and the view of such codes."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64, Int32
from ..._checks import check_choice, check_count, check_real
from ..._files import Record
from ..._lazy import lazy
from ..._random import RandomState
from ...codes import Codes, as_projected
from ...kernels import FACTOR_BYTES, CodeBlocks, Panels, Product, Ring, RoundedQueries, pack_log_factors, unpack_factors
from ...projections import Principal, Projection
from ...projections.blocks import Block
from ...projections.learned import is_orthonormal
from ..base import METRICS, check_real_valued, unit
from ..comparison import CodeComparison, Comparison, Int8, Null, Pairing
from ..projected import (
    ProjectedRecipe,
    claim_fingerprint,
    digest,
    given_mean,
    inverse_norms,
    read_mean,
    read_projection,
    unit_rows,
)
from ..weight_coding import isotropic_error, size_steps, unbiased_scales

BASES = ("hadamard", "principal")
ENCODED_BYTES = 2**24  # bytes of signals per encoded block: enough work for many threads
N_WINDOWS = 256  # values of two nibbles
MAX_LEVEL = 127
MAX_BYTES = 2**16
MAX_DIMS = 256  # maximum number of coordinates of a step
MAX_CODED = 2**17  # maximum number of coded coordinates: sums of queries with at least 7 bits fit 32 bits


@dataclass(frozen=True, eq=False)
class RingDesign:
    """Steps and codebooks of trellis codes.

    Step s reconstructs the coordinates ``coded[first[s] : first[s + 1]]`` from row w of its book, where w are the
    nibbles s - 1 and s of the ring; steps may share a book. A level of one stands for ``amplitudes``. In scores,
    coordinates are multiplied by ``gains``, and in the encoder their squared errors by ``emphases``. All of them are
    stored, so that decoding does not depend on floating-point functions.
    """

    coded: Int32  # (n_coded,) in the order of steps
    first: Int32  # (n_steps + 1,)
    book_of_step: Int32  # (n_steps,)
    levels: Int8  # all books, each (256, number of coordinates)
    amplitudes: Float32  # (n_coded,) in units of projections
    gains: Float32
    emphases: Float32
    energy: float  # mean square norm of the reconstructions that the design was made with, in units of projections

    @property
    def n_steps(self) -> int:
        """Number of nibbles."""
        return len(self.book_of_step)

    @property
    def n_coded(self) -> int:
        """Number of coded coordinates."""
        return len(self.coded)

    @property
    def values(self) -> Float64:
        """Value of a level of one in each coded coordinate, including gains."""
        return self.amplitudes.astype(np.float64) * self.gains

    @lazy
    def book_starts(self) -> npt.NDArray[np.int64]:
        """Position of each book in the levels, and their end."""
        sizes = np.zeros(int(self.book_of_step.max()) + 1, np.int64)
        sizes[self.book_of_step] = np.diff(self.first)
        return np.append(0, np.cumsum(N_WINDOWS * sizes))

    @property
    def nbytes(self) -> int:
        """Bytes of all stored arrays."""
        return sum(int(getattr(self, name).nbytes) for name in _ARRAYS)

    def ring(self, mean: Float64 | None = None) -> Ring:
        """Return the ring for kernels; ``mean`` are the projections of the mean, of which there are n_features."""
        amplitudes = self.amplitudes.astype(np.float64)
        mean = np.zeros(int(self.coded.max()) + 1) if mean is None else mean
        return Ring(
            first=self.first,
            book_of_step=self.book_of_step,
            book_starts=self.book_starts,
            levels=self.levels,
            weights=(self.emphases * amplitudes**2).astype(np.float32),
            scales=(1 / amplitudes).astype(np.float32),
            squares=self._squares(mean[self.coded]) / len(mean),
            constant=float((mean * mean).sum()) / len(mean),
        )

    def _squares(self, middle: Float64) -> Float64:
        """Return what each step and window adds to the squared norm of mean plus reconstruction."""
        squares, dims, values = np.zeros((self.n_steps, N_WINDOWS)), np.diff(self.first), self.values
        starts = self.book_starts[self.book_of_step]
        for place in range(int(dims.max())):  # in a fixed order, so that sums have the same bits everywhere
            steps = np.flatnonzero(dims > place)
            rows = starts[steps, np.newaxis] + np.arange(N_WINDOWS) * dims[steps, np.newaxis] + place
            at = self.first[steps] + place
            found = self.levels[rows] * values[at, np.newaxis]
            squares[steps] += found * (found + 2 * middle[at, np.newaxis])
        return squares

    def to_json(self) -> Record:
        """Return a record of plain values, from which :meth:`from_json` makes an equal design."""
        arrays = {name: pack_array(getattr(self, name)) for name in _ARRAYS}
        return {"n_bytes": self.n_steps // 2, "n_coded": self.n_coded, "energy": self.energy} | arrays

    @classmethod
    def from_json(cls, record: Record, n_features: int) -> RingDesign:
        """Return the design of a JSON record; raise ValueError, KeyError or TypeError if it is invalid."""
        n_steps = 2 * check_count(record["n_bytes"], "n_bytes", maximum=MAX_BYTES)
        n_coded = check_count(record["n_coded"], "n_coded", maximum=min(n_features, MAX_CODED, MAX_DIMS * n_steps))
        lengths = {"first": n_steps + 1, "book_of_step": n_steps, "levels": None}
        arrays = {name: unpack_array(record[name], kind, lengths.get(name, n_coded)) for name, kind in _ARRAYS.items()}
        coded, first, books = arrays["coded"], arrays["first"], arrays["book_of_step"]
        if len(np.unique(coded)) < n_coded or coded.min() < 0 or coded.max() >= n_features:
            raise ValueError(f"coded must be different coordinates below {n_features}")
        dims = np.diff(first)
        if first[0] != 0 or first[-1] != n_coded or dims.min() < 0 or dims.max() > MAX_DIMS:
            raise ValueError(f"steps must divide all {n_coded} coordinates, at most {MAX_DIMS} each")
        if len(np.unique(books)) != books.max() + 1 or books.min() < 0:
            raise ValueError("books of steps must be numbered 0, 1, ...")
        sizes = np.zeros(books.max() + 1, np.int64)
        sizes[books] = dims
        if (sizes[books] != dims).any() or len(arrays["levels"]) != N_WINDOWS * sizes.sum():
            raise ValueError("books must have a level for each window and coordinate of their steps")
        for name in ("amplitudes", "gains", "emphases"):
            if not (np.isfinite(arrays[name]) & (arrays[name] > 1e-12) & (arrays[name] < 1e6)).all():
                raise ValueError(f"{name} must be positive and finite")
        energy = check_real(record["energy"], "energy", minimum=0, maximum=1e12)
        return cls(**arrays, energy=energy)


_ARRAYS = {
    "coded": "i4",
    "first": "i4",
    "book_of_step": "i4",
    "levels": "i1",
    "amplitudes": "f4",
    "gains": "f4",
    "emphases": "f4",
}


class TrellisCodes(Codes):
    """Codes of a fixed number of bytes, from which signals are reconstructed.

    Made by :meth:`topsign.TrellisEncoder.encode`. Any bytes are a valid code.
    """

    recipe: TrellisRecipe

    @property
    def n_bytes(self) -> int:
        """Bytes of one code, without its factor."""
        return self.recipe.n_bytes

    @property
    def levels(self) -> Int8:
        """Levels of the coded coordinates, (n_codes, n_coded) int8, identical on every machine."""
        return self.recipe.levels(self.data)

    def scores(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Return cosines of queries and reconstructions, times the norms of signals that are kept.

        ``projected`` is what :meth:`topsign.TrellisEncoder.project` returned; the result is (n_queries, n_codes).
        """
        threads, recipe = kernels.n_threads(n_threads), self.recipe
        queries = as_projected(projected, n_pool=recipe.n_pool, space=recipe.space)
        rounded = recipe.rounded(queries, np.ones(len(queries)), threads)
        return kernels.active().scores(recipe.scorer, CodeBlocks.of(self.data), rounded, n_threads=threads)


@dataclass(frozen=True, eq=False)
class TrellisRecipe(ProjectedRecipe):
    """Recipe of trellis codes: a basis, a mean, and codebooks for the steps of a ring."""

    family: ClassVar[str] = "trellis"
    codes_type: ClassVar[type[TrellisCodes]] = TrellisCodes
    kind: ClassVar[str] = "ring"
    basis_name: ClassVar[str] = "basis"
    projects_units: ClassVar[bool] = True

    design: RingDesign = None  # type: ignore[assignment]  # never omitted
    reconstruction_cosine: float = 1.0
    """Mean cosine of signals and their reconstructions, of the sample or of white signals if nothing was learned.

    Cosines divided by it estimate correlations."""

    # Making

    @classmethod
    def learn(cls, sample: Array, *, n_features: int | None = None, **options: Any) -> Self:
        """Learn a recipe from rows: mean, axes, variances and codebooks.

        A Hadamard basis without ``center`` learns nothing: its recipe is the same for all signals.
        """
        from .learning import learn_recipe  # which makes recipes

        return learn_recipe(cls, sample, **options)

    @classmethod
    def needs_sample(  # type: ignore[override]
        cls,
        *,
        n_features: int,
        n_bytes: int,
        basis: str | Projection = "principal",
        center: bool | npt.ArrayLike = True,
        metric: str = "correlation",
        random_state: RandomState = None,
    ) -> bool:
        check_count(n_bytes, "n_bytes", maximum=MAX_BYTES)
        given_mean(center, n_features)
        check_basis(basis, n_features, random_state)
        check_choice(metric, "metric", METRICS)
        return basis == "principal" or center is not False

    # Sizes

    @property
    def n_bytes(self) -> int:
        return self.design.n_steps // 2

    @property
    def factor(self) -> str:
        return "log" if self.metric == "inner_product" else "cosine"

    @property
    def width(self) -> int:
        return self.design.n_coded

    @property
    def encoded_signals(self) -> int:
        return max(self.block_signals, ENCODED_BYTES // (4 * self.n_features))

    @property
    def shared_nbytes(self) -> int:
        if not self.is_learned:
            return 0
        axes = self.projection.axes.nbytes if isinstance(self.projection, Principal) else 0
        return super().shared_nbytes + axes + self.design.nbytes

    @property
    def is_learned(self) -> bool:
        """Whether anything was learned from signals."""
        return self.mean is not None or isinstance(self.projection, Principal)

    @lazy
    def ring(self) -> Ring:
        """Books and steps for kernels."""
        return self.design.ring(self._projected_mean)

    @property
    def _shape(self) -> dict[str, Any]:
        return {"ring": self.ring}

    @lazy
    def _projected_mean(self) -> Float64:
        if self.mean is None:
            return np.zeros(self.n_features)
        out = np.empty((1, self.n_features), np.float32)
        self.projection.project_block(self.mean[np.newaxis], None, out, 1)
        return np.asarray(out[0], np.float64)

    # Coding

    def project_block(self, block: Block, out: Float32, n_threads: int) -> None:
        panels = self.projection.panels(None)
        if panels is None:
            self.projection.project_block(unit_rows(block), None, out, n_threads)
        else:
            products, factors = [Product(panels, out=out)], inverse_norms(block)
            kernels.active().multiply(block.values, products, factors=factors, n_threads=n_threads)

    @lazy
    def _panels(self) -> Panels | None:
        """Matrix of the coded axes, if signals are projected by matrix multiplication."""
        return self.projection.panels(self.design.coded)

    def coordinates(self, block: Block, n_threads: int) -> Float32:
        """Return the coded coordinates of the unit signals of a block minus the mean, (n_signals, n_coded)."""
        if self._panels is not None:
            products, factors = [Product(self._panels, self.mean)], inverse_norms(block)
            return kernels.active().multiply(block.values, products, factors=factors, n_threads=n_threads)[0]
        values = unit_rows(block)
        values = values if self.mean is None else values - self.mean
        projected = np.empty_like(values)
        self.projection.project_block(values, None, projected, n_threads)
        return np.ascontiguousarray(projected[:, self.design.coded])

    def encode(self, block: Block, *, n_threads: int = 1, coder: Any = None) -> Bytes:
        """Return the codes of a block; a ``coder`` with a method ``ring_encode`` replaces the kernels."""
        self.check_projection()
        coordinates = self.coordinates(block, n_threads)
        codes: Bytes = (coder or kernels.active()).ring_encode(self.ring, coordinates, n_threads=n_threads)
        if self.metric == "inner_product":
            lengths, norms = self._lengths(codes), np.sqrt(block.square_norms)
            quotients = np.divide(norms, lengths, out=np.zeros(len(norms)), where=lengths > 0)
            codes[:, -FACTOR_BYTES:] = pack_log_factors(quotients)
        return codes

    def _lengths(self, codes: Bytes) -> Float64:
        """Return the norms of mean plus reconstruction."""
        rows = np.ascontiguousarray(codes)
        return kernels.active().ring_norms(self.ring, rows, n_threads=kernels.n_threads(None))

    def norms(self, codes: Bytes) -> Float32 | None:
        if self.metric == "correlation":
            return None
        return (unpack_factors(codes, "log") * self._lengths(codes)).astype(np.float32)

    def decode(self, codes: Bytes) -> Float32:
        """Return mean plus reconstruction, scaled to the signal's norm if it is kept, otherwise to norm one."""
        signals, norms = self.directions(codes), self.norms(codes)
        return signals if norms is None else signals * norms[:, np.newaxis]

    def reference(self, codes: Bytes) -> Float32:
        return self.decode(codes)

    def directions(self, codes: Bytes) -> Float32:
        """Return unit vectors along mean plus reconstruction, (n_codes, n_features)."""
        return unit(self.weight_vectors(codes))

    # Comparing

    def prepare(
        self,
        queries: Array,
        *,
        part: slice | None = None,
        scoring: str = "asymmetric",
        adaptive_bits: int | None = None,
        n_threads: int = 1,
    ) -> Comparison:
        check_real_valued(self, scoring, adaptive_bits)
        projected, norms = self.project(queries, part=part, n_threads=n_threads)
        rounded = self.rounded(projected, np.ones(len(norms)), n_threads)
        return CodeComparison(self.scorer, rounded, self, norms, self.metric)

    def rounded(self, projected: Float32, factors: Float64, n_threads: int) -> RoundedQueries:
        design, n_features = self.design, self.n_features
        weights = (design.values / n_features).astype(np.float32)
        products = np.ascontiguousarray(projected[:, design.coded] * weights)
        values, steps = kernels.active().round(products, self.scorer.limit, n_threads=n_threads)
        constants = np.zeros(len(projected))
        if self.mean is not None:
            rows = np.ascontiguousarray(projected)
            constants = kernels.active().inner_products(rows, self._projected_mean, n_threads=n_threads) / n_features
        return RoundedQueries(
            values, (steps * factors).astype(np.float32), np.asarray(constants * factors).astype(np.float32)
        )

    @property
    def null(self) -> Null | None:
        """Null distribution of cosines.

        With a random basis and no mean, the cosine with an independent impostor has exactly the distribution of a
        sample correlation in n_features dimensions, because the reconstruction does not depend on the query. A learned
        basis or mean depends on the signals, so impostors are correlated and p-values need a calibrated index.
        """
        if self.is_learned:
            return None
        from ..null_distributions import SampleNull  # SciPy takes long to import

        return SampleNull(self.n_features)

    def pairing(self) -> Pairing:
        from .pairs import TrellisPairing

        return TrellisPairing.of(self)

    def code_pvalues(self, codes: Bytes) -> Float64 | None:
        if self.is_learned:  # reconstructions of impostors are correlated
            return None
        from ...theory.log_tails import probabilities
        from ..null_distributions import sample_log10_pvalues  # SciPy takes long to import

        signals = self.directions(codes).astype(np.float64)
        return probabilities(sample_log10_pvalues(signals @ signals.T, self.n_features))

    def energy_ratio(self, codes: Bytes) -> float | None:
        """Return the captured energy relative to that of the learning sample; about 1 if the basis fits."""
        values = self.levels(codes) * self.design.amplitudes.astype(np.float64)
        expected = len(codes) * self.design.energy
        return float((values**2).sum()) / expected if expected else float("nan")

    # Heads

    @classmethod
    def for_weights(
        cls,
        weights: Array,
        *,
        n_bytes: int | None = None,
        projection: str | Projection | None = None,
        random_state: RandomState = None,
        **unused: Any,
    ) -> Self:
        """Return a recipe over a random basis or principal axes."""
        if unused:
            raise ValueError(f'{", ".join(unused)} does not go with family="trellis"; give n_bytes')
        basis = "hadamard" if projection is None else projection
        if not isinstance(basis, Projection):
            check_choice(basis, "projection", BASES)
        n_bytes = check_count(n_bytes, "n_bytes", maximum=MAX_BYTES)
        return cls.learn(weights, n_bytes=n_bytes, basis=basis, center=basis == "principal", random_state=random_state)

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        learned = options.get("projection") == "principal"
        cls.for_weights(np.empty((0, n_features), np.float32), **options | ({"projection": None} if learned else {}))
        return learned

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        """Return sizes up to four bits per feature."""
        return size_steps(3, n_features // 2) or [3]

    def encode_weights(self, block: Block, *, n_threads: int) -> tuple[Bytes, Float64]:
        self.check_projection()
        codes = kernels.active().ring_encode(self.ring, self.coordinates(block, n_threads), n_threads=n_threads)
        return codes[:, : self.n_bytes], unbiased_scales(block, self.weight_vectors(codes))

    def weight_vectors(self, codes: Bytes) -> Float32:
        coordinates = np.zeros((len(codes), self.n_features), np.float32)
        coordinates[:, self.design.coded] = self.levels(codes) * self.design.values.astype(np.float32)
        signals = self.projection.transposed(coordinates) / np.float32(self.n_features)
        return signals if self.mean is None else signals + self.mean

    def logit_error(self) -> float:
        """Return the error of logits (approximation: errors are isotropic and orthogonal to the weights)."""
        return isotropic_error(self.reconstruction_cosine, self.n_features)

    # Describing

    @property
    def summary(self) -> str:
        return (
            f"n_features={self.n_features}, n_bytes={self.n_bytes}, basis={self.projection.kind}, "
            f"metric={self.metric!r}, seed={self.seed}"
        )

    def to_json(self) -> Record:
        return super().to_json() | {
            "design": self.design.to_json(),
            "reconstruction_cosine": self.reconstruction_cosine,
        }

    def described(self) -> Record:
        record = super().described()
        return record | {"n_bytes": self.n_bytes, "design": digest(record["design"])}

    @classmethod
    def parse(cls, record: Record) -> Self:
        projection, cosine = read_projection(record), record["reconstruction_cosine"]
        if not is_orthonormal(projection):
            raise ValueError(f"trellis codes need an orthonormal basis of all coordinates, got {projection!r}")
        if not 0 < check_real(cosine, "reconstruction_cosine", maximum=1) <= 1:
            raise ValueError(f"reconstruction_cosine must be a mean cosine in (0, 1], got {cosine}")
        metric = check_choice(record["metric"], "metric", METRICS)
        mean = read_mean(record.get("mean"), projection.n_features)
        design = RingDesign.from_json(record["design"], projection.n_features)
        recipe = cls(projection, metric, mean, design, cosine)
        claim_fingerprint(recipe, record)
        return recipe


def check_basis(basis: str | Projection, n_features: int, random_state: RandomState) -> str | Projection:
    """Return the basis of a name, or check an orthonormal projection."""
    if not isinstance(basis, Projection):
        return check_choice(basis, "basis", BASES)
    if not is_orthonormal(basis) or basis.n_features != n_features:
        raise ValueError(
            f"basis must be an orthonormal projection (hadamard, circulant) of shape {(n_features, n_features)}, "
            f"got {basis!r}"
        )
    if random_state is not None:
        raise ValueError("an existing projection has its own seed; leave random_state=None")
    return basis


def pack_array(values: Array) -> str:
    """Encode an array as base64 of its little-endian bytes, uncompressed because fingerprints cover it."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def unpack_array(text: object, dtype: str, length: int | None) -> Array:
    """Decode an array of this or any length from base64; raise ValueError if it is invalid."""
    if not isinstance(text, str):
        raise ValueError(f"a packed array must be text, got {type(text).__name__}")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"a packed array cannot be read: {error}") from None
    if length is not None and len(raw) != length * np.dtype(dtype).itemsize:
        raise ValueError(f"a packed array must have {length} values of {dtype}, got {len(raw)} bytes")
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
