"""Recipes of codes over projections: the base class of the built-in families."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, pack_array, unpack_array
from .._files import Record
from .._lazy import lazy
from ..errors import StorageError
from ..kernels import FACTOR_BYTES, RoundedQueries, Scoring
from ..projections import Principal, Projection, make_projection
from ..projections.blocks import Block, float_blocks
from .base import MAX_FEATURES, Recipe
from .comparison import Int8, Null
from .weight_encoder import LevelWeightEncoder, WeightEncoder

MAX_BLOCKS = 2**16  # n_pool / n_features
CHEAP_PROJECTIONS = 2**20  # features and projections up to which fingerprints are compared when a file is opened


@dataclass(frozen=True, eq=False)
class ProjectedRecipe(Recipe):
    """Codes of the projections of signals."""

    kind: ClassVar[str]  #: of the codes, for kernels
    sizes: ClassVar[tuple[str, ...]] = ("n_bytes",)  #: parameters of the constructor that set the size
    projects_units: ClassVar[bool] = False  #: whether signals are scaled to norm one before they are projected

    projection: Projection  #: kind of random projection, or a projection object
    metric: str = "correlation"  #: quantity that scores estimate: "correlation" or "inner_product"
    mean: Float32 | None = None  #: mean that is removed from signals and queries

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        return (*cls.sizes, "basis", "center", "metric", "random_state")

    def disagreement(self, family: str | None = None, **parameters: Any) -> str | None:
        """Describe how this recipe differs from a ``family`` and ``parameters``; None if they agree.

        None, "auto" and ``center=True`` accept any value; all others must be equal.
        """
        problem = super().disagreement(family, **parameters)
        if problem is not None:
            return problem
        have, ours, theirs = self.parameters() | {"random_state": self.seed}, [], []
        for name, value in parameters.items():
            same = value is None
            if isinstance(value, Projection):
                same = value == self.projection
            elif name == "center" and not isinstance(value, (bool, np.bool_)):
                given = np.asarray(given_mean(value, self.n_features))
                same = self.mean is not None and np.array_equal(self.mean, given)
                value = "another mean"
            elif not same:
                same = value in ("auto", have[name])
            if not same:
                ours.append(f"{name}={have[name]!r}")
                theirs.append(f"{name}={value!r}")
        return f"{', '.join(ours)}, got {', '.join(theirs)}" if ours else None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a constructor, with whether there is a mean as ``center``."""
        kept = {"metric": self.metric, "center": self.mean is not None, "basis": self.projection.kind}
        return super().parameters() | {name: getattr(self, name) for name in self.sizes} | kept

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of one code without its factor."""

    @lazy
    def code_bytes(self) -> int:
        return self.n_bytes + (0 if self.factor is None else FACTOR_BYTES)

    @lazy
    def factor(self) -> str | None:
        """Kind of the factor at the end of a code; None if there is none."""
        return "log" if self.metric == "inner_product" else None

    @lazy
    def width(self) -> int:
        """Number of levels of a code."""
        return self.n_pool

    @lazy
    def scorer(self) -> Scoring:
        return self.scoring_of(self.factor)

    def scoring_of(self, factor: str | None, *, code_bytes: int | None = None) -> Scoring:
        """Return the description of these codes for kernels, with another factor or in longer rows."""
        key = factor, code_bytes or self.code_bytes
        if key not in self._scorings:
            self._scorings[key] = Scoring(self.kind, key[1], self.width, factor, **self._shape)
        return self._scorings[key]

    @property
    def _shape(self) -> dict[str, Any]:
        """Further fields of :class:`topsign.kernels.Scoring`."""
        return {}

    @lazy
    def _scorings(self) -> dict[tuple[str | None, int], Scoring]:
        return {}

    def levels(self, codes: Bytes) -> Int8:
        """Return the levels of ``codes``, (n_codes, width) int8; bytes after the code are ignored."""
        codes = np.ascontiguousarray(codes)
        scoring = self.scoring_of(None, code_bytes=codes.shape[1])
        return kernels.active().decode(scoring, codes)

    @property
    @abstractmethod
    def null(self) -> Null | None:
        """Null distribution of estimated correlations; None if it is not known."""

    @lazy
    def n_features(self) -> int:
        return self.projection.n_features

    @lazy
    def n_pool(self) -> int:
        """Projections computed for each signal."""
        return self.projection.n_pool

    @property
    def seed(self) -> int:
        """Seed of the projection."""
        return self.projection.seed

    @lazy
    def block_signals(self) -> int:
        return self.projection.block_signals

    @lazy
    def query_nbytes(self) -> int:
        return 4 * max(self.projection.shape)

    @property
    def shared_nbytes(self) -> int:
        return 0 if self.mean is None else int(self.mean.nbytes)

    @lazy
    def operator(self) -> Projection:
        """The projection; StorageError unless it is the one that the record of this recipe was written with."""
        stored = self.__dict__.get("expected_fingerprint")
        if stored is not None and stored != self.projection_fingerprint:
            raise StorageError(
                "recipe",
                "recipe",
                f"the projection it was written with has the fingerprint {stored}, the one made from its parameters "
                f"here has {self.projection_fingerprint}; use the version of the library that wrote it",
            )
        return self.projection

    def expect_fingerprint(self, record: Record) -> Self:
        """Return this recipe after comparing its projection with the one that the ``record`` was written with.

        At once, or before the first signal is projected if the record claims so many features that it takes long.
        """
        self.__dict__["expected_fingerprint"] = str(record["fingerprint"])
        if max(self.projection.shape) <= CHEAP_PROJECTIONS:
            self.operator  # noqa: B018  (compares)
        return self

    def project_block(self, block: Block, out: Float32) -> None:
        """Write the projections that codes are made of."""
        self.operator.project_block(block.values, None, out)

    def project(self, queries: Array, *, part: slice | None = None, name: str = "queries") -> tuple[Float32, Float64]:
        first, end, _ = (part or slice(None)).indices(len(queries))
        out, norms = np.empty((end - first, self.n_pool), np.float32), np.empty(end - first)
        n_rows = self.projection.block_signals
        for block in float_blocks(queries, n_rows, part=part, minus=self.center, name=name):
            rows = slice(block.rows.start - first, block.rows.stop - first)
            self.project_block(block, out[rows])
            norms[rows] = np.sqrt(block.square_norms)
        return out, norms

    @lazy
    def space(self) -> str:
        rest = b"" if self.mean is None else self.mean.astype("<f4").tobytes()
        return hashlib.sha256(self.projection_fingerprint.encode() + rest + bytes(self.projects_units)).hexdigest()[:32]

    @lazy
    def projection_fingerprint(self) -> str:
        """Digest of the projection's description and random bits."""
        return self.projection.fingerprint()

    def to_json(self) -> Record:
        record = {
            "family": self.family,
            "n_features": self.n_features,
            "n_pool": self.n_pool,
            "metric": self.metric,
            "projection": self.projection.kind,
            "seed": self.projection.seed,
            "options": self.projection.options,
            "fingerprint": self.projection_fingerprint,
        }
        if self.mean is not None:
            record["mean"] = pack_array(self.mean)
        return record

    def described(self) -> Record:
        record = self.to_json()
        if "mean" in record:
            record["mean"] = digest(record["mean"])
        if record["projection"] == Principal.kind:
            record["options"] = {"axes": digest(record["options"])}
        return record

    def weight_encoder(self) -> WeightEncoder:
        return LevelWeightEncoder(self)

    @abstractmethod
    def rounded(self, projected: Float32, factors: Float64) -> RoundedQueries:
        """Return queries whose values are the products with :meth:`weight_vectors` of codes, times factors."""

    @abstractmethod
    def logit_error(self) -> float:
        """Return the standard deviation of an estimated logit relative to |w| |x|, for orthogonal w and x."""


def read_projection(record: Record) -> Projection:
    """Return the projection of a record; its sizes are checked before anything is allocated."""
    check_sizes(record["n_features"], record["n_pool"])
    kind = record["projection"]
    make = Principal if kind == Principal.kind else partial(make_projection, kind)
    sizes = {"n_features": record["n_features"], "n_pool": record["n_pool"], "random_state": record["seed"]}
    return make(**sizes, **record["options"])


def check_sizes(n_features: object, n_pool: object) -> None:
    """Raise for sizes whose projection would take all memory or hours: a file may claim any."""
    if not (isinstance(n_features, int) and isinstance(n_pool, int)):
        raise TypeError(f"n_features and n_pool must be integers, got {n_features!r} and {n_pool!r}")
    if not (0 < n_features <= MAX_FEATURES and 0 < n_pool <= MAX_BLOCKS * n_features):
        raise ValueError(
            f"n_features={n_features} and n_pool={n_pool} cannot be kept: take at most {MAX_FEATURES} features, and "
            f"{MAX_BLOCKS} times as many projections"
        )


def given_mean(center: bool | npt.ArrayLike, n_features: int) -> Float32 | None:
    """Return a given mean, n_features finite values; None if ``center`` is True or False."""
    if isinstance(center, (bool, np.bool_)):
        return None
    mean = np.asarray(center)
    if mean.dtype.kind not in "fiu" or mean.shape != (n_features,) or not np.isfinite(mean).all():
        raise ValueError(
            f"center must be True, False or a mean of {n_features} finite values, got shape {mean.shape} and dtype "
            f"{mean.dtype}"
        )
    return mean.astype(np.float32)


def mean_signal(signals: Array, part: slice | None = None) -> Float32:
    """Return the mean of signals, summed in double precision; one that is not finite raises with its row."""
    first, end, _ = (part or slice(None)).indices(len(signals))
    total = np.zeros(signals.shape[1])
    for block in float_blocks(signals, max(1, 2**21 // max(1, signals.shape[1])), part=slice(first, end)):
        total += block.values.sum(axis=0, dtype=np.float64)
    return (total / max(1, end - first)).astype(np.float32)


def read_mean(text: Any, n_features: int) -> Float32 | None:
    """Return the mean of a record, None if it has none."""
    if text is None:
        return None
    mean = unpack_array(text, "f4", n_features, "mean")
    if not np.isfinite(mean).all():
        raise ValueError("the values of mean must be finite")
    return mean


def digest(value: Any) -> str:
    """Return eight hexadecimal digits that stand for a long value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def inverse_norms(block: Block) -> Float32:
    """Return one over the norm of each signal of a block, zero for zero signals."""
    norms = np.sqrt(block.square_norms)
    return np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0).astype(np.float32)


def unit_rows(block: Block) -> Float32:
    """Return the signals of a block over their norms; zero signals stay zero."""
    return block.values * inverse_norms(block)[:, np.newaxis]
