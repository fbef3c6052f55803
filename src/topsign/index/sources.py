"""Records that a store keeps among its sources: the names of the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._checks import check_feature_names
from .._files import Record
from ..errors import StorageError
from ..store import Change

OWN = "topsign:"
"""Prefix of the names of records that are not sources of signals."""

FEATURES = "topsign:features"
"""Name under which a store keeps the names of the features among its sources."""


def kept_feature_names(sources: Mapping[str, Record], n_features: int, path: str | None) -> tuple[str, ...] | None:
    """Return the names of the features that a store keeps, None if it keeps none; StorageError unless they are such."""
    if FEATURES not in sources:
        return None
    names = sources[FEATURES].get("names")
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise StorageError(path or "memory", FEATURES, f"damaged: {n_features} names of features expected")
    return tuple(names)


def keep_feature_names(change: Change, names: Sequence[str] | None) -> None:
    """Keep the names of the columns of the first table; others that came meanwhile must agree with them."""
    if names is not None:
        kept = change.sources.setdefault(FEATURES, {"names": list(names)})
        check_feature_names(names, kept["names"], "signals")
