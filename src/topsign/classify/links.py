"""How a linear classifier makes probabilities of its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from .._arrays import Array, Float64
from .._checks import probe_signals, silently


def probabilities(link: str, logits: Float64) -> Float64:
    """Probabilities (n_samples, n_classes) of logits of that shape, or (n_samples,) for two classes of one vector."""
    return LINKS[link](logits)


def link_of(estimator: Any, coef: Array) -> str | None:
    """The link that gives the estimator's own probabilities from its own logits; None where there is none.

    Found by trying: what scikit-learn's classifiers do depends on their class, solver, loss and version.
    """
    if not hasattr(estimator, "predict_proba"):
        return None
    probe = probe_signals(coef)
    logits, wanted = (np.asarray(silently(estimator, name, probe)) for name in ("decision_function", "predict_proba"))
    return next((link for link in LINKS if np.allclose(LINKS[link](logits), wanted, atol=1e-5)), None)


def _softmax(logits: Float64) -> Float64:
    return np.asarray(softmax(_columns(logits), axis=1))


def _sigmoid(logits: Float64) -> Float64:
    return _normalised(expit(_columns(logits)))


def _modified_huber(logits: Float64) -> Float64:
    """Of SGDClassifier: straight between -1 and 1; where no class reaches, all alike."""
    ramps = (np.clip(_columns(logits), -1, 1) + 1) / 2
    return _normalised(np.where(ramps.sum(axis=1, keepdims=True) > 0, ramps, 1.0))


def _columns(logits: Float64) -> Float64:
    """One column a class."""
    return np.stack([-logits, logits], axis=1) if logits.ndim == 1 else logits


def _normalised(values: Float64) -> Float64:
    return np.asarray(values / values.sum(axis=1, keepdims=True))


LINKS: dict[str, Callable[[Float64], Float64]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "modified_huber": _modified_huber,
}
