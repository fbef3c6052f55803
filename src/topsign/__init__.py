"""Binary codes of signals that adapt to each signal: random projections, the largest kept, their signs."""

from __future__ import annotations

from . import kernels, projections, theory
from ._checks import StorageError
from .codes import AdaptiveCodes, hamming, query_bits
from .embeddings import AdaptiveEmbedding, AdaptiveEncoder, SignEmbedding, UniversalEmbedding
from .index import AdaptiveIndex, Entries, Matches, Neighbors, SignIndex, open_index
from .projections import make_projection

__all__ = [
    "AdaptiveCodes",
    "AdaptiveEmbedding",
    "AdaptiveEncoder",
    "AdaptiveIndex",
    "Entries",
    "Matches",
    "Neighbors",
    "SignEmbedding",
    "SignIndex",
    "StorageError",
    "UniversalEmbedding",
    "hamming",
    "kernels",
    "make_projection",
    "open_index",
    "projections",
    "query_bits",
    "theory",
]

__version__ = "0.1.0"
