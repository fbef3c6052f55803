"""NumPy implementation of the kernels for comparison, with the same methods and bit-identical results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy_trellis import NumpyTrellis, collect, rank

from topsign import kernels
from topsign._arrays import Array, Booleans, Bytes, Float32, Float64, Int32, Int64
from topsign.kernels import CodeRange, Layout, Product, choice
from topsign.kernels.layout import BLOCK_ROWS

LANES = 16

SOME_QUERIES = 64

PATHS = [*kernels.available(), "numpy"]
"""Paths of the library that run here, and the kernels of this module."""


@contextmanager
def use_path(name):
    """Run a block of code on one of :data:`PATHS`."""
    if name != "numpy":
        with kernels.use(name) as chosen:
            yield chosen
        return
    before, choice._active = choice._active, NumpyKernels()
    try:
        yield choice._active
    finally:
        choice._active = before


class NumpyKernels(NumpyTrellis):
    """NumPy version of :class:`topsign.kernels.Kernels`; it uses no threads."""

    name = "numpy"

    def rotate(
        self, signals: Float32, signs: Bytes, *, transpose: bool = False, out: Float32 | None = None, n_threads: int = 1
    ) -> Float32:
        n = signals.shape[1]
        p = 1 << (n.bit_length() - 1)
        shrink, grow = np.float32(1 / np.sqrt(p)), np.float32(np.sqrt(n))
        flips = np.where(unpack_bits(signs, n), np.float32(1), np.float32(-1))
        x = signals.copy()
        if p == n:  # the last transform is not scaled, which gives the factor sqrt(n)
            for r, flip in reversed(list(enumerate(flips))) if transpose else enumerate(flips):
                flip = flip * shrink if r > 0 else flip
                x = _transform(x) * flip if transpose else _transform(x * flip)
        else:
            for r, flip in reversed(list(enumerate(flips))) if transpose else enumerate(flips):
                block = slice(n - p, n) if r % 2 else slice(0, p)
                if transpose:
                    x = _mix_halves(x)
                    x[:, block] = _transform(x[:, block] * shrink)
                    x = x * flip
                else:
                    x = x * flip
                    x[:, block] = _transform(x[:, block]) * shrink
                    x = _mix_halves(x)
            x = x * grow
        if out is None:
            return x
        out[:] = x
        return out

    def multiply(
        self,
        signals: Float32,
        products: Sequence[Product],
        *,
        factors: Float32 | None = None,
        n_threads: int = 1,
    ) -> list[Float32]:
        scaled = signals if factors is None else signals * factors[:, np.newaxis]
        found = []
        for one in products:
            values = scaled if one.rows is None else scaled[one.rows]
            values = values if one.minus is None else values - one.minus
            columns = one.panels.values.transpose(1, 0, 2).reshape(signals.shape[1], -1)[:, : one.panels.n_columns]
            sums = np.empty((len(values), one.panels.n_columns), np.float32) if one.out is None else one.out
            sums[:] = 0
            for value, terms in zip(values.T, columns, strict=True):
                sums += value[:, np.newaxis] * terms
            found.append(sums)
        return found

    def square_norms(self, signals: Float32, *, n_threads: int = 1) -> Float64:
        values = signals.astype(np.float64)
        return _lane_sums(values * values)

    def inner_products(self, rows: Float32, vector: Float64, *, n_threads: int = 1) -> Float64:
        return _lane_sums(rows.astype(np.float64) * vector)

    def select(self, projected: Float32, n_bits: int, *, n_threads: int = 1) -> tuple[Int32, Bytes, Float64]:
        by_magnitude = np.argsort(-np.abs(projected), axis=1, kind="stable")  # ties: the lower row wins
        locations = np.sort(by_magnitude[:, :n_bits], axis=1).astype(np.int32)
        kept = np.take_along_axis(projected, locations, axis=1)
        return locations, pack_booleans(kept >= 0), _lane_sums(np.abs(kept.astype(np.float64)))

    def magnitude_sums(self, projected: Float32, *, n_threads: int = 1) -> Float64:
        return _lane_sums(np.abs(projected.astype(np.float64)))

    def pack_bits(self, projected: Float32, *, n_threads: int = 1) -> Bytes:
        return pack_booleans(projected >= 0)

    def pack_codes(self, layout: Layout, locations: Int32, signs: Bytes, *, n_threads: int = 1) -> Bytes:
        entries = np.arange(len(locations))[:, np.newaxis]
        if layout.name == "fast":
            counts = np.zeros((len(locations), layout.n_blocks), np.uint8)
            np.add.at(counts, (entries, locations // BLOCK_ROWS), 1)
            offsets = locations % BLOCK_ROWS
            positive = unpack_bits(signs, layout.n_bits)
            return np.hstack([counts, (positive << 7 | (offsets & 7) << 4 | offsets >> 3).astype(np.uint8)])
        lows = (locations[:, :, np.newaxis] >> np.arange(layout.low_bits) & 1).astype(bool)
        highs = np.zeros((len(locations), layout.high_size), bool)
        steps = np.arange(layout.n_bits) if layout.low_bits else 0
        highs[entries, (locations >> layout.low_bits) + steps] = True
        return np.hstack(
            [signs, pack_booleans(lows.reshape(len(locations), layout.n_bits * layout.low_bits)), pack_booleans(highs)]
        )

    def unpack_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> tuple[Int32, Bytes]:
        rows, positive, given = (_unpack_fast if layout.name == "fast" else _unpack_compact)(layout, codes)
        rows = np.where(given, np.minimum(rows, layout.n_pool - 1), 0)  # damaged bytes: stay in the pool
        return rows.astype(np.int32), pack_booleans(positive | ~given)

    def valid_codes(self, layout: Layout, codes: Bytes, *, n_threads: int = 1) -> Booleans:
        if layout.name == "signs":
            packed, ascending = pack_booleans(unpack_bits(codes, layout.n_bits) != 0), np.ones(len(codes), np.bool_)
        else:
            locations, signs = self.unpack_codes(layout, codes)
            packed = self.pack_codes(layout, locations, signs)
            ascending = np.logical_and.reduce(np.diff(locations) > 0, axis=1)
        valid: Booleans = ascending & np.logical_and.reduce(packed == codes, axis=1)
        return valid

    def mismatches(self, layout: Layout, codes: Bytes, query_bits: Bytes, *, n_threads: int = 1) -> Int32:
        if layout.name == "signs":
            words = [np.bitwise_count(codes ^ query).sum(axis=1, dtype=np.int32) for query in query_bits]
            return np.array(words, np.int32).reshape(len(query_bits), len(codes))
        locations, signs = self.unpack_codes(layout, codes)
        positive = unpack_bits(signs, layout.n_bits)
        queries = unpack_bits(query_bits, layout.n_pool)
        counts = [(query[locations] != positive).sum(axis=1, dtype=np.int32) for query in queries]
        return np.array(counts, np.int32).reshape(len(queries), len(codes))

    def score_sums(self, layout: Layout, codes: Bytes, queries: Float32, *, n_threads: int = 1) -> Float32:
        if layout.name == "signs":
            plus_minus = np.where(unpack_bits(codes, layout.n_bits), 1.0, -1.0)
            sums = [_lane_sums(query.astype(np.float64) * plus_minus) for query in queries]
        else:
            locations, signs = self.unpack_codes(layout, codes)
            plus_minus = np.where(unpack_bits(signs, layout.n_bits), 1.0, -1.0)
            sums = [_lane_sums(query.astype(np.float64)[locations] * plus_minus) for query in queries]
        return np.array(sums, np.float32).reshape(len(queries), len(codes))

    def rank_mismatches(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        query_bits: Bytes,
        k: int,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int32]:
        living = _Living(ranges)
        mismatches = np.full((len(query_bits), k), -1, np.int32)
        return living.rank(self._counts(layout, living.codes, query_bits, masks), mismatches)

    def rank_scores(
        self, layout: Layout, ranges: Sequence[CodeRange], queries: Float32, k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        living = _Living(ranges)
        scores = np.full((len(queries), k), np.nan, np.float32)
        return living.rank(self._weighted(layout, living, queries), scores, descending=True)

    def within_mismatches(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        query_bits: Bytes,
        radii: Int32,
        *,
        masks: Bytes | None = None,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Int32]:
        living = _Living(ranges)
        found = zip(self._counts(layout, living.codes, query_bits, masks), radii, strict=True)
        return living.collect([(counts, counts <= radius) for counts, radius in found], np.int32)

    def within_scores(
        self,
        layout: Layout,
        ranges: Sequence[CodeRange],
        queries: Float32,
        thresholds: Float32,
        *,
        n_threads: int = 1,
    ) -> tuple[Int64, Int64, Float32]:
        living = _Living(ranges)
        found = zip(self._weighted(layout, living, queries), thresholds, strict=True)
        return living.collect([(scores, scores >= least) for scores, least in found], np.float32)

    def _counts(self, layout: Layout, codes: Bytes, query_bits: Bytes, masks: Bytes | None) -> Iterator[Int32]:
        """Yield the mismatches of each query with all codes, which are unpacked once per few queries."""
        if masks is not None:
            for query, mask in zip(query_bits, masks, strict=True):
                yield self.mismatches(layout, codes & mask, (query & mask)[np.newaxis])[0]
            return
        for start in range(0, len(query_bits), SOME_QUERIES):
            yield from self.mismatches(layout, codes, query_bits[start : start + SOME_QUERIES])

    def _weighted(self, layout: Layout, living: _Living, queries: Float32) -> Iterator[Float32]:
        for start in range(0, len(queries), SOME_QUERIES):
            for sums in self.score_sums(layout, living.codes, queries[start : start + SOME_QUERIES]):
                yield sums if living.weights is None else sums * living.weights

    def encode_sets(self, locations: Int32, n_pool: int, capacity: int, *, n_threads: int = 1) -> tuple[Bytes, Int64]:
        coded = [_encode_set(row.tolist(), n_pool) for row in locations]
        out = np.zeros((len(coded), capacity), np.uint8)
        for row, one in zip(out, coded, strict=True):
            row[: len(one)] = np.frombuffer(one, np.uint8)
        return out, np.array([len(one) for one in coded], np.int64)

    def decode_sets(self, coded: Bytes, n_bits: int, n_pool: int, *, n_threads: int = 1) -> Int32:
        sets = [_decode_set(row.tobytes(), n_bits, n_pool) for row in coded]
        return np.array(sets, np.int32).reshape(len(coded), n_bits)


class _Living:
    """Codes of all ranges that take part in a search."""

    def __init__(self, ranges: Sequence[CodeRange]) -> None:
        pairs = [(one, _living(one.codes, one.alive)) for one in ranges]
        self.codes = np.concatenate([one.codes[kept] for one, kept in pairs])
        self.rows = np.concatenate([one.first_row + kept for one, kept in pairs])
        self.ids = np.concatenate([one.first_row + kept if one.ids is None else one.ids[kept] for one, kept in pairs])
        self.weights: Float32 | None = None
        if ranges[0].weights is not None:
            self.weights = np.concatenate([one.weights[kept] for one, kept in pairs if one.weights is not None])

    def rank(self, found: Iterator[Array], values: Array, *, descending: bool = False) -> tuple[Int64, Any]:
        return rank(found, self.rows, self.ids, values, descending=descending)

    def collect(self, found: list[tuple[Array, Booleans]], dtype: Any) -> tuple[Int64, Int64, Any]:
        return collect(found, self.rows, dtype)


def _living(codes: Bytes, alive: Bytes | None) -> Int64:
    """Positions of the codes that take part."""
    return np.arange(len(codes)) if alive is None else np.flatnonzero(unpack_bits(alive, len(codes)))


def pack_booleans(booleans: Booleans) -> Bytes:
    return np.packbits(booleans, axis=-1, bitorder="little")


def unpack_bits(packed: Bytes, count: int) -> Bytes:
    return np.unpackbits(packed, axis=-1, count=count, bitorder="little")


def _unpack_fast(layout: Layout, codes: Bytes) -> tuple[Int64, Booleans, Booleans]:
    """Return rows, masks of positive signs, and masks of valid positions."""
    blocks = np.zeros((len(codes), layout.n_bits), np.int64)
    for row, counts in zip(blocks, codes[:, : layout.n_blocks], strict=True):
        filled = np.repeat(np.arange(layout.n_blocks), counts)[: layout.n_bits]
        row[: len(filled)] = filled
    totals = codes[:, : layout.n_blocks].sum(axis=1, dtype=np.int64)
    tail = codes[:, layout.n_blocks :].astype(np.int64)
    rows = blocks * BLOCK_ROWS + (tail & 15) * 8 + (tail >> 4 & 7)
    return rows, tail >> 7 != 0, totals[:, np.newaxis] > np.arange(layout.n_bits)


def _unpack_compact(layout: Layout, codes: Bytes) -> tuple[Int64, Booleans, Booleans]:
    """Return rows, masks of positive signs, and masks of valid positions in the high part."""
    m, low_end = layout.n_bits, layout.sign_bytes + layout.low_bytes
    positive = unpack_bits(codes[:, : layout.sign_bytes], m).astype(bool)
    low_bits = unpack_bits(codes[:, layout.sign_bytes : low_end], m * layout.low_bits)
    low_bits = low_bits.reshape(len(codes), m, layout.low_bits)
    lows = (low_bits.astype(np.int64) << np.arange(layout.low_bits)).sum(axis=2)
    entry, bit = np.nonzero(unpack_bits(codes[:, low_end:], 8 * (codes.shape[1] - low_end)))
    ones = np.bincount(entry, minlength=len(codes))
    order = np.arange(len(bit)) - np.repeat(np.cumsum(ones) - ones, ones)
    positions = np.zeros((len(codes), m), np.int64)
    wanted = order < m
    positions[entry[wanted], order[wanted]] = bit[wanted]
    highs = positions - np.arange(m) if layout.low_bits else positions
    return (highs << layout.low_bits) + lows, positive, ones[:, np.newaxis] > np.arange(m)


def _transform(x: Float32) -> Float32:
    """Walsh-Hadamard transform of each row, butterflies by ascending stride."""
    n_rows, n = x.shape
    x, h = x.copy(), 1
    while h < n:
        pairs = x.reshape(n_rows, n // (2 * h), 2, h)
        lower, upper = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([lower + upper, lower - upper], axis=2).reshape(n_rows, n)
        h *= 2
    return x


def _mix_halves(x: Float32) -> Float32:
    n = x.shape[1]
    scale = np.float32(np.sqrt(0.5))
    lower, upper = x[:, : n // 2], x[:, n - n // 2 :]
    mixed = x.copy()
    mixed[:, : n // 2], mixed[:, n - n // 2 :] = (lower + upper) * scale, (lower - upper) * scale
    return mixed


def _lane_sums(terms: Float64) -> Float64:
    """Return row sums in the order of additions of all kernels; unlike sum, cumsum adds sequentially."""
    n_rows, n = terms.shape
    n_steps = -(-max(n, 1) // LANES)
    padded = np.zeros((n_rows, n_steps * LANES))
    padded[:, :n] = terms
    lanes = padded.reshape(n_rows, n_steps, LANES).cumsum(axis=1)[:, -1]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.ascontiguousarray(lanes[:, 0])


def _encode_set(locations: list[int], n_pool: int) -> bytes:
    """Encode one set as in ``native/core/sets.cpp``, with ``low`` as one Python integer."""
    low, size, n_bytes = 0, 2**64 - 1, 0
    kept = 0
    for row in range(n_pool):
        left, rows_left = len(locations) - kept, n_pool - row
        if left in (0, rows_left):
            break
        split = size // rows_left * left
        if locations[kept] == row:
            size = split
            kept += 1
        else:
            low += split
            size -= split
        while size < 2**56:
            low, size, n_bytes = low << 8, size << 8, n_bytes + 1
    low = low + 2**56 - 1 >> 56
    return low.to_bytes(n_bytes + 1, "big").rstrip(b"\0")


def _decode_set(coded: bytes, n_bits: int, n_pool: int) -> list[int]:
    stream = iter(coded)
    value, size = 0, 2**64 - 1
    for _ in range(8):
        value = value << 8 | next(stream, 0)
    locations: list[int] = []
    for row in range(n_pool):
        left, rows_left = n_bits - len(locations), n_pool - row
        if left == 0:
            break
        if left == rows_left:
            locations.extend(range(row, n_pool))
            break
        split = size // rows_left * left
        if value < split:
            size = split
            locations.append(row)
        else:
            value -= split
            size -= split
        while size < 2**56:
            value, size = (value << 8 | next(stream, 0)) & 2**64 - 1, size << 8
    return locations
