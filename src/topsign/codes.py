"""Codes: packed codes with their recipe, distances of packed signs, and projections of queries."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from . import kernels
from ._arrays import Array, Bytes, Float32, Float64
from ._checks import as_signals, check_count, suggests_keywords
from .errors import StorageError
from .projections import Projected

if TYPE_CHECKING:
    from .families import Recipe

MAGIC = b"TSCM"
FORMAT = 2
HEADER = struct.Struct("<4sB3xIQQ")  # magic, format, bytes of the recipe, number of codes, bytes of the codes


@suggests_keywords
class Codes:
    """Codes of many signals, made with one recipe. Encoders and indexes return them.

    Families have views of their own: :class:`topsign.AdaptiveCodes` and :class:`topsign.GroupedCodes` know locations
    and signs, :class:`topsign.TrellisCodes` levels.

    Parameters
    ----------
    data : uint8 array of shape (n_codes, bytes per code)
        Packed codes; checked.
    recipe : Recipe
        Recipe that the codes are made with.
    checked : bool
        Whether data are known to be codes of the recipe, so that they need no check.

    Attributes
    ----------
    forms : tuple of str
        Forms in which other programs can read these codes, see :meth:`to_form`.
    """

    forms: ClassVar[tuple[str, ...]] = ("codes", "dense")

    def __init__(self, data: npt.ArrayLike, *, recipe: Recipe, checked: bool = False) -> None:
        self.recipe = recipe
        if checked:
            self.data = cast(Bytes, data)
            return
        self.data = np.ascontiguousarray(data)
        recipe.check(self.data)

    @staticmethod
    def empty(recipe: Recipe) -> Codes:
        """Return an empty collection of codes of this ``recipe``."""
        return recipe.codes_type(np.empty((0, recipe.code_bytes), np.uint8), recipe=recipe, checked=True)

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Return the codes of all ``parts``, in order; they must have equal recipes."""
        parts = list(parts)
        if not parts:
            raise ValueError("concatenate needs at least one part, got none")
        first = parts[0].recipe
        for part in parts[1:]:
            ours, theirs = first.difference(part.recipe)
            if ours:
                raise ValueError(
                    f"codes to concatenate must have equal recipes, got {ours} and {theirs}; encode all signals with "
                    "one encoder"
                )
        return cls(np.concatenate([part.data for part in parts]), recipe=first, checked=True)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.data.nbytes

    @property
    def norms(self) -> Float32 | None:
        """Norms of the signals, within 0.07%; None if they are not kept."""
        return self.recipe.norms(self.data)

    def decode(self) -> Float32:
        """Return reconstructions of the signals, (n_codes, n_features), with their norms if these are kept."""
        return self.recipe.decode(self.data)

    def to_form(self, form: str) -> dict[str, Array]:
        """Return the codes in a ``form`` for other programs: matrices by column name, one row per code.

        "codes" are the packed bytes, "dense" the reconstructions; families may have further forms.
        """
        if form not in self.forms:
            known = ", ".join(map(repr, self.forms))
            raise ValueError(f"form must be one of {known} for {self.recipe.family} codes, got {form!r}")
        return {"vector": self.decode()} if form == "dense" else {"code": self.data}

    @classmethod
    def from_form(cls, form: str, values: Mapping[str, npt.ArrayLike], *, recipe: Recipe) -> Self:
        """Return the codes of this ``recipe`` from ``values`` that :meth:`to_form` wrote in ``form``, checked;
        reconstructions cannot be turned back into codes.
        """
        if form != "codes":
            raise ValueError(f"codes cannot be made from form={form!r}")
        return cls(values["code"], recipe=recipe)

    def to_bytes(self) -> bytes:
        """Return all codes and their recipe in one message with a checksum; :func:`read_codes` reads it."""
        recipe, packed = json.dumps(self.recipe.to_json()).encode(), self.recipe.pack(self.data)
        body = HEADER.pack(MAGIC, FORMAT, len(recipe), len(self), len(packed)) + recipe + packed
        return body + struct.pack("<I", zlib.crc32(body))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Self:
        """Return the chosen codes, always as a collection: an integer gives a collection of one."""
        index = [index] if isinstance(index, (int, np.integer)) else index
        return type(self)(np.ascontiguousarray(self.data[index]), recipe=self.recipe, checked=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Codes):
            return NotImplemented
        return self.recipe == other.recipe and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} codes, {self.recipe.summary})"


def message_parts(message: bytes) -> tuple[dict[str, Any], int, bytes]:
    """Return the recipe's record, the number of codes, and the packed codes of a message.

    Raise StorageError if it is not one, or damaged.
    """
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise TypeError(f"message must be bytes, got {type(message).__name__}")
    if len(message) < HEADER.size + 4 or message[:4] != MAGIC:
        raise StorageError(
            "message", "codes", f"not a message of codes: expected {MAGIC!r}, got {bytes(message[:4])!r}"
        )
    _, version, recipe_bytes, n_codes, packed_bytes = HEADER.unpack_from(message)
    if version != FORMAT:
        raise StorageError("message", "codes", f"format {version}; this version reads format {FORMAT}")
    stored, computed = struct.unpack("<I", message[-4:])[0], zlib.crc32(message[:-4])
    if stored != computed:
        raise StorageError.bad_checksum("message", "codes", stored=stored, computed=computed)
    start = HEADER.size + recipe_bytes
    try:
        record = json.loads(message[HEADER.size : start])
    except (ValueError, RecursionError) as error:
        raise StorageError("message", "recipe", f"damaged: {error}") from None
    rest = message[start:-4]
    if not isinstance(record, dict) or len(rest) != packed_bytes:
        raise StorageError("message", "codes", f"damaged: {n_codes} codes do not fill {len(message)} bytes")
    return record, n_codes, rest


@suggests_keywords
def hamming(codes: npt.ArrayLike, other: npt.ArrayLike, *, n_bits: int) -> Float64:
    """Return the fraction of bits in which packed codes differ.

    Parameters
    ----------
    codes, other : uint8 arrays of shape (..., ceil(n_bits / 8))
        Bits packed little-endian, as every ``transform`` returns them. Leading axes broadcast as in NumPy:
        many codes against one give one distance each.
    n_bits : int
        Bits of a code; the last byte may hold fewer than eight.

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
    """Return one-hot bits of ``projected`` queries, (n_queries, ceil(2 * n_pool / 8)).

    They go with :meth:`AdaptiveCodes.to_bits`.
    """
    projected = as_projected(projected, n_pool=as_signals(projected, name="projected").shape[1])
    positive = projected >= 0
    return np.packbits(np.hstack([positive, ~positive]), axis=1, bitorder="little")


def as_projected(projected: object, *, n_pool: int, space: str | None = None) -> Float32:
    """Return projections of queries as (n_queries, n_pool) finite float32.

    If ``space`` is given, the projections must have the same: a plain array may hold signals, which have the same shape
    if n_pool is n_features.
    """
    array = as_signals(np.asarray(projected) if isinstance(projected, Projected) else projected, name="projected")
    if array.shape[1] != n_pool:
        raise ValueError(
            f"projected must have one column per row of the pool, n_pool={n_pool}, got shape {array.shape}; "
            "pass what project() returned, not the signals themselves"
        )
    theirs = projected.space if isinstance(projected, Projected) else None
    if space is not None and theirs is None:
        raise ValueError(
            f"projected must be what project() returned, got a plain {type(projected).__name__}, which may hold the "
            "signals themselves; project them with the encoder or index that made the codes, or mark projections that "
            "an encoder made with its as_projected()"
        )
    if space not in (None, theirs):
        raise ValueError(
            "queries and codes were made with different projections (another seed, kind or mean), so that comparing "
            "them means nothing; project the queries with the encoder that made the codes"
        )
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"NaN or infinity in projected, first at row {row}, column {column}; "
            "queries must be finite before they are projected"
        )
    return array


def query_norms(queries: Float32, given: npt.ArrayLike | None) -> Float32:
    """Return norms of queries as given, or estimated from their projections."""
    if given is None:
        given = np.sqrt(kernels.active().square_norms(queries) / queries.shape[1])
    norms: Float32 = np.asarray(given, dtype=np.float32)
    if norms.shape != (len(queries),) or not (np.isfinite(norms) & (norms >= 0)).all():
        raise ValueError(f"query_norms must be {len(queries)} finite values, none negative, got shape {norms.shape}")
    return norms
