"""Table I of the paper: loss of accuracy when the head of a CIFAR-10 network is compressed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .._arrays import Float64
from . import printed
from .heads import (
    N_POOL,
    STORAGE,
    Loss,
    adaptive_losses,
    choose_steps,
    grouped_losses,
    load_cifar10_head,
    sign_losses,
    universal_losses,
)
from .measuring import Advance, check_draws, unwatched


@dataclass(frozen=True)
class Published:
    """Printed value of a table cell: accuracy in percent, and points below the uncompressed head."""

    n_bits: int  # the head of its column
    accuracy: float
    lost: float


@dataclass(frozen=True)
class TableCell:
    """One method at one size."""

    n_bits: int  # projections computed per input
    storage: int  # bits per class, locations included
    lost: float  # percentage points below the uncompressed head, mean over the seeds
    standard_error: float
    by_seed: Float64
    step: float | None  # of the universal embedding
    published: Published | None  # None for methods that the paper does not have


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str
    ours: bool  # beyond the paper
    cells: list[TableCell]  # by n_bits kept of the pool


@dataclass(frozen=True)
class Table:
    """Results of all methods, with this project's network and copy of the data."""

    n_seeds: int
    n_images: int
    accuracy: float  # percent, uncompressed
    published_accuracy: float
    n_pool: int
    kept: list[int]
    rows: list[Row]

    def of(self, method: str) -> Row:
        """Return the row of this method."""
        return next(row for row in self.rows if row.method == method)


def table(*, n_seeds: int = 20, advance: Advance = unwatched) -> Table:
    """Measure every method with the same seeds of the projection and the same images."""
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
        return _row(title, (losses for (name, _), losses in points.items() if name == method), ours=ours)

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


def _row(method: str, sizes: Iterable[list[Loss]], *, ours: bool = False) -> Row:
    """Return the row of a method from its losses, with one list of seeds per size."""
    cells = []
    for place, losses in enumerate(sorted(sizes, key=lambda losses: losses[0].n_bits)):
        n_bits = losses[0].n_bits
        whole = Loss(method, n_bits, np.concatenate([loss.points for loss in losses]), losses[0].step)
        cells.append(
            TableCell(
                n_bits=n_bits,
                storage=_stored_bits(method, n_bits),
                lost=whole.mean,
                standard_error=whole.standard_error,
                by_seed=whole.points,
                step=whole.step,
                published=_published(method, place),
            )
        )
    return Row(method, ours, cells)


def _stored_bits(method: str, n_bits: int) -> int:
    """Return the bits per class of a code that keeps so many projections."""
    if method.startswith("grouped"):
        return 4 * n_bits
    return STORAGE[n_bits] if method.startswith("adaptive") else n_bits


def _published(method: str, column: int) -> Published | None:
    if method not in printed.TABLE_ACCURACY:
        return None
    heads = printed.TABLE_STORAGE_BITS if "storage" in method else printed.TABLE_KEPT
    accuracy = printed.TABLE_ACCURACY[method][column]
    return Published(heads[column], accuracy, round(printed.TABLE_UNCOMPRESSED - accuracy, 2))
