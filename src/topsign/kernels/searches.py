"""Searches of codes: of several segments together, and of those in one array by way of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .._arrays import Bytes, Float32, Int32, Int64
from .layout import Layout


@dataclass(frozen=True, eq=False)
class CodeSegment:
    """Codes that are searched with those of other segments."""

    codes: Bytes  # (n_codes, code_bytes)
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    weights: Float32 | None = None  # that scores are multiplied with
    ids: Int64 | None = None  # ascending; None: places


class Searches(Protocol):
    """Searches of segments, which every set of kernels has, and of codes in one array by way of those."""

    @abstractmethod
    def rank_mismatches(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        """As ``search_mismatches`` over at least one segment: places counted through them, and mismatches.

        Of equal ones the lower id comes first. Queries are prepared once, and the k-th best of all segments is the
        bound everywhere.
        """

    @abstractmethod
    def rank_scores(
        self, layout: Layout, segments: Sequence[CodeSegment], queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        """As ``search_scores`` over segments, all with weights or none: places and scores, the lower id first."""

    @abstractmethod
    def collect_mismatches(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        """As ``within_mismatches`` over segments: starts, places ascending, mismatches."""

    @abstractmethod
    def collect_scores(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        queries: Float32,
        thresholds: Float32,
        *,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        """As ``within_scores`` over segments: starts, places ascending, scores."""

    def search_mismatches(
        self,
        layout: Layout,
        codes: Bytes,
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        """The k codes with fewest mismatches to each query: positions and mismatches, (n_queries, k).

        Sorted by mismatches, then by position; -1 and -1 where fewer codes are left. ``alive`` is a packed bitmap of
        the codes that take part. With the layout "signs", ``masks`` (packed, one per query) names the bits compared.
        """
        whole = [CodeSegment(codes, alive)]
        return self.rank_mismatches(layout, whole, query_bits, k, masks=masks, n_threads=n_threads)

    def search_scores(
        self,
        layout: Layout,
        codes: Bytes,
        queries: Float32,
        k: int,
        *,
        weights: Float32 | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Float32]:
        """The k codes of highest score: positions and scores, by falling score, then by position; -1 and nan after.

        The score is that of ``score_sums``, times the code's weight (in float32) where weights are given.
        """
        return self.rank_scores(layout, [CodeSegment(codes, alive, weights)], queries, k, n_threads=n_threads)

    def within_mismatches(
        self,
        layout: Layout,
        codes: Bytes,
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        """Every code within a query's radius: starts (n_queries + 1,), positions ascending, mismatches."""
        whole = [CodeSegment(codes, alive)]
        return self.collect_mismatches(layout, whole, query_bits, radii, masks=masks, n_threads=n_threads)

    def within_scores(
        self,
        layout: Layout,
        codes: Bytes,
        queries: Float32,
        thresholds: Float32,
        *,
        weights: Float32 | None = None,
        alive: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        """Every code that scores at least a query's threshold: starts, positions ascending, scores."""
        whole = [CodeSegment(codes, alive, weights)]
        return self.collect_scores(layout, whole, queries, thresholds, n_threads=n_threads)
