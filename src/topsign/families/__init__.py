"""Code families: the contract (:class:`Recipe`), the registry, and one module or package per family."""

from __future__ import annotations

from ..codes import Codes, message_parts
from ..errors import StorageError
from .adaptive import AdaptiveCodes, AdaptiveRecipe
from .base import METRICS, SCORINGS, Recipe, check_parameters, family_type
from .comparison import Comparison, Gather, Null, PairComparison, Pairing, unit_queries
from .signs import GroupedCodes, GroupedRecipe, SignCodes, SignRecipe
from .trellis import TrellisCodes, TrellisRecipe
from .weight_encoder import Logits

__all__ = [
    "METRICS",
    "SCORINGS",
    "AdaptiveCodes",
    "AdaptiveRecipe",
    "Comparison",
    "Gather",
    "GroupedCodes",
    "GroupedRecipe",
    "Logits",
    "Null",
    "PairComparison",
    "Pairing",
    "Recipe",
    "SignCodes",
    "SignRecipe",
    "TrellisCodes",
    "TrellisRecipe",
    "check_parameters",
    "family_type",
    "read_codes",
    "unit_queries",
]


def read_codes(message: bytes) -> Codes:
    """Parse a ``message`` of :meth:`topsign.Codes.to_bytes`; raise StorageError if it is invalid or damaged."""
    record, n_codes, packed = message_parts(message)
    recipe = Recipe.from_json(record, "message")
    try:
        return recipe.codes_type(recipe.unpack(packed, n_codes), recipe=recipe)
    except ValueError as error:
        raise StorageError("message", "codes", f"damaged: {error}") from None
