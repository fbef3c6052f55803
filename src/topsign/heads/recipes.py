"""Recipes of heads: codes of a given size, or of the smallest size expected to agree with the exact head."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import check_choice, check_positive
from .._random import RandomState, make_seed
from .._warning import warn
from ..families import Recipe
from ..kernels import FACTOR_BYTES
from ..projections import Projection
from .advice import TARGET, SizeChoice, SizeWarning, choose, simulated_agreement


class RecipeOptions:
    """Parameters of the recipe for weight vectors; None stands for the family's default.

    A Generator is used once, so that recipes of all sizes share the seed.
    """

    def __init__(
        self,
        family: str,
        *,
        n_bits: int | str | None = "auto",
        n_bytes: int | None = None,
        bits_per_weight: float | None = None,
        random_state: RandomState = None,
        **options: Any,
    ) -> None:
        self.family = Recipe.families[check_choice(family, "family", tuple(Recipe.families))]
        if random_state is not None and not isinstance(options.get("basis"), Projection):
            random_state = make_seed(random_state)
        options["random_state"] = random_state
        self.options = {name: value for name, value in options.items() if value is not None}
        if isinstance(n_bits, str) and n_bits != "auto":
            raise ValueError(f'n_bits must be a number or "auto", got {n_bits!r}')
        sizes = {"n_bits": None if n_bits == "auto" else n_bits, "n_bytes": n_bytes, "bits_per_weight": bits_per_weight}
        self._given = {name: value for name, value in sizes.items() if value is not None}
        if len(self._given) > 1:
            raise ValueError(f"give only one of n_bits, n_bytes and bits_per_weight, got {self.size}")
        wrong = {"n_bits", "n_pool"} & (self._given | self.options).keys()
        if wrong and self.family.size_name != "n_bits":
            raise ValueError(f"{family} codes have n_bytes, got {' and '.join(sorted(wrong))}")
        self.automatic = n_bits == "auto" and not self._given

    @property
    def size(self) -> str:
        """Size that was given, for messages."""
        return " and ".join(f"{name}={value!r}" for name, value in self._given.items())

    def needs_weights(self, n_features: int) -> bool:
        """Return whether :meth:`recipe` depends on the weight vectors; raise if an option is wrong."""
        sizes = self._sizes(n_features)
        smallest = self.sized(n_features, sizes[0] if sizes else None)
        return self.family.needs_weights(n_features, **smallest) or bool(sizes)

    def recipe(
        self,
        weights: Array,
        *,
        shortlist: int | None = None,
        measured: Callable[[Recipe], float] | None = None,
    ) -> tuple[Recipe, SizeChoice | None]:
        """Return a recipe for these weight vectors, and the choice of its size if it is automatic.

        ``measured`` returns the agreement of a recipe on data; without it the agreement is predicted from the weights.
        Warns if compression gains too little.
        """
        n_features = weights.shape[1]
        sizes = self._sizes(n_features)

        @lru_cache
        def made(size: int | None) -> Recipe:
            return self.family.for_weights(weights, **self.sized(n_features, size))

        if not sizes:
            recipe, choice = made(None), None
        else:
            choice = _choose(sizes, made, weights, shortlist or 1, measured)
            recipe = made(choice.size)
        coding = recipe.weight_coding()
        if choice is not None and not choice.reached:
            warn(
                f'n_bits="auto" found no size that reaches {TARGET:.0%} agreement: the best, {coding.size}, is '
                f"expected to agree on {choice.agreement:.1%} ({choice.basis}); keep a shortlist, or leave this head "
                "as it is",
                SizeWarning,
            )
        elif shortlist is None and (text := coding.size_warning()):
            warn(text, SizeWarning)
        return recipe, choice

    def _sizes(self, n_features: int) -> list[int]:
        return self.family.weight_sizes(n_features, **self.options) if self.automatic else []

    def sized(self, n_features: int, size: int | None = None) -> dict[str, Any]:
        """Return the options of :meth:`topsign.families.Recipe.for_weights`; ``size`` is the automatic one."""
        if self.automatic:
            return self.options if size is None else self.options | {self.family.size_name: size}
        if "bits_per_weight" not in self._given:
            return self.options | self._given
        bits = check_positive(self._given["bits_per_weight"], "bits_per_weight", maximum=32) * n_features
        if bits < 8 * (FACTOR_BYTES + 1):
            raise ValueError(f"a weight vector takes at least 3 bytes, two of them its scale, got {self.size}")
        return self.options | {"n_bytes": int(bits // 8) - FACTOR_BYTES}


def _choose(
    sizes: list[int],
    made: Callable[[int], Recipe],
    weights: Array,
    shortlist: int,
    measured: Callable[[Recipe], float] | None,
) -> SizeChoice:
    """Return the smallest size that reaches the target, measured on data if given, otherwise predicted."""
    if measured is not None:
        return choose(sizes, lambda size: measured(made(size)), "data")
    error: Callable[[int], float] = lambda size: made(size).weight_coding().error(weights)  # noqa: E731
    return choose(sizes, simulated_agreement(weights, error, shortlist=shortlist), "theory")


def empty_weights(n_features: int) -> Array:
    """Return no rows, for recipes that learn nothing from weight vectors."""
    return np.empty((0, n_features), np.float32)
