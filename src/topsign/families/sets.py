"""Adaptive codes packed near their entropy, for messages and archives."""

from __future__ import annotations

import struct

import numpy as np

from .. import kernels
from .._arrays import Bytes
from ..kernels import Layout

HEADER = struct.Struct("<I")  # bytes of one set of locations


def pack_sets(layout: Layout, codes: Bytes) -> bytes:
    """Serialise codes: the bytes per set, all signs, and all sets of locations by an arithmetic coder.

    The size is ``n_bits + log2 C(n_pool, n_bits)`` bits per code, within 2% and two bytes.
    """
    locations, signs = kernels.active().unpack_codes(layout, codes)
    capacity = _entropy_bytes(layout.n_bits, layout.n_pool) + 16
    sets, lengths = kernels.active().encode_sets(locations, layout.n_pool, capacity, n_threads=kernels.n_threads(None))
    set_bytes = int(lengths.max(initial=0))  # all sets have the same size within two bytes
    return HEADER.pack(set_bytes) + signs.tobytes() + sets[:, :set_bytes].tobytes()


def unpack_sets(layout: Layout, packed: bytes, n_codes: int) -> Bytes:
    """Parse the bytes of :func:`pack_sets`; raise ValueError if they are invalid."""
    if len(packed) < HEADER.size:
        raise ValueError(f"{n_codes} codes take at least {HEADER.size} bytes, got {len(packed)}")
    (set_bytes,) = HEADER.unpack_from(packed)
    # Every set of locations takes about its entropy, so that codes are never much larger than their message.
    least = _entropy_bytes(layout.n_bits, layout.n_pool) - 2
    if n_codes and not least <= set_bytes <= least + 32:
        raise ValueError(f"sets of {layout.n_bits} out of {layout.n_pool} locations cannot take {set_bytes} bytes each")
    cut = HEADER.size + n_codes * layout.sign_bytes
    if cut + n_codes * set_bytes != len(packed):
        raise ValueError(f"{n_codes} codes take {cut + n_codes * set_bytes} bytes, got {len(packed)}")
    signs = np.frombuffer(packed, np.uint8, cut - HEADER.size, HEADER.size).reshape(n_codes, layout.sign_bytes)
    sets = np.frombuffer(packed, np.uint8, n_codes * set_bytes, cut).reshape(n_codes, set_bytes)
    threads = kernels.n_threads(None)
    locations = kernels.active().decode_sets(sets, layout.n_bits, layout.n_pool, n_threads=threads)
    return kernels.active().pack_codes(layout, locations, signs, n_threads=threads)


def _entropy_bytes(n_bits: int, n_pool: int) -> int:
    """Return the entropy of a set of locations in whole bytes."""
    from ..theory import storage_bits  # SciPy takes long to import

    return int(storage_bits(n_bits=n_bits, n_pool=n_pool) - n_bits) // 8
