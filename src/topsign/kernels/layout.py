"""Memory layouts of adaptive codes, both with a fixed number of bytes per code."""

from __future__ import annotations

from dataclasses import dataclass

from .._lazy import lazy

LAYOUTS = ("compact", "fast")

BLOCK_ROWS = 128

FLAGS = {"fast": -1, "signs": -2, "trellis": -3}
"""Values that stand for these layouts in place of ``low_bits``, in the C interface."""


@dataclass(frozen=True)
class Layout:
    """Sizes of the parts of a code of ``n_bits`` out of ``n_pool``.

    ``fast``: a byte per block of 128 rows counts the locations in it, then a byte per location holds its
    sign (bit 7), its bit in a byte (bits 4-6) and its byte in the block (bits 0-3).

    ``compact``: the sign bits; the ``low_bits`` low bits of every location; the high parts in unary, where
    location i of high part h sets bit h + i (Elias-Fano). With ``low_bits`` 0 the last part is a bitmap
    of the pool instead. The cheapest ``low_bits`` is taken, of equally cheap ones the
    largest, since unary parts are slower to read. Each part starts on a byte.

    ``signs``: the sign bits of the whole pool (n_bits = n_pool), no locations.

    ``trellis``: a ring of n_bits bits (:mod:`topsign.kernels.trellis`).
    """

    name: str
    n_bits: int
    n_pool: int

    @property
    def n_blocks(self) -> int:
        return -(-self.n_pool // BLOCK_ROWS)

    @property
    def sign_bytes(self) -> int:
        return -(-self.n_bits // 8)

    @lazy
    def low_bits(self) -> int:
        """Low bits of a location stored as they are; negative for layouts that have none."""
        if self.name in FLAGS:
            return FLAGS[self.name]
        return min(reversed(range(self.n_pool.bit_length())), key=self._compact_bytes)

    @property
    def low_bytes(self) -> int:
        return -(-self.n_bits * self.low_bits // 8)

    @property
    def high_size(self) -> int:
        """Bits of the unary part, or of the bitmap."""
        return self._high_size(self.low_bits)

    @lazy
    def code_bytes(self) -> int:
        """Bytes of one code."""
        if self.name in ("signs", "trellis"):
            return self.sign_bytes
        return self.n_blocks + self.n_bits if self.name == "fast" else self._compact_bytes(self.low_bits)

    def _high_size(self, low_bits: int) -> int:
        return self.n_pool if low_bits == 0 else self.n_bits + ((self.n_pool - 1) >> low_bits)

    def _compact_bytes(self, low_bits: int) -> int:
        return self.sign_bytes - (-self.n_bits * low_bits // 8) - (-self._high_size(low_bits) // 8)
