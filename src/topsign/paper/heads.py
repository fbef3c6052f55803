"""The paper's second application: the head of a network that was trained on CIFAR-10, compressed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ..embeddings import AdaptiveEncoder, UniversalEmbedding
from ..projections import make_projection
from .measuring import Advance, unwatched

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
    step: float | None = None  # of the universal embedding

    @property
    def mean(self) -> float:
        """Percentage points."""
        return float(self.points.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean, over the seeds; the images are the same for all."""
        return float(self.points.std(ddof=1) / np.sqrt(len(self.points)))


def adaptive_losses(
    head: TrainedHead, *, seeds: range, kind: str = "gaussian", advance: Advance = unwatched
) -> list[Loss]:
    """What AdaptiveLinearClassifier loses by both scorings, computed from one projection a seed."""

    def predictions(seed: int) -> Predictions:
        pool = make_projection(kind, n_features=head.weights.shape[1], n_pool=N_POOL, seed=seed)
        projected = pool.apply(head.features)
        for n_bits in STORAGE:
            encoder = AdaptiveEncoder(n_bits, n_pool=N_POOL, projection=pool).fit(head.weights)
            codes = encoder.encode(head.weights)
            yield "adaptive, hamming", n_bits, codes.mismatches(projected).argmin(axis=1)
            yield "adaptive, asymmetric", n_bits, codes.scores(projected).argmax(axis=1)

    return _losses(head, seeds, predictions, advance)


def sign_losses(head: TrainedHead, *, seeds: range, advance: Advance = unwatched) -> list[Loss]:
    """What SignLinearClassifier loses with Gaussian projections at equal computation and at equal storage.

    Row i of a projection depends on the seed and i alone, so small ones are the beginning of the largest.
    """

    def predictions(seed: int) -> Predictions:
        shape = {"n_features": head.weights.shape[1], "n_pool": max(STORAGE.values())}
        projection = make_projection("gaussian", seed=seed, **shape)
        inputs, references = (_signs(projection.apply(signals) >= 0) for signals in (head.features, head.weights))
        for method, size in _sizes("sign"):
            yield method, size, (inputs[:, :size] @ references[:, :size].T).argmax(axis=1)

    return _losses(head, seeds, predictions, advance)


def universal_losses(head: TrainedHead, *, seeds: range, advance: Advance = unwatched) -> list[Loss]:
    """What UniversalLinearClassifier loses with the step that is best on every tenth image, on the other images.

    The step is chosen over the first five seeds. Rows of a projection and of the dither depend on the seed and their
    number alone, so small embeddings are the beginning of the largest.
    """
    chosen_on = np.arange(len(head.labels)) % 10 == 0
    sizes = list(_sizes("universal"))

    def predicted(seed: int, images: npt.NDArray[np.float32], steps: Iterable[float]) -> Iterator[tuple[float, Any]]:
        """Classes by size, for each step."""
        shape = {"n_features": head.weights.shape[1], "n_pool": max(STORAGE.values())}
        projection = make_projection("gaussian", seed=seed, **shape)
        projected = [projection.apply(_units(signals)) for signals in (images, head.weights)]
        for step in steps:
            dither = UniversalEmbedding(shape["n_pool"], step=step, projection=projection).fit(head.weights).dither_
            cells = (np.floor((part + dither) / step).astype(np.int32) for part in projected)
            inputs, references = (_signs(part & 1 == 1) for part in cells)
            yield step, {one: (inputs[:, : one[1]] @ references[:, : one[1]].T).argmax(axis=1) for one in sizes}

    n_right = {(step, one): 0 for step in STEPS for one in sizes}
    for seed in seeds[:5]:
        for step, classes in predicted(seed, head.features[chosen_on], STEPS):
            for one in sizes:
                n_right[step, one] += int(np.count_nonzero(classes[one] == head.labels[chosen_on]))
    steps = {one: STEPS[int(np.argmax([n_right[step, one] for step in STEPS]))] for one in sizes}

    rest = replace(head, features=head.features[~chosen_on], labels=head.labels[~chosen_on])

    def predictions(seed: int) -> Predictions:
        by_step = dict(predicted(seed, rest.features, sorted(set(steps.values()))))
        for method, size in sizes:
            yield method, size, by_step[steps[method, size]][method, size]

    losses = _losses(rest, seeds, predictions, advance)
    return [replace(loss, step=steps[loss.method, loss.n_bits]) for loss in losses]


def _sizes(method: str) -> Iterator[tuple[str, int]]:
    for n_bits, storage in STORAGE.items():
        yield f"{method}, equal computation", n_bits
        yield f"{method}, equal storage", storage


def _signs(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    return np.where(bits, np.float32(1), np.float32(-1))


def _units(signals: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(signals / np.linalg.norm(signals, axis=1, keepdims=True))


def _losses(head: TrainedHead, seeds: range, predictions: Callable[[int], Predictions], advance: Advance) -> list[Loss]:
    found: dict[tuple[str, int], list[float]] = {}
    for n_done, seed in enumerate(seeds, start=1):
        for method, n_bits, predicted in predictions(seed):
            lost = 100 * (head.accuracy - head.accuracy_of(predicted))
            found.setdefault((method, n_bits), []).append(lost)
        advance(n_done / len(seeds))
    return [Loss(method, n_bits, np.array(points)) for (method, n_bits), points in found.items()]
