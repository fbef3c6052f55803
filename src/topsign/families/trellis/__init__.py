"""Trellis codes: a ring of bits per signal, from which every coordinate reads a window."""

from .codes import TrellisCodes
from .recipe import TrellisRecipe

__all__ = ["TrellisCodes", "TrellisRecipe"]
