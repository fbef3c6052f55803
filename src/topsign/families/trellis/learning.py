"""Learning of trellis recipes: mean, axes and variances of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..._arrays import Array, Float32, Float64
from ..._lazy import lazy
from ..._random import RandomState, make_seed
from ..._warning import warn
from ...kernels import n_threads
from ...projections import Hadamard, Local, Principal, Projection
from ...projections.blocks import float_blocks
from ...projections.learned import Moments, leading_axes, round_axes
from ...projections.local import cluster, nearest_means
from ..projected import given_mean
from .cells import cell_bits
from .design import TrellisDesign, check_trellis, design_trellis
from .recipe import TrellisRecipe, check_basis, check_local

SAMPLE = 50_000  # rows used for learning, evenly spaced
HELD_VALUES = 2**25  # values of the sample up to which it stays in memory, 128 MiB
EXACT_FEATURES = 2048  # full eigendecomposition up to this length; beyond it a randomised range finder
MAX_AXES = 512
ENOUGH = 20  # signals per feature below which the covariance is shrunk
CLUSTERED = 16_384  # approximate number of rows for k-means
WIDENED = 4096  # approximate number of signals for the levels of fine designs
MEASURED = 200  # approximate number of signals for the measured mean cosine
LEAST_VARIANCE = 1e-7  # least variance of unit signals about their mean, comparable to rounding errors
POOLED_MEMBERS = 100.0  # weight of the pooled covariance when a cell's covariance is shrunk towards it, in members


Made = TypeVar("Made", bound=TrellisRecipe)


@dataclass(frozen=True, eq=False)
class Sample:
    """Signals to learn from, or a part of them; errors name rows of the complete matrix."""

    signals: Array
    part: slice

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def n_features(self) -> int:
        return int(self.signals.shape[1])

    def unit_blocks(self) -> Iterable[Float32]:
        """Return blocks of evenly spaced unit signals without zero signals."""
        return self._held if min(len(self), SAMPLE) * self.n_features <= HELD_VALUES else self._read()

    @lazy
    def _held(self) -> list[Float32]:
        """All blocks, so that several passes read the signals once."""
        return list(self._read())

    def _read(self) -> Iterator[Float32]:
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
        """Return approximately ``count`` evenly spaced unit signals."""
        step = max(1, min(len(self), SAMPLE) // count)
        return np.concatenate([values[::step] for values in self.unit_blocks()])


@dataclass(frozen=True, eq=False)
class Learned:
    """Basis, subtracted mean, and variances of the coordinates."""

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
    """Learn a recipe of trellis codes from signals, or from a part of them.

    A Hadamard basis without ``center`` learns nothing, so its recipe is the same for all signals. A given mean replaces
    the learned one. With ``fine``, principal axes with nearly all variance in few of them get a fine design, see
    :class:`TrellisDesign`.
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
    """Return the recipe with fine designs for cells with nearly all variance in few coordinates."""
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
    """Return the recipe with the measured mean cosine of signals and their reconstructions."""
    some = sample.some(MEASURED)
    (block,) = float_blocks(some, max(1, len(some)))
    decoded = recipe.directions(recipe.encode(block, n_threads=n_threads(None)).codes)
    return replace(recipe, measured_cosine=round(float(np.clip((some * decoded).sum(axis=1).mean(), 1e-3, 1)), 4))


def _learn(
    sample: Sample, basis: str | Projection, center: bool | npt.ArrayLike, n_bits: int, random_state: RandomState
) -> Learned:
    n_features = sample.n_features
    given = given_mean(center, n_features)
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
    """Return the mean of the unit signals of the sample."""
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
            'pass more signals, or use basis="hadamard" with center=False, which learns nothing'
        )
    if principal and n_signals < ENOUGH * n_features:
        warn(
            f"axes of {n_features} features are learned from {n_signals} signals, fewer than {ENOUGH} per feature: "
            f"their covariance is shrunk towards equal variances by {_shrinkage(n_signals, n_features):.3f}",
        )


def _check_varies(total: float) -> None:
    """Raise ValueError if unit signals differ from the subtracted mean only by rounding errors."""
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
    # Axes without bits are not stored: the space they span is rotated and gets no bits either.
    n_axes = min(len(axes), design_trellis(variances, n_bits=n_bits, window=4).n_coded, MAX_AXES)
    n_axes = n_features if n_axes > 0.95 * n_features and len(axes) == n_features else n_axes
    projection = Principal(n_features=n_features, random_state=seed, axes=round_axes(axes[:n_axes]))
    variances = _padded(spread[:n_axes], total, n_features)
    return Learned(projection, mean.astype(np.float32) if center else None, variances)


def _learn_cells(
    sample: Sample, n_local: int, n_bits: int, window: int, seed: int
) -> tuple[Local, list[TrellisDesign]]:
    """Learn means, axes and bit allocations of clusters.

    Covariances of cells with few members are shrunk towards the pooled covariance.
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
    """Return variances of all coordinates in units of projections; the remainder is divided equally."""
    n_rest = n_features - len(spread)
    rest = np.full(n_rest, max(0.0, total - float(spread.sum())) / max(1, n_rest))
    return np.asarray(np.maximum(np.concatenate([spread, rest]) * n_features, 1e-9))
