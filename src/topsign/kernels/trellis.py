"""What the kernels of trellis codes do, beside those of :mod:`topsign.kernels.interface`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes, Float32, Int32, Int64
from .tables import TrellisTables

Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class RoundedQueries:
    """Queries in bytes: the score of a code is ``(sum of value * level) * scale + constant``, times its weight.

    Where there are ``fine`` digits, values are ``value * 2**fine_bits + fine``. Sums fit 32 bits.
    """

    values: Int8  # (n_queries, n_coded), in [-127, 127]
    scales: Float32  # (n_queries,)
    constants: Float32  # (n_queries,)
    fine: Int8 | None = None  # (n_queries, n_coded)
    fine_bits: int = 0

    def __getitem__(self, rows: slice | Int64) -> RoundedQueries:
        """Some of the queries."""
        fine = None if self.fine is None else self.fine[rows]
        return RoundedQueries(self.values[rows], self.scales[rows], self.constants[rows], fine, self.fine_bits)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class TrellisEntries:
    """Codes to be scanned, and what takes part of them."""

    tables: TrellisTables
    codes: Bytes  # (n_codes, code_bytes)
    norms: bool = False  # whether scores are multiplied by the norms, which the last two bytes of codes are
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    places: Int64 | None = None  # ascending positions of the codes that are of these tables; None: all


class TrellisKernels(Protocol):
    """Operations on trellis codes; every implementation gives the same bits. Any bytes are a code."""

    def trellis_encode(self, tables: TrellisTables, values: Float32, *, n_threads: int = 1) -> Bytes:
        """Codes (n, code_bytes) of coordinates (n, n_coded): the cheapest path through the trellis that closes.

        A first pass over the events around the ring's beginning (``6 * window`` on either side, all where there are
        fewer) finds the first state: where the cheapest path through them, from any state to any, goes. The second
        pass goes from that state to one that leads to it. Of equal costs the lower state wins. Bits that no window
        reads are zero.
        """
        ...

    def trellis_decode(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Int8:
        """Levels, (n_codes, n_coded)."""
        ...

    def trellis_weights(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Float32:
        """One over the norm of each reconstruction, of an exact sum in float32; 0 where it is 0."""
        ...

    def trellis_sums(
        self, tables: TrellisTables, codes: Bytes, queries: RoundedQueries, *, n_threads: int = 1
    ) -> Int32:
        """Exact sums of value times level, (n_queries, n_codes)."""
        ...

    def trellis_search(
        self, entries: TrellisEntries, queries: RoundedQueries, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """The k codes of highest score: positions and scores, by falling score, then by position; -1 and nan after.

        The score is ``(sum * scale + constant) * weight``, each step in float32. The weight is that of
        ``trellis_weights``, times the norm where scores have it.
        """
        ...

    def trellis_within(
        self, entries: TrellisEntries, queries: RoundedQueries, thresholds: Float32, *, n_threads: int = 1
    ) -> tuple[Int64, Int64, Float32]:
        """Every code that scores at least a query's threshold: starts, positions ascending, scores."""
        ...
