"""Embeddings as scikit-learn estimators: plain signs, universal, adaptive to one reference, adaptive to each signal."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from . import kernels
from ._arrays import Array, Bytes, Float32, Float64, Int32
from ._checks import as_signals, check_count, check_pool, check_positive, interchanged
from ._estimators import SignalsTransformer, as_fitted_signals, check_signals
from ._random import RandomState
from .codes import AdaptiveCodes, as_projected, universal_bits, universal_dither
from .encoding import encode, project, project_blocks
from .projections import Projected, Projection, resolve_projection
from .projections.blocks import float_blocks
from .recipe import Recipe, check_mean, resolve_bits

if TYPE_CHECKING:
    import scipy.sparse


class _Embedding(SignalsTransformer):
    """What all embeddings share: a projection made by ``fit``."""

    projection: str | Projection
    random_state: RandomState
    projection_: Projection
    seed_: int

    def _make_projection(self, n_pool: int) -> None:
        self.projection_ = resolve_projection(
            self.projection, n_features=self.n_features_in_, n_pool=n_pool, random_state=self.random_state
        )
        self.seed_ = self.projection_.seed


class SignEmbedding(_Embedding):
    """Signs of ``n_bits`` random projections, the same for every signal.

    Parameters
    ----------
    n_bits : int
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    random_state : int, Generator or None

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((3, 100))
    >>> ts.SignEmbedding(n_bits=64, random_state=7).fit_transform(signals).shape
    (3, 8)
    """

    def __init__(
        self,
        n_bits: int = 512,
        *,
        projection: str | Projection = "hadamard",
        random_state: RandomState = None,
    ) -> None:
        self.n_bits = n_bits
        self.projection = projection
        self.random_state = random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learns the number of features and makes the projection; the values do not matter."""
        n_bits = check_count(self.n_bits, "n_bits")
        _check_finite(check_signals(self, signals, reset=True))
        self._make_projection(n_bits)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed codes, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        signals = check_signals(self, signals)
        threads = kernels.n_threads(None)
        out = np.empty((len(signals), -(-self.projection_.n_pool // 8)), np.uint8)
        for block, projected in project_blocks(self.projection_, signals, n_threads=threads):
            out[block.rows] = kernels.active().pack_bits(projected, n_threads=threads)
        return out


class UniversalEmbedding(_Embedding):
    """Universal quantised embedding: the parity of each projection's quantisation cell.

    Bit i is ``floor((projected_i + dither_i) / step) mod 2``. Distances up to about ``step`` can be
    distinguished, larger ones all look alike.

    Parameters
    ----------
    n_bits : int
    step : float
        Width of a cell, in the units of the projections (a unit-norm signal's have variance one).
    dither : bool
        Adds a fixed uniform value in [0, 2 * step) to each projection, so that the distance between codes
        depends on the signals' distance alone. Without it, norms matter too.
    projection, random_state
        As in :class:`SignEmbedding`.
    """

    def __init__(
        self,
        n_bits: int = 512,
        *,
        step: float = 2.0,
        dither: bool = True,
        projection: str | Projection = "gaussian",
        random_state: RandomState = None,
    ) -> None:
        self.n_bits = n_bits
        self.step = step
        self.dither = dither
        self.projection = projection
        self.random_state = random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learns the number of features, makes the projection and the dither."""
        n_bits = check_count(self.n_bits, "n_bits")
        step = check_positive(self.step, "step")
        _check_finite(check_signals(self, signals, reset=True))
        self._make_projection(n_bits)
        self.dither_ = universal_dither(self.seed_, n_bits, step) if self.dither else np.zeros(n_bits)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed codes, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        signals = check_signals(self, signals)
        out = np.empty((len(signals), -(-len(self.dither_) // 8)), np.uint8)
        for block, projected in project_blocks(self.projection_, signals):
            out[block.rows] = universal_bits(projected, self.dither_, self.step)
        return out


class AdaptiveEmbedding(_Embedding):
    """The paper's embedding: signs of the pool projections that are largest for one reference.

    Parameters
    ----------
    n_bits : int or "auto"
        Projections kept; "auto" is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed; the number of features when not given.
    projection, random_state
        As in :class:`SignEmbedding`.

    Attributes
    ----------
    locations_ : int32 array of shape (n_bits,)
        Rows of the pool kept, ascending.
    reference_code_ : uint8 array of shape (ceil(n_bits / 8),)

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> reference = np.random.default_rng(0).standard_normal(1000)
    >>> embedding = ts.AdaptiveEmbedding(n_bits=64, random_state=7).fit(reference)
    >>> codes = embedding.transform([reference, -reference])
    >>> ts.hamming(codes, embedding.reference_code_, n_bits=64)
    array([0., 1.])
    """

    def __init__(
        self,
        n_bits: int | str = "auto",
        *,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        random_state: RandomState = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.random_state = random_state

    def fit(self, reference: npt.ArrayLike, y: object = None) -> Self:
        """Chooses the locations for one reference, of shape (n_features,) or (1, n_features)."""
        signals = as_signals(reference, name="reference")
        if len(signals) != 1:
            raise ValueError(
                f"AdaptiveEmbedding adapts to exactly one reference, got {len(signals)} rows; "
                "use AdaptiveEncoder to give every signal its own locations"
            )
        signals = check_signals(self, signals, reset=True)
        n_pool = self.n_features_in_ if self.n_pool is None else self.n_pool
        n_bits, n_pool = check_pool(resolve_bits(self.n_bits, None, n_pool, "compact"), n_pool)
        (block,) = float_blocks(signals, 1, name="reference")
        if block.square_norms[0] == 0:
            raise ValueError("the reference is zero: all its projections tie, so it cannot choose any")
        self._make_projection(n_pool)
        locations, code, _ = kernels.active().select(self.projection_.apply(block.values), n_bits)
        self.locations_: Int32 = locations[0]
        self.reference_code_: Bytes = code[0]
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed signs of the kept projections, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        given: Any = interchanged(signals)
        if not hasattr(given, "tocsr"):
            given = np.atleast_2d(np.asarray(given))
        signals = check_signals(self, given)
        return kernels.active().pack_bits(self.projection_.apply(signals, rows=self.locations_))


class AdaptiveEncoder(ClassNamePrefixFeaturesOutMixin, _Embedding):
    """Adaptive codes of many signals, every signal its own reference.

    Parameters
    ----------
    n_bits : int or "auto"
        Projections kept for each signal; "auto" is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed; the number of features when not given.
    projection, random_state
        As in :class:`SignEmbedding`.
    center : bool or array of shape (n_features,)
        A mean that is removed from signals and queries alike: given, or learned by ``fit`` (True).
    norms : bool
        Keep each signal's norm and scale (8 bytes per code), so that inner products can be estimated.
        Without them correlations are estimated with the expected scale.
    layout : "compact" or "fast"
        Layout of the codes, see :class:`topsign.AdaptiveCodes`.

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.
    projection_, seed_, mean_
        Its projection, the seed of that, and the mean that is removed (None without ``center``).

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> encoder = ts.AdaptiveEncoder(n_bits=64, random_state=7).fit(signals)
    >>> codes = encoder.encode(signals)
    >>> queries = encoder.project(signals[:3] + 0.5)
    >>> codes.mismatches(queries).argmin(axis=1), codes.scores(queries).argmax(axis=1)
    (array([0, 1, 2]), array([0, 1, 2]))
    """

    def __init__(
        self,
        n_bits: int | str = "auto",
        *,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        center: bool | npt.ArrayLike = False,
        norms: bool = True,
        layout: str = "compact",
        random_state: RandomState = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.center = center
        self.norms = norms
        self.layout = layout
        self.random_state = random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learns the number of features (and the mean, with ``center=True``) and makes the recipe."""
        signals = check_signals(self, signals, reset=True)
        given = self.center
        learned = _check_finite(signals, mean=given is True)
        if given is True:
            mean: Float32 | None = learned.astype(np.float32)
        else:
            mean = None if given is False else check_mean(given, self.n_features_in_)
        self.recipe_ = Recipe.make(
            "adaptive",
            n_features=self.n_features_in_,
            n_bits=self.n_bits,
            n_pool=self.n_pool,
            projection=self.projection,
            layout=self.layout,
            norms=self.norms,
            mean=mean,
            random_state=self.random_state,
        )
        self.projection_, self.seed_ = self.recipe_.projection, self.recipe_.seed
        self.mean_: Float32 | None = self.recipe_.mean
        return self

    def encode(self, signals: npt.ArrayLike, *, n_threads: int | None = None) -> AdaptiveCodes:
        """One adaptive code per signal.

        Reads signals block by block, so that a memory map larger than memory is fine. A zero signal (one
        equal to the mean, with center=True) has no largest projections and raises.
        """
        check_is_fitted(self)
        signals = as_fitted_signals(self, signals)
        made = encode(self.recipe_, signals, n_threads=n_threads)
        space = self.recipe_.space
        return AdaptiveCodes.unchecked(self.recipe_.layout, made.codes, made.norms, made.scales, space=space)

    def to(self, device: str) -> Any:
        """An encoder of these codes on a CUDA device, "cuda" or "cuda:1": its ``encode`` gives the same bytes.

        A :class:`topsign.gpu.SignalEncoder`, for Hadamard projections.
        """
        check_is_fitted(self)
        gpu = import_module("topsign.gpu")  # a room above this one, which needs packages of its own
        names = getattr(self, "feature_names_in_", None)
        return gpu.SignalEncoder(self.recipe_, device=device, feature_names=names)

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Real projections of queries on the pool, (n_queries, n_pool) float32, to compare with codes."""
        check_is_fitted(self)
        queries = as_fitted_signals(self, queries, name="queries")
        return Projected.of(project(self.recipe_, queries, n_threads=n_threads)[0], self.recipe_)

    def as_projected(self, values: npt.ArrayLike) -> Float32:
        """Marks values as projections that this encoder made: those of a file, or joined from several.

        Codes refuse a plain array, since signals look the same where n_pool is n_features.
        """
        check_is_fitted(self)
        return Projected.of(as_projected(values, n_pool=self.recipe_.n_pool), self.recipe_)

    def transform(self, signals: npt.ArrayLike) -> scipy.sparse.csr_array:
        """The codes as SciPy sparse rows of +-1 at their locations, (n_signals, n_pool) float32 CSR.

        A zero signal has no code: its row is empty.
        """
        check_is_fitted(self)
        made = encode(replace(self.recipe_, norms=True), check_signals(self, signals), allow_zero=True)
        rows = AdaptiveCodes.unchecked(self.recipe_.layout, made.codes).to_sparse()
        if made.norms is not None and not made.norms.all():
            rows.data[np.repeat(made.norms == 0, self.recipe_.n_bits)] = 0
            rows.eliminate_zeros()
        return rows

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, as scikit-learn asks for them."""
        return self.recipe_.n_pool


def _check_finite(signals: Array, *, mean: bool = False) -> Float64:
    """Reads every signal once; the mean where asked for, summed in double precision."""
    total = np.zeros(signals.shape[1])
    for block in float_blocks(signals, max(1, 2**23 // max(1, 4 * signals.shape[1]))):
        if mean:
            total += block.values.sum(axis=0, dtype=np.float64)
    return total / max(1, len(signals))
