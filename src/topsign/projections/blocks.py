"""Signals as blocks of float32 rows, checked as they are read, so that a memory map is never held whole."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import kernels
from .._arrays import Array, Float32, Float64
from .._checks import raise_unusable

# |projection| is at most |row| |signal|, about sqrt(n_features) |signal|; below this it fits float32.
MAX_PROJECTION = 1e37


@dataclass(frozen=True)
class Block:
    """Consecutive signals and their squared norms."""

    rows: slice
    values: Float32  # (n_rows, n_features), C order
    square_norms: Float64  # (n_rows,)


def float_blocks(
    signals: Array,
    n_rows: int,
    *,
    part: slice | None = None,
    minus: Float32 | None = None,
    n_threads: int | None = None,
    name: str = "signals",
) -> Iterator[Block]:
    """Blocks of ``n_rows`` signals, all or a part of them, as float32 and less the vector ``minus``.

    Raises ValueError, naming the row and column, at the first signal whose projections would not be finite.
    """
    n_threads = kernels.n_threads(n_threads)
    limit = MAX_PROJECTION**2 / max(1, signals.shape[1])
    first, end, _ = (part or slice(None)).indices(len(signals))
    for start in range(first, end, n_rows):
        rows = slice(start, min(start + n_rows, end))
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.ascontiguousarray(signals[rows], dtype=np.float32)
            if minus is not None:
                values = values - minus
        square_norms = kernels.active().square_norms(values, n_threads=n_threads)
        unusable = np.flatnonzero(~(square_norms <= limit))  # also true of NaN
        if unusable.size:
            raise_unusable(signals, start + int(unusable[0]), name)
        yield Block(rows, values, square_norms)
        _release_pages(signals)


def _release_pages(signals: Array) -> None:
    """Lets go of the pages of a read-only memory map; they stay in the system's cache, not in our memory."""
    base: object = signals
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode != "r":
            return  # a private copy-on-write page would lose what was written to it
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)
