"""Recipes of heads: codes of a given size, or of the smallest size expected to agree with the exact head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .._arrays import Array, Float64, Int64
from .._random import RandomState, make_seed
from ..errors import warn
from ..families import Recipe, family_type
from ..projections import Projection

TARGET = 0.99  # agreement that an automatic size looks for
CONFIDENCE = 0.95  # of the bound of a measured agreement
SAMPLE_VALUES = 2**26  # logits computed for a prediction
MAX_SAMPLE = 2000


class SizeWarning(UserWarning):
    """Warning about a head that gains too little from compression."""


@dataclass(frozen=True)
class SizeChoice:
    """Size of a code that was chosen automatically, and the agreement with the exact head that is expected of it."""

    size: int  #: n_bits of adaptive codes, n_bytes of others
    agreement: float  #: share of inputs whose top class is unchanged
    basis: str  #: "data": measured on inputs; "theory": predicted from the weights, see simulated_agreement
    lower_bound: float | None = None
    """95% lower confidence bound of a measured agreement, simultaneous over all sizes; None for predictions."""

    @property
    def reached(self) -> bool:
        """Whether the agreement reaches the target of the automatic choice."""
        return self.agreement >= TARGET


class HeldOut(NamedTuple):
    """Inputs on which the agreement of heads is measured; the weights were not learned from them."""

    signals: Array
    best: Int64  # positions of their classes by the exact head
    weights: Array
    make: Callable[[Recipe], Any]  # the head of these weights


class RecipeOptions:
    """Parameters of the recipe for weight vectors; None stands for the family's default.

    A Generator is used once, so that recipes of all sizes share the seed.
    """

    def __init__(
        self,
        family: str,
        *,
        n_bytes: int | str = "auto",
        n_bits: int | str | None = None,
        n_pool: int | None = None,
        basis: str | Projection | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.family = family_type(family)
        if self.family.size_name == "n_bits":
            size, others = "auto" if n_bits is None else n_bits, {"n_bytes": n_bytes if n_bytes != "auto" else None}
        else:
            size, others = n_bytes, {"n_bits": n_bits, "n_pool": n_pool}
        if wrong := [name for name, value in others.items() if value is not None]:
            raise ValueError(f"{family} codes have {self.family.size_name}, got {' and '.join(wrong)}")
        if size is None or (isinstance(size, str) and size != "auto"):
            raise ValueError(f'{self.family.size_name} must be a number or "auto", got {size!r}')
        if random_state is not None and not isinstance(basis, Projection):
            random_state = make_seed(random_state)
        self.automatic = size == "auto"
        options = {"n_pool": n_pool, "basis": basis, "random_state": random_state}
        options[self.family.size_name] = None if self.automatic else size
        self._options = {name: value for name, value in options.items() if value is not None}

    def make(self, weights: Array, size: int | None = None) -> Recipe:
        """Return the recipe for these weight vectors; ``size`` is an automatic one."""
        chosen = {} if size is None else {self.family.size_name: size}
        return self.family.for_weights(weights, **self._options, **chosen)

    def needs_weights(self, n_features: int) -> bool:
        """Return whether :meth:`choose` depends on the weight vectors; raise if an option is wrong."""
        sizes = self._sizes(n_features)
        smallest = {self.family.size_name: sizes[0]} if sizes else {}
        return self.family.needs_weights(n_features, **self._options, **smallest) or bool(sizes)

    def choose(
        self, weights: Array, *, shortlist: int | None = None, held_out: Sequence[HeldOut] = ()
    ) -> tuple[Recipe, SizeChoice | None]:
        """Return a recipe for these weight vectors, and the choice of its size if it is automatic.

        The agreement is measured on inputs that are held out, if there are any, otherwise predicted from the weights.
        Warns if compression gains too little.
        """
        sizes, choice = self._sizes(weights.shape[1]), None
        if not sizes:
            recipe = self.make(weights)
        else:
            choice = self._measured(sizes, held_out) if held_out else self._predicted(sizes, weights, shortlist or 1)
            recipe = self.make(weights, choice.size)
        encoder = recipe.weight_encoder()
        if choice is not None and not choice.reached:
            warn(
                f'"auto" found no size that reaches {TARGET:.0%} agreement: the best, {encoder.size}, is expected to '
                f"agree on {choice.agreement:.1%} ({choice.basis}); keep a shortlist, or leave this head as it is",
                SizeWarning,
            )
        elif shortlist is None and (text := encoder.size_warning()):
            warn(text, SizeWarning)
        return recipe, choice

    def _sizes(self, n_features: int) -> list[int]:
        return self.family.weight_sizes(n_features, **self._options) if self.automatic else []

    def _measured(self, sizes: list[int], held_out: Sequence[HeldOut]) -> SizeChoice:
        def agreement(size: int) -> float:
            heads = [part.make(self.make(part.weights, size)) for part in held_out]
            pairs = zip(heads, held_out, strict=True)
            same = [head.predict(part.signals) == head.classes[part.best] for head, part in pairs]
            return float(np.mean(np.concatenate(same)))

        size, found = smallest_size(sizes, agreement)
        n_inputs = sum(len(part.best) for part in held_out)
        return SizeChoice(size, found, "data", lower_bound(found, n_inputs, n_sizes=len(sizes)))

    def _predicted(self, sizes: list[int], weights: Array, shortlist: int) -> SizeChoice:
        def error(size: int) -> float:
            return self.make(weights, size).weight_encoder().error(weights)

        return SizeChoice(*smallest_size(sizes, simulated_agreement(weights, error, shortlist=shortlist)), "theory")


def smallest_size(sizes: list[int], agreement: Callable[[int], float]) -> tuple[int, float]:
    """Return the smallest size that reaches the target, by bisection; if none does, the one with most agreement."""
    found = lru_cache(agreement)
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if found(sizes[middle]) >= TARGET else (middle + 1, high)
    size = sizes[low] if low < len(sizes) else max(sizes, key=lambda size: (found(size), -size))
    return size, found(size)


def lower_bound(agreement: float, n_inputs: int, *, n_sizes: int) -> float:
    """Return the Clopper-Pearson bound of a fraction, simultaneous (Bonferroni) over the sizes that were compared.

    Bound: holds with 95% confidence for independent inputs.

    >>> round(lower_bound(1.0, 1000, n_sizes=1), 4)
    0.997
    """
    from scipy.stats import beta  # heads are used without SciPy

    same = round(agreement * n_inputs)
    return float(beta.ppf((1 - CONFIDENCE) / n_sizes, same, n_inputs - same + 1)) if same else 0.0


def simulated_agreement(weights: Array, error: Callable[[int], float], *, shortlist: int = 1) -> Callable[[int], float]:
    """Return a function from a size to the agreement predicted from the error of logits and the weights.

    Approximation, by simulation with a fixed seed: each input is the weight vector of a random class plus normal noise;
    the fraction of signal in its energy is uniform in [0, 1]. Logits get independent normal errors of this relative
    size. Biases are ignored, because they would need the norms of inputs. Real inputs may have more or less noise, so
    measure the agreement if there are data. With a shortlist, the best class must be among that many highest estimates.
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
    deviations = np.sqrt(np.maximum(norms**2 - logits**2, 0))
    if n_classes == 1:  # two classes share the vector: the sign of the logit decides
        logits, deviations = np.hstack([-logits, logits]), np.sqrt(np.float32(2)) * np.hstack([deviations, deviations])
    best = logits.argmax(axis=1)[:, np.newaxis]
    errors = rng.standard_normal(logits.shape, dtype=np.float32) * deviations

    def agreement(size: int) -> float:
        estimates = logits + np.float32(error(size)) * errors
        above = estimates > np.take_along_axis(estimates, best, axis=1)
        return float(np.mean(above.sum(axis=1) < shortlist))

    return agreement


def _units(rows: Float64) -> Float64:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))
