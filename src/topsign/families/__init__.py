"""Code families: the contract (:class:`Recipe`), the registry, and one module or package per family."""

from __future__ import annotations

from ..codes import Codes, message_parts
from ..errors import StorageError
from .adaptive import AdaptiveRecipe
from .base import METRICS, SCORINGS, Encoded, Recipe
from .comparison import (
    CodeColumns,
    Comparison,
    Gather,
    Null,
    PairComparison,
    Pairing,
    Range,
    RegionRange,
    RegionRanges,
    Visits,
)
from .decoded import unit_queries
from .sign import SignRecipe
from .sign_codes import AdaptiveCodes, SignCodes
from .trellis import TrellisCodes, TrellisRecipe
from .weight_coding import Logits, WeightCoding

__all__ = [
    "METRICS",
    "SCORINGS",
    "AdaptiveCodes",
    "AdaptiveRecipe",
    "CodeColumns",
    "Comparison",
    "Encoded",
    "Gather",
    "Logits",
    "Null",
    "PairComparison",
    "Pairing",
    "Range",
    "Recipe",
    "RegionRange",
    "RegionRanges",
    "SignCodes",
    "SignRecipe",
    "TrellisCodes",
    "TrellisRecipe",
    "Visits",
    "WeightCoding",
    "read_codes",
    "unit_queries",
]


def read_codes(message: bytes) -> Codes:
    """Parse a message of :meth:`topsign.Codes.to_bytes`; raise StorageError if it is invalid or damaged."""
    import numpy as np

    record, n_codes, rest = message_parts(message)
    recipe = Recipe.from_json(record, "message")
    shape = len(recipe.column_names), n_codes
    n_reals = shape[0] * n_codes
    if 4 * n_reals > len(rest):
        raise StorageError("message", "codes", f"damaged: {n_codes} codes expected, but the message ends before them")
    try:
        columns = np.frombuffer(rest, "<f4", n_reals).astype(np.float32).reshape(shape)
        data = recipe.unpack(rest[4 * n_reals :], n_codes)
        return recipe.codes_type(data, recipe=recipe, columns=dict(zip(recipe.column_names, columns, strict=True)))
    except ValueError as error:
        raise StorageError("message", "codes", f"damaged: {error}") from None
