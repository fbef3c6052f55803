"""Records that a store keeps among its sources: the names of the features."""

from __future__ import annotations

from collections.abc import Sequence

from .._checks import check_feature_names
from ..store import Change

FEATURES = "topsign:features"
"""Name under which a store keeps the names of the features among its sources."""


def keep_feature_names(change: Change, names: Sequence[str] | None) -> None:
    """Keep the names of the columns of the first table; others that came meanwhile must agree with them."""
    if names is not None:
        kept = change.sources.setdefault(FEATURES, {"names": list(names)})
        check_feature_names(names, kept["names"], "signals")
