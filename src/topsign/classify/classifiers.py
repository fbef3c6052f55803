"""Three compressed linear classifiers: adaptive codes, and the paper's two baselines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64
from .._random import RandomState
from ..embeddings import AdaptiveEncoder, SignEmbedding, UniversalEmbedding
from ..encoding import project_blocks
from ..kernels import Layout
from ..projections import Projection
from .base import CompressedClassifier
from .heads import encode_adaptive, encode_signs, unit_rows


class _ProjectedClassifier(CompressedClassifier):
    """Queries keep their real projections for logits, or the signs of them for Hamming scores."""

    def _queries(self, signals: Array) -> Iterator[tuple[slice, Any]]:
        n_threads = kernels.n_threads(None)
        for block, projected in project_blocks(self.projection_, signals, n_threads=n_threads, name="X"):
            hamming = self.scoring == "hamming"
            yield block.rows, kernels.active().pack_bits(projected, n_threads=n_threads) if hamming else projected


class AdaptiveLinearClassifier(_ProjectedClassifier):
    """A linear classifier whose weight vectors are adaptive codes, each class its own reference.

    Parameters
    ----------
    estimator : linear classifier
        LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or any other whose decision_function
        is ``X @ coef_.T + intercept_``. ``fit`` trains a clone of it; see :meth:`from_fitted` for a fitted one.
    n_bits, n_pool : int
        Projections kept for each class, and computed; n_pool is the number of features when not given.
    projection : kind or Projection
        "hadamard", "gaussian", "rademacher", "sparse", "circulant", or a projection already made.
    scoring : "asymmetric" or "hamming"
        ``asymmetric`` keeps the real projections of inputs: scores estimate the logits without bias, weight norms and
        intercepts included, and a class whose weight vector is zero scores its intercept. ``hamming`` is the paper's:
        the class with the fewest differing signs; norms and intercepts play no part (a warning says so where there
        are intercepts), and a zero weight vector raises.
    shortlist : int, optional
        Keep the original weights too, in memory or memory-mapped, and decide by exact logits among so many classes of
        the highest score.
    layout : "compact" or "fast"
        Of the codes, see :class:`topsign.AdaptiveCodes`.
    random_state : int, Generator or None

    Attributes
    ----------
    classes_ : array of labels
    estimator_ : the uncompressed classifier, for :meth:`report`; not there after ``from_weights`` or ``load``
    storage_bits_, compression_ratio_
        Size of the head, and how many times that is smaller than float32.

    Notes
    -----
    Several labels a sample: wrap it in scikit-learn's OneVsRestClassifier or MultiOutputClassifier.

    A logit's estimate has variance ``|w|**2 |x|**2 (1 - r**2) / N`` over the projections, r the cosine of w and x and
    N = n_bits * lambda**2 the effective number of samples (for orthonormal pools 1 / N - 1 / n_features in place of
    1 / N): exact for a Gaussian pool given the kept magnitudes, whose mean is lambda.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> import topsign as ts
    >>> X, y = load_digits(return_X_y=True)
    >>> exact = LogisticRegression(max_iter=1000).fit(X[:1000] / 16, y[:1000])
    >>> small = ts.AdaptiveLinearClassifier.from_fitted(exact, n_bits=64, n_pool=1024, random_state=7)
    >>> small.report(X[1000:] / 16, y[1000:]).agreement > 0.9
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        scoring: str = "asymmetric",
        shortlist: int | None = None,
        layout: str = "compact",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.scoring = scoring
        self.shortlist = shortlist
        self.layout = layout
        self.random_state = random_state

    def _make_embedding(self, n_features: int) -> AdaptiveEncoder:
        encoder = AdaptiveEncoder(
            self.n_bits,
            n_pool=self.n_pool,
            projection=self.projection,
            layout=self.layout,
            random_state=self.random_state,
        )
        return encoder.fit(np.zeros((1, n_features), np.float32))  # learns the number of features alone

    @property
    def _layout(self) -> Layout:
        layout: Layout = self._embedding.recipe_.layout
        return layout

    def _encode(self, weights: Array) -> tuple[Bytes, Float32]:
        return encode_adaptive(self._embedding, weights)


class SignLinearClassifier(_ProjectedClassifier):
    """A linear classifier whose weight vectors are signs of random projections, the same for all classes.

    Parameters
    ----------
    estimator, projection, scoring, shortlist, random_state
        As in :class:`AdaptiveLinearClassifier`. ``hamming``, the default here, is the paper's baseline.
    n_bits : int
        Projections, all of which are kept.

    Examples
    --------
    >>> import topsign as ts
    >>> small = ts.SignLinearClassifier.from_weights([[3.0, 1.0], [-1.0, 3.0]], n_bits=128, random_state=7)
    >>> small.predict([[1.0, 0.1], [0.1, 1.0]]), small.storage_bits_
    (array([0, 1]), 256)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        projection: str | Projection = "hadamard",
        scoring: str = "hamming",
        shortlist: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.projection = projection
        self.scoring = scoring
        self.shortlist = shortlist
        self.random_state = random_state

    def _make_embedding(self, n_features: int) -> SignEmbedding:
        embedding = SignEmbedding(self.n_bits, projection=self.projection, random_state=self.random_state)
        return embedding.fit(np.zeros((1, n_features), np.float32))

    @property
    def _layout(self) -> Layout:
        return Layout("signs", self.n_bits, self.n_bits)

    def _encode(self, weights: Array) -> tuple[Bytes, Float32]:
        return encode_signs(self._embedding, weights)


class UniversalLinearClassifier(CompressedClassifier):
    """A linear classifier by universal quantised embeddings of weight vectors and inputs.

    These codes tell distances, not inner products, so weight vectors and inputs are first scaled to length one; the
    class with the fewest differing bits wins. Where two classes share one weight vector w, -w stands for the first.

    Parameters
    ----------
    estimator, random_state
        As in :class:`AdaptiveLinearClassifier`; intercepts play no part, and a zero weight vector raises.
    n_bits, step, dither, projection
        As in :class:`topsign.UniversalEmbedding`; choose the step by cross-validation.

    Examples
    --------
    >>> import topsign as ts
    >>> small = ts.UniversalLinearClassifier.from_weights([[3.0, 1.0], [-1.0, 3.0]], n_bits=128, random_state=7)
    >>> small.predict([[1.0, 0.1], [0.1, 1.0]])
    array([0, 1])
    """

    scoring = "hamming"

    def __init__(
        self,
        estimator: Any,
        *,
        n_bits: int = 64,
        step: float = 2.0,
        dither: bool = True,
        projection: str | Projection = "gaussian",
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.n_bits = n_bits
        self.step = step
        self.dither = dither
        self.projection = projection
        self.random_state = random_state

    def _make_embedding(self, n_features: int) -> UniversalEmbedding:
        embedding = UniversalEmbedding(
            self.n_bits, step=self.step, dither=self.dither, projection=self.projection, random_state=self.random_state
        )
        return embedding.fit(np.zeros((1, n_features), np.float32))

    @property
    def _layout(self) -> Layout:
        return Layout("signs", self.n_bits, self.n_bits)

    def _encode(self, weights: Array) -> tuple[Bytes, Float32]:
        if self._one_vector:
            weights = np.vstack([-weights, weights])
        parts = [(self._embedding.transform(units), norms) for _, units, norms in unit_rows(weights, "weights")]
        codes, norms = (np.concatenate(part) for part in zip(*parts, strict=True))
        return codes, norms

    def _queries(self, signals: Array) -> Iterator[tuple[slice, Bytes]]:
        for rows, units, _ in unit_rows(signals, "X"):
            yield rows, self._embedding.transform(units)

    def _values(self, signals: Array, queries: Bytes) -> Float64:
        values = super()._values(signals, queries)
        return np.diff(values, axis=1) if self._one_vector else values
