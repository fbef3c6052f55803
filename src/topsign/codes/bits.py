"""Packed signs: their distances, and the bits of queries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32, Float64
from .._checks import as_signals, check_count
from ..projections import Projected


def hamming(codes: npt.ArrayLike, other: npt.ArrayLike, *, n_bits: int) -> Float64:
    """Fraction of bits in which packed codes differ.

    Parameters
    ----------
    codes, other : uint8 arrays of shape (..., ceil(n_bits / 8))
        Bits packed little-endian, as every ``transform`` returns them. Leading axes broadcast as in NumPy:
        many codes against one give one distance each.
    n_bits : int

    Examples
    --------
    >>> hamming(np.uint8([[0b1111], [0b0001]]), np.uint8([0b0011]), n_bits=4)
    array([0.5 , 0.25])
    """
    n_bits = check_count(n_bits, "n_bits")
    arrays = [np.asarray(array) for array in (codes, other)]
    for array in arrays:
        if array.dtype != np.uint8 or array.ndim < 1 or array.shape[-1] != -(-n_bits // 8):
            raise ValueError(
                f"codes of n_bits={n_bits} must be uint8 with {-(-n_bits // 8)} bytes in the last axis, "
                f"got dtype {array.dtype} and shape {array.shape}"
            )
    differing = np.bitwise_xor(*arrays)
    if n_bits % 8:
        differing[..., -1] &= (1 << n_bits % 8) - 1
    counts: Array = np.bitwise_count(differing).sum(axis=-1, dtype=np.int64)
    return counts / n_bits


def query_bits(projected: npt.ArrayLike) -> Bytes:
    """One-hot bits of queries, to go with :meth:`AdaptiveCodes.to_bits`: (n_queries, ceil(2 * n_pool / 8))."""
    projected = as_projected(projected, n_pool=as_signals(projected, name="projected").shape[1])
    positive = projected >= 0
    return np.packbits(np.hstack([positive, ~positive]), axis=1, bitorder="little")


def as_projected(projected: object, *, n_pool: int, space: str | None = None) -> Float32:
    """Projections of queries: (n_queries, n_pool) finite float32.

    Where the codes know their ``space``, so must the projections, and it must be the same: a plain array may hold
    signals, which look alike where n_pool is n_features.
    """
    array = as_signals(np.asarray(projected) if isinstance(projected, Projected) else projected, name="projected")
    if array.shape[1] != n_pool:
        raise ValueError(
            f"projected must have one column per row of the pool, n_pool={n_pool}, got shape {array.shape}; "
            "pass what project() returned, not the signals themselves"
        )
    if space is not None:
        _check_space(projected, space)
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"NaN or infinity in projected, first at row {row}, column {column}; "
            "queries must be finite before they are projected"
        )
    return array


def _check_space(projected: object, space: str) -> None:
    theirs = projected.space if isinstance(projected, Projected) else None
    if theirs is None:
        raise ValueError(
            f"projected must be what project() returned, got a plain {type(projected).__name__}, which may hold the "
            "signals themselves; project them with the encoder or index that made the codes, or mark projections that "
            "an encoder made with its as_projected()"
        )
    if theirs != space:
        raise ValueError(
            "queries and codes were made with different projections (another seed, kind or mean), so that comparing "
            "them means nothing; project the queries with the encoder that made the codes"
        )
