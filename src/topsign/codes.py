"""Codes: packed signs, and adaptive codes that keep their own locations."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import kernels
from ._checks import Array, as_projected, as_signals, check_choice, check_count, check_pool
from .kernels import LAYOUTS, Layout
from .kernels.interface import Bytes, Float32, Int32
from .theory import mean_kept_magnitude, storage_bits

if TYPE_CHECKING:
    import scipy.sparse

METRICS = ("inner_product", "correlation")


def hamming(codes: npt.ArrayLike, other: npt.ArrayLike, *, n_bits: int) -> npt.NDArray[np.float64]:
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


class AdaptiveCodes:
    """Codes of many signals, each with the locations that its own largest projections chose.

    Made by :meth:`topsign.AdaptiveEncoder.encode`, or from locations and signs by :meth:`from_locations`.

    Parameters
    ----------
    data : uint8 array of shape (n_codes, bytes per code)
        Packed codes; checked.
    n_bits, n_pool : int
        Locations kept, and the size of the pool.
    layout : "compact" or "fast"
        ``compact`` is Elias-Fano, within 1.12 of the entropy bound for n_bits <= n_pool / 8 (a bitmap where
        that is smaller); ``fast`` takes a byte per location and one per 128 rows of the pool.
    norms, scales : float32 arrays of shape (n_codes,), optional
        Norms of the signals, and ``|u|**2 / (sum of the kept |projections|)``: ``scale`` times the sum of a
        query's projections, each with the code's sign, estimates the inner product without bias.
    """

    def __init__(
        self,
        data: npt.ArrayLike,
        *,
        n_bits: int,
        n_pool: int,
        layout: str = "compact",
        norms: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
    ) -> None:
        n_bits, n_pool = check_pool(n_bits, n_pool)
        self._layout = Layout(check_choice(layout, "layout", LAYOUTS), n_bits, n_pool)
        self.data: Bytes = np.ascontiguousarray(data)
        width = self._layout.code_bytes
        if self.data.dtype != np.uint8 or self.data.ndim != 2 or self.data.shape[1] != width:
            raise ValueError(
                f"{layout} codes with n_bits={n_bits}, n_pool={n_pool} must be uint8 of shape "
                f"(n_codes, {width}), got dtype {self.data.dtype} and shape {self.data.shape}"
            )
        self.norms = _check_reals(norms, len(self.data), "norms")
        self.scales = _check_reals(scales, len(self.data), "scales")
        if (self.norms is None) != (self.scales is None):
            raise ValueError("norms and scales are stored together; give both or neither")
        self._check_contents()

    @classmethod
    def from_locations(
        cls,
        locations: npt.ArrayLike,
        signs: npt.ArrayLike,
        *,
        n_pool: int,
        layout: str = "compact",
        norms: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
    ) -> AdaptiveCodes:
        """Codes from locations (n_codes, n_bits), ascending in each row, and signs +1 or -1 of the same shape.

        >>> codes = AdaptiveCodes.from_locations([[3, 5]], [[1, -1]], n_pool=8)
        >>> codes.locations, codes.signs
        (array([[3, 5]], dtype=int32), array([[ 1, -1]], dtype=int8))
        """
        rows, signed = np.asarray(locations), np.asarray(signs)
        if rows.ndim != 2 or rows.dtype.kind not in "iu" or signed.shape != rows.shape:
            raise ValueError(
                "locations and signs must be integer matrices of one shape (n_codes, n_bits), "
                f"got shapes {rows.shape} and {signed.shape}"
            )
        n_bits, n_pool = check_pool(rows.shape[1], n_pool)
        if not np.isin(signed, (-1, 1)).all():
            raise ValueError("signs must be +1 or -1")
        if rows.size and (rows.min() < 0 or rows.max() >= n_pool or (np.diff(rows.astype(np.int64)) <= 0).any()):
            raise ValueError(f"locations must ascend without repeats in each row and lie in [0, {n_pool})")
        packed_signs = np.packbits(signed > 0, axis=1, bitorder="little")
        shape = Layout(check_choice(layout, "layout", LAYOUTS), n_bits, n_pool)
        data = kernels.active().pack_codes(shape, np.ascontiguousarray(rows, np.int32), packed_signs)
        return cls(data, n_bits=n_bits, n_pool=n_pool, layout=layout, norms=norms, scales=scales)

    @classmethod
    def _trusted(
        cls, layout: Layout, data: Bytes, norms: Float32 | None = None, scales: Float32 | None = None
    ) -> AdaptiveCodes:
        """Codes that our own kernels packed, taken as they are."""
        codes = object.__new__(cls)
        codes._layout, codes.data, codes.norms, codes.scales = layout, data, norms, scales
        return codes

    @classmethod
    def concatenate(cls, parts: Iterable[AdaptiveCodes]) -> AdaptiveCodes:
        """The codes of all parts, in order; they must agree in n_bits, n_pool, layout and kept norms."""
        parts = list(parts)
        if not parts:
            raise ValueError("concatenate needs at least one part, got none")
        kinds = {(part._layout, part.norms is None) for part in parts}
        if len(kinds) > 1:
            raise ValueError(
                "codes to concatenate must agree in n_bits, n_pool, layout and whether norms are kept, got "
                + " and ".join(sorted(map(repr, parts)))
            )
        data = np.concatenate([part.data for part in parts])
        if parts[0].norms is None:
            return cls._trusted(parts[0]._layout, data)
        norms = np.concatenate([part.norms for part in parts])
        scales = np.concatenate([part.scales for part in parts])
        return cls._trusted(parts[0]._layout, data, norms, scales)

    @property
    def n_bits(self) -> int:
        """Locations kept by each code."""
        return self._layout.n_bits

    @property
    def n_pool(self) -> int:
        """Projections they were chosen from."""
        return self._layout.n_pool

    @property
    def layout(self) -> str:
        """ "compact" or "fast"."""
        return self._layout.name

    @property
    def nbytes(self) -> int:
        """Bytes held: codes, and norms and scales where they are kept."""
        reals = 0 if self.norms is None or self.scales is None else self.norms.nbytes + self.scales.nbytes
        return self.data.nbytes + reals

    @property
    def locations(self) -> Int32:
        """Rows of the pool that each code keeps, ascending: (n_codes, n_bits) int32."""
        return kernels.active().unpack_codes(self._layout, self.data)[0]

    @property
    def signs(self) -> npt.NDArray[np.int8]:
        """Signs of the kept projections, +1 or -1: (n_codes, n_bits) int8."""
        packed = kernels.active().unpack_codes(self._layout, self.data)[1]
        bits = np.unpackbits(packed, axis=1, count=self.n_bits, bitorder="little")
        return bits.astype(np.int8) * 2 - 1

    def to_layout(self, layout: str) -> AdaptiveCodes:
        """The same codes in the other layout; nothing is lost."""
        wanted = Layout(check_choice(layout, "layout", LAYOUTS), self.n_bits, self.n_pool)
        if wanted == self._layout:
            return self
        data = kernels.active().pack_codes(wanted, *kernels.active().unpack_codes(self._layout, self.data))
        return self._trusted(wanted, data, self.norms, self.scales)

    def mismatches(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Int32:
        """How many signs of each query differ from each code's: (n_queries, n_codes) int32.

        ``projected`` is what :meth:`topsign.AdaptiveEncoder.project` returned: (n_queries, n_pool).
        """
        queries = as_projected(projected, n_pool=self.n_pool)
        threads = kernels.n_threads(n_threads)
        bits = kernels.active().pack_bits(queries, n_threads=threads)
        return kernels.active().mismatches(self._layout, self.data, bits, n_threads=threads)

    def scores(
        self,
        projected: npt.ArrayLike,
        *,
        metric: str = "inner_product",
        query_norms: npt.ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> Float32:
        """Asymmetric estimates from real-valued queries: (n_queries, n_codes) float32.

        Parameters
        ----------
        projected : array of shape (n_queries, n_pool)
        metric : "inner_product" or "correlation"
            The inner product needs the stored scales. The correlation takes them where they are kept, and
            otherwise the scale expected of a normal signal.
        query_norms : array of shape (n_queries,), optional
            Norms of the queries, for the correlation. Taken from the projections when not given: exact for
            a Hadamard or unimodular pool with n_pool = n_features, within 1/sqrt(2 * n_pool) otherwise.
        """
        check_choice(metric, "metric", METRICS)
        if metric == "inner_product" and query_norms is not None:
            raise ValueError('query_norms go with metric="correlation"; an inner product does not use them')
        if metric == "inner_product" and self.scales is None:
            raise ValueError(
                "these codes keep no scales (norms=False), so inner products cannot be estimated; "
                'ask for metric="correlation", or encode with norms=True'
            )
        queries = as_projected(projected, n_pool=self.n_pool)
        threads = kernels.n_threads(n_threads)
        scores = kernels.active().score_sums(self._layout, self.data, queries, n_threads=threads)
        if self.scales is None or self.norms is None:
            kept = mean_kept_magnitude(n_bits=self.n_bits, n_pool=self.n_pool)
            scores *= np.float32(1 / (self.n_bits * kept))
        else:
            scores *= self.scales if metric == "inner_product" else self.scales / self.norms
        return scores if metric == "inner_product" else _divide_rows(scores, _query_norms(queries, query_norms))

    def to_bits(self) -> Bytes:
        """One-hot codes for any Hamming engine: (n_codes, ceil(2 * n_pool / 8)) uint8, little-endian bits.

        Bit j stands for row j kept with a positive sign, bit n_pool + j for a negative one. The plain
        Hamming distance to :func:`query_bits` is ``n_pool - n_bits + 2 * mismatches``, exactly.
        """
        out = np.empty((len(self), -(-2 * self.n_pool // 8)), np.uint8)
        n_rows = max(1, 2**24 // self.n_pool)  # unpacked bits held at a time: 32 MB
        for start in range(0, len(self), n_rows):
            part = self[start : start + n_rows]
            bits = np.zeros((len(part), 2 * self.n_pool), bool)
            np.put_along_axis(bits, part.locations + np.where(part.signs > 0, 0, self.n_pool), True, axis=1)
            out[start : start + n_rows] = np.packbits(bits, axis=1, bitorder="little")
        return out

    @classmethod
    def from_bits(
        cls,
        bits: npt.ArrayLike,
        *,
        n_bits: int,
        n_pool: int,
        layout: str = "compact",
        norms: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
    ) -> AdaptiveCodes:
        """The codes whose :meth:`to_bits` these are; anything else raises ValueError.

        >>> codes = AdaptiveCodes.from_locations([[3, 5]], [[1, -1]], n_pool=8)
        >>> AdaptiveCodes.from_bits(codes.to_bits(), n_bits=2, n_pool=8) == codes
        True
        """
        n_bits, n_pool = check_pool(n_bits, n_pool)
        packed = np.asarray(bits)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-2 * n_pool // 8):
            raise ValueError(
                f"one-hot codes with n_pool={n_pool} must be uint8 of shape (n_codes, {-(-2 * n_pool // 8)}), "
                f"got dtype {packed.dtype} and shape {packed.shape}"
            )
        locations = np.empty((len(packed), n_bits), np.int32)
        signs = np.empty((len(packed), n_bits), np.int8)
        for row, one in enumerate(packed):
            positive, negative = np.unpackbits(one, count=2 * n_pool, bitorder="little").reshape(2, n_pool)
            kept = np.flatnonzero(positive | negative)
            if len(kept) != n_bits or (positive & negative).any():
                raise ValueError(f"bits are not a one-hot code at row {row}: {n_bits} rows must have one sign each")
            locations[row], signs[row] = kept, np.where(positive[kept], 1, -1)
        return cls.from_locations(locations, signs, n_pool=n_pool, layout=layout, norms=norms, scales=scales)

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Codes as rows of +-1, (n_codes, n_pool) float32 CSR.

        The dot product with a query's signs is ``n_bits - 2 * mismatches``; with its projections, the sum
        that :meth:`scores` scales.
        """
        import scipy.sparse

        starts = np.arange(0, (len(self) + 1) * self.n_bits, self.n_bits)
        values = self.signs.astype(np.float32).ravel()
        shape = (len(self), self.n_pool)
        return scipy.sparse.csr_array((values, self.locations.ravel(), starts), shape=shape)

    def to_bytes(self) -> bytes:
        """All codes in one message near the entropy bound, ``n_bits + log2 C(n_pool, n_bits)`` bits a code.

        Within 2% of it plus 16 bytes a code, norms and scales included; a header and a checksum besides.
        """
        locations, signs = kernels.active().unpack_codes(self._layout, self.data)
        sets, lengths = kernels.active().encode_sets(
            locations, self.n_pool, _set_capacity(self.n_bits, self.n_pool), n_threads=kernels.n_threads(None)
        )
        set_bytes = int(lengths.max(initial=0))  # every set costs the same, up to a byte or two
        header = _HEADER.pack(
            _MAGIC,
            _FORMAT,
            LAYOUTS.index(self.layout),
            self.norms is not None,
            self.n_bits,
            self.n_pool,
            len(self),
            set_bytes,
        )
        reals = [] if self.norms is None or self.scales is None else [self.norms, self.scales]
        parts = [*(part.astype("<f4") for part in reals), signs, sets[:, :set_bytes]]
        body = header + b"".join(part.tobytes() for part in parts)
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def from_bytes(cls, message: bytes) -> AdaptiveCodes:
        """The codes that :meth:`to_bytes` wrote; anything else raises ValueError."""
        if len(message) < _HEADER.size + 4 or message[:4] != _MAGIC:
            raise ValueError(
                f"not adaptive codes: expected {_MAGIC!r} and at least {_HEADER.size + 4} bytes, "
                f"got {message[:4]!r} and {len(message)} bytes"
            )
        _, version, layout, with_norms, n_bits, n_pool, n_codes, set_bytes = _HEADER.unpack_from(message)
        if version != _FORMAT:
            raise ValueError(f"adaptive codes of format {version}; this version reads format {_FORMAT}")
        stored, computed = struct.unpack("<I", message[-4:])[0], zlib.crc32(message[:-4])
        if stored != computed:
            raise ValueError(
                f"adaptive codes are damaged: checksum {stored:08x} stored, {computed:08x} computed "
                f"over {len(message)} bytes"
            )
        check_pool(n_bits, n_pool)
        shape = Layout(LAYOUTS[layout], n_bits, n_pool)
        sizes = [4 * n_codes, 4 * n_codes] if with_norms else []
        sizes += [n_codes * shape.sign_bytes, n_codes * set_bytes]
        if _HEADER.size + sum(sizes) + 4 != len(message):
            raise ValueError(
                f"adaptive codes are damaged: {n_codes} codes need {_HEADER.size + sum(sizes) + 4} bytes, "
                f"got {len(message)}"
            )
        cuts = np.cumsum([_HEADER.size, *sizes])
        parts = [message[start:end] for start, end in pairwise(cuts)]
        sets = np.frombuffer(parts[-1], np.uint8).reshape(n_codes, set_bytes)
        signs = np.frombuffer(parts[-2], np.uint8).reshape(n_codes, shape.sign_bytes)
        threads = kernels.n_threads(None)
        locations = kernels.active().decode_sets(sets, n_bits, n_pool, n_threads=threads)
        data = kernels.active().pack_codes(shape, locations, signs, n_threads=threads)
        reals = [np.frombuffer(part, "<f4").astype(np.float32) for part in parts[:-2]]
        return cls._trusted(shape, data, *reals)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> AdaptiveCodes:
        """The chosen codes, always as AdaptiveCodes: an integer gives a collection of one."""
        if isinstance(index, (int, np.integer)):
            index = [index]
        norms, scales = (None if part is None else part[index] for part in (self.norms, self.scales))
        return self._trusted(self._layout, np.ascontiguousarray(self.data[index]), norms, scales)

    def __eq__(self, other: object) -> bool:
        """Same locations, signs, norms and scales; the layout does not matter."""
        if not isinstance(other, AdaptiveCodes):
            return NotImplemented
        if (self.n_bits, self.n_pool, len(self)) != (other.n_bits, other.n_pool, len(other)):
            return False
        return (
            np.array_equal(self.data, other.to_layout(self.layout).data)
            and _equal_or_absent(self.norms, other.norms)
            and _equal_or_absent(self.scales, other.scales)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        norms = "" if self.norms is not None else ", norms=False"
        return f"AdaptiveCodes({len(self)} codes, n_bits={self.n_bits}, n_pool={self.n_pool}, {self.layout}{norms})"

    def _check_contents(self) -> None:
        unpacked = kernels.active().unpack_codes(self._layout, self.data)
        ascending = (np.diff(unpacked[0]) > 0).all(axis=1)
        same = (kernels.active().pack_codes(self._layout, *unpacked) == self.data).all(axis=1)
        bad = np.flatnonzero(~(ascending & same))
        if bad.size:
            raise ValueError(
                f"data is not a packed code at row {bad[0]} ({bad.size} such rows): "
                f"its bytes are not {self.n_bits} ascending locations in the {self.layout} layout"
            )


_MAGIC = b"TSAC"
_FORMAT = 1
_HEADER = struct.Struct("<4sBBBxIIQI")  # magic, format, layout, norms kept, n_bits, n_pool, n_codes, set bytes


def _set_capacity(n_bits: int, n_pool: int) -> int:
    return int(storage_bits(n_bits=n_bits, n_pool=n_pool) - n_bits) // 8 + 16


def _check_reals(values: npt.ArrayLike | None, n_codes: int, name: str) -> Float32 | None:
    if values is None:
        return None
    array = np.ascontiguousarray(values, dtype=np.float32)
    if array.shape != (n_codes,) or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must be {n_codes} positive finite values, got shape {array.shape}")
    return array


def _query_norms(queries: Float32, given: npt.ArrayLike | None) -> Float32:
    if given is None:
        given = np.sqrt(kernels.active().square_norms(queries) / queries.shape[1])
    norms: Float32 = np.asarray(given, dtype=np.float32)
    if norms.shape != (len(queries),) or not (np.isfinite(norms) & (norms >= 0)).all():
        raise ValueError(f"query_norms must be {len(queries)} finite values, none negative, got shape {norms.shape}")
    return norms


def _divide_rows(sums: Float32, norms: Float32) -> Float32:
    """Each row over its norm; a zero query is correlated with nothing."""
    divisors = norms[:, np.newaxis]
    quotients: Float32 = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
    return quotients


def _equal_or_absent(a: Float32 | None, b: Float32 | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)
