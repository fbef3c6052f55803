"""Encoding on devices: coders of the optional extensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .._extensions import load_extension
from ..encoding import Coder
from ..families import Recipe

CoderOf = Callable[[Recipe], Coder]


def coder_for(device: str | None, recipe: Recipe | type[Recipe]) -> CoderOf | None:
    """Return what makes a coder for a device, None for the processor.

    What a device cannot do is refused here, before anything is learned: for a recipe, or a type if it is not known yet.
    """
    if device is None:
        return None
    gpu = load_extension("gpu")
    gpu.check_coder(recipe, device)
    made: CoderOf = lru_cache(maxsize=1)(lambda known: gpu.make_coder(known, device))
    return made
