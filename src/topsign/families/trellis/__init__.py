"""Trellis codes: a ring of nibbles, of which each step reads two and looks up its coordinates in a codebook."""

from .recipe import TrellisCodes, TrellisRecipe

__all__ = ["TrellisCodes", "TrellisRecipe"]
