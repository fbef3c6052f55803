"""Opening a durable index without knowing what it is."""

from __future__ import annotations

import os
from typing import Any

from .._checks import check_flag, check_timeout
from ..recipe import Recipe
from .adaptive import AdaptiveIndex
from .sign import SignIndex


def open_index(
    path: str | os.PathLike[str], *, readonly: bool = False, timeout: float | None = None
) -> AdaptiveIndex | SignIndex:
    """The index in a file, of the kind and with the parameters that it was made with.

    Parameters
    ----------
    path : path
    readonly : bool
        Refuse changes; the file and its folder may then be read-only too.
    timeout : float, optional
        Seconds that a change waits for another writer of the file, then TimeoutError; None waits as long as it takes.

    Raises
    ------
    StorageError
        Where there is no index, a damaged one, or one that this version of the library cannot read.
    """
    from .file import FileStore

    store = FileStore(path, readonly=check_flag(readonly, "readonly"), timeout=check_timeout(timeout))
    index = index_from_recipe(Recipe.from_json(store.header, store.path))
    index._use(store)
    return index


def index_from_recipe(recipe: Recipe) -> AdaptiveIndex | SignIndex:
    """An empty index in memory whose codes are made with this recipe."""
    shape = {"n_features": recipe.n_features, "n_pool": recipe.n_pool, "projection": recipe.projection}
    same: dict[str, Any] = {"metric": recipe.metric, "norms": recipe.norms, **shape}
    if recipe.family == "adaptive":
        return AdaptiveIndex(n_bits=recipe.n_bits, layout=recipe.layout.name, **same)
    return SignIndex(**same)
