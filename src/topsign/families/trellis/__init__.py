"""Trellis codes: tail-biting trellis-coded quantisation, in which each coordinate reads a window of a ring of bits."""

from .codes import TrellisCodes
from .recipe import TrellisRecipe

__all__ = ["TrellisCodes", "TrellisRecipe"]
