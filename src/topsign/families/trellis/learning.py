"""Learning of trellis recipes: mean, axes and variances of a sample, and codebooks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ... import kernels
from ..._arrays import Array, Bytes, Float32, Float64, Int32
from ..._checks import check_choice, check_count
from ..._lazy import lazy
from ..._random import RandomState, make_seed, normals
from ..._warning import warn
from ...kernels import n_threads
from ...projections import Hadamard, Principal, Projection
from ...projections.blocks import float_blocks
from ...projections.learned import Moments, leading_axes, round_axes
from ..base import METRICS
from ..projected import given_mean
from .recipe import MAX_BYTES, MAX_CODED, MAX_LEVEL, N_WINDOWS, RingDesign, TrellisRecipe, check_basis

SAMPLE = 50_000  # rows used for learning, evenly spaced
HELD_VALUES = 2**25  # values of the sample up to which it stays in memory, 128 MiB
EXACT_FEATURES = 2048  # full eigendecomposition up to this length; beyond it a randomised range finder
MAX_AXES = 512
ENOUGH = 20  # signals per feature below which the covariance is shrunk
MEASURED = 200  # approximate number of signals for the measured mean cosine
LEAST_VARIANCE = 1e-7  # least variance of unit signals about their mean, comparable to rounding errors

EMPHASIS, SHARPENING, LEAST_SHARE = 0.25, 0.35, 0.05
"""Errors are weighted by ``(variance / largest) ** EMPHASIS``; in scores, coordinates are multiplied by ``share **
-SHARPENING``, the share of their energy that reconstructions have (at least LEAST_SHARE), because coarse quantisation
shrinks coordinates too much for ranking. Both increase the measured recall."""

STEP_BITS = 4
STEP_DIMS = 32  # maximum number of coordinates that a step gets: more capture hardly more energy
NOISE, NOISE_ROUNDS, ANNEALED_ROUNDS = 8192, 10, 7  # noise signals and Lloyd rounds on them, the first ones annealed
SIGNALS, SIGNAL_ROUNDS = 20_000, 5  # approximate number of signals and Lloyd rounds on them
NOISE_WEIGHT, SIGNAL_WEIGHT = 0.5, 8.0  # members by which centroids are shrunk towards those of the round before
WHITE_STEPS, WHITE_VALUES, WHITE_ROUNDS = 16, 2**21, 16  # steps, values and rounds that train a book for white signals
GRID = 2.0**8  # noise is rounded to its reciprocal, so that the last bit of a normal quantile decides nothing

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
    n_bytes: int,
    basis: str | Projection = "principal",
    center: bool | npt.ArrayLike = True,
    metric: str = "correlation",
    random_state: RandomState = None,
) -> Made:
    """Learn a recipe of trellis codes from signals, or from a part of them.

    A Hadamard basis without ``center`` learns nothing, so its recipe is the same for all signals. A given mean replaces
    the learned one.
    """
    n_steps = 2 * check_count(n_bytes, "n_bytes", maximum=MAX_BYTES)
    check_choice(metric, "metric", METRICS)
    sample = Sample(signals, slice(*(part or slice(None)).indices(len(signals))[:2]))
    learned = _learn(sample, basis, center, n_steps, random_state)
    steps = Steps.of(learned.variances, n_steps)
    if basis != "principal":
        recipe = family(learned.projection, metric, learned.mean, *steps.white_design(len(learned.variances)))
        return recipe if learned.mean is None else _measured(recipe, sample)
    books = steps.noise_books(learned.projection.seed)
    recipe = family(learned.projection, metric, learned.mean, steps.design(books))
    some = sample.some(SIGNALS)
    (block,) = float_blocks(some, max(1, len(some)))
    coordinates = recipe.coordinates(block, n_threads(None))
    for _ in range(SIGNAL_ROUNDS):
        books = steps.refined(books, coordinates, SIGNAL_WEIGHT)
    return _measured(replace(recipe, design=steps.measured(books, coordinates)), sample)


@dataclass(frozen=True, eq=False)
class Steps:
    """Coordinates dealt to the steps of a ring, such that each step has about the same number of bits."""

    coded: Int32  # (n_coded,) in the order of steps
    first: Int32  # (n_steps + 1,)
    book_of_step: Int32
    variances: Float64  # of the coded coordinates, in units of projections
    emphases: Float64

    @classmethod
    def of(cls, variances: Float64, n_steps: int) -> Steps:
        """Allocate four bits per step by reverse water-filling of the weighted variances of all coordinates."""
        from ...theory.water_filling import water_filling  # SciPy, which the theory needs, takes long to import

        weights = (np.maximum(variances, 0) / variances.max()) ** EMPHASIS
        _, rates = water_filling(variances * weights, STEP_BITS * n_steps)
        most = min(int(np.count_nonzero(rates)), STEP_DIMS * n_steps, MAX_CODED)
        chosen = np.argsort(-rates, kind="stable")[:most]
        loads = [(0.0, step) for step in range(n_steps)]
        step_of = np.empty(most, np.int64)
        for place, rate in enumerate(rates[chosen].tolist()):  # the largest rate to the step with the smallest sum
            load, step_of[place] = loads[0]
            heapq.heapreplace(loads, (load + rate, int(step_of[place])))
        order = np.argsort(step_of, kind="stable")
        coded, dims = chosen[order], np.bincount(step_of, minlength=n_steps)
        white = variances[coded].min() == variances[coded].max()
        books = np.unique(dims, return_inverse=True)[1] if white else np.arange(n_steps)
        return cls(
            coded=coded.astype(np.int32),
            first=np.append(0, np.cumsum(dims)).astype(np.int32),
            book_of_step=books.astype(np.int32),
            variances=variances[coded],
            emphases=weights[coded],
        )

    @property
    def dims(self) -> Int32:
        """Number of coordinates of each step."""
        return np.diff(self.first)

    def columns(self, book: int) -> Int32:
        """Return the coordinates of the steps that share a book, (n_steps, n_dims)."""
        steps = np.flatnonzero(self.book_of_step == book)
        return self.first[steps, np.newaxis] + np.arange(self.dims[steps[0]])

    def design(self, books: list[Float64], shares: Float64 | None = None) -> RingDesign:
        """Return the design with books rounded to levels, each coordinate with its own scale."""
        amplitudes, levels = np.empty(len(self.coded), np.float32), []
        for number, book in enumerate(books):
            at = self.columns(number)
            largest = np.maximum(np.abs(book).max(axis=0), 1e-3 * np.sqrt(self.variances[at[0]]))
            scales = (largest / MAX_LEVEL).astype(np.float32)
            amplitudes[at] = scales
            levels.append(np.rint(np.clip(book / scales, -MAX_LEVEL, MAX_LEVEL)).astype(np.int8).ravel())
        shares = np.ones(len(self.coded)) if shares is None else shares
        # Rounded to a grid, so that the last digit of a power cannot change bytes or fingerprints.
        gains = np.round(np.maximum(shares, LEAST_SHARE) ** -SHARPENING * 2**12) / 2**12
        return RingDesign(
            coded=self.coded,
            first=self.first,
            book_of_step=self.book_of_step,
            levels=np.concatenate(levels),
            amplitudes=amplitudes,
            gains=gains.astype(np.float32),
            emphases=self.emphases.astype(np.float32),
            energy=round(float((shares * self.variances).sum()), 6),
        )

    def measured(self, books: list[Float64], coordinates: Float32) -> RingDesign:
        """Return the design with gains from the share of each coordinate's energy that reconstructions capture."""
        design = self.design(books)
        energies, windows = np.zeros(len(self.coded)), encode_windows(design, coordinates)
        for number in range(len(books)):
            at = self.columns(number)
            start, end = design.book_starts[number : number + 2]
            values = design.levels[start:end].reshape(N_WINDOWS, -1) * design.amplitudes[at[0]].astype(np.float64)
            counts = np.bincount(windows[:, self.book_of_step == number].ravel(), minlength=N_WINDOWS)
            energies[at] = (values**2 * counts[:, np.newaxis]).sum(axis=0) / max(1, counts.sum())
        return self.design(books, np.minimum(1.0, np.round(energies / self.variances * 2**16) / 2**16))

    def refined(self, books: list[Float64], coordinates: Float32, weight: float) -> list[Float64]:
        """Return books after a Lloyd round: encode, then move each row to the mean of its members.

        Means are shrunk towards the row before with a weight in members.
        """
        windows, found = encode_windows(self.design(books), coordinates), []
        for number, book in enumerate(books):
            members = windows[:, self.book_of_step == number].ravel()
            counts = np.bincount(members, minlength=N_WINDOWS)[:, np.newaxis]
            sums = [
                np.bincount(members, coordinates[:, at].ravel(), minlength=N_WINDOWS) for at in self.columns(number).T
            ]
            found.append((np.array(sums).reshape(-1, N_WINDOWS).T + weight * book) / (counts + weight))
        return found

    def noise_books(self, seed: int) -> list[Float64]:
        """Return books that fit Gaussian noise with the variances of each step, from random ones by annealing."""
        deviations, n_coded = np.sqrt(self.variances), len(self.coded)
        noise = (grid_normals(seed, "noise", NOISE * n_coded).reshape(NOISE, n_coded) * deviations).astype(np.float32)
        books = self.random_books(seed, "books", 0.7)
        for number in range(NOISE_ROUNDS):
            books = self.refined(books, noise, NOISE_WEIGHT)
            if number < ANNEALED_ROUNDS:
                moves = self.random_books(seed, f"round {number}", 0.1 * (1 - number / ANNEALED_ROUNDS) ** 2)
                books = [book + move for book, move in zip(books, moves, strict=True)]
        return books

    def random_books(self, seed: int, name: str, scale: float) -> list[Float64]:
        """Return books of normal values with a multiple of the coordinates' deviations."""
        columns = [self.columns(number)[0] for number in range(int(self.book_of_step.max()) + 1)]
        values = grid_normals(seed, name, N_WINDOWS * sum(map(len, columns))) * scale
        ends = np.cumsum([N_WINDOWS * len(at) for at in columns])[:-1]
        deviations = np.sqrt(self.variances)
        parts = zip(np.split(values, ends), columns, strict=True)
        return [part.reshape(N_WINDOWS, len(at)) * deviations[at] for part, at in parts]

    def white_design(self, n_features: int) -> tuple[RingDesign, float]:
        """Return the design for coordinates of equal variance, and the mean cosine of signals and reconstructions.

        The books depend only on the sizes of steps.
        """
        deviation = float(np.sqrt(self.variances[0]))
        sizes = [self.columns(number).shape[1] for number in range(int(self.book_of_step.max()) + 1)]
        made = [white_book(size) for size in sizes]
        shares, products = (
            np.repeat([made[number][which] for number in self.book_of_step], self.dims) for which in (1, 2)
        )
        cosine = round(float(products.sum() / np.sqrt(shares.sum() * n_features)), 4)
        return self.design([book * deviation for book, _, _ in made], shares), cosine


@cache
def white_book(n_dims: int) -> tuple[Float64, float, float]:
    """Return the book of a step with ``n_dims`` white coordinates.

    Then the mean square of a reconstructed coordinate, and its mean product with the coordinate, on fresh noise.

    It is the same on every machine: noise is on a grid, so that its sums are exact.
    """
    if n_dims == 0:
        return np.zeros((N_WINDOWS, 0)), 0.0, 0.0
    n_coded = WHITE_STEPS * n_dims
    steps = Steps(
        coded=np.arange(n_coded, dtype=np.int32),
        first=np.arange(0, n_coded + 1, n_dims, dtype=np.int32),
        book_of_step=np.zeros(WHITE_STEPS, np.int32),
        variances=np.ones(n_coded),
        emphases=np.ones(n_coded),
    )
    n_signals = min(2**13, WHITE_VALUES // n_coded)
    noise = grid_normals(n_dims, "white noise", 9 * n_signals // 8 * n_coded).reshape(-1, n_coded).astype(np.float32)
    (book,) = steps.random_books(n_dims, "white books", 0.7)
    for number in range(WHITE_ROUNDS):
        (book,) = steps.refined([book], noise[:n_signals], NOISE_WEIGHT)
        calm = max(0.0, 1 - number / (0.7 * WHITE_ROUNDS))
        (move,) = steps.random_books(n_dims, f"white round {number}", 0.15 * calm**2)
        book = book + move
    fresh = noise[n_signals:]
    design = steps.measured([book], fresh)
    members = encode_windows(design, fresh).ravel()
    sums = [np.bincount(members, fresh[:, at].ravel(), minlength=N_WINDOWS) for at in steps.columns(0).T]
    return book, design.energy / n_coded, float((np.array(sums).T * book).sum()) / fresh.size


def encode_windows(design: RingDesign, coordinates: Float32) -> Bytes:
    """Return the windows that each step reads from the codes of coordinates, (n_signals, n_steps)."""
    codes = kernels.active().ring_encode(design.ring(), coordinates, n_threads=n_threads(None))[:, :-2]
    nibbles = np.stack([codes >> 4, codes & 15], axis=2).reshape(len(codes), -1)
    return np.asarray(np.roll(nibbles, 1, axis=1) << 4 | nibbles, np.uint8)


def grid_normals(seed: int, name: str, count: int) -> Float64:
    """Return standard normal values of a stream, rounded to a grid."""
    return np.rint(normals(seed, f"trellis {name}", 0, count) * GRID) / GRID


def _measured(recipe: Made, sample: Sample) -> Made:
    """Return the recipe with the mean cosine of signals and their reconstructions."""
    some = sample.some(MEASURED)
    (block,) = float_blocks(some, max(1, len(some)))
    decoded = recipe.directions(recipe.encode(block, n_threads=n_threads(None)))
    cosine = round(float(np.clip((some * decoded).sum(axis=1).mean(), 1e-3, 1)), 4)
    return replace(recipe, reconstruction_cosine=cosine)


def _learn(
    sample: Sample, basis: str | Projection, center: bool | npt.ArrayLike, n_steps: int, random_state: RandomState
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
        return _learn_axes(sample, center is not False, given, n_steps, seed)
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


def _check_sample(n_signals: int, n_features: int, *, principal: bool) -> None:
    least = max(16, n_features // 8) if principal else 2
    if n_signals < least:
        raise ValueError(
            f"a sample of {n_signals} signals is too small to learn "
            f"{'axes' if principal else 'a mean'} of {n_features} features, at least {least} are needed; "
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


def _learn_axes(sample: Sample, center: bool, given: Float32 | None, n_steps: int, seed: int) -> Learned:
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
    n_axes = min(len(axes), len(Steps.of(variances, n_steps).coded), MAX_AXES)
    n_axes = n_features if n_axes > 0.95 * n_features and len(axes) == n_features else n_axes
    projection = Principal(n_features=n_features, random_state=seed, axes=round_axes(axes[:n_axes]))
    variances = _padded(spread[:n_axes], total, n_features)
    return Learned(projection, mean.astype(np.float32) if center else None, variances)


def _padded(spread: Float64, total: float, n_features: int) -> Float64:
    """Return variances of all coordinates in units of projections; the remainder is divided equally."""
    n_rest = n_features - len(spread)
    rest = np.full(n_rest, max(0.0, total - float(spread.sum())) / max(1, n_rest))
    return np.asarray(np.maximum(np.concatenate([spread, rest]) * n_features, 1e-9))
