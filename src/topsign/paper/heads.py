"""Linear heads in codes: accuracy of the CIFAR-10 head that the paper compresses, and its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Float64
from .._lazy import lazy
from ..projections import make_projection
from . import printed
from .measuring import Advance, check_draws, grouped_signs, kept_signs, signs_of, unwatched

N_POOL = 1024

STORAGE = {32: 233, 64: 405, 128: 679, 256: 1081}
"""Bits kept out of 1024, and ``n_bits + log2 C(1024, n_bits)`` in whole bits; the paper's values are in ``printed``."""

GROUPED_BYTES = {kept: bits // 8 for kept, bits in STORAGE.items()}
"""Bytes of grouped codes that take no more storage than adaptive codes of so many bits."""

STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Candidate steps of the universal embedding for unit-norm signals; the paper's step of 180 is for another scale."""


Predictions = Iterator[tuple[str, int, npt.NDArray[np.int64]]]  # method, bits, predicted classes


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """Features and labels of test images, a head without intercepts, and a logistic regression with intercepts."""

    features: npt.NDArray[np.float32]  #: (10000, 1024)
    labels: npt.NDArray[np.int64]  #: true class of each input
    weights: npt.NDArray[np.float32]  #: (10, 1024), the paper's: no intercepts
    coef: npt.NDArray[np.float32]  #: (10, 1024), a logistic regression on the training features
    intercept: npt.NDArray[np.float32]  #: bias of each class
    made: dict[str, Any]
    """Training parameters and accuracies: epochs, batch size, peak learning rate, seed."""

    @lazy
    def accuracy(self) -> float:
        """Accuracy of the uncompressed head without intercepts."""
        return self.accuracy_of((self.features @ self.weights.T).argmax(axis=1))

    def accuracy_of(self, predicted: npt.NDArray[np.int64]) -> float:
        """Fraction of the images whose class is the ``predicted`` one."""
        return float(np.mean(predicted == self.labels))


def load_cifar10_head() -> TrainedHead:
    """Load the head trained by ``experiments/cifar10_head/train.py``; ``data/README.md`` describes the file.

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
    """Loss of accuracy by compression on the test images, for several seeds of the projection."""

    method: str  #: name of the method
    n_bits: int  #: number of projections that a code keeps
    points: npt.NDArray[np.float64]  #: (n_seeds,)
    step: float | None = None  #: of the universal embedding

    @property
    def mean(self) -> float:
        """Mean loss in percentage points."""
        return float(self.points.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over the seeds, which all use the same images."""
        return float(self.points.std(ddof=1) / np.sqrt(len(self.points)))


def adaptive_losses(head: TrainedHead, *, seeds: range, kind: str = "gaussian") -> list[Loss]:
    """Measure the loss of a ``head`` of adaptive codes with both scorings.

    There is one projection of this ``kind`` for each of ``seeds``.
    """

    def predictions(seed: int) -> Predictions:
        if kind == "gaussian":
            projected, references = (part[:, :N_POOL] for part in _projected(head, seed))
        else:
            pool = make_projection(kind, n_features=head.weights.shape[1], n_pool=N_POOL, random_state=seed)
            projected, references = pool.apply(head.features), pool.apply(head.weights)
        for n_bits in STORAGE:
            yield from _both_scorings("adaptive", n_bits, head, projected, references, kept_signs(references, n_bits))

    return _losses(head, seeds, predictions)


def grouped_losses(head: TrainedHead, *, seeds: range) -> list[Loss]:
    """Measure the loss of a ``head`` of grouped codes with both scorings, on Hadamard pools of 16 projections per byte.

    There is one projection for each of ``seeds``.
    """

    def predictions(seed: int) -> Predictions:
        n_features, n_pool = head.weights.shape[1], 16 * max(GROUPED_BYTES.values())
        pool = make_projection("hadamard", n_features=n_features, n_pool=n_pool, random_state=seed)
        projected, references = pool.apply(head.features), pool.apply(head.weights)
        for n_bytes in GROUPED_BYTES.values():
            inputs, weights = projected[:, : 16 * n_bytes], references[:, : 16 * n_bytes]
            yield from _both_scorings("grouped", 2 * n_bytes, head, inputs, weights, grouped_signs(weights))

    return _losses(head, seeds, predictions)


def _both_scorings(
    method: str,
    n_kept: int,
    head: TrainedHead,
    projected: npt.NDArray[np.float32],
    references: npt.NDArray[np.float32],
    codes: npt.NDArray[np.float32],
) -> Predictions:
    """Yield classes by agreements of signs, and by estimated logits, from codes as rows of +1, -1 and 0."""
    yield f"{method}, hamming", n_kept, (signs_of(projected >= 0) @ codes.T).argmax(axis=1)
    # An estimated logit is the product with the code times |w|**2 / (sum of the kept |projections|).
    squares = (head.weights.astype(np.float64) ** 2).sum(axis=1)
    scales = (squares / np.abs(references * codes).sum(axis=1)).astype(np.float32)
    yield f"{method}, asymmetric", n_kept, (projected @ codes.T * scales).argmax(axis=1)


def sign_losses(head: TrainedHead, *, seeds: range) -> list[Loss]:
    """Measure the loss of a ``head`` of sign codes with Gaussian projections, at equal computation and equal storage.

    There is one projection for each of ``seeds``.
    """

    def predictions(seed: int) -> Predictions:
        inputs, references = (signs_of(part >= 0) for part in _projected(head, seed))
        for method, size in _sizes("sign"):
            yield method, size, (inputs[:, :size] @ references[:, :size].T).argmax(axis=1)

    return _losses(head, seeds, predictions)


Steps = dict[tuple[str, int], float]  # by method and number of bits


def choose_steps(head: TrainedHead, *, seeds: range) -> Steps:
    """Choose the universal embedding's step at each size: the best of a ``head`` on every tenth image and ``seeds``."""
    chosen = _every_tenth(head, True)
    n_right = dict.fromkeys(((step, one) for step in STEPS for one in _sizes("universal")), 0)
    for seed in seeds:
        for step, classes in _universal_classes(chosen, seed, STEPS):
            for one, predicted in classes.items():
                n_right[step, one] += int(np.count_nonzero(predicted == chosen.labels))
    return {one: STEPS[int(np.argmax([n_right[step, one] for step in STEPS]))] for one in _sizes("universal")}


def universal_losses(head: TrainedHead, *, seeds: range, steps: Steps | None = None) -> list[Loss]:
    """Measure the loss of a ``head`` of universal codes on nine tenths of the images, for each of ``seeds``.

    If ``steps`` is None, steps are chosen on the remaining tenth over the first five seeds.
    """
    chosen = choose_steps(head, seeds=seeds[:5]) if steps is None else steps

    def predictions(seed: int) -> Predictions:
        by_step = dict(_universal_classes(head, seed, sorted(set(chosen.values()))))
        for method, size in _sizes("universal"):
            yield method, size, by_step[chosen[method, size]][method, size][~_tenths(head)]

    losses = _losses(_every_tenth(head, False), seeds, predictions)
    return [replace(loss, step=chosen[loss.method, loss.n_bits]) for loss in losses]


def _universal_classes(
    head: TrainedHead, seed: int, steps: Iterable[float]
) -> Iterator[tuple[float, dict[tuple[str, int], npt.NDArray[np.int64]]]]:
    """Yield predicted classes by method and size, for each step. Inputs and weights are scaled to unit norm.

    There is no dither, as in the authors' demonstration. With a dither that is uniform over two steps, the embedding
    distinguishes inputs by random cells instead of signs and lost 5.03 points at 128 bits (20 seeds); the paper
    reports 0.54.
    """
    norms = (np.linalg.norm(signals, axis=1, keepdims=True) for signals in (head.features, head.weights))
    parts = [part / norm for part, norm in zip(_projected(head, seed), norms, strict=True)]
    for step in steps:
        cells = (np.floor(part * np.float32(1 / step)).astype(np.int32) for part in parts)
        inputs, references = (signs_of(part & 1 == 1) for part in cells)
        yield (
            step,
            {one: (inputs[:, : one[1]] @ references[:, : one[1]].T).argmax(axis=1) for one in _sizes("universal")},
        )


@lru_cache(maxsize=1)
def _projected(head: TrainedHead, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return Gaussian projections of the features and of the weights, enough for every size.

    Row i of a projection depends only on the seed and i, so smaller pools are prefixes of the largest one.
    """
    n_features = head.weights.shape[1]
    projection = make_projection("gaussian", n_features=n_features, n_pool=max(STORAGE.values()), random_state=seed)
    return projection.apply(head.features), projection.apply(head.weights)


def _tenths(head: TrainedHead) -> npt.NDArray[np.bool_]:
    """Return a mask of every tenth image, on which the universal step is chosen."""
    return np.asarray(np.arange(len(head.labels)) % 10 == 0)


def _every_tenth(head: TrainedHead, wanted: bool) -> TrainedHead:
    kept = _tenths(head) == wanted
    return replace(head, features=head.features[kept], labels=head.labels[kept])


def _sizes(method: str) -> Iterator[tuple[str, int]]:
    for n_bits, storage in STORAGE.items():
        yield f"{method}, equal computation", n_bits
        yield f"{method}, equal storage", storage


def _losses(head: TrainedHead, seeds: range, predictions: Callable[[int], Predictions]) -> list[Loss]:
    found: dict[tuple[str, int], list[float]] = {}
    for seed in seeds:
        for method, n_bits, predicted in predictions(seed):
            lost = 100 * (head.accuracy - head.accuracy_of(predicted))
            found.setdefault((method, n_bits), []).append(lost)
    return [Loss(method, n_bits, np.array(points)) for (method, n_bits), points in found.items()]


@dataclass(frozen=True)
class Published:
    """Printed value of a table cell: accuracy in percent, and points below the uncompressed head."""

    n_bits: int  #: the head of its column
    accuracy: float  #: in percent
    lost: float  #: percentage points below the uncompressed head


@dataclass(frozen=True)
class TableCell:
    """One method at one size."""

    n_bits: int  #: projections computed per input
    storage: int  #: bits per class, locations included
    lost: float  #: percentage points below the uncompressed head, mean over the seeds
    standard_error: float  #: of the mean over the seeds
    by_seed: Float64  #: percentage points lost with each seed
    step: float | None  #: of the universal embedding
    published: Published | None  #: None for methods that the paper does not have


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str  #: name of the method
    ours: bool  #: beyond the paper
    cells: list[TableCell]  #: by n_bits kept of the pool


@dataclass(frozen=True)
class Table:
    """Results of all methods, with this project's network and copy of the data."""

    n_seeds: int  #: seeds of the projection
    n_images: int  #: images of the test set
    accuracy: float  #: percent, uncompressed
    published_accuracy: float  #: percent, uncompressed, as printed
    n_pool: int  #: number of projections in the pool
    kept: list[int]  #: projections kept of the pool, by column
    rows: list[Row]  #: rows of the pool, in the requested order; None for all

    def of(self, method: str) -> Row:
        """Return the row of this ``method``."""
        return next(row for row in self.rows if row.method == method)


def table(*, n_seeds: int = 20, advance: Advance = unwatched) -> Table:
    """Measure every method with the same ``n_seeds`` seeds of the projection and the same images.

    ``advance`` is called after each.
    """
    n_seeds = check_draws(n_seeds, "n_seeds")
    head = load_cifar10_head()
    steps = choose_steps(head, seeds=range(min(5, (n_seeds + 1) // 2)))
    advance(0.1)
    points: dict[tuple[str, int], list[Loss]] = {}
    for seed in range(n_seeds):
        one = range(seed, seed + 1)
        hadamard = adaptive_losses(head, seeds=one, kind="hadamard")
        for kind, losses in (
            ("", adaptive_losses(head, seeds=one)),
            ("", sign_losses(head, seeds=one)),
            ("", universal_losses(head, seeds=one, steps=steps)),
            ("Hadamard ", hadamard),
            ("Hadamard ", grouped_losses(head, seeds=one)),
        ):
            for loss in losses:
                points.setdefault((kind + loss.method, loss.n_bits), []).append(loss)
        advance(0.1 + 0.9 * (seed + 1) / n_seeds)

    def row(title: str, method: str, *, ours: bool = False) -> Row:
        cells = []
        sizes = sorted(n_bits for name, n_bits in points if name == method)
        for column, n_bits in enumerate(sizes):
            losses = points[method, n_bits]
            whole = replace(losses[0], points=np.concatenate([loss.points for loss in losses]))
            stored = STORAGE[n_bits] if title.startswith("adaptive") else n_bits
            stored = 4 * n_bits if title.startswith("grouped") else stored  # with locations
            cells.append(
                TableCell(
                    n_bits=n_bits,
                    storage=stored,
                    lost=whole.mean,
                    standard_error=whole.standard_error,
                    by_seed=whole.points,
                    step=whole.step,
                    published=_published(title, column),
                )
            )
        return Row(title, ours, cells)

    whose = ("equal computation", "equal storage")
    plain = [f"{method}, {equal}" for method in ("sign", "universal") for equal in whose]
    return Table(
        n_seeds=n_seeds,
        n_images=len(head.labels),
        accuracy=100 * head.accuracy,
        published_accuracy=printed.TABLE_UNCOMPRESSED,
        n_pool=N_POOL,
        kept=list(STORAGE),
        rows=[
            row("adaptive", "adaptive, hamming"),
            *(row(method, method) for method in plain),
            row("adaptive, real inputs", "adaptive, asymmetric", ours=True),
            row("adaptive, Hadamard pool", "Hadamard adaptive, hamming", ours=True),
            row("adaptive, Hadamard pool, real inputs", "Hadamard adaptive, asymmetric", ours=True),
            row("grouped, Hadamard pool", "Hadamard grouped, hamming", ours=True),
            row("grouped, Hadamard pool, real inputs", "Hadamard grouped, asymmetric", ours=True),
        ],
    )


def _published(method: str, column: int) -> Published | None:
    if method not in printed.TABLE_ACCURACY:
        return None
    heads = printed.TABLE_STORAGE_BITS if "storage" in method else printed.TABLE_KEPT
    accuracy = printed.TABLE_ACCURACY[method][column]
    return Published(heads[column], accuracy, round(printed.TABLE_UNCOMPRESSED - accuracy, 2))
