"""Learning what trellis codes are made with: mean, axes and variances of a sample."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ._arrays import Array, Float32, Float64
from ._checks import check_choice, check_flag
from ._random import RandomState, make_seed
from .projections import Hadamard, Principal, Projection
from .projections.blocks import float_blocks
from .projections.learned import Moments, is_orthonormal, leading_axes, round_axes
from .recipe import Recipe
from .trellis import check_trellis, design_trellis

BASES = ("hadamard", "principal")
SAMPLE = 50_000  # rows that a basis is learned from, evenly spaced among those given
EXACT_FEATURES = 2048  # up to here all axes, by one eigen-decomposition; beyond it the first ones, randomised
MAX_AXES = 512
ENOUGH = 20  # signals per feature below which the covariance is shrunk


@dataclass(frozen=True, eq=False)
class Learned:
    """A basis, the mean that is removed, and the variances of its coordinates."""

    projection: Projection
    mean: Float32 | None
    variances: Float64


def learn_recipe(
    signals: Array,
    *,
    n_bits: int,
    basis: str | Projection = "principal",
    center: bool = True,
    window: int = 10,
    norms: bool = False,
    metric: str = "correlation",
    random_state: RandomState = None,
) -> Recipe:
    """The recipe of trellis codes for signals like these.

    A Hadamard basis without ``center`` learns nothing: its recipe is the same for all signals.
    """
    n_bits, window = check_trellis(n_bits, window)
    check_flag(center, "center")
    learned = _learn(signals, basis, center, n_bits, random_state)
    design = design_trellis(learned.variances, n_bits=n_bits, window=window)
    return Recipe.make_trellis(learned.projection, design, mean=learned.mean, norms=norms, metric=metric)


def _learn(signals: Array, basis: str | Projection, center: bool, n_bits: int, random_state: RandomState) -> Learned:
    n_features = signals.shape[1]
    if isinstance(basis, Projection):
        if not is_orthonormal(basis) or basis.n_features != n_features:
            raise ValueError(
                f"basis must be an orthonormal projection (hadamard, circulant) of shape {(n_features, n_features)}, "
                f"got {basis!r}"
            )
        if random_state is not None:
            raise ValueError("a projection made beforehand has its own seed; leave random_state=None")
        projection, seed = basis, basis.seed
    else:
        check_choice(basis, "basis", BASES)
        seed = make_seed(random_state)
        projection = Hadamard(n_features=n_features, random_state=seed)
    if basis != "principal" and not center:
        for _ in _unit_blocks(signals):
            pass  # only checks them
        return Learned(projection, None, np.ones(n_features))
    _check_sample(len(signals), n_features, principal=basis == "principal")
    if basis == "principal":
        return _learn_axes(signals, center, n_bits, seed)
    total, count = np.zeros(n_features), 0
    for values in _unit_blocks(signals):
        total += values.sum(axis=0, dtype=np.float64)
        count += len(values)
    mean = (total / count).astype(np.float32)
    left = max(1e-6, 1 - float(mean.astype(np.float64) @ mean))
    return Learned(projection, mean, np.full(n_features, left))


def _check_sample(n_signals: int, n_features: int, *, principal: bool) -> None:
    least = max(16, n_features // 8) if principal else 2
    if n_signals < least:
        raise ValueError(
            f"a sample of {n_signals} signals is too small to learn "
            f"{'axes' if principal else 'a mean'} of {n_features} features, at least {least} are needed; "
            'give more signals, or take basis="hadamard" with center=False, which learns nothing'
        )
    if principal and n_signals < ENOUGH * n_features:
        warnings.warn(
            f"axes of {n_features} features are learned from {n_signals} signals, fewer than {ENOUGH} per feature: "
            f"their covariance is shrunk towards equal variances by {_shrinkage(n_signals, n_features):.3f}",
            UserWarning,
            stacklevel=5,
        )


def _shrinkage(n_signals: int, n_features: int) -> float:
    return n_features / (n_features + 10 * n_signals) if n_signals < ENOUGH * n_features else 0.0


def _learn_axes(signals: Array, center: bool, n_bits: int, seed: int) -> Learned:
    n_features = signals.shape[1]
    if n_features <= EXACT_FEATURES:
        moments = Moments(n_features)
        for values in _unit_blocks(signals):
            moments.add(values)
        mean = moments.total / moments.count if center else np.zeros(n_features)
        spread, turns = np.linalg.eigh(moments.covariance(centered=center))
        axes, spread = turns.T[::-1], np.maximum(spread[::-1], 0)
        total = float(spread.sum())
    else:
        mean = np.zeros(n_features)
        if center:
            parts = [(values.sum(axis=0, dtype=np.float64), len(values)) for values in _unit_blocks(signals)]
            mean = sum(part[0] for part in parts) / sum(part[1] for part in parts)
        axes, spread, total = leading_axes(lambda: _unit_blocks(signals), mean, MAX_AXES, seed)
    weight = _shrinkage(len(signals), n_features)
    spread = (1 - weight) * spread + weight * total / n_features
    variances = _padded(spread, total, n_features)
    # Axes that get no bits need not be kept: the space they span is rotated, and gets none either.
    n_axes = min(len(axes), design_trellis(variances, n_bits=n_bits, window=4).n_coded, MAX_AXES)
    n_axes = n_features if n_axes > 0.95 * n_features and len(axes) == n_features else n_axes
    projection = Principal(n_features=n_features, random_state=seed, axes=round_axes(axes[:n_axes]))
    variances = _padded(spread[:n_axes], total, n_features)
    return Learned(projection, mean.astype(np.float32) if center else None, variances)


def _padded(spread: Float64, total: float, n_features: int) -> Float64:
    """Variances of all coordinates, in units of projections: those known, and the rest in equal parts."""
    n_rest = n_features - len(spread)
    rest = np.full(n_rest, max(0.0, total - float(spread.sum())) / max(1, n_rest))
    return np.asarray(np.maximum(np.concatenate([spread, rest]) * n_features, 1e-9))


def _unit_blocks(signals: Array) -> Iterator[Float32]:
    """Unit signals of the sample, in blocks; zero signals are left out."""
    n_rows = max(1, 2**22 // max(1, signals.shape[1]))
    step = max(1, -(-len(signals) // SAMPLE))
    for block in float_blocks(signals, n_rows):
        rows = slice(-block.rows.start % step, None, step)
        norms, values = np.sqrt(block.square_norms[rows]), block.values[rows]
        kept = norms > 0
        yield (values[kept] / norms[kept, np.newaxis]).astype(np.float32)
