"""Trellis codes: a ring of nibbles, of which each step reads two and looks up its coordinates in a codebook."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int32, pack_array, unpack_array
from .._checks import check_choice, check_count, check_real
from .._files import Record
from .._lazy import lazy
from .._random import RandomState, make_seed, normals
from ..codes import Codes, as_projected
from ..errors import warn
from ..kernels import (
    FACTOR_BYTES,
    CodeBlocks,
    PackedMatrix,
    Preparation,
    Product,
    Ring,
    RoundedQueries,
    pack_log_factors,
    unpack_factors,
)
from ..projections import Hadamard, Principal, Projection
from ..projections.blocks import MAX_NORM, MIN_NORM, Block, float_blocks
from ..projections.learned import all_axes, is_orthonormal, leading_axes, round_axes
from .base import METRICS, check_real_valued, unbiased_scales
from .comparison import CodeComparison, Comparison, Int8, Null, Pairing, unit
from .projected import ProjectedRecipe, digest, given_mean, inverse_norms, read_mean, read_projection, unit_rows
from .weight_encoder import isotropic_error, size_steps

BASES = ("hadamard", "principal")
ENCODED_BYTES = 2**24  # bytes of signals per encoded block: enough work for many threads
N_WINDOWS = 256  # values of two nibbles
MAX_LEVEL = 127
MAX_BYTES = 2**16
MAX_DIMS = 256  # maximum number of coordinates of a step
MAX_CODED = 2**17  # maximum number of coded coordinates: sums of queries with at least 7 bits fit 32 bits

SAMPLE = 50_000  # rows used for learning, evenly spaced
HELD_VALUES = 2**25  # values of the sample up to which it stays in memory, 128 MiB
EXACT_FEATURES = 2048  # full eigendecomposition up to this length; beyond it a randomised range finder
MAX_AXES = 512
ENOUGH = 20  # signals per feature below which the covariance is shrunk
MEASURED = 200  # approximate number of signals for the measured mean cosine
LEAST_VARIANCE = 2e-4  # least variance of unit signals about their mean: factors of codes do not resolve smaller ones

EMPHASIS, SHARPENING, LEAST_SHARE = 0.25, 0.35, 0.05
"""Errors are weighted by ``(variance / largest) ** EMPHASIS``; in scores, coordinates are multiplied by ``share **
-SHARPENING``, the share of their energy that reconstructions have (at least LEAST_SHARE), because coarse quantisation
shrinks coordinates too much for ranking. Both increase the measured recall."""

STEP_BITS = 4
STEP_DIMS = 32  # maximum number of coordinates that a step gets: more capture hardly more energy
NOISE, NOISE_ROUNDS, ANNEALED_ROUNDS = 8192, 10, 7  # noise signals and Lloyd rounds on them, the first ones annealed
SIGNALS, SIGNAL_ROUNDS = 20_000, 5  # approximate number of signals and Lloyd rounds on them
NOISE_WEIGHT, SIGNAL_WEIGHT = 0.5, 8.0  # members by which centroids are shrunk towards those of the round before
WHITE_STEPS, WHITE_VALUES, WHITE_ROUNDS = 16, 2**21, 16  # steps, values and rounds that train a book for white signals
GRID = 2.0**8  # noise is rounded to its reciprocal, so that the last bit of a normal quantile decides nothing


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
        """Return the ring for kernels; ``mean`` are the n_features projections of the mean."""
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
        lengths = dict.fromkeys(_ARRAYS, n_coded) | {"first": n_steps + 1, "book_of_step": n_steps, "levels": None}
        arrays = {name: unpack_array(record[name], kind, lengths[name], name) for name, kind in _ARRAYS.items()}
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
        for name in _FACTORS:
            if not (np.isfinite(arrays[name]) & (arrays[name] > 1e-12) & (arrays[name] < 1e6)).all():
                raise ValueError(f"{name} must be positive and finite")
        energy = check_real(record["energy"], "energy", minimum=0, maximum=1e12)
        return cls(**arrays, energy=energy)


_INDICES, _FACTORS = ("coded", "first", "book_of_step"), ("amplitudes", "gains", "emphases")
_ARRAYS = dict.fromkeys(_INDICES, "i4") | {"levels": "i1"} | dict.fromkeys(_FACTORS, "f4")


class TrellisCodes(Codes):
    """Codes of a fixed number of bytes, from which signals are reconstructed.

    Made by :meth:`topsign.Encoder.encode`. Any bytes are a valid code.
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

    def scores(self, projected: npt.ArrayLike) -> Float32:
        """Return cosines of queries and reconstructions, times the norms of signals that are kept.

        ``projected`` is what :meth:`topsign.Encoder.project` returned; the result is (n_queries, n_codes).
        """
        recipe = self.recipe
        queries = as_projected(projected, n_pool=recipe.n_pool, space=recipe.space)
        rounded = recipe.rounded(queries, np.ones(len(queries)))
        return kernels.active().scores(recipe.scorer, CodeBlocks.of(self.data), rounded)


@dataclass(frozen=True, eq=False)
class TrellisRecipe(ProjectedRecipe):
    """Recipe of trellis codes: a basis, a mean, and codebooks for the steps of a ring."""

    family: ClassVar[str] = "trellis"
    codes_type: ClassVar[type[TrellisCodes]] = TrellisCodes
    kind: ClassVar[str] = "ring"
    projects_units: ClassVar[bool] = True

    design: RingDesign = None  # type: ignore[assignment]  # never omitted
    """Codebooks, and the axes of each step of the ring."""

    reconstruction_cosine: float = 1.0
    """Mean cosine of signals and their reconstructions, of the sample or of white signals if nothing was learned.

    Cosines divided by it estimate correlations."""

    # Making

    @classmethod
    def learn(  # type: ignore[override]
        cls,
        sample: Array,
        *,
        part: slice | None = None,
        n_features: int | None = None,
        n_bytes: int,
        basis: str | Projection = "principal",
        center: bool | npt.ArrayLike = True,
        metric: str = "correlation",
        random_state: RandomState = None,
    ) -> Self:
        """Learn a recipe from signals, or from a ``part`` of them: mean, axes, variances and codebooks.

        A Hadamard ``basis`` without ``center`` learns nothing: its recipe is the same for all signals. A given mean
        replaces the learned one.
        """
        n_steps = 2 * check_count(n_bytes, "n_bytes", maximum=MAX_BYTES)
        check_choice(metric, "metric", METRICS)
        signals = Sample(sample, slice(*(part or slice(None)).indices(len(sample))[:2]))
        projection, mean, variances = learn_moments(signals, basis, center, n_steps, random_state)
        steps = Steps.of(variances, n_steps)
        if basis != "principal":
            recipe = cls(projection, metric, mean, *steps.white_design(len(variances)))
            return recipe if mean is None else recipe._measured(signals)
        books = steps.noise_books(projection.seed)
        recipe = cls(projection, metric, mean, steps.design(books))
        coordinates = recipe.coordinates(signals.some(SIGNALS))
        for _ in range(SIGNAL_ROUNDS):
            books = steps.refined(books, coordinates, SIGNAL_WEIGHT)
        return replace(recipe, design=steps.measured(books, coordinates))._measured(signals)

    @classmethod
    def size_warning(cls, *, n_features: int, n_bytes: int = 0, **parameters: Any) -> str | None:
        if n_bytes <= 4 * n_features:
            return None
        return (
            f"a code of {n_bytes:,} bytes is larger than its signal, {4 * n_features:,} bytes of {n_features:,} "
            'float32; lower n_bytes, or keep the signals themselves (originals="float32") beside smaller codes'
        )

    def _measured(self, sample: Sample) -> Self:
        """Return the recipe with the mean cosine of signals and their reconstructions."""
        some = sample.some(MEASURED)
        decoded = self.directions(self.encode(some))
        cosine = round(float(np.clip((some.values * decoded).sum(axis=1).mean(), 1e-3, 1)), 4)
        return replace(self, reconstruction_cosine=cosine)

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
        return self.design.ring(self.projected_mean)

    @property
    def _shape(self) -> dict[str, Any]:
        return {"ring": self.ring}

    @lazy
    def projected_mean(self) -> Float64:
        """Projections of the mean."""
        if self.mean is None:
            return np.zeros(self.n_features)
        out = np.empty((1, self.n_features), np.float32)
        self.projection.project_block(self.mean[np.newaxis], None, out)
        return np.asarray(out[0], np.float64)

    # Coding

    def project_block(self, block: Block, out: Float32) -> None:
        matrix = self.operator.packed_matrix(None)
        if matrix is None:
            self.operator.project_block(unit_rows(block), None, out)
        else:
            products, factors = [Product(matrix, out=out)], inverse_norms(block)
            kernels.active().multiply(block.values, products, factors=factors)

    @lazy
    def _coded_axes(self) -> PackedMatrix | None:
        """Matrix of the coded axes, if signals are projected by matrix multiplication."""
        return self.operator.packed_matrix(self.design.coded)

    def coordinates(self, block: Block) -> Float32:
        """Return the coded coordinates of the unit signals of a ``block`` minus the mean, (n_signals, n_coded)."""
        if self._coded_axes is not None:
            products, factors = [Product(self._coded_axes, self.mean)], inverse_norms(block)
            return kernels.active().multiply(block.values, products, factors=factors)[0]
        values = unit_rows(block)
        values = values if self.mean is None else values - self.mean
        projected = np.empty_like(values)
        self.operator.project_block(values, None, projected)
        return np.ascontiguousarray(projected[:, self.design.coded])

    def encode(self, block: Block, *, encoder: Any = None) -> Bytes:
        """Return the codes of a ``block``; an ``encoder`` with a method ``ring_encode`` replaces the kernels."""
        coordinates = self.coordinates(block)
        codes: Bytes = (encoder or kernels.active()).ring_encode(self.ring, coordinates)
        if self.metric == "inner_product":
            lengths, norms = self._lengths(codes), np.sqrt(block.square_norms)
            quotients = np.divide(norms, lengths, out=np.zeros(len(norms)), where=lengths > 0)
            codes[:, -FACTOR_BYTES:] = pack_log_factors(quotients)
        return codes

    def _lengths(self, codes: Bytes) -> Float64:
        """Return the norms of mean plus reconstruction."""
        rows = np.ascontiguousarray(codes)
        return kernels.active().ring_norms(self.ring, rows)

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
    ) -> Comparison:
        check_real_valued(self, scoring, adaptive_bits)
        if self.preparation is None:
            projected, norms = self.project(queries, part=part)
            rounded = self.rounded(projected, np.ones(len(norms)))
            return CodeComparison(self.scorer, rounded, self, norms, self.metric)
        signals = np.ascontiguousarray(queries[part or slice(None)], np.float32)
        norms, units, rounded = kernels.active().prepare(self.preparation, signals)
        if not ((norms >= MIN_NORM) & (norms <= MAX_NORM)).all():  # raises, unless they are zeros
            list(float_blocks(queries, max(1, len(queries)), part=part, name="queries"))
        return CodeComparison(self.scorer, rounded, self, norms, self.metric, units=units)

    def angles(self, cosines: Float64) -> Float64:
        """Return the angles over pi between queries and signals that have these ``cosines`` with reconstructions.

        A reconstruction captures only a part of its signal: cosines divided by that part estimate correlations.
        """
        return np.asarray(np.arccos(np.clip(cosines / self.reconstruction_cosine, -1, 1)) / np.pi)

    @lazy
    def preparation(self) -> Preparation | None:
        """Matrix, factors and mean with which kernels prepare queries; None if the projection is not a matrix."""
        matrix = self.operator.packed_matrix(None)
        if matrix is None:
            return None
        weights = (self.design.values / self.n_features).astype(np.float32)
        mean = None if self.mean is None else self.projected_mean
        return Preparation(matrix, self.design.coded, weights, self.scorer.limit, mean)

    def rounded(self, projected: Float32, factors: Float64) -> RoundedQueries:
        design, n_features = self.design, self.n_features
        weights = (design.values / n_features).astype(np.float32)
        products = np.ascontiguousarray(projected[:, design.coded] * weights)
        values, steps = kernels.active().round(products, self.scorer.limit)
        constants = np.zeros(len(projected))
        if self.mean is not None:
            rows = np.ascontiguousarray(projected)
            constants = kernels.active().inner_products(rows, self.projected_mean) / n_features
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
        from ..significance.null_distributions import SampleNull  # SciPy takes long to import

        return SampleNull(self.n_features)

    def pairing(self) -> Pairing:
        from .trellis_pairs import TrellisPairing

        return TrellisPairing.of(self)

    def code_pvalues(self, codes: Bytes) -> Float64 | None:
        null = self.null
        if null is None:
            return None
        from ..significance import probabilities

        signals = self.directions(codes).astype(np.float64)
        return probabilities(null.log10_p_values(signals @ signals.T))

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
        basis: str | Projection = "hadamard",
        random_state: RandomState = None,
        **unused: Any,
    ) -> Self:
        """Return a recipe over a random ``basis`` or principal axes."""
        if unused:
            raise ValueError(f'{", ".join(unused)} does not go with family="trellis"; give n_bytes')
        if not isinstance(basis, Projection):
            check_choice(basis, "basis", BASES)
        n_bytes = check_count(n_bytes, "n_bytes", maximum=MAX_BYTES)
        return cls.learn(weights, n_bytes=n_bytes, basis=basis, center=basis == "principal", random_state=random_state)

    @classmethod
    def needs_weights(cls, n_features: int, **options: Any) -> bool:
        learned = options.get("basis") == "principal"
        cls.for_weights(np.empty((0, n_features), np.float32), **options | ({"basis": "hadamard"} if learned else {}))
        return learned

    @classmethod
    def weight_sizes(cls, n_features: int, **options: Any) -> list[int]:
        """Return sizes up to four bits per feature."""
        return size_steps(3, n_features // 2) or [3]

    def encode_weights(self, block: Block) -> tuple[Bytes, Float64]:
        codes = kernels.active().ring_encode(self.ring, self.coordinates(block))
        return codes[:, : self.n_bytes], unbiased_scales(block, self.weight_vectors(codes))

    def weight_vectors(self, codes: Bytes) -> Float32:
        values = self.levels(codes).astype(np.float32) * (self.design.values / self.n_features).astype(np.float32)
        signals = self.projection.combine(values, self.design.coded)
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
        learned = {"design": self.design.to_json(), "reconstruction_cosine": self.reconstruction_cosine}
        return super().to_json() | learned

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
        return cls(projection, metric, mean, design, cosine).expect_fingerprint(record)


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


@dataclass(frozen=True, eq=False)
class Sample:
    """Signals to learn from, or a part of them; errors name rows of the complete matrix."""

    signals: Array
    part: slice

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def n_features(self) -> int:
        return int(self.signals.shape[1])

    def unit_blocks(self) -> Iterable[Float32]:
        """Return blocks of evenly spaced unit signals without zero signals."""
        return self._held if min(len(self), SAMPLE) * self.n_features <= HELD_VALUES else self._read()

    @lazy
    def _held(self) -> list[Float32]:
        """All blocks, so that several passes read the signals once."""
        return list(self._read())

    def _read(self) -> Iterator[Float32]:
        n_rows = max(1, 2**22 // max(1, self.n_features))
        step = max(1, -(-len(self) // SAMPLE))
        for start in range(self.part.start, self.part.stop, n_rows):
            first = start + (self.part.start - start) % step
            some = slice(first, min(start + n_rows, self.part.stop), step)
            for block in float_blocks(self.signals, n_rows, part=some):
                norms = np.sqrt(block.square_norms)
                kept = norms > 0
                yield (block.values[kept] / norms[kept, np.newaxis]).astype(np.float32)

    def some(self, count: int) -> Block:
        """Return approximately ``count`` evenly spaced unit signals."""
        step = max(1, min(len(self), SAMPLE) // count)
        values = np.concatenate([values[::step] for values in self.unit_blocks()])
        (block,) = float_blocks(values, max(1, len(values)))
        return block


def deal(rates: Float64, n_places: int) -> npt.NDArray[np.int64]:
    """Return the place of each rate: in falling order, each goes to the first place with the smallest sum."""
    sums, found = [(0.0, place) for place in range(n_places)], np.empty(len(rates), np.int64)
    for at, rate in enumerate(rates.tolist()):
        total, found[at] = sums[0]
        heapq.heapreplace(sums, (total + rate, int(found[at])))
    return found


@dataclass(frozen=True, eq=False)
class Steps:
    """Coordinates dealt to the steps of a ring, such that each step has about the same number of bits."""

    coded: Int32  # (n_coded,) in the order of steps
    first: Int32  # (n_steps + 1,)
    book_of_step: Int32
    variances: Float64  # of the coded coordinates, in units of projections
    emphases: Float64

    @classmethod
    def of(cls, variances: Float64, n_steps: int) -> Steps:
        """Allocate four bits per step by reverse water-filling of the weighted variances of all coordinates."""
        from ..theory.rates import water_filling  # SciPy, which the theory needs, takes long to import

        weights = (np.maximum(variances, 0) / variances.max()) ** EMPHASIS
        _, rates = water_filling(variances * weights, STEP_BITS * n_steps)
        most = min(int(np.count_nonzero(rates)), STEP_DIMS * n_steps, MAX_CODED)
        chosen = np.argsort(-rates, kind="stable")[:most]
        kept, step_of = rates[chosen], deal(rates[chosen], n_steps)
        if kept[0] > STEP_BITS:
            # The odd step of a byte reads both nibbles: a coordinate there can have up to eight bits.
            byte_of = deal(kept, n_steps // 2)
            for byte in range(n_steps // 2):
                mine = np.flatnonzero(byte_of == byte)
                step_of[mine] = 2 * byte + 1 - deal(kept[mine], 2)
        order = np.argsort(step_of, kind="stable")
        coded, dims = chosen[order], np.bincount(step_of, minlength=n_steps)
        white = variances[coded].min() == variances[coded].max()
        books = np.unique(dims, return_inverse=True)[1] if white else np.arange(n_steps)
        return cls(
            coded=coded.astype(np.int32),
            first=np.append(0, np.cumsum(dims)).astype(np.int32),
            book_of_step=books.astype(np.int32),
            variances=variances[coded],
            emphases=weights[coded],
        )

    @property
    def dims(self) -> Int32:
        """Number of coordinates of each step."""
        return np.diff(self.first)

    def columns(self, book: int) -> Int32:
        """Return the coordinates of the steps that share a book, (n_steps, n_dims)."""
        steps = np.flatnonzero(self.book_of_step == book)
        return self.first[steps, np.newaxis] + np.arange(self.dims[steps[0]])

    def design(self, books: list[Float64], shares: Float64 | None = None) -> RingDesign:
        """Return the design with books rounded to levels, each coordinate with its own scale."""
        amplitudes, levels = np.empty(len(self.coded), np.float32), []
        for number, book in enumerate(books):
            at = self.columns(number)
            largest = np.maximum(np.abs(book).max(axis=0), 1e-3 * np.sqrt(self.variances[at[0]]))
            scales = (largest / MAX_LEVEL).astype(np.float32)
            amplitudes[at] = scales
            levels.append(np.rint(np.clip(book / scales, -MAX_LEVEL, MAX_LEVEL)).astype(np.int8).ravel())
        shares = np.ones(len(self.coded)) if shares is None else shares
        # Rounded to a grid, so that the last digit of a power cannot change bytes or fingerprints.
        gains = np.round(np.maximum(shares, LEAST_SHARE) ** -SHARPENING * 2**12) / 2**12
        return RingDesign(
            coded=self.coded,
            first=self.first,
            book_of_step=self.book_of_step,
            levels=np.concatenate(levels),
            amplitudes=amplitudes,
            gains=gains.astype(np.float32),
            emphases=self.emphases.astype(np.float32),
            energy=round(float((shares * self.variances).sum()), 6),
        )

    def measured(self, books: list[Float64], coordinates: Float32) -> RingDesign:
        """Return the design with gains from the share of each coordinate's energy that reconstructions capture."""
        design = self.design(books)
        energies, windows = np.zeros(len(self.coded)), encode_windows(design, coordinates)
        for number in range(len(books)):
            at = self.columns(number)
            start, end = design.book_starts[number : number + 2]
            values = design.levels[start:end].reshape(N_WINDOWS, -1) * design.amplitudes[at[0]].astype(np.float64)
            counts = np.bincount(windows[:, self.book_of_step == number].ravel(), minlength=N_WINDOWS)
            energies[at] = (values**2 * counts[:, np.newaxis]).sum(axis=0) / max(1, counts.sum())
        return self.design(books, np.minimum(1.0, np.round(energies / self.variances * 2**16) / 2**16))

    def refined(self, books: list[Float64], coordinates: Float32, weight: float) -> list[Float64]:
        """Return books after a Lloyd round: encode, then move each row to the mean of its members.

        Means are shrunk towards the row before with a weight in members.
        """
        windows, found = encode_windows(self.design(books), coordinates), []
        for number, book in enumerate(books):
            members = windows[:, self.book_of_step == number].ravel()
            counts = np.bincount(members, minlength=N_WINDOWS)[:, np.newaxis]
            sums = [
                np.bincount(members, coordinates[:, at].ravel(), minlength=N_WINDOWS) for at in self.columns(number).T
            ]
            found.append((np.array(sums).reshape(-1, N_WINDOWS).T + weight * book) / (counts + weight))
        return found

    def noise_books(self, seed: int) -> list[Float64]:
        """Return books that fit Gaussian noise with the variances of each step."""
        deviations, n_coded = np.sqrt(self.variances), len(self.coded)
        noise = (grid_normals(seed, "noise", NOISE * n_coded).reshape(NOISE, n_coded) * deviations).astype(np.float32)
        return self.annealed_books(noise, seed, "", NOISE_ROUNDS, ANNEALED_ROUNDS, 0.1)

    def annealed_books(
        self, noise: Float32, seed: int, name: str, n_rounds: int, n_annealed: float, scale: float
    ) -> list[Float64]:
        """Return random books after Lloyd rounds on noise; the first rounds end with random moves that fade."""
        books = self.random_books(seed, f"{name}books", 0.7)
        for number in range(n_rounds):
            books = self.refined(books, noise, NOISE_WEIGHT)
            if number < n_annealed:
                moves = self.random_books(seed, f"{name}round {number}", scale * (1 - number / n_annealed) ** 2)
                books = [book + move for book, move in zip(books, moves, strict=True)]
        return books

    def random_books(self, seed: int, name: str, scale: float) -> list[Float64]:
        """Return books of normal values with a multiple of the coordinates' deviations."""
        columns = [self.columns(number)[0] for number in range(int(self.book_of_step.max()) + 1)]
        values = grid_normals(seed, name, N_WINDOWS * sum(map(len, columns))) * scale
        ends = np.cumsum([N_WINDOWS * len(at) for at in columns])[:-1]
        deviations = np.sqrt(self.variances)
        parts = zip(np.split(values, ends), columns, strict=True)
        return [part.reshape(N_WINDOWS, len(at)) * deviations[at] for part, at in parts]

    def white_design(self, n_features: int) -> tuple[RingDesign, float]:
        """Return the design for coordinates of equal variance, and the mean cosine of signals and reconstructions.

        The books depend only on the sizes of steps.
        """
        deviation = float(np.sqrt(self.variances[0]))
        sizes = [self.columns(number).shape[1] for number in range(int(self.book_of_step.max()) + 1)]
        made = [white_book(size) for size in sizes]
        shares, products = (
            np.repeat([made[number][which] for number in self.book_of_step], self.dims) for which in (1, 2)
        )
        cosine = round(float(products.sum() / np.sqrt(shares.sum() * n_features)), 4)
        return self.design([book * deviation for book, _, _ in made], shares), cosine


@cache
def white_book(n_dims: int) -> tuple[Float64, float, float]:
    """Return the book of a step with ``n_dims`` white coordinates.

    Then the mean square of a reconstructed coordinate, and its mean product with the coordinate, on fresh noise.

    It is the same on every machine: noise is on a grid, so that its sums are exact.
    """
    if n_dims == 0:
        return np.zeros((N_WINDOWS, 0)), 0.0, 0.0
    n_coded = WHITE_STEPS * n_dims
    steps = Steps(
        coded=np.arange(n_coded, dtype=np.int32),
        first=np.arange(0, n_coded + 1, n_dims, dtype=np.int32),
        book_of_step=np.zeros(WHITE_STEPS, np.int32),
        variances=np.ones(n_coded),
        emphases=np.ones(n_coded),
    )
    n_signals = min(2**13, WHITE_VALUES // n_coded)
    noise = grid_normals(n_dims, "white noise", 9 * n_signals // 8 * n_coded).reshape(-1, n_coded).astype(np.float32)
    (book,) = steps.annealed_books(noise[:n_signals], n_dims, "white ", WHITE_ROUNDS, 0.7 * WHITE_ROUNDS, 0.15)
    fresh = noise[n_signals:]
    design = steps.measured([book], fresh)
    members = encode_windows(design, fresh).ravel()
    sums = [np.bincount(members, fresh[:, at].ravel(), minlength=N_WINDOWS) for at in steps.columns(0).T]
    return book, design.energy / n_coded, float((np.array(sums).T * book).sum()) / fresh.size


def encode_windows(design: RingDesign, coordinates: Float32) -> Bytes:
    """Return the windows that each step reads from the codes of coordinates, (n_signals, n_steps)."""
    codes = kernels.active().ring_encode(design.ring(), coordinates)[:, :-2]
    nibbles = np.stack([codes >> 4, codes & 15], axis=2).reshape(len(codes), -1)
    return np.asarray(np.roll(nibbles, 1, axis=1) << 4 | nibbles, np.uint8)


def grid_normals(seed: int, name: str, count: int) -> Float64:
    """Return standard normal values of a stream, rounded to a grid."""
    return np.rint(normals(seed, f"trellis {name}", 0, count) * GRID) / GRID


def learn_moments(
    sample: Sample, basis: str | Projection, center: bool | npt.ArrayLike, n_steps: int, random_state: RandomState
) -> tuple[Projection, Float32 | None, Float64]:
    """Return the basis, the subtracted mean, and the variances of the coordinates."""
    n_features = sample.n_features
    given = given_mean(center, n_features)
    check_basis(basis, n_features, random_state)
    if isinstance(basis, Projection):
        projection, seed = basis, basis.seed
    else:
        seed = make_seed(random_state)
        projection = Hadamard(n_features=n_features, random_state=seed)
    if basis != "principal" and center is False:
        for _ in sample.unit_blocks():
            pass  # only checks them
        return projection, None, np.ones(n_features)
    least = max(16, n_features // 8) if basis == "principal" else 2
    if len(sample) < least:
        raise ValueError(
            f"a sample of {len(sample)} signals is too small to learn "
            f"{'axes' if basis == 'principal' else 'a mean'} of {n_features} features, at least {least} are needed; "
            'pass more signals, or use basis="hadamard" with center=False, which learns nothing'
        )
    if basis == "principal":
        return _learn_axes(sample, center is not False, given, n_steps, seed)
    found = _mean(sample)
    mean = found.astype(np.float32) if given is None else given
    left = 1 - float(mean.astype(np.float64) @ (mean if given is None else 2 * found - mean))
    _check_varies(left)
    return projection, mean, np.full(n_features, max(1e-6, left))


def _mean(sample: Sample) -> Float64:
    """Return the mean of the unit signals of the sample."""
    parts = [(values.sum(axis=0, dtype=np.float64), len(values)) for values in sample.unit_blocks()]
    if not any(part[1] for part in parts):
        _check_varies(0.0)
    return np.asarray(sum(part[0] for part in parts) / sum(part[1] for part in parts))


def _check_varies(total: float) -> None:
    """Raise ValueError if unit signals differ from the subtracted mean by less than codes resolve."""
    if not total > LEAST_VARIANCE:
        raise ValueError(
            "the signals of the sample all point nearly the same way, or are zero: their differences are too small for "
            'codes; subtract their mean first, or take basis="hadamard" with center=False, which learns nothing'
        )


def _learn_axes(
    sample: Sample, center: bool, given: Float32 | None, n_steps: int, seed: int
) -> tuple[Projection, Float32 | None, Float64]:
    n_features, shrinkage = sample.n_features, 0.0
    if len(sample) < ENOUGH * n_features:
        shrinkage = n_features / (n_features + 10 * len(sample))
        warn(
            f"axes of {n_features} features are learned from {len(sample)} signals, fewer than {ENOUGH} per feature: "
            f"their covariance is shrunk towards equal variances by {shrinkage:.3f}",
        )
    fixed = np.zeros(n_features) if not center else None if given is None else given.astype(np.float64)
    if n_features <= EXACT_FEATURES:
        axes, spread, mean = all_axes(sample.unit_blocks(), n_features, fixed)
        total = float(spread.sum())
    else:
        mean = _mean(sample) if fixed is None else fixed
        axes, spread, total = leading_axes(sample.unit_blocks, mean, MAX_AXES, seed)
    _check_varies(total)
    spread = (1 - shrinkage) * spread + shrinkage * total / n_features
    variances = _pad_variances(spread, total, n_features)
    # Axes without bits are not stored: the space they span is rotated and gets no bits either.
    n_axes = min(len(axes), len(Steps.of(variances, n_steps).coded), MAX_AXES)
    n_axes = n_features if n_axes > 0.95 * n_features and len(axes) == n_features else n_axes
    projection = Principal(n_features=n_features, random_state=seed, axes=round_axes(axes[:n_axes]))
    variances = _pad_variances(spread[:n_axes], total, n_features)
    return projection, mean.astype(np.float32) if center else None, variances


def _pad_variances(spread: Float64, total: float, n_features: int) -> Float64:
    """Return variances of all coordinates in units of projections; the remainder is divided equally."""
    n_rest = n_features - len(spread)
    rest = np.full(n_rest, max(0.0, total - float(spread.sum())) / max(1, n_rest))
    return np.asarray(np.maximum(np.concatenate([spread, rest]) * n_features, 1e-9))
