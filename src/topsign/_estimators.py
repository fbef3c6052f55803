"""Base class of the scikit-learn estimators, with scikit-learn's validation of signals."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from ._arrays import Array
from ._checks import as_numpy, as_signals


class SignalsTransformer(TransformerMixin, BaseEstimator):
    """Transformer of dense or sparse signals."""

    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def check_signals(estimator: BaseEstimator, signals: object, *, reset: bool = False) -> Array:
    """Validate shape, dtype and feature names; finiteness is checked block by block when signals are read.

    Sparse rows are converted to dense blocks, see ``as_signals``.
    """
    array: Array = validate_data(
        estimator,
        as_numpy(signals),
        accept_sparse="csr",
        reset=reset,
        dtype="numeric",
        ensure_all_finite=False,
        ensure_min_samples=int(reset),
    )
    return as_signals(array)


def as_fitted_signals(estimator: SignalsTransformer, signals: object, *, name: str = "signals") -> Array:
    """Validate signals against the features of a fitted estimator, without copying or converting them."""
    names = getattr(estimator, "feature_names_in_", None)
    return as_signals(signals, n_features=estimator.n_features_in_, name=name, feature_names=names)
