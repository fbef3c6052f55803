"""The paper's second application: the head of a network that was trained on CIFAR-10, compressed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ..classify import UniversalLinearClassifier
from ..embeddings import AdaptiveEncoder
from ..projections import make_projection

N_POOL = 1024

STORAGE = {32: 233, 64: 405, 128: 679, 256: 1081}
"""Bits kept of the pool, and whole bits of ``n_bits + log2 C(1024, n_bits)``; the paper prints 1065 for the last."""

STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of the universal embedding, of which the best on a split is taken."""


Predictions = Iterator[tuple[str, int, npt.NDArray[np.int64]]]  # method, bits, predicted classes


@dataclass(frozen=True)
class TrainedHead:
    """Features of labelled test images, a head without intercepts, and another with them on the same features."""

    features: npt.NDArray[np.float32]  # (10000, 1024)
    labels: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]  # (10, 1024), the paper's: no intercepts
    coef: npt.NDArray[np.float32]  # (10, 1024), a logistic regression on the training features
    intercept: npt.NDArray[np.float32]
    made: dict[str, Any]
    """How it was made: epochs, batch, peak learning rate, seed, accuracies."""

    @cached_property
    def accuracy(self) -> float:
        """Of the head without intercepts, uncompressed."""
        return self.accuracy_of((self.features @ self.weights.T).argmax(axis=1))

    def accuracy_of(self, predicted: npt.NDArray[np.int64]) -> float:
        """Fraction of the images whose class was predicted."""
        return float(np.mean(predicted == self.labels))


def load_cifar10_head() -> TrainedHead:
    """What ``experiments/cifar10_head/train.py`` saved; ``data/README.md`` beside the file says when and how.

    >>> load_cifar10_head().features.shape
    (10000, 1024)
    """
    with files(__package__).joinpath("data", "cifar10_head.npz").open("rb") as file, np.load(file) as stored:
        return TrainedHead(
            features=stored["features"] * stored["step"],
            labels=stored["labels"].astype(np.int64),
            weights=stored["head"],
            coef=stored["coef"],
            intercept=stored["intercept"],
            made=json.loads(str(stored["made"])),
        )


@dataclass(frozen=True)
class Loss:
    """Accuracy that compression loses on the test images, over seeds of the projection."""

    method: str
    n_bits: int
    points: npt.NDArray[np.float64]  # (n_seeds,)

    @property
    def mean(self) -> float:
        """Percentage points."""
        return float(self.points.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean, over the seeds; the images are the same for all."""
        return float(self.points.std(ddof=1) / np.sqrt(len(self.points)))


def adaptive_losses(head: TrainedHead, *, seeds: range, kind: str = "gaussian") -> list[Loss]:
    """What AdaptiveLinearClassifier loses by both scorings, computed from one projection a seed."""

    def predictions(seed: int) -> Predictions:
        pool = make_projection(kind, n_features=head.weights.shape[1], n_pool=N_POOL, seed=seed)
        projected = pool.apply(head.features)
        for n_bits in STORAGE:
            encoder = AdaptiveEncoder(n_bits, n_pool=N_POOL, projection=pool).fit(head.weights)
            codes = encoder.encode(head.weights)
            yield "adaptive, hamming", n_bits, codes.mismatches(projected).argmin(axis=1)
            yield "adaptive, asymmetric", n_bits, codes.scores(projected).argmax(axis=1)

    return _losses(head, map(predictions, seeds))


def sign_losses(head: TrainedHead, *, seeds: range) -> list[Loss]:
    """What SignLinearClassifier loses with Gaussian projections at equal computation and at equal storage.

    Row i of a projection depends on the seed and i alone, so small ones are the beginning of the largest.
    """

    def predictions(seed: int) -> Predictions:
        shape = {"n_features": head.weights.shape[1], "n_pool": max(STORAGE.values())}
        projection = make_projection("gaussian", seed=seed, **shape)
        inputs, references = (
            np.where(projection.apply(signals) >= 0, np.float32(1), np.float32(-1))
            for signals in (head.features, head.weights)
        )
        for n_bits, storage in STORAGE.items():
            for method, size in (("sign, equal computation", n_bits), ("sign, equal storage", storage)):
                yield method, size, (inputs[:, :size] @ references[:, :size].T).argmax(axis=1)

    return _losses(head, map(predictions, seeds))


def universal_losses(head: TrainedHead, *, seeds: range) -> list[Loss]:
    """What UniversalLinearClassifier loses; its step is the best on every tenth image, over five seeds."""

    def classifier(n_bits: int, step: float, seed: int) -> UniversalLinearClassifier:
        return UniversalLinearClassifier.from_weights(head.weights, n_bits=n_bits, step=step, random_state=seed)

    def best_step(n_bits: int) -> float:
        tenth = head.features[::10], head.labels[::10]
        return max(STEPS, key=lambda step: sum(classifier(n_bits, step, seed).score(*tenth) for seed in seeds[:5]))

    steps = {size: best_step(size) for size in (*STORAGE, *STORAGE.values())}

    def predictions(seed: int) -> Predictions:
        for n_bits, storage in STORAGE.items():
            for method, size in (("universal, equal computation", n_bits), ("universal, equal storage", storage)):
                predicted = classifier(size, steps[size], seed).predict(head.features)
                yield f"{method}, step {steps[size]:g}", size, predicted

    return _losses(head, map(predictions, seeds))


def _losses(head: TrainedHead, per_seed: Iterable[Predictions]) -> list[Loss]:
    found: dict[tuple[str, int], list[float]] = {}
    for predictions in per_seed:
        for method, n_bits, predicted in predictions:
            lost = 100 * (head.accuracy - head.accuracy_of(predicted))
            found.setdefault((method, n_bits), []).append(lost)
    return [Loss(method, n_bits, np.array(points)) for (method, n_bits), points in found.items()]
