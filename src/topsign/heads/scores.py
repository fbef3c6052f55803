"""Scores of classes from their codes: all of them, or the best k without holding all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from .._arrays import Array, Bytes, Float32, Float64, Int64
from ..kernels import Layout, RoundedQueries, TrellisEntries, TrellisTables
from ..kernels.tables import unpack_norms

# Sums over all pairs cost 155 ns per pair at 128 of 1024, a matrix product over unpacked codes 25: worth unpacking
# where many queries share it. Heads below this size always take the sums, whose bits do not depend on the batch.
MANY_CLASSES, MANY_QUERIES = 256, 32

BLOCK_CLASSES = 2**14  # compared at a time where what is found could be all of them

# Kernels compare float32 scores with a threshold; a little below it none is missed, and what was found decides.
SLACK = 1e-5
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class HammingScores:
    """Classes by the number of signs that agree less those that differ, the paper's score."""

    layout: Layout
    codes: Bytes  # (n_classes, layout.code_bytes)

    def __len__(self) -> int:
        return len(self.codes)

    def values(self, query_bits: Bytes) -> Float64:
        """Scores of all classes, (n_queries, n_classes)."""
        mismatches = kernels.active().mismatches(self.layout, self.codes, query_bits, n_threads=kernels.n_threads(None))
        return self._from_mismatches(mismatches)

    def best(self, query_bits: Bytes, k: int) -> tuple[Int64, Float64]:
        """The k highest scores of each query, and their classes; of equal ones the lower class comes first."""
        classes, mismatches = kernels.active().search_mismatches(
            self.layout, self.codes, query_bits, k, n_threads=kernels.n_threads(None)
        )
        return classes, self._from_mismatches(mismatches)

    def _from_mismatches(self, mismatches: Array) -> Float64:
        return self.layout.n_bits - 2.0 * mismatches


class EstimatedLogits(ABC):
    """Classes by estimated logits; subclasses know the codes."""

    biases: Float64 | None  # (n_classes,)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _all(self, queries: Any) -> Float32:
        """Estimates of all classes, without biases."""

    @abstractmethod
    def _search(self, queries: Any, k: int) -> tuple[Int64, Float32]:
        """The k highest estimates without biases, and their classes."""

    @abstractmethod
    def _within(self, queries: Any, thresholds: Float32, part: slice) -> tuple[Int64, Int64, Float32]:
        """Starts, classes of a block and estimates without biases that reach the thresholds."""

    def values(self, queries: Any) -> Float64:
        """Estimated logits of all classes, (n_queries, n_classes)."""
        logits = self._all(queries).astype(np.float64)
        return logits if self.biases is None else logits + self.biases

    def best(self, queries: Any, k: int) -> tuple[Int64, Float64]:
        """The k highest estimated logits of each query, and their classes; of equal ones the lower class first."""
        classes, scores = self._search(queries, k)
        found = scores.astype(np.float64)
        if self.biases is None:
            return classes, found
        # The best by score alone bound the k-th best logit from below; whoever may exceed it is looked at.
        bounds = np.min(found + self.biases[classes], axis=1)
        parts = [
            self._reaching(queries, bounds, slice(start, start + BLOCK_CLASSES), k)
            for start in range(0, len(self), BLOCK_CLASSES)
        ]
        return _merged(np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts]), k)

    def _reaching(self, queries: Any, bounds: Float64, part: slice, k: int) -> tuple[Int64, Float64]:
        """The classes of a block whose logits reach the queries' bounds, k of them at most; -1 and -inf after."""
        assert self.biases is not None
        biases = self.biases[part]
        needed = bounds - biases.max()
        needed -= SLACK * np.abs(needed) + 1e-12 * (np.abs(bounds) + np.abs(biases.max()))
        thresholds = np.clip(needed, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
        starts, found, scores = self._within(queries, thresholds, part)
        counts = np.diff(starts)
        width = int(counts.max(initial=0))
        classes, logits = np.full((len(counts), width), -1, np.int64), np.full((len(counts), width), -np.inf)
        places = np.arange(width) < counts[:, np.newaxis]
        classes[places] = found + part.start
        logits[places] = scores.astype(np.float64) + biases[found]
        return _merged(classes, logits, min(k, width))


@dataclass(frozen=True, eq=False)
class LogitScores(EstimatedLogits):
    """Logits of adaptive codes: scale times the sum of the query's projections with the code's signs, and the bias.

    A zero weight vector has scale zero: its logit is its bias.
    """

    layout: Layout
    codes: Bytes  # (n_classes, layout.code_bytes)
    scales: Float32  # (n_classes,)
    biases: Float64 | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def _all(self, queries: Float32) -> Float32:
        unpack = len(self) >= MANY_CLASSES and len(queries) >= MANY_QUERIES
        return self._products(queries) if unpack else self._sums(queries)

    def _search(self, queries: Float32, k: int) -> tuple[Int64, Float32]:
        threads = kernels.n_threads(None)
        return kernels.active().search_scores(
            self.layout, self.codes, queries, k, weights=self.scales, n_threads=threads
        )

    def _within(self, queries: Float32, thresholds: Float32, part: slice) -> tuple[Int64, Int64, Float32]:
        return kernels.active().within_scores(
            self.layout,
            self.codes[part],
            queries,
            thresholds,
            weights=self.scales[part],
            n_threads=kernels.n_threads(None),
        )

    def _sums(self, projected: Float32) -> Float32:
        sums = kernels.active().score_sums(self.layout, self.codes, projected, n_threads=kernels.n_threads(None))
        sums *= self.scales
        return sums

    def _products(self, projected: Float32) -> Float32:
        """The same within rounding, by products with the codes unpacked into rows of signs, a block at a time."""
        out = np.empty((len(projected), len(self)), np.float32)
        for start in range(0, len(self), BLOCK_CLASSES):
            part = slice(start, start + BLOCK_CLASSES)
            np.matmul(projected, dense_signs(self.layout, self.codes[part]).T, out=out[:, part])
        out *= self.scales
        return out


@dataclass(frozen=True, eq=False)
class TrellisScores(EstimatedLogits):
    """Logits of trellis codes, whose norms are their scales, and the bias."""

    tables: TrellisTables
    codes: Bytes
    biases: Float64 | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def _all(self, queries: RoundedQueries) -> Float32:
        threads, chosen = kernels.n_threads(None), kernels.active()
        sums = chosen.trellis_sums(self.tables, self.codes, queries, n_threads=threads).astype(np.float32)
        weights = chosen.trellis_weights(self.tables, self.codes, n_threads=threads) * unpack_norms(self.codes[:, -2:])
        return (sums * queries.scales[:, np.newaxis] + queries.constants[:, np.newaxis]) * weights

    def _search(self, queries: RoundedQueries, k: int) -> tuple[Int64, Float32]:
        entries = TrellisEntries(self.tables, self.codes, norms=True)
        return kernels.active().trellis_search(entries, queries, k, n_threads=kernels.n_threads(None))

    def _within(self, queries: RoundedQueries, thresholds: Float32, part: slice) -> tuple[Int64, Int64, Float32]:
        entries = TrellisEntries(self.tables, self.codes[part], norms=True)
        return kernels.active().trellis_within(entries, queries, thresholds, n_threads=kernels.n_threads(None))


def dense_signs(layout: Layout, codes: Bytes) -> Float32:
    """Codes as rows of +-1 at their locations and 0 elsewhere, (n_codes, n_pool)."""
    if layout.name == "signs":
        return _unpacked_signs(codes, layout.n_bits)
    locations, packed = kernels.active().unpack_codes(layout, codes, n_threads=kernels.n_threads(None))
    out = np.zeros((len(codes), layout.n_pool), np.float32)
    np.put_along_axis(out, locations.astype(np.int64), _unpacked_signs(packed, layout.n_bits), axis=1)
    return out


def _unpacked_signs(packed: Bytes, n_bits: int) -> Float32:
    return np.unpackbits(packed, axis=1, count=n_bits, bitorder="little").astype(np.float32) * 2 - 1


def _merged(classes: Int64, logits: Float64, k: int) -> tuple[Int64, Float64]:
    """The k highest of each row, by falling logit, then by class; rows come with ascending classes, -1 as filling."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(classes, order, axis=1), np.take_along_axis(logits, order, axis=1)
