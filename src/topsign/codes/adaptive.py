"""Adaptive codes: many signals, each with the locations of its own largest projections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import kernels
from .._arrays import Bytes, Float32, Int32
from .._checks import check_choice, check_pool
from ..kernels import LAYOUTS, Layout
from ..recipe import METRICS
from .bits import as_projected
from .content import check_content
from .message import pack_message, unpack_message

if TYPE_CHECKING:
    import scipy.sparse


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

    space: str | None = None  # what they can be compared in, see Recipe.space; None where it is not known

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
        check_content(self._layout, self.data)
        self.norms = _check_reals(norms, len(self.data), "norms")
        self.scales = _check_reals(scales, len(self.data), "scales")
        if (self.norms is None) != (self.scales is None):
            raise ValueError("norms and scales are stored together; give both or neither")

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
    def unchecked(
        cls,
        layout: Layout,
        data: Bytes,
        norms: Float32 | None = None,
        scales: Float32 | None = None,
        *,
        space: str | None = None,
    ) -> AdaptiveCodes:
        """Codes that our own kernels packed, taken as they are: bytes from outside go through the constructor."""
        codes = object.__new__(cls)
        codes._layout, codes.data, codes.norms, codes.scales = layout, data, norms, scales
        codes.space = space
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
        spaces = {part.space for part in parts} - {None}
        if len(spaces) > 1:
            raise ValueError(
                "codes to concatenate were made with different projections (another seed, kind or mean), so that no "
                "query fits them all; encode all signals with one encoder"
            )
        data, space = np.concatenate([part.data for part in parts]), next(iter(spaces), None)
        if parts[0].norms is None:
            return cls.unchecked(parts[0]._layout, data, space=space)
        norms = np.concatenate([part.norms for part in parts])
        scales = np.concatenate([part.scales for part in parts])
        return cls.unchecked(parts[0]._layout, data, norms, scales, space=space)

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
        return self.unchecked(wanted, data, self.norms, self.scales, space=self.space)

    def mismatches(self, projected: npt.ArrayLike, *, n_threads: int | None = None) -> Int32:
        """How many signs of each query differ from each code's: (n_queries, n_codes) int32.

        ``projected`` is what :meth:`topsign.AdaptiveEncoder.project` returned: (n_queries, n_pool).
        """
        queries = as_projected(projected, n_pool=self.n_pool, space=self.space)
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
        queries = as_projected(projected, n_pool=self.n_pool, space=self.space)
        threads = kernels.n_threads(n_threads)
        scores = kernels.active().score_sums(self._layout, self.data, queries, n_threads=threads)
        if self.scales is None or self.norms is None:
            from ..theory import mean_kept_magnitude  # SciPy takes long to import

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
        return pack_message(self._layout, self.data, self.norms, self.scales)

    @classmethod
    def from_bytes(cls, message: bytes) -> AdaptiveCodes:
        """The codes that :meth:`to_bytes` wrote; anything else raises StorageError."""
        layout, data, norms, scales = unpack_message(message)
        return cls.unchecked(layout, data, norms, scales)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> AdaptiveCodes:
        """The chosen codes, always as AdaptiveCodes: an integer gives a collection of one."""
        if isinstance(index, (int, np.integer)):
            index = [index]
        norms, scales = (None if part is None else part[index] for part in (self.norms, self.scales))
        return self.unchecked(self._layout, np.ascontiguousarray(self.data[index]), norms, scales, space=self.space)

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
