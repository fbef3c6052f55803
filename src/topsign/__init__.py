"""Compact codes for high-dimensional signals: detection, search and classification on the codes.

Public names are imported at their first use, so ``import topsign`` takes only milliseconds.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

__version__ = "0.1.0"

# Each public name and the module that defines it. nn needs PyTorch, distributed needs Dask, cameras needs Pillow.
_HOMES = {
    **dict.fromkeys(("cameras", "distributed", "export", "families", "gpu", "heads", "kernels", "nn"), ""),
    **dict.fromkeys(("plots", "projections", "signals", "significance", "testing", "theory"), ""),
    **dict.fromkeys(("Codes", "hamming", "query_bits"), "codes"),
    **dict.fromkeys(("AdaptiveEmbedding", "SignEmbedding", "UniversalEmbedding"), "embeddings"),
    **dict.fromkeys(("Encoder",), "encoders"),
    **dict.fromkeys(("CalibrationWarning", "ConflictError", "StorageError"), "errors"),
    **dict.fromkeys(("Evaluation", "evaluate"), "evaluation"),
    **dict.fromkeys(("Head",), "heads"),
    **dict.fromkeys(("CompressedLinearClassifier", "CompressionReport"), "heads.classifier"),
    **dict.fromkeys(("Entries", "Entry", "Index", "Match", "Matches", "Neighbors", "Pairs", "open_index"), "index"),
    **dict.fromkeys(("threads",), "kernels"),
    **dict.fromkeys(("make_projection",), "projections"),
    **dict.fromkeys(
        ("AdaptiveCodes", "GroupedCodes", "GroupedRecipe", "Recipe", "SignCodes", "TrellisCodes", "read_codes"),
        "families",
    ),
}

__all__ = sorted(set(_HOMES) - {"cameras", "distributed", "nn"})  # a star import needs no extra

if _TYPE_CHECKING:  # the same names, for type checkers; a test compares them
    from . import cameras as cameras
    from . import distributed as distributed
    from . import export as export
    from . import families as families
    from . import gpu as gpu
    from . import heads as heads
    from . import kernels as kernels
    from . import nn as nn
    from . import plots as plots
    from . import projections as projections
    from . import signals as signals
    from . import significance as significance
    from . import testing as testing
    from . import theory as theory
    from .codes import Codes as Codes
    from .codes import hamming as hamming
    from .codes import query_bits as query_bits
    from .embeddings import AdaptiveEmbedding as AdaptiveEmbedding
    from .embeddings import SignEmbedding as SignEmbedding
    from .embeddings import UniversalEmbedding as UniversalEmbedding
    from .encoders import Encoder as Encoder
    from .errors import CalibrationWarning as CalibrationWarning
    from .errors import ConflictError as ConflictError
    from .errors import StorageError as StorageError
    from .evaluation import Evaluation as Evaluation
    from .evaluation import evaluate as evaluate
    from .families import AdaptiveCodes as AdaptiveCodes
    from .families import GroupedCodes as GroupedCodes
    from .families import GroupedRecipe as GroupedRecipe
    from .families import Recipe as Recipe
    from .families import SignCodes as SignCodes
    from .families import TrellisCodes as TrellisCodes
    from .families import read_codes as read_codes
    from .heads import Head as Head
    from .heads.classifier import CompressedLinearClassifier as CompressedLinearClassifier
    from .heads.classifier import CompressionReport as CompressionReport
    from .index import Entries as Entries
    from .index import Entry as Entry
    from .index import Index as Index
    from .index import Match as Match
    from .index import Matches as Matches
    from .index import Neighbors as Neighbors
    from .index import Pairs as Pairs
    from .index import open_index as open_index
    from .kernels import threads as threads
    from .projections import make_projection as make_projection


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    value = _import_module(f".{home or name}", __name__)
    value = globals()[name] = getattr(value, name) if home else value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
