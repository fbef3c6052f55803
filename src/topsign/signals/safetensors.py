"""Signals in safetensors files, memory-mapped if the file is local."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from .._arrays import Array
from .._rows import Rows
from .._safetensors import read_header
from ..errors import StorageError
from . import npy
from .contents import Described, choose, described, reading
from .place import Place


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Return shape and dtype of the chosen tensor."""
    with place.open() as file:
        chosen, _, shape, dtype = _tensor(place, file, array)
    return described(place, shape, dtype, chosen)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """Return the signals."""
    with ExitStack() as opened:
        file = opened.enter_context(place.open())
        _, offset, shape, dtype = _tensor(place, file, array)
        if place.is_local:
            return npy.mapped(place, offset, shape, False, dtype)
        return npy.raw_rows(place, file, offset, shape, False, dtype, opened)


def _tensor(place: Place, file: Any, wanted: str | None) -> tuple[str, int, tuple[int, ...], np.dtype[Any]]:
    """Return name, offset, shape and dtype of the chosen tensor."""
    n_bytes, _ = place.state()
    with reading(place, "header"):
        tensors = read_header(file, n_bytes).tensors
    chosen = choose(place, list(tensors), wanted, "tensor")
    tensor = tensors[chosen]
    if tensor.dtype is None:
        raise StorageError(place.url, chosen, f"dtype {tensor.kind} cannot be read; convert it to F32 first")
    return chosen, tensor.start, tensor.shape, tensor.dtype
