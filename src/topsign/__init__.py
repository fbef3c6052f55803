"""Binary codes of signals that adapt to each signal: random projections, the largest kept, their signs.

Names are imported when they are first asked for: ``import topsign`` itself takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import export, kernels, projections, theory
    from .classify import AdaptiveLinearClassifier, CompressionReport, SignLinearClassifier, UniversalLinearClassifier
    from .codes import AdaptiveCodes, hamming, query_bits
    from .embeddings import AdaptiveEmbedding, AdaptiveEncoder, SignEmbedding, UniversalEmbedding
    from .errors import StorageError
    from .index import AdaptiveIndex, Entries, Matches, Neighbors, SignIndex, open_index
    from .projections import make_projection

__all__ = [
    "AdaptiveCodes",
    "AdaptiveEmbedding",
    "AdaptiveEncoder",
    "AdaptiveIndex",
    "AdaptiveLinearClassifier",
    "CompressionReport",
    "Entries",
    "Matches",
    "Neighbors",
    "SignEmbedding",
    "SignIndex",
    "SignLinearClassifier",
    "StorageError",
    "UniversalEmbedding",
    "UniversalLinearClassifier",
    "export",
    "hamming",
    "kernels",
    "make_projection",
    "open_index",
    "projections",
    "query_bits",
    "theory",
]

__version__ = "0.1.0"

# Not among __all__: nn needs PyTorch, distributed needs Dask.
_MODULES = ("distributed", "export", "kernels", "nn", "projections", "theory")
_HOMES = {
    "errors": ("StorageError",),
    "classify": (
        "AdaptiveLinearClassifier",
        "CompressionReport",
        "SignLinearClassifier",
        "UniversalLinearClassifier",
    ),
    "codes": ("AdaptiveCodes", "hamming", "query_bits"),
    "embeddings": ("AdaptiveEmbedding", "AdaptiveEncoder", "SignEmbedding", "UniversalEmbedding"),
    "index": ("AdaptiveIndex", "Entries", "Matches", "Neighbors", "SignIndex", "open_index"),
    "projections": ("make_projection",),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
