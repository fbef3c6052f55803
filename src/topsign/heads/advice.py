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
SMALLEST_TRELLIS = 24  # bits: two windows of the usual length, in whole bytes


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


def trellis_error(recipe: Recipe) -> float:
    """The same of trellis codes: ``sqrt((1 / kept**2 - 1) / n_features)``, kept the mean cosine of reconstructions.

    Approximation, as errors were at right angles to the weights and went in all directions alike.
    """
    return float(np.sqrt(max(recipe.kept_cosine**-2 - 1, 0.0) / recipe.n_features))


def candidates(n_pool: int) -> list[int]:
    """Sizes that the automatic choice tries, from small to half of the pool."""
    return _steps(8, n_pool // 2) or [max(1, n_pool // 2)]


def trellis_candidates(n_features: int) -> list[int]:
    """The same of trellis codes: from two windows to four bits per feature."""
    return _steps(SMALLEST_TRELLIS, 4 * n_features) or [SMALLEST_TRELLIS]


def _steps(least: int, most: int) -> list[int]:
    """Whole bytes, two steps to a factor of two."""
    sizes = {round(2 ** (step / 2) / 8) * 8 for step in range(6, 2 * max(1, most).bit_length() + 2)}
    return sorted(size for size in sizes if least <= size <= most)


def choose(sizes: list[int], agreement: Callable[[int], float], basis: str) -> Choice:
    """The smallest candidate that reaches the target, by bisection; where none does, the one with most agreement."""
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
    """Agreement by number of bits, from the theory of adaptive codes and the weights alone."""
    n_features = weights.shape[1]
    return simulated_agreement(
        weights,
        lambda n_bits: relative_error(n_bits, n_pool, n_features, orthonormal=orthonormal),
        shortlist=shortlist,
    )


def simulated_agreement(weights: Array, error: Callable[[int], float], *, shortlist: int = 1) -> Callable[[int], float]:
    """Agreement by number of bits, from the relative error of logits and the weights alone.

    Approximation, by simulation with a fixed seed: inputs are the weight vector of a random class in normal noise, the
    share of their energy that is signal uniform in [0, 1]; logits get independent normal errors of this spread. Biases
    are left out, because they would need the norm of inputs. Real inputs may be clearer or less clear than these:
    measure where there are data. With a shortlist, its size is how many estimates the best class must be among.
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
        return _sign_agreement(logits[:, 0], norms[0], rng, error)
    best = logits.argmax(axis=1)[:, np.newaxis]
    errors = rng.standard_normal(logits.shape, dtype=np.float32) * np.sqrt(np.maximum(norms**2 - logits**2, 0))

    def agreement(n_bits: int) -> float:
        estimates = logits + np.float32(error(n_bits)) * errors
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
    """The recipe of adaptive codes with the number of bits that the automatic choice finds, and the choice.

    ``measured`` gives the agreement of a recipe on data; without it the theory predicts from the weights alone. Where
    no size reaches the target, the best is taken, and a warning says so.
    """

    def sized(n_bits: int) -> Recipe:
        return replace(recipe, layout=Layout(recipe.layout.name, n_bits, recipe.n_pool))

    orthonormal = recipe.projection.kind in ("hadamard", "circulant")
    found, choice = _find_size(
        candidates(recipe.n_pool),
        sized,
        lambda: predicted_agreement(weights, recipe.n_pool, shortlist=shortlist, orthonormal=orthonormal),
        measured,
    )
    if not choice.reached:
        _warn_of_choice(choice, f"n_bits={choice.n_bits} of n_pool={recipe.n_pool}", "raise n_pool, ")
    elif shortlist == 1:
        warn_of_size(found.n_features, found.layout)
    return found, choice


def sized_trellis(
    learned: Callable[[int], Recipe],
    weights: Array,
    *,
    shortlist: int = 1,
    measured: Callable[[Recipe], float] | None = None,
) -> tuple[Recipe, Choice]:
    """As :func:`sized_recipe`, of trellis codes: ``learned`` makes a recipe of so many bits."""
    sized = lru_cache(learned)
    found, choice = _find_size(
        trellis_candidates(weights.shape[1]),
        sized,
        lambda: simulated_agreement(weights, lambda n_bits: trellis_error(sized(n_bits)), shortlist=shortlist),
        measured,
    )
    if not choice.reached:
        _warn_of_choice(choice, f"n_bits={choice.n_bits}, {choice.n_bits / found.n_features:.3g} per weight", "")
    return found, choice


def _find_size(
    sizes: list[int],
    sized: Callable[[int], Recipe],
    predicted: Callable[[], Callable[[int], float]],
    measured: Callable[[Recipe], float] | None,
) -> tuple[Recipe, Choice]:
    """The search of both families: by data where there are any, by the theory where not."""
    if measured is None:
        choice = choose(sizes, predicted(), "theory")
    else:
        choice = choose(sizes, lambda n_bits: measured(sized(n_bits)), "data")
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


def _warn_of_choice(choice: Choice, size: str, more: str) -> None:
    """Warns where no number of bits reaches the target."""
    warn(
        f'n_bits="auto" found no size that reaches {TARGET:.0%} agreement: the best, {size}, is expected to agree on '
        f"{choice.agreement:.1%} ({choice.basis}); {more}keep a shortlist, or leave this head as it is",
        SizeWarning,
    )


def _sign_agreement(
    logits: Array, norm: float, rng: np.random.Generator, error: Callable[[int], float]
) -> Callable[[int], float]:
    sides = rng.choice([-1.0, 1.0], len(logits))
    spread = rng.standard_normal(len(logits)) * np.sqrt(np.maximum(norm**2 - logits**2, 0))

    def agreement(n_bits: int) -> float:
        return float(np.mean((sides * logits + error(n_bits) * spread > 0) == (sides * logits > 0)))

    return agreement


def _units(rows: Float64) -> Float64:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))
