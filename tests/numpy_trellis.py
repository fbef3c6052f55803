"""NumPy implementation of the trellis kernels, for comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from topsign._arrays import Array, Booleans, Bytes, Float32, Int32, Int64
from topsign.kernels import (
    CellColumns,
    QueriedCells,
    RoundedCells,
    RoundedQueries,
    TrellisRange,
    TrellisSignals,
    TrellisTables,
)
from topsign.kernels.trellis import DEPTH, N_SEQUENCES, Events, Int8, trellis_levels, unpack_norms

FORBIDDEN = np.uint32(1 << 30)


class NumpyTrellis:
    """NumPy version of the trellis methods of :class:`topsign.kernels.Kernels`."""

    def trellis_round(
        self, projected: Float32, columns: CellColumns, constants: Float32, *, n_threads: int = 1
    ) -> RoundedCells:
        values, scales, fine = [], [], []
        for numbers, weights, bits in zip(
            np.split(columns.numbers, np.cumsum(columns.sizes)),
            np.split(columns.weights, np.cumsum(columns.sizes)),
            columns.fine_bits,
            strict=False,
        ):
            weighted = projected[:, numbers] * weights
            steps = np.abs(weighted).max(axis=1) / (127 * 2**bits)
            rounded = np.rint(weighted / np.where(steps > 0, steps, 1)[:, np.newaxis]).astype(np.int32)
            high = (rounded + (1 << bits >> 1)) >> bits
            values.append(high.astype(np.int8).ravel())
            fine.append((rounded - (high << bits)).astype(np.int8).ravel())
            scales.append(steps.astype(np.float32))
        whole = np.concatenate(values), np.array(scales), constants, np.concatenate(fine)
        return RoundedCells(*whole, columns.sizes, columns.fine_bits)

    def trellis_encode(self, cells: Sequence[TrellisSignals], *, n_threads: int = 1) -> Bytes:
        codes = np.empty((sum(len(cell.values) for cell in cells), cells[0].tables.code_bytes), np.uint8)
        for cell in cells:
            rows = np.arange(len(cell.values)) if cell.rows is None else cell.rows
            for start in range(0, len(rows), 64):
                codes[rows[start : start + 64]] = _Viterbi(cell.tables, cell.values[start : start + 64]).codes()
            codes[rows, cell.tables.n_bits // 8 % codes.shape[1]] |= np.uint8(cell.mark)
        return codes

    def trellis_decode(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Int8:
        bits = np.unpackbits(codes, axis=1)[:, : tables.n_bits].astype(np.int64)
        words = np.zeros_like(bits)
        for place in range(16):
            words = words << 1 | np.roll(bits, -place, axis=1) * (place < tables.window)
        multipliers, addends = tables.sequences
        turn = np.arange(tables.n_coded) % N_SEQUENCES
        scrambled = words[:, tables.offsets] * multipliers[turn] + addends[turn] & 0xFFFF
        return trellis_levels()[scrambled >> 9]

    def trellis_weights(self, tables: TrellisTables, codes: Bytes, *, n_threads: int = 1) -> Float32:
        levels = self.trellis_decode(tables, codes).astype(np.int32)
        sums = (levels * (levels * tables.quadratic + tables.linear)).sum(axis=1, dtype=np.int32)
        squares = sums.astype(np.float32) * np.float32(tables.unit) + np.float32(tables.constant)
        positive = squares > 0
        roots = np.sqrt(np.where(positive, squares, np.float32(1)))
        return np.where(positive, np.float32(1) / roots, np.float32(0))

    def trellis_sums(
        self, tables: TrellisTables, codes: Bytes, queries: RoundedQueries, *, n_threads: int = 1
    ) -> Int32:
        levels, values = self.trellis_decode(tables, codes), queries.values.astype(np.int32)
        if queries.fine is not None:
            values = values * 2**queries.fine_bits + queries.fine
        return values @ levels.astype(np.int32).T

    def rank_trellis(
        self, cells: QueriedCells, ranges: Sequence[TrellisRange], k: int, *, n_threads: int = 1
    ) -> tuple[Int64, Float32]:
        scores, rows, ids = self._scores(cells, ranges)
        return rank(iter(scores), rows, ids, np.full((len(scores), k), np.nan, np.float32), descending=True)

    def within_trellis(
        self, cells: QueriedCells, ranges: Sequence[TrellisRange], thresholds: Float32, *, n_threads: int = 1
    ) -> tuple[Int64, Int64, Float32]:
        scores, rows, _ = self._scores(cells, ranges)
        reached = scores >= thresholds[:, np.newaxis]
        return collect(list(zip(scores, reached, strict=True)), rows, np.float32)

    def _scores(self, cells: QueriedCells, ranges: Sequence[TrellisRange]) -> tuple[Float32, Int64, Int64]:
        """Scores of the codes that take part, their rows and their ids."""
        parts = [
            (self._scores_of(cells, number, one.codes[living]), one, living)
            for one in ranges
            for number, living in _living(one)
        ]
        scores = np.concatenate([found for found, _, _ in parts], axis=1)
        rows = [one.first_row + living for _, one, living in parts]
        ids = [at if one.ids is None else one.ids[kept] for at, (_, one, kept) in zip(rows, parts, strict=True)]
        return scores, np.concatenate(rows), np.concatenate(ids)

    def _scores_of(self, cells: QueriedCells, number: int, codes: Bytes) -> Float32:
        tables, queries = cells.tables.cells[number], cells.queries[number]
        sums = self.trellis_sums(tables, codes, queries).astype(np.float32)
        weights = self.trellis_weights(tables, codes)
        if cells.norms:
            weights = weights * unpack_norms(codes[:, -2:])
        scores = (sums * queries.scales[:, np.newaxis] + queries.constants[:, np.newaxis]) * weights
        return scores + np.float32(0)  # no negative zeros


def _living(one: TrellisRange) -> list[tuple[int, Int64]]:
    """Positions of the codes that take part, by cell."""
    alive = np.ones(len(one.codes), bool)
    if one.alive is not None:
        alive = np.unpackbits(one.alive, count=len(one.codes), bitorder="little") > 0
    if one.cells is None:
        return [(0, np.flatnonzero(alive))]
    parts = np.split(one.cells.positions, one.cells.starts[1:-1])
    return [(number, positions[alive[positions]]) for number, positions in enumerate(parts)]


def rank(
    found: Iterator[Array], rows: Int64, ids: Int64, values: Array, *, descending: bool = False
) -> tuple[Int64, Any]:
    """Return the rows of the k best codes of each query and write their values to ``values``, (n_queries, k)."""
    best_rows = np.full(values.shape, -1, np.int64)
    for i, row in enumerate(found):
        best = np.lexsort((ids, -row if descending else row))[: values.shape[1]]
        best_rows[i, : len(best)], values[i, : len(best)] = rows[best], row[best]
    return best_rows, values


def collect(found: list[tuple[Array, Booleans]], rows: Int64, dtype: Any) -> tuple[Int64, Int64, Any]:
    """Return starts, ascending rows and values of the codes selected for each query."""
    starts = np.append(0, np.cumsum([chosen.sum() for _, chosen in found])).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    kept = [order[chosen[order]] for _, chosen in found]
    values = [row[some] for (row, _), some in zip(found, kept, strict=True)]
    all_rows = np.concatenate([np.empty(0, np.int64), *(rows[some] for some in kept)])
    return starts, all_rows, np.concatenate([np.empty(0, dtype), *values])


class _Viterbi:
    """Viterbi search for several entries at once."""

    def __init__(self, tables: TrellisTables, values: Float32) -> None:
        self.tables, self.n_states = tables, 2**tables.window
        limit = np.float32(tables.limit)
        self.targets = np.rint(np.clip(values * tables.scales, -limit, limit)).astype(np.int64)
        self.starts, self.ends, self.offsets, self.advances = Events.of(tables)
        self.rows = level_rows(tables).astype(np.int64)

    def codes(self) -> Bytes:
        """Packed codes."""
        n_events = len(self.starts)
        around = min(n_events, 2 * DEPTH * self.tables.window)
        begin = n_events - around // 2
        costs, choices = self._run(begin, around, None)
        paths = self._trace(begin, choices, _least(costs))
        first = paths[n_events - begin]
        costs, choices = self._run(0, n_events, first)
        last = first if n_events == 1 else self._before(costs, first)
        return self._pack(self._trace(0, choices, last))

    def _event_costs(self, number: int) -> Array:
        """Return costs modulo 2**32, (n_entries, n_states)."""
        tables, coordinates = self.tables, slice(self.starts[number], self.ends[number])
        rows = self.rows[np.arange(tables.n_coded)[coordinates] % N_SEQUENCES]
        shifts = tables.square_shifts[coordinates, np.newaxis].astype(np.int64)
        squares = tables.squares[coordinates, np.newaxis] * rows**2
        base = ((squares + (1 << shifts >> 1)) >> shifts).sum(axis=0)
        sums = self.targets[:, coordinates] @ rows << int(tables.shifts[self.starts[number]])
        return np.asarray(base - sums & 0xFFFFFFFF, np.uint32)

    def _run(self, begin: int, count: int, first: Array | None) -> tuple[Array, list[Array]]:
        """Return the costs of the last states, and the decisions of each event but the first."""
        n_events, choices = len(self.starts), []
        costs = self._event_costs(begin % n_events)
        if first is not None:
            costs = costs + np.where(np.arange(self.n_states) == first[:, np.newaxis], np.uint32(0), FORBIDDEN)
        for number in (np.arange(begin + 1, begin + count) % n_events).tolist():
            before = costs.reshape(len(costs), 2 ** self.advances[number], -1)
            chosen = _least(before)
            least = np.take_along_axis(before, chosen[:, np.newaxis], axis=1)[:, 0]
            costs = np.repeat(least, 2 ** self.advances[number], axis=1) + self._event_costs(number)
            choices.append(chosen)
        return costs, choices

    def _trace(self, begin: int, choices: list[Array], state: Array) -> list[Array]:
        """States of all events of a run."""
        path, n_events = [state], len(self.starts)
        for step in range(len(choices), 0, -1):
            advance = self.advances[(begin + step) % n_events]
            low = path[-1] >> advance
            chosen = choices[step - 1][np.arange(len(low)), low]
            path.append(chosen << self.tables.window - advance | low)
        return path[::-1]

    def _before(self, costs: Array, first: Array) -> Array:
        advance = self.advances[0]
        states = np.arange(2**advance) << self.tables.window - advance | (first >> advance)[:, np.newaxis]
        best = _least(np.take_along_axis(costs, states, axis=1))
        return states[np.arange(len(states)), best]

    def _pack(self, path: list[Array]) -> Bytes:
        bits = np.zeros((len(path[0]), 8 * self.tables.code_bytes), np.uint8)
        for offset, states in zip(self.offsets, path, strict=True):
            for place in range(self.tables.window):
                bits[:, (offset + place) % self.tables.n_bits] = states >> self.tables.window - 1 - place & 1
        return np.packbits(bits, axis=1)


def _least(costs: Array) -> Array:
    """Return the first minimum along axis 1, comparing differences modulo 2**32 by sign."""
    best = np.zeros((len(costs), *costs.shape[2:]), np.int64)
    least = costs[:, 0]
    for q in range(1, costs.shape[1]):
        less = (costs[:, q] - least).astype(np.int32) < 0
        best, least = np.where(less, q, best), np.where(less, costs[:, q], least)
    return best


def level_rows(tables: TrellisTables) -> Int8:
    """Return the level of each window for the coordinates of each sequence, (min(n_coded, 256), 2**window)."""
    multipliers, addends = (values[: tables.n_coded].astype(np.int64) for values in tables.sequences)
    words = np.arange(2**tables.window, dtype=np.int64) << 16 - tables.window
    scrambled = words * multipliers[:, np.newaxis] + addends[:, np.newaxis] & 0xFFFF
    return trellis_levels()[scrambled >> 9]
