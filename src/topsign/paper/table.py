"""The paper's table: accuracy that the head of a CIFAR-10 network loses when it is compressed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..theory.order_statistics import Floats
from . import printed
from .heads import STORAGE, Loss, adaptive_losses, load_cifar10_head, sign_losses, universal_losses
from .measuring import Advance, check_draws, unwatched


@dataclass(frozen=True)
class Cell:
    """One method at one size."""

    n_bits: int  # projections computed for an input
    storage: int  # bits of a class, its locations among them
    lost: float  # percentage points against the uncompressed head, mean over the seeds
    standard_error: float
    by_seed: Floats
    step: float | None  # of the universal embedding
    published_lost: float | None  # where the paper's accuracy is known


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str
    ours: bool  # not in the paper
    cells: list[Cell]  # by n_bits kept of the pool


@dataclass(frozen=True)
class Table:
    """All methods; the network and the copy of the data are this project's."""

    n_seeds: int
    n_images: int
    accuracy: float  # percent, uncompressed
    published_accuracy: float | None
    n_pool: int
    kept: list[int]
    rows: list[Row]

    def of(self, method: str) -> Row:
        """The row of this method."""
        return next(row for row in self.rows if row.method == method)


def table(*, n_seeds: int = 20, advance: Advance = unwatched) -> Table:
    """Every method with the same seeds of the projection; the images are the same for all."""
    seeds = range(check_draws(n_seeds, "n_seeds"))
    head = load_cifar10_head()

    def quarter(which: int) -> Advance:
        return lambda fraction: advance((which + fraction) / 4)

    gaussian = _by_method(adaptive_losses(head, seeds=seeds, advance=quarter(0)))
    hadamard = _by_method(adaptive_losses(head, seeds=seeds, kind="hadamard", advance=quarter(1)))
    signs = _by_method(sign_losses(head, seeds=seeds, advance=quarter(2)))
    universal = _by_method(universal_losses(head, seeds=seeds, advance=quarter(3)))
    rows = [
        _row("adaptive", gaussian["adaptive, hamming"]),
        *(_row(method, losses) for method, losses in (signs | universal).items()),
        _row("adaptive, real inputs", gaussian["adaptive, asymmetric"], ours=True),
        _row("adaptive, Hadamard pool", hadamard["adaptive, hamming"], ours=True),
        _row("adaptive, Hadamard pool, real inputs", hadamard["adaptive, asymmetric"], ours=True),
    ]
    return Table(
        n_seeds=len(seeds),
        n_images=len(head.labels),
        accuracy=100 * head.accuracy,
        published_accuracy=printed.TABLE_ACCURACY.get("uncompressed", {}).get(0),
        n_pool=1024,
        kept=list(STORAGE),
        rows=rows,
    )


def _by_method(losses: list[Loss]) -> dict[str, list[Loss]]:
    methods: dict[str, list[Loss]] = {}
    for loss in losses:
        methods.setdefault(loss.method, []).append(loss)
    return methods


def _row(method: str, losses: list[Loss], *, ours: bool = False) -> Row:
    cells = []
    for kept, loss in zip(STORAGE, sorted(losses, key=lambda loss: loss.n_bits), strict=True):
        plain_bits = method.startswith(("sign", "universal"))
        cells.append(
            Cell(
                n_bits=loss.n_bits,
                storage=loss.n_bits if plain_bits else STORAGE[kept],
                lost=loss.mean,
                standard_error=loss.standard_error,
                by_seed=np.array(loss.points),
                step=loss.step,
                published_lost=_published(method, kept),
            )
        )
    return Row(method, ours, cells)


def _published(method: str, kept: int) -> float | None:
    whole = printed.TABLE_ACCURACY.get("uncompressed", {}).get(0)
    accuracy = printed.TABLE_ACCURACY.get(method, {}).get(kept)
    return None if whole is None or accuracy is None else whole - accuracy
