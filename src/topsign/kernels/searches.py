"""Searches of codes that lie in one array, by way of those of several segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .._arrays import Bytes, Float32, Int32, Int64
from .layout import Layout


@dataclass(frozen=True, eq=False)
class CodeSegment:
    """Codes that are searched with those of other segments."""

    codes: Bytes  # (n_codes, code_bytes)
    alive: Bytes | None = None  # packed bitmap of the codes that take part; None: all
    weights: Float32 | None = None  # that scores are multiplied with
    ids: Int64 | None = None  # ascending; None: places


class Searches(ABC):
    """See :class:`topsign.kernels.interface.Kernels`."""

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
    ) -> tuple[Int64, Int32]: ...

    @abstractmethod
    def rank_scores(
        self, layout: Layout, segments: Sequence[CodeSegment], queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]: ...

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
    ) -> tuple[Int64, Int64, Int32]: ...

    @abstractmethod
    def collect_scores(
        self,
        layout: Layout,
        segments: Sequence[CodeSegment],
        queries: Float32,
        thresholds: Float32,
        *,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]: ...

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
        whole = [CodeSegment(codes, alive, weights)]
        return self.collect_scores(layout, whole, queries, thresholds, n_threads=n_threads)
