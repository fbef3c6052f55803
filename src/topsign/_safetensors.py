"""Parser and writer of safetensors files: a JSON header that names tensors, followed by their bytes.

Signal files, stored indexes and the weights of heads share this parser. It accepts the published format (tensors that
cover the data without gaps) and checks every bound before it reads or allocates anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._arrays import Array
from ._files import parse_json

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}
DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}
KINDS = {np.dtype(text): kind for kind, text in DTYPES.items()}
_TYPES = {kind: dtype for dtype, kind in KINDS.items()}

MAX_HEADER_BYTES = 100_000_000
"""Maximum header size of the published format, in bytes."""


@dataclass(frozen=True)
class Tensor:
    """Dtype, shape and byte range of a tensor; offsets count from the beginning of the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy dtype, or None if NumPy lacks it (BF16, for example)."""
        return _TYPES.get(self.kind)

    def view(self, content: Any) -> Array:
        """Return the tensor as a view of the file's bytes."""
        tensor: Array = content[self.start : self.stop].view(_TYPES[self.kind]).reshape(self.shape)
        return tensor


@dataclass(frozen=True)
class Header:
    """Tensors by name, and the file's metadata strings."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def header_size(prefix: bytes, n_bytes: int) -> int:
    """Return the size of the JSON header from the first eight bytes; raise ValueError if it exceeds the file."""
    size = int.from_bytes(prefix[:8], "little")
    if len(prefix) < 8 or size < 2 or size > min(n_bytes - 8, MAX_HEADER_BYTES):
        raise ValueError("not a safetensors file")
    return size


def parse_header(text: bytes, n_bytes: int) -> Header:
    """Parse the JSON header of a file of ``n_bytes``; raise ValueError if it does not describe exactly these bytes."""
    record = parse_json(text)
    if not isinstance(record, dict):
        raise ValueError("the header is not a JSON object")
    metadata = record.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ must be an object of strings")
    tensors = {name: _tensor(name, one, 8 + len(text)) for name, one in record.items()}
    end = 8 + len(text)
    for tensor in sorted(tensors.values(), key=lambda one: (one.start, one.stop)):
        if tensor.start != end:
            raise ValueError(f"tensors overlap or leave a gap at byte {end}")
        end = tensor.stop
    if end != n_bytes:
        raise ValueError(f"the tensors end at byte {end}, the file has {n_bytes}")
    return Header(tensors, metadata)


def _tensor(name: str, record: Any, start: int) -> Tensor:
    if not isinstance(record, dict) or record.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} must have dtype, shape and data_offsets")
    kind, shape, offsets = record["dtype"], record["shape"], record["data_offsets"]
    if not isinstance(kind, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} has a malformed dtype, shape or data_offsets")
    tensor = Tensor(kind, tuple(shape), start + offsets[0], start + offsets[1])
    n_bytes = offsets[1] - offsets[0]
    if n_bytes < 0 or (tensor.dtype is not None and n_bytes != math.prod(shape) * tensor.dtype.itemsize):
        raise ValueError(f"tensor {name!r} of {kind} and shape {tuple(shape)} does not take {n_bytes} bytes")
    return tensor


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def pack_header(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the header bytes of a file with these arrays in this order, padded to a multiple of eight."""
    record: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, array in arrays.items():
        kind = KINDS[array.dtype.newbyteorder("<")]
        record[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(record, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
