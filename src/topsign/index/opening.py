"""Opening and making indexes: ``open_index``, and an empty index of a recipe."""

from __future__ import annotations

from .._checks import check_flag
from ..errors import StorageError
from ..families import Recipe
from ..store import Path, exists, open_store, store_for_recipe
from .index import Index


def open_index(
    path: Path,
    *,
    readonly: bool = False,
    timeout: float | None = None,
    version: int | None = None,
    keep_versions: int = 1,
) -> Index:
    """Open the index in a folder with the recipe that it was made with.

    Parameters
    ----------
    path : path or URL
        A folder, or a prefix in an object store that fsspec reaches (``s3://bucket/photos.topsign``).
    readonly : bool
        Refuse changes; the folder may then be on read-only media.
    timeout : float, optional
        Seconds that a change waits for another writer, then TimeoutError; None waits as long as it takes.
    version : int, optional
        Open this version, read-only, if it is still kept (:meth:`Index.versions`); the newest by default.
    keep_versions : int
        Versions that are kept after a change of this index, the newest included.

    Raises
    ------
    StorageError
        If there is no index, a damaged one, or one that this version of the library cannot read.
    """
    store = open_store(
        path,
        readonly=check_flag(readonly, "readonly"),
        timeout=timeout,
        version=version,
        keep_versions=keep_versions,
    )
    assert store.recipe is not None
    return Index(store.recipe, store)


def index_for(recipe: Recipe, *, path: Path | None = None, timeout: float | None = None) -> Index:
    """Return an index without entries whose codes are made with this recipe, in a new folder if a path is given."""
    if path is not None and exists(path):
        raise StorageError(path, "index", "exists already; choose another name, or remove it first")
    return Index(recipe, store_for_recipe(recipe, path=path, timeout=timeout))
