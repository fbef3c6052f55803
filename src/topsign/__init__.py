"""Binary codes of signals that adapt to each signal: random projections, the largest kept, their signs."""

from __future__ import annotations

from typing import Any

from . import kernels, projections, theory
from ._checks import StorageError
from .classify import AdaptiveLinearClassifier, CompressionReport, SignLinearClassifier, UniversalLinearClassifier
from .codes import AdaptiveCodes, hamming, query_bits
from .embeddings import AdaptiveEmbedding, AdaptiveEncoder, SignEmbedding, UniversalEmbedding
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
    "hamming",
    "kernels",
    "make_projection",
    "open_index",
    "projections",
    "query_bits",
    "theory",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``topsign.nn`` needs PyTorch, ``topsign.distributed`` Dask; they are imported when first asked for."""
    if name in ("nn", "distributed"):
        from importlib import import_module

        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
