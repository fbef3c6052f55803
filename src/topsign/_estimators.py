"""What the estimators that take signals share: signals checked as scikit-learn does."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from ._arrays import Array
from ._checks import as_signals, interchanged


class SignalsTransformer(TransformerMixin, BaseEstimator):
    """A transformer of signals, dense or sparse."""

    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def check_signals(estimator: BaseEstimator, signals: object, *, reset: bool = False) -> Array:
    """Shape, type and feature names; finiteness is checked block by block where signals are read.

    Sparse rows become dense a block at a time, see ``as_signals``.
    """
    array: Array = validate_data(
        estimator,
        interchanged(signals),
        accept_sparse="csr",
        reset=reset,
        dtype="numeric",
        ensure_all_finite=False,
        ensure_min_samples=int(reset),
    )
    return as_signals(array)


def as_fitted_signals(estimator: SignalsTransformer, signals: object, *, name: str = "signals") -> Array:
    """Signals as they are, neither converted nor held whole, of the features that an estimator was fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    return as_signals(signals, n_features=estimator.n_features_in_, name=name, feature_names=names)
