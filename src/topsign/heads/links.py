"""Link functions from logits to probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._arrays import Float64


def probabilities(link: str, logits: Float64) -> Float64:
    """Return probabilities (n_samples, n_classes) of logits (n_samples, n_vectors); one column means two classes."""
    return LINKS[link](np.hstack([-logits, logits]) if logits.shape[1] == 1 else logits)


def _softmax(logits: Float64) -> Float64:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return _normalised(powers)


def _sigmoid(logits: Float64) -> Float64:
    small = np.exp(-np.abs(logits))  # no overflow on either side
    return _normalised(np.where(logits >= 0, 1, small) / (1 + small))


def _modified_huber(logits: Float64) -> Float64:
    """Apply the link of SGDClassifier(loss="modified_huber"): linear in [-1, 1], uniform if all logits are below -1."""
    ramps = (np.clip(logits, -1, 1) + 1) / 2
    return _normalised(np.where(ramps.sum(axis=1, keepdims=True) > 0, ramps, 1.0))


def _normalised(values: Float64) -> Float64:
    return np.asarray(values / values.sum(axis=1, keepdims=True))


LINKS: dict[str, Callable[[Float64], Float64]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "modified_huber": _modified_huber,
}
