"""Code families: the contract (:class:`Recipe`), the registry, and one module or package per family."""

from __future__ import annotations

from ..codes import Codes, message_parts
from ..errors import StorageError
from .adaptive import AdaptiveCodes as AdaptiveCodes
from .adaptive import AdaptiveRecipe as AdaptiveRecipe
from .base import METRICS as METRICS
from .base import SCORINGS as SCORINGS
from .base import Recipe as Recipe
from .base import check_parameters as check_parameters
from .base import family_type as family_type
from .comparison import Comparison as Comparison
from .comparison import Gather as Gather
from .comparison import Null as Null
from .comparison import PairComparison as PairComparison
from .comparison import Pairing as Pairing
from .comparison import unit_queries as unit_queries
from .signs import GroupedCodes as GroupedCodes
from .signs import GroupedRecipe as GroupedRecipe
from .signs import SignCodes as SignCodes
from .signs import SignRecipe as SignRecipe
from .trellis import TrellisCodes as TrellisCodes
from .trellis import TrellisRecipe as TrellisRecipe
from .weight_encoder import Logits as Logits


def read_codes(message: bytes) -> Codes:
    """Parse a ``message`` of :meth:`topsign.Codes.to_bytes`; raise StorageError if it is invalid or damaged."""
    record, n_codes, packed = message_parts(message)
    recipe = Recipe.from_json(record, "message")
    try:
        return recipe.codes_type(recipe.unpack(packed, n_codes), recipe=recipe)
    except ValueError as error:
        raise StorageError("message", "codes", f"damaged: {error}") from None
