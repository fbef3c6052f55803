"""Encoders as scikit-learn transformers: AdaptiveEncoder and TrellisEncoder."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from ._arrays import Float32
from ._estimators import SignalsTransformer, as_fitted_signals, check_signals
from ._extensions import load_extension
from ._random import RandomState
from .codes import Codes, as_projected
from .encoding import encode
from .families import AdaptiveCodes, AdaptiveRecipe, TrellisCodes, TrellisRecipe
from .families.projected import ProjectedRecipe
from .projections import Projected, Projection
from .projections.blocks import check_finite

if TYPE_CHECKING:
    import scipy.sparse

Made = TypeVar("Made", bound=Codes)


class Encoder(ClassNamePrefixFeaturesOutMixin, SignalsTransformer, Generic[Made]):
    """Base class of encoders: ``fit`` learns a recipe, which all other methods call.

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.
    """

    recipe_: ProjectedRecipe

    @abstractmethod
    def _learn(self, signals: Any) -> ProjectedRecipe:
        """Return the recipe for these signals."""

    def fit(self, signals: npt.ArrayLike, y: object = None) -> Self:
        """Learn the recipe: the number of features, and a mean, axes and variances if the parameters ask for them."""
        self.recipe_ = self._learn(check_signals(self, signals, reset=True))
        self.projection_, self.seed_, self.mean_ = self.recipe_.projection, self.recipe_.seed, self.recipe_.mean
        return self

    def encode(self, signals: npt.ArrayLike) -> Made:
        """Return one code per signal.

        Signals are read block by block, so memory maps may be larger than memory. A zero signal, or one equal to the
        mean that is subtracted, raises ValueError.
        """
        check_is_fitted(self)
        codes = encode(self.recipe_, as_fitted_signals(self, signals))
        return cast(Made, self.recipe_.codes_type.unchecked(codes, self.recipe_))

    def decode(self, codes: Codes) -> Float32:
        """Return signals reconstructed from their codes, see :meth:`topsign.Codes.decode`."""
        check_is_fitted(self)
        if codes.recipe != self.recipe_:
            raise ValueError("these codes were made with another recipe; use their own decode()")
        return codes.decode()

    def project(self, queries: npt.ArrayLike) -> Float32:
        """Return the projections of queries, with which codes are compared, (n_queries, n_pool) float32."""
        check_is_fitted(self)
        queries = as_fitted_signals(self, queries, name="queries")
        projected, _ = self.recipe_.project(queries)
        return Projected.of(projected, self.recipe_)

    def as_projected(self, values: npt.ArrayLike) -> Float32:
        """Mark values from a file or from several calls as projections of this encoder.

        Codes reject plain arrays, because signals have the same shape as projections if n_pool is n_features.
        """
        check_is_fitted(self)
        return Projected.of(as_projected(values, n_pool=self.recipe_.n_pool), self.recipe_)

    def to(self, device: str) -> Any:
        """Return an encoder of these codes on a CUDA device, "cuda" or "cuda:1": its ``encode`` gives the same bytes.

        The result is a :class:`topsign.gpu.SignalEncoder`.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return load_extension("gpu").SignalEncoder(self.recipe_, device=device, feature_names=names)


class AdaptiveEncoder(Encoder[AdaptiveCodes]):
    """Adaptive codes of many signals, every signal its own reference.

    Parameters
    ----------
    n_bits : int or "auto"
        Projections kept for each signal; "auto" is an eighth of the pool, at least 16.
    n_pool : int
        Projections computed; the number of features by default.
    projection, random_state
        As in :class:`SignEmbedding`.
    center : bool or array of shape (n_features,)
        Mean that is subtracted from signals and queries: given, or learned by ``fit`` (True).
    metric : "correlation" or "inner_product"
        What scores estimate. For inner products, codes keep the norms of their signals in two more bytes.

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.
    projection_, seed_, mean_
        Projection, its seed, and the mean that is subtracted (None without ``center``).

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

    recipe_: AdaptiveRecipe

    def __init__(
        self,
        n_bits: int | str = "auto",
        *,
        n_pool: int | None = None,
        projection: str | Projection = "hadamard",
        center: bool | npt.ArrayLike = False,
        metric: str = "correlation",
        random_state: RandomState = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_pool = n_pool
        self.projection = projection
        self.center = center
        self.metric = metric
        self.random_state = random_state

    def _learn(self, signals: Any) -> AdaptiveRecipe:
        check_finite(signals)
        return AdaptiveRecipe.learn(signals, n_features=self.n_features_in_, **self.get_params(deep=False))

    def transform(self, signals: npt.ArrayLike) -> scipy.sparse.csr_array:
        """Return codes as SciPy sparse rows of +-1 at their locations, (n_signals, n_pool) float32 CSR.

        A zero signal has no code: its row is empty.
        """
        check_is_fitted(self)
        array, zeros = check_signals(self, signals), list[bool]()
        codes = encode(
            self.recipe_, array, allow_zero=True, observe=lambda block: zeros.extend(block.square_norms == 0)
        )
        rows = AdaptiveCodes.unchecked(codes, self.recipe_).to_sparse()
        if any(zeros):
            rows.data[np.repeat(zeros, self.recipe_.n_bits)] = 0
            rows.eliminate_zeros()
        return rows

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, as scikit-learn asks for them."""
        return self.recipe_.n_pool


class TrellisEncoder(Encoder[TrellisCodes]):
    """Trellis codes, which are smaller than other codes of the same quality.

    Each code is a ring of nibbles. Each step of the ring reads two of them and looks up its coordinates in a codebook;
    the encoder searches for the nibbles whose reconstruction is nearest to the signal.

    Parameters
    ----------
    n_bytes : int
        Bytes of one code, without the factor of its scores, which takes two more.
    basis : "principal", "hadamard" or an orthonormal Projection
        ``principal`` gives bits to the directions in which signals vary most.
    center : bool or array of shape (n_features,)
        Mean of unit signals, learned (True) or given, which is added back before scores are computed.
    metric : "correlation" or "inner_product"
        What scores estimate. For inner products, codes keep the norms of their signals.
    random_state : int, Generator or None

    Attributes
    ----------
    recipe_ : Recipe
        Everything the codes are made with.

    Examples
    --------
    >>> import numpy as np, topsign as ts
    >>> signals = np.random.default_rng(0).standard_normal((1000, 64))
    >>> encoder = ts.TrellisEncoder(n_bytes=8, basis="hadamard", center=False, random_state=7).fit(signals)
    >>> codes = encoder.encode(signals)
    >>> codes.scores(encoder.project(signals[:3])).argmax(axis=1)
    array([0, 1, 2])
    >>> encoder.decode(codes).shape
    (1000, 64)
    """

    recipe_: TrellisRecipe

    def __init__(
        self,
        n_bytes: int,
        *,
        basis: str | Projection = "principal",
        center: bool | npt.ArrayLike = True,
        metric: str = "correlation",
        random_state: RandomState = None,
    ) -> None:
        self.n_bytes = n_bytes
        self.basis = basis
        self.center = center
        self.metric = metric
        self.random_state = random_state

    def _learn(self, signals: Any) -> TrellisRecipe:
        return TrellisRecipe.learn(signals, n_features=self.n_features_in_, **self.get_params(deep=False))

    def transform(self, signals: npt.ArrayLike) -> Float32:
        """Return signals reconstructed from their codes, (n_signals, n_features); a zero signal stays zero."""
        check_is_fitted(self)
        norms: list[float] = []
        codes = encode(
            self.recipe_,
            check_signals(self, signals),
            allow_zero=True,
            observe=lambda block: norms.extend(np.sqrt(block.square_norms)),
        )
        return self.recipe_.directions(codes) * np.asarray(norms, np.float32)[:, np.newaxis]

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, as scikit-learn asks for them."""
        return self.n_features_in_
