"""What a set of kernels does: raw arrays in, raw arrays out, nothing checked."""

from __future__ import annotations

from typing import Protocol

from .._arrays import Booleans, Bytes, Float32, Float64, Int32, Int64
from .layout import Layout
from .searches import Searches
from .trellis import TrellisKernels

__all__ = ["Booleans", "Bytes", "Float32", "Float64", "Int32", "Int64", "Kernels"]


class Kernels(Searches, TrellisKernels, Protocol):
    """The operations everything else is built on; every implementation gives the same bits.

    Arrays are C-ordered; bits are packed little-endian, 1 standing for ``>= 0`` (or a sign of +1).
    """

    name: str

    def rotate(
        self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None, n_threads: int = 1
    ) -> Float32:
        """sqrt(n_features) times the randomised Hadamard rotation of each row, or its transpose.

        ``signs`` is (n_rounds, ceil(n_features / 8)). A round multiplies by random signs and transforms by
        Walsh-Hadamard; ``native/kernels/transform.h`` says how n_features that is no power of two is rotated.
        """
        ...

    def square_norms(self, signals: Float32, *, n_threads: int = 1) -> Float64:
        """Sum of squares of each row: in double precision, term i into lane i mod 16, lanes folded in half."""
        ...

    def select(self, projected: Float32, n_bits: int, *, n_threads: int = 1) -> tuple[Int32, Bytes, Float64]:
        """Where the ``n_bits`` largest magnitudes of each row lie, ascending, the lower row winning ties.

        Returns locations (n, n_bits), their packed signs, and the sums of the kept magnitudes.
        """
        ...

    def magnitude_sums(self, projected: Float32, *, n_threads: int = 1) -> Float64:
        """Sum of the magnitudes of each row, in the order of ``square_norms``: the totals of ``select`` of all."""
        ...

    def pack_bits(self, projected: Float32, *, n_threads: int = 1) -> Bytes:
        """``projected >= 0``, packed."""
        ...

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes, *, n_threads: int = 1) -> Bytes:
        """Locations and packed signs into codes of a layout: (n_codes, layout.code_bytes)."""
        ...

    def unpack_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> tuple[Int32, Bytes]:
        """Locations and packed signs of codes; arbitrary bytes give rows of the pool, never a crash."""
        ...

    def valid_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> Booleans:
        """Which rows are codes: those that ``pack_codes`` could have made of ascending locations."""
        ...

    def mismatches(self, layout: Layout, codes: Bytes, query_bits: Bytes, *, n_threads: int = 1) -> Int32:
        """Signs in which each query differs from each code: (n_queries, n_codes)."""
        ...

    def score_sums(self, layout: Layout, codes: Bytes, queries: Float32, *, n_threads: int = 1) -> Float32:
        """Sum over a code's locations of its sign times the query's projection: (n_queries, n_codes)."""
        ...

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int, *, n_threads: int = 1) -> tuple[Bytes, Int64]:
        """Sets of locations by an arithmetic coder: zero-padded rows of ``capacity`` bytes, and lengths."""
        ...

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int, *, n_threads: int = 1) -> Int32:
        """The sets again; arbitrary bytes give some valid set."""
        ...
