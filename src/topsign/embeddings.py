"""The idea: signs of random projections, and of the largest ones a reference chooses.

All follow scikit-learn's conventions: constructors store, ``fit`` learns, learned names end in ``_``.
Signals may be NumPy arrays, PyTorch tensors on the CPU, Arrow arrays or anything with ``__array__`` or DLPack; what
comes back is always NumPy's.
Codes are packed uint8, little-endian bits (the order of FAISS), ``projected >= 0`` being 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from . import kernels
from ._blocks import Block, float_blocks
from ._checks import (
    Array,
    as_signals,
    check_choice,
    check_count,
    check_pool,
    check_positive,
    interchanged,
    raise_zero_signal,
)
from ._random import RandomState, uniforms
from .codes import AdaptiveCodes
from .kernels import LAYOUTS, Layout
from .kernels.interface import Bytes, Float32, Int32
from .projections import KINDS, Projection, make_projection


class _Embedding(TransformerMixin, BaseEstimator):
    """What all embeddings share: a projection made by ``fit``, and signals checked as scikit-learn does."""

    projection: str | Projection
    random_state: RandomState
    projection_: Projection
    seed_: int
    n_features_in_: int

    def _make_projection(self, n_pool: int) -> None:
        if isinstance(self.projection, Projection):
            if self.projection.shape != (n_pool, self.n_features_in_):
                raise ValueError(
                    f"the projection given has shape {self.projection.shape}, but this data needs "
                    f"(n_pool, n_features) = {(n_pool, self.n_features_in_)}; make it for these numbers, or "
                    "name its kind"
                )
            if self.random_state is not None:
                raise ValueError("a projection made beforehand has its own seed; leave random_state=None")
            self.projection_ = self.projection
        else:
            check_choice(self.projection, "projection", tuple(KINDS))
            self.projection_ = make_projection(
                self.projection, n_features=self.n_features_in_, n_pool=n_pool, seed=self.random_state
            )
        self.seed_ = self.projection_.seed

    def _check(self, signals: object, *, reset: bool = False) -> Array:
        """Shape, type and feature names; finiteness is checked block by block where signals are read."""
        array: Array = validate_data(
            self,
            interchanged(signals),
            reset=reset,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=int(reset),
        )
        return as_signals(array)

    def _projected_blocks(
        self,
        signals: Array,
        *,
        part: slice | None = None,
        minus: Float32 | None = None,
        n_threads: int,
        name: str = "signals",
    ) -> Iterator[tuple[Block, Float32]]:
        """Blocks of signals with their projections, which the next block overwrites."""
        n_rows = self.projection_.block_signals
        projected = np.empty((min(n_rows, len(signals)), self.projection_.n_pool), np.float32)
        for block in float_blocks(signals, n_rows, part=part, minus=minus, n_threads=n_threads, name=name):
            here = projected[: len(block.values)]
            self.projection_._project(block.values, None, here, n_threads)
            yield block, here

    def _packed(self, signals: Array, *, minus: Float32 | None = None) -> Bytes:
        """Signs of all pool projections."""
        n_threads = kernels.n_threads(None)
        out = np.empty((len(signals), -(-self.projection_.n_pool // 8)), np.uint8)
        for block, projected in self._projected_blocks(signals, minus=minus, n_threads=n_threads):
            out[block.rows] = kernels.active().pack_bits(projected, n_threads=n_threads)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


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
        _check_finite(self._check(signals, reset=True))
        self._make_projection(n_bits)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed codes, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        return self._packed(self._check(signals))


class UniversalEmbedding(_Embedding):
    """Universal quantised embedding: the parity of each projection's quantisation cell.

    Bit i is ``floor((projected_i + dither_i) / step) mod 2``. Distances up to about ``step`` are told
    apart, larger ones all look alike.

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
        _check_finite(self._check(signals, reset=True))
        self._make_projection(n_bits)
        dither = uniforms(self.seed_, "universal dither", 0, n_bits) * (2 * step)
        self.dither_ = dither if self.dither else np.zeros(n_bits)
        return self

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed codes, (n_signals, ceil(n_bits / 8)) uint8."""
        check_is_fitted(self)
        signals = self._check(signals)
        out = np.empty((len(signals), -(-len(self.dither_) // 8)), np.uint8)
        for block, projected in self._projected_blocks(signals, n_threads=kernels.n_threads(None)):
            cells = np.floor((projected + self.dither_) / self.step)
            out[block.rows] = np.packbits(cells % 2 == 1, axis=1, bitorder="little")
        return out


class AdaptiveEmbedding(_Embedding):
    """The paper's embedding: signs of the pool projections that are largest for one reference.

    Parameters
    ----------
    n_bits, n_pool : int
        Projections kept, and computed; n_pool is the number of features when not given.
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
        n_bits: int = 512,
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
        signals = self._check(signals, reset=True)
        n_bits, n_pool = check_pool(self.n_bits, self.n_features_in_ if self.n_pool is None else self.n_pool)
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
        signals = self._check(np.atleast_2d(np.asarray(interchanged(signals))))
        return kernels.active().pack_bits(self.projection_.apply(signals, rows=self.locations_))


class AdaptiveEncoder(_Embedding):
    """Adaptive codes of many signals, every signal its own reference.

    Parameters
    ----------
    n_bits, n_pool : int
        Projections kept for each signal, and computed; n_pool is the number of features when not given.
    projection, random_state
        As in :class:`SignEmbedding`.
    center : bool
        Learn the mean of the signals in ``fit`` and remove it from signals and queries alike.
    norms : bool
        Keep each signal's norm and scale (8 bytes a code), so that inner products can be estimated.
        Without them correlations are estimated with the expected scale.
    layout : "compact" or "fast"
        Of the codes, see :class:`topsign.AdaptiveCodes`.

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
        n_bits: int = 512,
        *,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        center: bool = False,
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
        """Learns the number of features (and the mean, with center=True) and makes the projection."""
        signals = self._check(signals, reset=True)
        n_bits, n_pool = check_pool(self.n_bits, self.n_features_in_ if self.n_pool is None else self.n_pool)
        self._code_layout = Layout(check_choice(self.layout, "layout", LAYOUTS), n_bits, n_pool)
        mean = _check_finite(signals, mean=self.center)
        self.mean_: Float32 | None = mean.astype(np.float32) if self.center else None
        self._make_projection(n_pool)
        return self

    def encode(self, signals: npt.ArrayLike, *, n_threads: int | None = None) -> AdaptiveCodes:
        """One adaptive code per signal.

        Reads signals block by block, so that a memory map larger than memory is fine. A zero signal (one
        equal to the mean, with center=True) has no largest projections and raises.
        """
        check_is_fitted(self)
        signals = as_signals(signals, n_features=self.n_features_in_)
        return self._encode(signals, slice(0, len(signals)), kernels.n_threads(n_threads))

    def _encode(self, signals: Array, part: slice, threads: int) -> AdaptiveCodes:
        """Codes of a part of the signals; errors name the row of the whole."""
        layout, n_codes = self._code_layout, part.stop - part.start
        data = np.empty((n_codes, layout.code_bytes), np.uint8)
        norms, scales = np.empty(n_codes, np.float32), np.empty(n_codes, np.float32)
        for block, projected in self._projected_blocks(signals, part=part, minus=self.mean_, n_threads=threads):
            rows = slice(block.rows.start - part.start, block.rows.stop - part.start)
            zeros = np.flatnonzero(block.square_norms == 0)
            if zeros.size:
                raise_zero_signal(block.rows.start + int(zeros[0]), centered=self.center)
            locations, signs, totals = kernels.active().select(projected, layout.n_bits, n_threads=threads)
            data[rows] = kernels.active().pack_codes(layout, locations, signs, n_threads=threads)
            norms[rows] = np.sqrt(block.square_norms)
            scales[rows] = block.square_norms / totals
        return AdaptiveCodes._trusted(layout, data, *((norms, scales) if self.norms else ()))

    def project(self, queries: npt.ArrayLike, *, n_threads: int | None = None) -> Float32:
        """Real projections of queries on the pool, (n_queries, n_pool) float32, to compare with codes."""
        check_is_fitted(self)
        queries = as_signals(queries, n_features=self.n_features_in_, name="queries")
        out = np.empty((len(queries), self.projection_.n_pool), np.float32)
        blocks = self._projected_blocks(
            queries, minus=self.mean_, n_threads=kernels.n_threads(n_threads), name="queries"
        )
        for block, projected in blocks:
            out[block.rows] = projected
        return out

    def transform(self, signals: npt.ArrayLike) -> Bytes:
        """Packed signs of all pool projections, (n_signals, ceil(n_pool / 8)) uint8."""
        check_is_fitted(self)
        return self._packed(self._check(signals), minus=self.mean_)


def _check_finite(signals: Array, *, mean: bool = False) -> npt.NDArray[np.float64]:
    """Reads every signal once; the mean where asked for, summed in double precision."""
    total = np.zeros(signals.shape[1])
    for block in float_blocks(signals, max(1, 2**23 // max(1, 4 * signals.shape[1]))):
        if mean:
            total += block.values.sum(axis=0, dtype=np.float64)
    return total / max(1, len(signals))
