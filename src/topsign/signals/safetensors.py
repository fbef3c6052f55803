"""Signals in safetensors files: mapped where the file is local."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from .._arrays import Array
from .._rows import Rows
from ..errors import StorageError
from . import npy
from .contents import Described, choose, described, reading
from .place import Place

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}
DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}


def describe(place: Place, array: str | None, aside: Sequence[str] = ()) -> Described:
    """Shape and type of the tensor chosen."""
    with place.open() as file:
        chosen, _, shape, dtype = _tensor(place, file, array)
    return described(place, shape, dtype, chosen)


def rows(place: Place, array: str | None, aside: Sequence[str] = ()) -> Array | Rows:
    """The signals."""
    with ExitStack() as opened:
        file = opened.enter_context(place.open())
        _, offset, shape, dtype = _tensor(place, file, array)
        if place.is_local:
            return npy.mapped(place, offset, shape, False, dtype)
        return npy.raw_rows(place, file, offset, shape, False, dtype, opened)


def _tensor(place: Place, file: Any, wanted: str | None) -> tuple[str, int, tuple[int, ...], np.dtype[Any]]:
    """Name, offset, shape and type of a tensor."""
    n_bytes, _ = place.state()
    with reading(place, "header"):
        (size,) = struct.unpack("<Q", file.read(8))
        if size > n_bytes:
            raise ValueError("not a safetensors file")
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
    chosen = choose(place, list(header), wanted, "tensor")
    with reading(place, chosen):
        tensor = header[chosen]
        kind, shape, offset = tensor["dtype"], tuple(map(int, tensor["shape"])), 8 + size + tensor["data_offsets"][0]
    if kind not in DTYPES:
        raise StorageError(place.url, chosen, f"dtype {kind} cannot be read; convert it to F32 first")
    return chosen, offset, shape, np.dtype(DTYPES[kind])
