"""Signals as blocks of validated float32 rows, so that a memory-mapped file is never loaded completely."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import kernels
from .._arrays import Array, Float32, Float64
from .._checks import raise_unusable

MIN_NORM, MAX_NORM = 1e-18, 1e18
"""Range of nonzero signal norms for which scores, products of two norms, are representable in float32."""


@dataclass(frozen=True)
class Block:
    """Block of consecutive or evenly spaced signals with their squared norms."""

    rows: slice
    values: Float32  # (n_rows, n_features), C order
    square_norms: Float64  # (n_rows,)
    raw: Float32  # the signals before centring
    name: str = "signals"  # name of the argument that held the signals

    def row(self, position: int) -> str:
        """Return the name of a signal for error messages: its row in the whole argument."""
        return f"{self.name}[{self.rows.start + position * (self.rows.step or 1)}]"


def float_blocks(
    signals: Array,
    n_rows: int,
    *,
    part: slice | None = None,
    minus: Float32 | None = None,
    name: str = "signals",
) -> Iterator[Block]:
    """Yield blocks of ``n_rows`` signals as float32, after subtracting the vector ``minus``.

    If ``part`` has a step and the signals are an array or a memory map, the rows in between are not read.

    Raises ValueError with the row of the first signal that is not finite or whose norm is out of range.
    """
    first, end, step = (part or slice(None)).indices(len(signals))
    for start in range(first, end, n_rows * step):
        rows = slice(start, min(start + n_rows * step, end), step)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = np.ascontiguousarray(signals[rows], dtype=np.float32)
            values = raw if minus is None else raw - minus
        square_norms = kernels.active().square_norms(values)
        usable = (square_norms >= MIN_NORM**2) & (square_norms <= MAX_NORM**2)  # false for NaN
        if np.count_nonzero(usable) < len(usable):
            for position in np.flatnonzero(~usable):
                row = start + step * int(position)
                if square_norms[position] != 0 or np.any(signals[row]):  # callers decide about zero signals
                    _check_norm(signals, row, minus, name)
        yield Block(rows, values, square_norms, raw, name)
        release_pages(signals)


def check_finite(signals: Array) -> None:
    """Read every signal once, so that one that cannot be used raises ValueError with its row."""
    for _ in float_blocks(signals, max(1, 2**21 // max(1, signals.shape[1]))):
        pass


def _check_norm(signals: Array, row: int, minus: Float32 | None, name: str) -> None:
    """Raise ValueError with the reason why a signal cannot be used."""
    values = np.asarray(signals[row])
    if not np.isfinite(values.astype(np.float64)).all():
        raise_unusable(signals, row, name)
    if minus is not None and np.array_equal(values.astype(np.float32), minus):
        return  # zero after centring
    norm = float(np.linalg.norm(values.astype(np.float64) - (0.0 if minus is None else minus)))
    size = "large" if norm > 1 else "small"
    raise ValueError(
        f"{name} row {row} is too {size} for float32 scores, its norm is {norm:.3g}, which must lie in "
        f"[{MIN_NORM:g}, {MAX_NORM:g}]; {'divide' if norm > 1 else 'multiply'} all signals by a constant first"
    )


def release_pages(signals: Array) -> None:
    """Release the pages of a read-only memory-mapped file; they stay in the page cache but not in resident memory.

    This affects only read-only maps made by NumPy (``np.memmap`` or ``np.load`` with mode "r"), because the kernel
    would discard the content of private or anonymous pages.
    """
    base: object = signals
    read_only = False
    while isinstance(base, np.ndarray):
        read_only |= isinstance(base, np.memmap) and base.mode == "r"
        base = base.base
    if read_only and isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)
