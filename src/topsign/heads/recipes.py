"""Recipes of heads: adaptive codes of a size given or found, or trellis codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import check_choice, check_count
from .._random import RandomState, make_seed
from ..learning import learn_recipe
from ..projections import Projection
from ..recipe import Recipe
from .advice import Choice, sized_recipe, sized_trellis, warn_of_size

CODES = ("adaptive", "trellis")


def head_recipe(
    codes: str,
    weights: Array,
    *,
    n_bits: int | str,
    n_pool: int | None,
    projection: str | Projection,
    layout: str,
    random_state: RandomState,
    shortlist: int | None = None,
) -> Recipe:
    """What weight vectors are coded with; warns where that does not pay."""
    if check_choice(codes, "codes", CODES) == "trellis":
        options: Any = {"n_pool": n_pool, "projection": projection, "layout": layout, "random_state": random_state}
        if n_bits == "auto":
            return automatic_trellis(weights, **options, shortlist=shortlist or 1)[0]
        return trellis_recipe(weights, n_bits=n_bits, **options)
    recipe = Recipe.make(
        "adaptive",
        n_features=weights.shape[1],
        n_bits=1 if n_bits == "auto" else check_count(n_bits, "n_bits"),
        n_pool=n_pool,
        projection=projection,
        layout=layout,
        random_state=random_state,
    )
    if n_bits == "auto":
        return sized_recipe(recipe, weights, shortlist=shortlist or 1)[0]
    if shortlist is None:
        warn_of_size(recipe.n_features, recipe.layout)
    return recipe


def trellis_recipe(
    weights: Array,
    *,
    n_bits: int | str,
    n_pool: int | None = None,
    projection: str | Projection = "hadamard",
    layout: str = "compact",
    random_state: RandomState = None,
) -> Recipe:
    """A recipe of trellis codes: ``n_bits`` bits per weight vector, and two bytes for its scale.

    Over a random basis, or principal axes that are learned from the weights and kept with the head.
    """
    if n_pool not in (None, weights.shape[1]) or layout not in ("compact", "trellis"):
        raise ValueError(f'n_pool and layout do not go with codes="trellis", got n_pool={n_pool}, layout={layout!r}')
    return learn_recipe(
        weights,
        n_bits=check_count(n_bits, "n_bits"),
        basis=projection,
        center=projection == "principal",
        norms=True,
        fine=False,
        random_state=random_state,
    )


def automatic_trellis(
    weights: Array,
    *,
    projection: str | Projection,
    random_state: RandomState,
    shortlist: int = 1,
    measured: Callable[[Recipe], float] | None = None,
    **options: Any,
) -> tuple[Recipe, Choice]:
    """A recipe of trellis codes of the size that the automatic choice finds, and the choice.

    All sizes have the same seed. Over principal axes, axes are learned for each size that is tried.
    """
    seed = random_state if isinstance(projection, Projection) else make_seed(random_state)
    rows = weights if projection == "principal" else no_weights(weights.shape[1])

    def learned(n_bits: int) -> Recipe:
        return trellis_recipe(rows, n_bits=n_bits, projection=projection, random_state=seed, **options)

    return sized_trellis(learned, weights, shortlist=shortlist, measured=measured)


def no_weights(n_features: int) -> Array:
    """Rows to make a recipe for that learns nothing from them."""
    return np.empty((0, n_features), np.float32)


def shared_nbytes(recipe: Recipe) -> int:
    """Bytes of what a recipe has learned, which every prediction needs."""
    if recipe.mean is None or not recipe.designs:
        return 0
    axes = getattr(recipe.projection, "axes", np.empty(0, np.int8))
    return int(axes.nbytes + recipe.mean.nbytes + 12 * sum(design.n_coded for design in recipe.designs))
