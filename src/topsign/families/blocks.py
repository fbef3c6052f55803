"""Searches over blocks of scores: the k best of each query, or all that reach a bound."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._arrays import Array, Int64

Scored = Iterable[tuple[Int64, Int64, Array]]
"""Ids, rows and scores (n_queries, n_entries) of blocks of entries."""


def rank_blocks(blocks: Scored, n_queries: int, k: int) -> tuple[Int64, Array]:
    """Return rows and scores of the k largest scores of each query; ties by ascending id, row -1 and nan after."""
    ids, rows = np.empty((2, n_queries, 0), np.int64)
    best: Array = np.empty((n_queries, 0))
    for some_ids, some_rows, scores in blocks:
        ids = np.hstack([ids, np.broadcast_to(some_ids, scores.shape)])
        rows = np.hstack([rows, np.broadcast_to(some_rows, scores.shape)])
        best = np.hstack([best.astype(scores.dtype), scores])
        order = np.lexsort((ids, -best), axis=1)[:, :k]
        ids, rows = np.take_along_axis(ids, order, axis=1), np.take_along_axis(rows, order, axis=1)
        best = np.take_along_axis(best, order, axis=1)
    missing = k - rows.shape[1]
    if missing:
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
        best = np.pad(best, ((0, 0), (0, missing)), constant_values=np.nan)
    return rows, best


def within_blocks(blocks: Scored, bounds: Array) -> tuple[Int64, Int64, Array]:
    """Return starts, rows (ascending for each query) and scores of all that reach the bound of their query."""
    queries, rows, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for _, some_rows, scores in blocks:
        query, column = np.nonzero(scores >= bounds[:, np.newaxis])
        queries.append(query)
        rows.append(some_rows[column])
        values.append(scores[query, column])
    return grouped(np.concatenate(queries), np.concatenate(rows), np.concatenate(values), len(bounds))


def grouped(queries: Int64, rows: Int64, values: Array, n_queries: int) -> tuple[Int64, Int64, Array]:
    """Return starts, rows (ascending for each query) and values of hits that came in any order."""
    order = np.lexsort((rows, queries))
    starts = np.append(0, np.cumsum(np.bincount(queries, minlength=n_queries))).astype(np.int64)
    return starts, rows[order], values[order]
