"""Adaptive codes as one message near the entropy bound, for the wire and for archives."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from typing import NoReturn

import numpy as np

from .. import kernels
from .._arrays import Bytes, Float32
from .._checks import check_pool
from ..errors import StorageError
from ..kernels import LAYOUTS, Layout

MAGIC = b"TSAC"
FORMAT = 1
HEADER = struct.Struct("<4sBBBxIIQI")  # magic, format, layout, norms kept, n_bits, n_pool, n_codes, set bytes


def pack_message(layout: Layout, data: Bytes, norms: Float32 | None, scales: Float32 | None) -> bytes:
    """A header, norms and scales where they are kept, signs, sets of locations, and a checksum."""
    locations, signs = kernels.active().unpack_codes(layout, data)
    capacity = _entropy_bytes(layout.n_bits, layout.n_pool) + 16
    sets, lengths = kernels.active().encode_sets(locations, layout.n_pool, capacity, n_threads=kernels.n_threads(None))
    set_bytes = int(lengths.max(initial=0))  # every set costs the same, up to a byte or two
    header = HEADER.pack(
        MAGIC,
        FORMAT,
        LAYOUTS.index(layout.name),
        norms is not None,
        layout.n_bits,
        layout.n_pool,
        len(data),
        set_bytes,
    )
    reals = [] if norms is None or scales is None else [norms, scales]
    parts = [*(part.astype("<f4") for part in reals), signs, sets[:, :set_bytes]]
    body = header + b"".join(part.tobytes() for part in parts)
    return body + struct.pack("<I", zlib.crc32(body))


def unpack_message(message: bytes) -> tuple[Layout, Bytes, Float32 | None, Float32 | None]:
    """What :func:`pack_message` packed: layout, codes, norms and scales; StorageError where it is anything else."""
    if len(message) < HEADER.size + 4 or message[:4] != MAGIC:
        _fail(
            f"not adaptive codes: expected {MAGIC!r} and at least {HEADER.size + 4} bytes, "
            f"got {bytes(message[:4])!r} and {len(message)} bytes"
        )
    _, version, layout, with_norms, n_bits, n_pool, n_codes, set_bytes = HEADER.unpack_from(message)
    if version != FORMAT:
        _fail(f"adaptive codes of format {version}; this version reads format {FORMAT}")
    stored, computed = struct.unpack("<I", message[-4:])[0], zlib.crc32(message[:-4])
    if stored != computed:
        _fail(f"damaged: checksum {stored:08x} stored, {computed:08x} computed over {len(message)} bytes")
    try:
        check_pool(n_bits, n_pool)
    except ValueError as error:
        _fail(str(error))
    if layout >= len(LAYOUTS):
        _fail(f"layout number {layout}; this version has {len(LAYOUTS)}")
    shape = Layout(LAYOUTS[layout], n_bits, n_pool)
    # Every set of locations takes about its entropy, so that codes are never much larger than their message.
    least = _entropy_bytes(n_bits, n_pool) - 2
    if n_codes and not least <= set_bytes <= least + 32:
        _fail(f"damaged: sets of {n_bits} out of {n_pool} locations cannot take {set_bytes} bytes each")
    sizes = [4 * n_codes, 4 * n_codes] if with_norms else []
    sizes += [n_codes * shape.sign_bytes, n_codes * set_bytes]
    if HEADER.size + sum(sizes) + 4 != len(message):
        _fail(f"damaged: {n_codes} codes need {HEADER.size + sum(sizes) + 4} bytes, got {len(message)}")
    cuts = np.cumsum([HEADER.size, *sizes])
    parts = [message[start:end] for start, end in pairwise(cuts)]
    sets = np.frombuffer(parts[-1], np.uint8).reshape(n_codes, set_bytes)
    signs = np.frombuffer(parts[-2], np.uint8).reshape(n_codes, shape.sign_bytes)
    threads = kernels.n_threads(None)
    locations = kernels.active().decode_sets(sets, n_bits, n_pool, n_threads=threads)
    data = kernels.active().pack_codes(shape, locations, signs, n_threads=threads)
    reals = [np.frombuffer(part, "<f4").astype(np.float32) for part in parts[:-2]]
    norms, scales = reals if reals else (None, None)
    for name, values in (("norms", norms), ("scales", scales)):
        if values is not None and not (np.isfinite(values) & (values > 0)).all():
            _fail(f"{name} must be positive and finite")
    return shape, data, norms, scales


def _fail(problem: str) -> NoReturn:
    raise StorageError("message", "codes", problem)


def _entropy_bytes(n_bits: int, n_pool: int) -> int:
    """Whole bytes of the information in a set of locations."""
    from ..theory import storage_bits  # SciPy takes long to import

    return int(storage_bits(n_bits=n_bits, n_pool=n_pool) - n_bits) // 8
