"""Learning what trellis codes are made with: mean, axes and variances of a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..._arrays import Array, Float32, Float64
from ..._random import RandomState, make_seed
from ..._warning import warn
from ...kernels import n_threads
from ...projections import Hadamard, Local, Principal, Projection
from ...projections.blocks import float_blocks
from ...projections.learned import Moments, leading_axes, round_axes
from ...projections.local import cluster, nearest_means
from ..projected import check_mean
from .cells import cell_bits
from .design import TrellisDesign, check_trellis, design_trellis
from .recipe import TrellisRecipe, check_basis, check_local

SAMPLE = 50_000  # rows that a basis is learned from, evenly spaced among those given
EXACT_FEATURES = 2048  # up to here all axes, by one eigen-decomposition; beyond it the first ones, randomised
MAX_AXES = 512
ENOUGH = 20  # signals per feature below which the covariance is shrunk
CLUSTERED = 16_384  # rows of the sample, about, that means of cells are moved by
WIDENED = 4096  # signals, about, that levels of fine designs are widened by
MEASURED = 200  # signals, about, that the mean cosine of a recipe is measured on
LEAST_VARIANCE = 1e-7  # of unit signals around their mean, which rounding alone makes differ by about as much
POOLED_MEMBERS = 100.0  # weight of the pooled covariance when a cell's covariance is shrunk towards it, in members


Made = TypeVar("Made", bound=TrellisRecipe)


@dataclass(frozen=True, eq=False)
class Sample:
    """Signals, or a part of them, to learn from; errors name rows of the whole."""

    signals: Array
    part: slice

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def n_features(self) -> int:
        return int(self.signals.shape[1])

    def unit_blocks(self) -> Iterator[Float32]:
        """Unit signals, in blocks: some evenly spaced ones where there are many. Zero signals are left out."""
        n_rows = max(1, 2**22 // max(1, self.n_features))
        step = max(1, -(-len(self) // SAMPLE))
        for start in range(self.part.start, self.part.stop, n_rows):
            first = start + (self.part.start - start) % step
            some = slice(first, min(start + n_rows, self.part.stop), step)
            for block in float_blocks(self.signals, n_rows, part=some):
                norms = np.sqrt(block.square_norms)
                kept = norms > 0
                yield (block.values[kept] / norms[kept, np.newaxis]).astype(np.float32)

    def some(self, count: int) -> Float32:
        """About so many unit signals, evenly spaced."""
        step = max(1, min(len(self), SAMPLE) // count)
        return np.concatenate([values[::step] for values in self.unit_blocks()])


@dataclass(frozen=True, eq=False)
class Learned:
    """A basis, the mean that is removed, and the variances of its coordinates."""

    projection: Projection
    mean: Float32 | None
    variances: Float64


def learn_recipe(
    family: type[Made],
    signals: Array,
    *,
    part: slice | None = None,
    n_bits: int,
    basis: str | Projection = "principal",
    center: bool | npt.ArrayLike = True,
    window: int = 10,
    norms: bool = False,
    metric: str = "correlation",
    n_local: int = 1,
    fine: bool = True,
    random_state: RandomState = None,
) -> Made:
    """Return the recipe of trellis codes for signals like these, or like a part of them.

    A Hadamard basis without ``center`` learns nothing: its recipe is the same for all signals. A mean that is given
    takes the place of the one that would be learned. ``fine``: principal axes of which few hold nearly everything get
    a fine design, see :class:`TrellisDesign`.
    """
    n_bits, window = check_trellis(n_bits, window)
    sample = Sample(signals, slice(*(part or slice(None)).indices(len(signals))[:2]))
    if check_local(n_local, basis=basis, center=center) > 1:
        n_ring = check_trellis(n_bits - cell_bits(n_local), window)[0]
        local, designs = _learn_cells(sample, n_local, n_ring, window, make_seed(random_state))
        recipe = family.make(local, designs, norms=norms, metric=metric)
        return _measured(_refined(recipe, sample) if fine else recipe, sample)
    learned = _learn(sample, basis, center, n_bits, random_state)
    design = design_trellis(learned.variances, n_bits=n_bits, window=window)
    recipe = family.make(learned.projection, [design], mean=learned.mean, norms=norms, metric=metric)
    if basis != "principal":
        return recipe if learned.mean is None else _measured(recipe, sample)
    return _measured(_refined(recipe, sample) if fine else recipe, sample)


def _refined(recipe: Made, sample: Sample) -> Made:
    """With fine designs where few coordinates hold nearly everything."""
    steep = {cell.number for cell in recipe.cells if cell.design.is_steep}
    if not steep:
        return recipe
    designs, some = list(recipe.designs), sample.some(WIDENED)
    (block,) = float_blocks(some, max(1, len(some)))
    for signals in recipe.cells.coordinates(block, n_threads(None)):
        if signals.mark in steep:
            designs[signals.mark] = designs[signals.mark].widened(signals.values)
    return replace(recipe, designs=tuple(designs))


def _measured(recipe: Made, sample: Sample) -> Made:
    """With the mean cosine of some of the signals and their reconstructions."""
    some = sample.some(MEASURED)
    (block,) = float_blocks(some, max(1, len(some)))
    decoded = recipe.directions(recipe.encode(block, n_threads=n_threads(None)).codes)
    return replace(recipe, measured_cosine=round(float(np.clip((some * decoded).sum(axis=1).mean(), 1e-3, 1)), 4))


def _learn(
    sample: Sample, basis: str | Projection, center: bool | npt.ArrayLike, n_bits: int, random_state: RandomState
) -> Learned:
    n_features = sample.n_features
    given = None if isinstance(center, (bool, np.bool_)) else check_mean(center, n_features)
    check_basis(basis, n_features, random_state)
    if isinstance(basis, Projection):
        projection, seed = basis, basis.seed
    else:
        seed = make_seed(random_state)
        projection = Hadamard(n_features=n_features, random_state=seed)
    if basis != "principal" and center is False:
        for _ in sample.unit_blocks():
            pass  # only checks them
        return Learned(projection, None, np.ones(n_features))
    _check_sample(len(sample), n_features, principal=basis == "principal")
    if basis == "principal":
        return _learn_axes(sample, center is not False, given, n_bits, seed)
    found = _mean(sample)
    mean = found.astype(np.float32) if given is None else given
    left = 1 - float(mean.astype(np.float64) @ (mean if given is None else 2 * found - mean))
    _check_varies(left)
    return Learned(projection, mean, np.full(n_features, max(1e-6, left)))


def _mean(sample: Sample) -> Float64:
    """Of the unit signals of the sample."""
    parts = [(values.sum(axis=0, dtype=np.float64), len(values)) for values in sample.unit_blocks()]
    if not any(part[1] for part in parts):
        _check_varies(0.0)
    return np.asarray(sum(part[0] for part in parts) / sum(part[1] for part in parts))


def _check_sample(n_signals: int, n_features: int, *, principal: bool, n_local: int = 1) -> None:
    least = n_local * max(16, n_features // 8) if principal else 2
    if n_signals < least:
        raise ValueError(
            f"a sample of {n_signals} signals is too small to learn "
            f"{'axes' if principal else 'a mean'} of {n_features} features{f' in {n_local} cells' * (n_local > 1)}, "
            f"at least {least} are needed; "
            'give more signals, or take basis="hadamard" with center=False, which learns nothing'
        )
    if principal and n_signals < ENOUGH * n_features:
        warn(
            f"axes of {n_features} features are learned from {n_signals} signals, fewer than {ENOUGH} per feature: "
            f"their covariance is shrunk towards equal variances by {_shrinkage(n_signals, n_features):.3f}",
        )


def _check_varies(total: float) -> None:
    """Raises ValueError where unit signals differ from what is removed by no more than rounding does."""
    if not total > LEAST_VARIANCE:
        raise ValueError(
            "the signals of the sample all point nearly the same way, or are zero: there is nothing to learn; subtract "
            'their mean first, or take basis="hadamard" with center=False, which learns nothing'
        )


def _shrinkage(n_signals: int, n_features: int) -> float:
    return n_features / (n_features + 10 * n_signals) if n_signals < ENOUGH * n_features else 0.0


def _learn_axes(sample: Sample, center: bool, given: Float32 | None, n_bits: int, seed: int) -> Learned:
    n_features = sample.n_features
    if n_features <= EXACT_FEATURES:
        moments = Moments(n_features)
        for values in sample.unit_blocks():
            moments.add(values)
        if not moments.count:
            _check_varies(0.0)
        mean = moments.total / moments.count if center else np.zeros(n_features)
        mean = mean if given is None else given.astype(np.float64)
        spread, turns = np.linalg.eigh(moments.around(mean))
        axes, spread = turns.T[::-1], np.maximum(spread[::-1], 0)
        total = float(spread.sum())
    else:
        mean = np.zeros(n_features) if not center else _mean(sample) if given is None else given.astype(np.float64)
        axes, spread, total = leading_axes(sample.unit_blocks, mean, MAX_AXES, seed)
    _check_varies(total)
    weight = _shrinkage(len(sample), n_features)
    spread = (1 - weight) * spread + weight * total / n_features
    variances = _padded(spread, total, n_features)
    # Axes that get no bits need not be kept: the space they span is rotated, and gets none either.
    n_axes = min(len(axes), design_trellis(variances, n_bits=n_bits, window=4).n_coded, MAX_AXES)
    n_axes = n_features if n_axes > 0.95 * n_features and len(axes) == n_features else n_axes
    projection = Principal(n_features=n_features, random_state=seed, axes=round_axes(axes[:n_axes]))
    variances = _padded(spread[:n_axes], total, n_features)
    return Learned(projection, mean.astype(np.float32) if center else None, variances)


def _learn_cells(
    sample: Sample, n_local: int, n_bits: int, window: int, seed: int
) -> tuple[Local, list[TrellisDesign]]:
    """Means and axes of clusters, and how bits are shared out in each.

    Covariances of cells with few members are shrunk towards what all have in common.
    """
    n_features = sample.n_features
    if n_features > EXACT_FEATURES:
        raise ValueError(f"local bases need n_features <= {EXACT_FEATURES}, got {n_features}; take n_local=1")
    _check_sample(len(sample), n_features, principal=True, n_local=n_local)
    units = np.concatenate(list(sample.unit_blocks()))
    _check_varies(float(units.var(axis=0, dtype=np.float64).sum()) if len(units) else 0.0)
    means = cluster(units[:: max(1, len(units) // CLUSTERED)], n_local, seed)
    nearest = nearest_means(units, means)
    members = [units[nearest == cell].astype(np.float64) for cell in range(n_local)]
    for cell, values in enumerate(members):
        if len(values):
            means[cell] = values.mean(axis=0)
            values -= means[cell]
    products = [values.T @ values for values in members]
    pooled = sum(products) / len(units)
    weight = _shrinkage(len(sample), n_features)
    pooled = (1 - weight) * pooled + weight * np.trace(pooled) / n_features * np.eye(n_features)
    axes, designs = [], []
    for values, product in zip(members, products, strict=True):
        spread, turns = np.linalg.eigh((product + POOLED_MEMBERS * pooled) / (len(values) + POOLED_MEMBERS))
        variances = np.maximum(spread[::-1] * n_features, 1e-9)
        variances[MAX_AXES:] = 1e-9
        design = design_trellis(variances, n_bits=n_bits, window=window, emphasis=0.125, sharpening=0.25)
        axes.append(round_axes(turns.T[::-1][design.coded]))
        designs.append(replace(design, coded=np.arange(design.n_coded, dtype=np.int32)))
    local = Local(
        n_features=n_features,
        random_state=seed,
        axes=np.concatenate(axes),
        n_axes=[len(one) for one in axes],
        means=means.astype(np.float32),
    )
    return local, designs


def _padded(spread: Float64, total: float, n_features: int) -> Float64:
    """Variances of all coordinates, in units of projections: those known, and the rest in equal parts."""
    n_rest = n_features - len(spread)
    rest = np.full(n_rest, max(0.0, total - float(spread.sum())) / max(1, n_rest))
    return np.asarray(np.maximum(np.concatenate([spread, rest]) * n_features, 1e-9))
