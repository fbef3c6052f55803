"""Weight vectors and labels: extraction from scikit-learn's linear classifiers, and validation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Array
from .._checks import as_signals, raise_unusable
from .links import LINKS, probabilities


def linear_weights(estimator: Any, n_features: int | None) -> tuple[Array, Array, Array]:
    """Return weight vectors, intercepts and classes of a fitted linear classifier.

    Its ``decision_function`` must equal ``X @ coef_.T + intercept_``, with one column per class, or a single column for
    two classes. A linear SVC with more than two classes, for example, compares classes pairwise and is rejected.
    """
    name = type(estimator).__name__
    missing = [part for part in ("coef_", "classes_", "decision_function") if not hasattr(estimator, part)]
    if missing:
        raise TypeError(
            f"a compressed classifier needs a fitted linear one, but {name} has no {', no '.join(missing)}; "
            "give LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, Perceptron or the like"
        )
    coef = estimator.coef_
    coef, classes = check_weights(
        coef.toarray() if hasattr(coef, "toarray") else coef,
        classes=np.asarray(estimator.classes_),
        n_features=n_features,
    )
    intercept = np.broadcast_to(np.asarray(getattr(estimator, "intercept_", 0.0), np.float64), len(coef)).copy()
    finite = np.isfinite(coef).all(axis=1)
    if not finite.all():
        raise_unusable(coef, int(np.argmin(finite)), "weights")
    probe = _probe_signals(coef)
    given, labels = (np.asarray(_silently(estimator, method, probe)) for method in ("decision_function", "predict"))
    linear = probe @ coef.T + intercept
    limit = 1e-4 * max(1.0, float(np.abs(linear).max()))
    if labels.ndim > 1 or given.size != linear.size or np.abs(given.reshape(linear.shape) - linear).max() > limit:
        raise TypeError(
            f"the decision_function of {name} is not X @ coef_.T + intercept_ with one weight vector per class, so its "
            "classes have no weight vectors to compress; a one-against-rest or multinomial classifier of one label "
            "per sample has (for several labels, wrap the compressed classifier in OneVsRestClassifier)"
        )
    return coef, intercept, classes


def _probe_signals(coef: Array) -> npt.NDArray[np.float64]:
    """Return a few fixed random inputs for which the logits are of order one."""
    largest = float(np.linalg.norm(coef, axis=1).max(initial=0.0))
    noise = np.random.default_rng(0).standard_normal((5, coef.shape[1]))
    return noise / largest if largest > 0 else noise


def _silently(estimator: Any, method: str, signals: Array) -> Any:
    """Call a method and suppress scikit-learn's warning about missing feature names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(estimator, method)(signals)


def check_weights(coef: object, *, classes: Array | None = None, n_features: int | None = None) -> tuple[Array, Array]:
    """Return weight vectors as rows, and labels (0, 1, ... by default).

    There is one row per class, or a single row for two classes. Finiteness is checked when the rows are read.
    """
    if hasattr(coef, "tocsr"):
        raise TypeError("weights must be dense, got a sparse matrix; pass weights.toarray()")
    weights = as_signals(coef, n_features=n_features, name="weights")
    labels = np.arange(max(2, len(weights))) if classes is None else classes
    alone = len(weights) == 1 and len(labels) == 2
    if labels.ndim != 1 or not len(weights) or not (len(weights) == len(labels) or alone):
        raise ValueError(
            "weights must have one row per class, or a single row for two classes, "
            f"got {len(weights)} rows for classes of shape {labels.shape}"
        )
    return weights, labels


def check_intercepts(intercept: object, n_vectors: int) -> npt.NDArray[np.float64]:
    """Return one finite intercept per weight vector, zeros by default."""
    array = np.zeros(n_vectors) if intercept is None else np.array(intercept, np.float64, ndmin=1)
    if array.shape != (n_vectors,) or not np.isfinite(array).all():
        raise ValueError(f"intercept must be {n_vectors} finite values, one per weight vector, got shape {array.shape}")
    return array


def check_class_labels(classes: object) -> Array:
    """Return labels after checking that they are distinct."""
    labels = np.array(classes, ndmin=1)
    if labels.ndim != 1 or len(np.unique(labels)) != len(labels):
        raise ValueError(f"classes must be a sequence of distinct labels, got {classes!r}")
    return labels


def link_of(estimator: Any, coef: Array) -> str | None:
    """Return the link that reproduces the estimator's probabilities from its logits, or None.

    All links are tried, because the formula depends on the classifier's class, solver, loss and version.
    """
    if not hasattr(estimator, "predict_proba"):
        return None
    probe = _probe_signals(coef)
    logits, wanted = (np.asarray(_silently(estimator, name, probe)) for name in ("decision_function", "predict_proba"))
    columns = logits.reshape(len(probe), -1)
    return next((link for link in LINKS if np.allclose(probabilities(link, columns), wanted, atol=1e-5)), None)
