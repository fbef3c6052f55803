"""Encoder: codes of signals as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from ._arrays import Float32
from ._checks import suggests_keywords
from ._estimators import SignalsTransformer, as_fitted_signals, check_signals
from ._lazy import load_extension
from ._random import RandomState
from .codes import Codes, as_projected
from .encoding import encode
from .families import Recipe, check_parameters
from .projections import Projected, Projection
from .projections.blocks import check_finite


@suggests_keywords
class Encoder(ClassNamePrefixFeaturesOutMixin, SignalsTransformer):
    """Codes of many signals: ``fit`` learns a recipe, which all other methods use.

    Parameters
    ----------
    n_features : int, optional
        Length of a signal; by default that of the signals given to :meth:`fit`.
    family, n_bytes, n_bits, n_pool, basis, metric, center, random_state
        As in :class:`topsign.Index`.

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 512))
    >>> encoder = ts.Encoder(512, family="grouped", n_bytes=32, random_state=7).fit(signals)
    >>> codes = encoder.encode(signals)
    >>> queries = encoder.project(signals[:3] + 0.5)
    >>> codes.mismatches(queries).argmin(axis=1), codes.scores(queries).argmax(axis=1)
    (array([0, 1, 2]), array([0, 1, 2]))
    >>> encoder.decode(codes).shape
    (1000, 512)
    """

    recipe_: Recipe

    def __init__(
        self,
        n_features: int | None = None,
        *,
        family: str = "trellis",
        n_bytes: int | None = None,
        n_bits: int | str | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        metric: str = "correlation",
        center: bool | npt.ArrayLike | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.n_features, self.family, self.metric = n_features, family, metric
        self.n_bytes, self.n_bits, self.n_pool = n_bytes, n_bits, n_pool
        self.basis, self.center, self.random_state = basis, center, random_state

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learn the recipe from ``signals``: a mean, axes and codebooks if the parameters ask for them.

        ``y`` is ignored.
        """
        parameters = self.get_params(deep=False)
        n_features = parameters.pop("n_features")
        kind, given = check_parameters("Encoder", parameters.pop("family"), parameters, {})
        array = check_signals(self, signals, reset=True)
        if n_features not in (None, array.shape[1]):
            raise ValueError(f"signals have {array.shape[1]} features, but n_features={n_features}")
        if not kind.needs_sample(n_features=array.shape[1], **given):
            check_finite(array)
        self.recipe_ = kind.learn(array, n_features=array.shape[1], **given)
        return self

    def encode(self, signals: npt.ArrayLike) -> Codes:
        """Return one code for each of the ``signals``.

        Signals are read block by block, so memory maps may be larger than memory. A zero signal, or one equal to the
        mean that is subtracted, raises ValueError.
        """
        check_is_fitted(self)
        codes = encode(self.recipe_, as_fitted_signals(self, signals))
        return self.recipe_.codes_type(codes, recipe=self.recipe_, checked=True)

    def decode(self, codes: Codes) -> Float32:
        """Return signals reconstructed from their ``codes``, see :meth:`topsign.Codes.decode`."""
        check_is_fitted(self)
        if codes.recipe != self.recipe_:
            raise ValueError("these codes were made with another recipe; use their own decode()")
        return codes.decode()

    def project(self, queries: npt.ArrayLike) -> Float32:
        """Return the projections of ``queries``, with which codes are compared, (n_queries, n_pool) float32."""
        check_is_fitted(self)
        projected, _ = self.recipe_.project(as_fitted_signals(self, queries, name="queries"))
        return Projected.of(projected, self.recipe_)

    def as_projected(self, values: npt.ArrayLike) -> Float32:
        """Mark ``values`` from a file or from several calls as projections of this encoder.

        Codes reject plain arrays, because signals have the same shape as projections if n_pool is n_features.
        """
        check_is_fitted(self)
        n_pool = getattr(self.recipe_, "n_pool", self.recipe_.n_features)
        return Projected.of(as_projected(values, n_pool=n_pool), self.recipe_)

    def transform(self, signals: npt.ArrayLike) -> Any:
        """Return features for an estimator, which approximate inner products of ``signals``; a zero signal gives zeros.

        Of adaptive, grouped and sign codes, sparse rows of +-1 at their locations, (n_signals, n_pool) float32; of the
        others signals reconstructed from their codes, (n_signals, n_features).
        """
        check_is_fitted(self)
        norms: list[float] = []
        codes = encode(
            self.recipe_,
            check_signals(self, signals),
            allow_zero=True,
            observe=lambda block: norms.extend(np.sqrt(block.square_norms)),
        )
        return self.recipe_.features(codes, np.asarray(norms, np.float32))

    def to(self, device: str) -> Any:
        """Return an encoder on a CUDA ``device``, "cuda" or "cuda:1": its ``encode`` gives the same bytes.

        The result is a ``DeviceEncoder``.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return load_extension("gpu").DeviceEncoder(self.recipe_, device=device, feature_names=names)

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, as scikit-learn asks for them."""
        none = np.empty((0, self.recipe_.code_bytes), np.uint8)
        return int(self.recipe_.features(none, np.empty(0, np.float32)).shape[1])
