"""Opening a durable index without knowing what it is."""

from __future__ import annotations

import os
from typing import Any

from .._checks import StorageError, check_flag, check_timeout
from ..projections import make_projection
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
    header = store.header
    if header["kind"] not in ("adaptive", "sign"):
        raise StorageError(store.path, "header", f"an index of kind {header['kind']!r}; this version has none such")
    index = made_index(header)
    index._use(store)
    return index


def made_index(parameters: dict[str, Any]) -> AdaptiveIndex | SignIndex:
    """An empty index with the parameters that a file or a shard records."""
    shape = {"n_features": parameters["n_features"], "n_pool": parameters["n_pool"]}
    projection = make_projection(parameters["projection"], seed=parameters["seed"], **shape, **parameters["options"])
    same = {"projection": projection, "metric": parameters["metric"], "norms": parameters["norms"], **shape}
    if parameters["kind"] == "adaptive":
        return AdaptiveIndex(n_bits=parameters["n_bits"], layout=parameters["layout"], **same)
    return SignIndex(**same)
