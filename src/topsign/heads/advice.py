"""How many bits a head needs: predicted errors, the automatic choice, and warnings about sizes that do not pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from .._arrays import Array, Float64
from .._warning import warn
from ..kernels import Layout
from ..recipe import Recipe

TARGET = 0.99  # agreement that n_bits="auto" looks for
MOST_OF_POOL = 4  # a code that keeps more than this part of its pool chooses little
SAMPLE_VALUES = 2**26  # logits computed for a prediction
MAX_SAMPLE = 2000


class SizeWarning(UserWarning):
    """A head whose size does not pay."""


@dataclass(frozen=True)
class Choice:
    """A number of bits, the agreement expected of it, and what that rests on."""

    n_bits: int
    agreement: float
    basis: str  # "theory": weights alone, see predicted_agreement; "data": measured on inputs

    @property
    def reached(self) -> bool:
        """Whether the agreement is what the automatic choice looks for."""
        return self.agreement >= TARGET


def relative_error(n_bits: int, n_pool: int, n_features: int, *, orthonormal: bool = True) -> float:
    """Standard deviation of an estimated logit, relative to |w| |x|, for w and x at right angles.

    Exact for a Gaussian pool given the kept magnitudes: sqrt(1 / N) with N = n_bits * lambda**2, lambda the mean kept
    magnitude. For orthonormal pools 1 / N - 1 / n_features under the root: approximation.

    >>> round(relative_error(64, 1024, 1024), 3), round(relative_error(64, 64, 64), 3)
    (0.046, 0.094)
    """
    from ..theory import mean_kept_magnitude  # SciPy takes long to import

    effective = n_bits * float(mean_kept_magnitude(n_bits=n_bits, n_pool=n_pool)) ** 2
    blocks = max(1, n_pool // n_features)  # independent blocks share no orthogonality
    variance = 1 / effective - (1 / (n_features * blocks) if orthonormal else 0)
    return float(np.sqrt(max(variance, 0.0)))


def candidates(n_pool: int) -> list[int]:
    """Sizes that the automatic choice tries, from small to half of the pool."""
    sizes = {round(2 ** (step / 2) / 8) * 8 for step in range(6, 2 * n_pool.bit_length())}
    return sorted(size for size in sizes if 8 <= size <= n_pool // 2) or [max(1, n_pool // 2)]


def choose(n_pool: int, agreement: Callable[[int], float], basis: str) -> Choice:
    """The smallest candidate that reaches the target, by bisection; where none does, the one with most agreement."""
    sizes = candidates(n_pool)
    found = lru_cache(agreement)
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if found(sizes[middle]) >= TARGET else (middle + 1, high)
    if low < len(sizes):
        return Choice(sizes[low], found(sizes[low]), basis)
    best = max(sizes, key=lambda size: (found(size), -size))
    return Choice(best, found(best), basis)


def predicted_agreement(
    weights: Array, n_pool: int, *, shortlist: int = 1, orthonormal: bool = True
) -> Callable[[int], float]:
    """Agreement by number of bits, from the theory and the weights alone.

    Approximation, by simulation with a fixed seed: inputs are the weight vector of a random class in normal noise, the
    share of their energy that is signal uniform in [0, 1]; logits get independent normal errors with the spread of
    :func:`relative_error`. Biases are left out, because they would need the norm of inputs. Real inputs may be clearer
    or less clear than these: measure where there are data. With a shortlist, its size is how many estimates the best
    class must be among.
    """
    rng = np.random.default_rng(0)
    n_classes, n_features = weights.shape
    n_inputs = int(np.clip(SAMPLE_VALUES // n_classes, 50, MAX_SAMPLE))
    labels = np.sort(rng.integers(0, n_classes, n_inputs))
    rows = np.asarray(weights[labels], np.float64)
    noise = rng.standard_normal((n_inputs, n_features))
    energy = rng.random((n_inputs, 1))
    inputs = np.sqrt(energy) * _units(rows) + np.sqrt(1 - energy) * _units(noise)
    logits, norms = np.empty((n_inputs, n_classes), np.float32), np.empty(n_classes, np.float32)
    for start in range(0, n_classes, 2**14):
        part = slice(start, start + 2**14)
        block = np.asarray(weights[part], np.float32)
        logits[:, part], norms[part] = inputs.astype(np.float32) @ block.T, np.linalg.norm(block, axis=1)
    if n_classes == 1:  # two classes share the vector: the sign of the logit decides
        return _sign_agreement(logits[:, 0], norms[0], rng, n_pool, n_features, orthonormal=orthonormal)
    best = logits.argmax(axis=1)[:, np.newaxis]
    errors = rng.standard_normal(logits.shape, dtype=np.float32) * np.sqrt(np.maximum(norms**2 - logits**2, 0))

    def agreement(n_bits: int) -> float:
        error = np.float32(relative_error(n_bits, n_pool, n_features, orthonormal=orthonormal))
        estimates = logits + error * errors
        above = estimates > np.take_along_axis(estimates, best, axis=1)
        return float(np.mean(above.sum(axis=1) < shortlist))

    return agreement


def sized_recipe(
    recipe: Recipe,
    weights: Array,
    *,
    shortlist: int = 1,
    measured: Callable[[Recipe], float] | None = None,
) -> tuple[Recipe, Choice]:
    """The recipe with the number of bits that the automatic choice finds, and the choice.

    ``measured`` gives the agreement of a recipe on data; without it the theory predicts from the weights alone. Where
    no size reaches the target, the best is taken, and a warning says so.
    """

    def sized(n_bits: int) -> Recipe:
        return replace(recipe, layout=Layout(recipe.layout.name, n_bits, recipe.n_pool))

    if measured is None:
        orthonormal = recipe.projection.kind in ("hadamard", "circulant")
        predicted = predicted_agreement(weights, recipe.n_pool, shortlist=shortlist, orthonormal=orthonormal)
        choice = choose(recipe.n_pool, predicted, "theory")
    else:
        choice = choose(recipe.n_pool, lambda n_bits: measured(sized(n_bits)), "data")
    if not choice.reached:
        warn_of_choice(choice, recipe.n_pool)
    elif shortlist == 1:
        warn_of_size(recipe.n_features, sized(choice.n_bits).layout)
    return sized(choice.n_bits), choice


def warn_of_size(n_features: int, layout: Layout) -> None:
    """Warns where most of the pool is kept, or where float16 rows would be as small."""
    n_bits, n_pool = layout.n_bits, layout.n_pool
    code_bytes = layout.code_bytes + 4
    most, large = MOST_OF_POOL * n_bits > n_pool, code_bytes >= 2 * n_features
    if not (most or large):
        return
    best = min(candidates(n_pool), key=lambda size: relative_error(size, n_pool, n_features))
    error, least = (relative_error(size, n_pool, n_features) for size in (n_bits, best))
    why = f"n_bits={n_bits} of n_pool={n_pool} keeps more than a quarter of the pool" if most else "the head is small"
    advice = (
        f"n_bits={best} of the same pool errs by {least:.1%}" if least < error else "no n_bits of this pool errs less"
    )
    warn(
        f"{why}: estimated logits err by {error:.1%} of |w| |x| at {code_bytes} bytes per class, float16 rows by 0.03% "
        f"at {2 * n_features}; {advice}; raise n_pool, keep a shortlist, or leave a head of {n_features} features as "
        "it is",
        SizeWarning,
    )


def warn_of_choice(choice: Choice, n_pool: int) -> None:
    """Warns where no number of bits reaches the target."""
    warn(
        f'n_bits="auto" found no size that reaches {TARGET:.0%} agreement: the best, n_bits={choice.n_bits} of '
        f"n_pool={n_pool}, is expected to agree on {choice.agreement:.1%} ({choice.basis}); raise n_pool, keep a "
        "shortlist, or leave this head as it is",
        SizeWarning,
    )


def _sign_agreement(
    logits: Array, norm: float, rng: np.random.Generator, n_pool: int, n_features: int, *, orthonormal: bool
) -> Callable[[int], float]:
    sides = rng.choice([-1.0, 1.0], len(logits))
    spread = rng.standard_normal(len(logits)) * np.sqrt(np.maximum(norm**2 - logits**2, 0))

    def agreement(n_bits: int) -> float:
        error = relative_error(n_bits, n_pool, n_features, orthonormal=orthonormal)
        return float(np.mean((sides * logits + error * spread > 0) == (sides * logits > 0)))

    return agreement


def _units(rows: Float64) -> Float64:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))
