"""Automatic choice of a head's size by its measured or predicted agreement with the exact head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from .._arrays import Array, Float64
from ..families import Recipe

TARGET = 0.99  # agreement that an automatic size looks for
SAMPLE_VALUES = 2**26  # logits computed for a prediction
MAX_SAMPLE = 2000


class SizeWarning(UserWarning):
    """Warning about a head that gains too little from compression."""


@dataclass(frozen=True)
class SizeChoice:
    """Size of a code, the agreement expected of it, and the basis of that expectation."""

    size: int  # n_bits of adaptive codes, n_bytes of others
    agreement: float
    basis: str  # "theory": predicted from the weights, see simulated_agreement; "data": measured on inputs

    @property
    def reached(self) -> bool:
        """Whether the agreement reaches the target of the automatic choice."""
        return self.agreement >= TARGET


class Predictor(Protocol):
    """A head of some recipe."""

    @property
    def classes(self) -> Array: ...
    def predict(self, X: Any) -> Array: ...


def choose(sizes: list[int], agreement: Callable[[int], float], basis: str) -> SizeChoice:
    """Return the smallest size that reaches the target, by bisection; if none does, the one with most agreement."""
    found = lru_cache(agreement)
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if found(sizes[middle]) >= TARGET else (middle + 1, high)
    if low < len(sizes):
        return SizeChoice(sizes[low], found(sizes[low]), basis)
    best = max(sizes, key=lambda size: (found(size), -size))
    return SizeChoice(best, found(best), basis)


def simulated_agreement(weights: Array, error: Callable[[int], float], *, shortlist: int = 1) -> Callable[[int], float]:
    """Return a function from a size to the agreement predicted from the error of logits and the weights.

    Approximation, by simulation with a fixed seed: each input is the weight vector of a random class plus normal noise;
    the fraction of signal in its energy is uniform in [0, 1]. Logits get independent normal errors of this relative
    size. Biases are ignored, because they would need the norms of inputs. Real inputs may have more or less noise, so
    measure the agreement if there are data. With a shortlist, the best class must be among that many highest estimates.
    """
    rng = np.random.default_rng(0)
    n_classes, n_features = weights.shape
    n_inputs = int(np.clip(SAMPLE_VALUES // n_classes, 50, MAX_SAMPLE))
    labels = np.sort(rng.integers(0, n_classes, n_inputs))
    rows = np.asarray(weights[labels], np.float64)
    noise = rng.standard_normal((n_inputs, n_features))
    energy = rng.random((n_inputs, 1))
    inputs = np.sqrt(energy) * _units(rows) + np.sqrt(1 - energy) * _units(noise)
    logits, norms = np.empty((n_inputs, n_classes), np.float32), np.empty(n_classes, np.float32)
    for start in range(0, n_classes, 2**14):
        part = slice(start, start + 2**14)
        block = np.asarray(weights[part], np.float32)
        logits[:, part], norms[part] = inputs.astype(np.float32) @ block.T, np.linalg.norm(block, axis=1)
    if n_classes == 1:  # two classes share the vector: the sign of the logit decides
        return _sign_agreement(logits[:, 0], norms[0], rng, error)
    best = logits.argmax(axis=1)[:, np.newaxis]
    errors = rng.standard_normal(logits.shape, dtype=np.float32) * np.sqrt(np.maximum(norms**2 - logits**2, 0))

    def agreement(size: int) -> float:
        estimates = logits + np.float32(error(size)) * errors
        above = estimates > np.take_along_axis(estimates, best, axis=1)
        return float(np.mean(above.sum(axis=1) < shortlist))

    return agreement


def measured_agreement(
    X: Any, coef: Array, intercept: Float64, made: Callable[[Recipe], Predictor]
) -> Callable[[Recipe], float]:
    """Return a function from a recipe to its head's agreement with the exact head on at most 2,000 rows of the data."""
    signals = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
    rows = np.unique(np.linspace(0, signals.shape[0] - 1, MAX_SAMPLE).astype(np.int64))
    signals = signals[rows].astype(np.float64)
    logits = np.asarray(signals @ np.transpose(coef) + intercept)
    best = (logits[:, 0] > 0).astype(np.int64) if logits.shape[1] == 1 else logits.argmax(axis=1)

    def agreement(recipe: Recipe) -> float:
        head = made(recipe)
        return float(np.mean(head.predict(signals) == head.classes[best]))

    return agreement


def _sign_agreement(
    logits: Array, norm: float, rng: np.random.Generator, error: Callable[[int], float]
) -> Callable[[int], float]:
    sides = rng.choice([-1.0, 1.0], len(logits))
    spread = rng.standard_normal(len(logits)) * np.sqrt(np.maximum(norm**2 - logits**2, 0))

    def agreement(size: int) -> float:
        return float(np.mean((sides * logits + error(size) * spread > 0) == (sides * logits > 0)))

    return agreement


def _units(rows: Float64) -> Float64:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))
