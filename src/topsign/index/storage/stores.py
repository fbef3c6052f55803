"""Choice of a store: in memory, in a new file, or in a file that exists."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..._checks import check_count, check_real
from ...recipe import Recipe, check_mean
from .memory import MemoryStore, Store

if TYPE_CHECKING:
    from .lmdb_store import FileStore  # LMDB is imported by the first durable index

Path = str | os.PathLike[str]


def make_store(
    family: str, *, path: Path | None, timeout: float | None, center: bool | npt.ArrayLike = False, **parameters: Any
) -> tuple[Recipe, Store]:
    """The recipe and the store that the parameters of an index's constructor ask for.

    Where the file exists, ``n_bits="auto"``, ``n_pool=None``, ``random_state=None`` and ``center=True`` mean the
    file's, and all else must agree. A file that another process makes at the same moment is joined in the same way.
    With ``center=True`` and no file, the store is in memory until the mean is known.
    """
    n_features = check_count(parameters["n_features"], "n_features", minimum=2)
    learned = isinstance(center, (bool, np.bool_)) and bool(center)
    parameters["mean"] = None if isinstance(center, (bool, np.bool_)) else check_mean(center, n_features)
    made = None
    if path is None or not os.path.lexists(path):
        if learned:
            check_place(path, timeout)
            return Recipe.make(family, **parameters), MemoryStore()
        made = Recipe.make(family, **parameters)
        store = store_for_recipe(made, path=path, timeout=timeout)
        if isinstance(store, MemoryStore):
            return made, store
    else:
        store = open_file(path, readonly=False, timeout=timeout)
    stored = store.recipe
    if learned:
        if stored.mean is None:
            raise ValueError(
                f"{store.path} was written with center=False, got center=True; topsign.open_index takes what it has"
            )
        parameters["mean"] = stored.mean
    if stored.family != family:
        what = f"kind={stored.family!r}, got kind={family!r}"
        raise ValueError(f"{store.path} was written with {what}; topsign.open_index takes what the file has")
    if made is None or parameters["random_state"] is None:
        named = isinstance(parameters["projection"], str)  # a projection made beforehand has its own seed
        parameters["n_pool"] = stored.n_pool if parameters["n_pool"] is None else parameters["n_pool"]
        if parameters.get("n_bits") == "auto" and parameters["n_bytes"] is None:
            parameters["n_bits"] = stored.n_bits
        if parameters["random_state"] is None and named:
            parameters["random_state"] = stored.seed
        made = Recipe.make(family, **parameters)
    check_equal(store, made)
    return stored, store


def store_for_recipe(recipe: Recipe, *, path: Path | None, timeout: float | None) -> MemoryStore | FileStore:
    """A new store for codes of this recipe; a file that another process makes at the same moment is opened."""
    check_place(path, timeout)
    if path is None:
        return MemoryStore()
    from .lmdb_store import FileStore

    FileStore.create(path, recipe)
    return open_file(path, readonly=False, timeout=timeout)


def check_place(path: Path | None, timeout: float | None) -> None:
    """Raises where no store can be made here: a timeout without a file, or a file without a folder."""
    if path is None:
        if timeout is not None:
            raise ValueError(f"timeout is for a file that others may write, got timeout={timeout!r} without a path")
        return
    from .lmdb_new_file import check_folder

    check_folder(os.path.realpath(path))
    _check_timeout(timeout)


def _check_timeout(timeout: float | None) -> float | None:
    return None if timeout is None else check_real(timeout, "timeout", minimum=0)


def open_file(path: Path, *, readonly: bool, timeout: float | None) -> FileStore:
    """The store in a file that exists."""
    from .lmdb_store import FileStore

    return FileStore(path, readonly=readonly, timeout=_check_timeout(timeout))


def check_equal(store: FileStore, wanted: Recipe) -> None:
    """Raises ValueError unless the codes of a file are made with this recipe."""
    have, want = store.recipe.difference(wanted)
    if have:
        raise ValueError(
            f"{store.path} was written with {have}, got {want}; topsign.open_index takes what the file has"
        )
