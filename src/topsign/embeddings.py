"""The paper's embeddings as scikit-learn estimators: signs, universal, and adaptive to one reference."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from . import kernels
from ._arrays import Array, Bytes, Int32
from ._checks import as_numpy, as_signals, check_count, check_pool, check_positive, suggests_keywords
from ._estimators import SignalsTransformer, check_signals
from ._random import RandomState, uniforms
from .encoding import project_blocks
from .errors import warn
from .families.adaptive import resolve_bits
from .projections import Projection, resolve_projection
from .projections.blocks import check_finite, float_blocks

FAR = 16  # ratio of a step to the standard deviation of projections, or its inverse


class _Embedding(SignalsTransformer):
    """Base class of embeddings, with a projection made by ``fit``."""

    projection: str | Projection
    random_state: RandomState
    projection_: Projection
    seed_: int

    def _make_projection(self, n_pool: int) -> None:
        self.projection_ = resolve_projection(
            self.projection, n_features=self.n_features_in_, n_pool=n_pool, random_state=self.random_state
        )
        self.seed_ = self.projection_.seed

    def _take_signals(self, signals: Any) -> Array:
        """Validate the signals of ``fit``, or a single one of shape (n_features,)."""
        values = np.asarray(signals) if isinstance(signals, list) and np.isscalar(signals[0]) else as_numpy(signals)
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiub":
            values = values[np.newaxis]
        return check_signals(self, values, reset=True)


@suggests_keywords
class SignEmbedding(_Embedding):
    """Signs of ``n_bits`` random projections, the same for every signal.

    Parameters
    ----------
    n_bits : int
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    random_state : int, Generator or None
        Seed of the projection.

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
        self.n_bits, self.projection, self.random_state = n_bits, projection, random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learn the number of features of ``signals`` and make the projection; ``y`` is ignored."""
        n_bits = check_count(self.n_bits, "n_bits")
        check_finite(self._take_signals(signals))
        self._make_projection(n_bits)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Return packed codes of ``signals``, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        signals = check_signals(self, signals)
        out = np.empty((len(signals), -(-self.projection_.n_pool // 8)), np.uint8)
        for block, projected in project_blocks(self.projection_, signals):
            out[block.rows] = kernels.active().pack_bits(projected)
        return out


@suggests_keywords
class UniversalEmbedding(_Embedding):
    """Universal quantised embedding: the parity of each projection's quantisation cell.

    Bit i is ``floor((projected_i + dither_i) / step) mod 2``. Distances up to about ``step`` can be
    distinguished, larger ones all look alike.

    Parameters
    ----------
    n_bits : int
        Projections, one bit each.
    step : float
        Width of a cell, in the units of the projections (a unit-norm signal's have variance one).
    dither : bool
        Adds a fixed uniform value in [0, 2 * step) to each projection, so that the distance between codes
        depends only on the signals' distance. Without it, norms matter too.
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
        self.n_bits, self.step, self.dither = n_bits, step, dither
        self.projection, self.random_state = projection, random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learn the number of features of ``signals``, and make the projection and the dither; ``y`` is ignored."""
        n_bits = check_count(self.n_bits, "n_bits")
        step = check_positive(self.step, "step")
        checked = self._take_signals(signals)
        check_finite(checked)
        self._make_projection(n_bits)
        _, projected = next(project_blocks(self.projection_, checked))
        scale = float(np.std(projected))
        if scale > 0 and (step < scale / FAR or (self.dither and step > FAR * scale)):
            effect = "only nearly equal signals get similar codes" if step < scale else "all codes are nearly equal"
            warn(
                f"step={step:.3g} is far from {scale:.3g}, the deviation of the projections: {effect}; "
                f"a step of about {2 * scale:.2g} fits, or divide the signals by their norms"
            )
        cells = uniforms(self.seed_, "universal dither", 0, n_bits) if self.dither else np.zeros(n_bits)
        self.dither_ = cells * (2 * step)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Return packed codes of ``signals``, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        signals = check_signals(self, signals)
        out = np.empty((len(signals), -(-len(self.dither_) // 8)), np.uint8)
        for block, projected in project_blocks(self.projection_, signals):
            cells = np.floor((projected + self.dither_) / self.step)
            out[block.rows] = np.packbits(cells % 2 == 1, axis=1, bitorder="little")
        return out


@suggests_keywords
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
        self.n_bits, self.n_pool = n_bits, n_pool
        self.projection, self.random_state = projection, random_state

    def fit(self, reference: npt.ArrayLike, y: object = None) -> Self:
        """Choose the locations for one ``reference``, of shape (n_features,) or (1, n_features); ``y`` is ignored."""
        signals = as_signals(reference, name="reference")
        if len(signals) != 1:
            raise ValueError(
                f"AdaptiveEmbedding adapts to exactly one reference, got {len(signals)} rows; "
                'use Encoder(family="adaptive") to give every signal its own locations'
            )
        signals = self._take_signals(signals)
        n_pool = self.n_features_in_ if self.n_pool is None else self.n_pool
        n_bits, n_pool = check_pool(resolve_bits(self.n_bits, n_pool), n_pool)
        (block,) = float_blocks(signals, 1, name="reference")
        if block.square_norms[0] == 0:
            raise ValueError("the reference is zero: all its projections tie, so it cannot choose any")
        self._make_projection(n_pool)
        locations, code, _ = kernels.active().select(self.projection_.apply(block.values), n_bits)
        self.locations_: Int32 = locations[0]
        self.reference_code_: Bytes = code[0]
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Return packed signs of the kept projections of ``signals``, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        given: Any = as_numpy(signals)
        if not hasattr(given, "tocsr"):
            given = np.atleast_2d(np.asarray(given))
        signals = check_signals(self, given)
        return kernels.active().pack_bits(self.projection_.apply(signals, rows=self.locations_))
