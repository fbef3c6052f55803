"""Calibration of recall from queries that are compared with all entries once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import kernels
from .._arrays import Array, Float32, Int64
from ..families import Recipe, unit_queries
from ..store import Snapshot
from .engine import living_ranges, rank_ranges
from .recall import (
    MIN_QUERIES,
    N_CANDIDATES,
    N_NEIGHBORS,
    N_QUERIES,
    PILOT_SHARE,
    RecallCalibration,
    candidate_path,
    found_from,
    region_path,
)
from .regions import Regions
from .rescoring import KeptOriginals

BLOCK = 512  # queries per block; all signals are read once per block
EXACT_PRODUCTS = 10**12  # maximum number of products in the search for exact neighbours


def n_calibration(snapshot: Snapshot, n_features: int, *, exact: bool) -> int:
    """Return the number of calibration queries, which is smaller if many signals must be compared exactly."""
    affordable = EXACT_PRODUCTS // max(1, len(snapshot) * n_features) if exact else N_QUERIES
    return int(np.clip(affordable, MIN_QUERIES, N_QUERIES))


def calibrate_recall(
    recipe: Recipe,
    snapshot: Snapshot,
    regions: Regions,
    queries: Array,
    *,
    own_ids: Int64 | None,
    originals: KeptOriginals | None,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RecallCalibration:
    """Compare queries with all entries and record which settings find their neighbours.

    ``own_ids`` are the ids of queries that are entries themselves, and are left out of their own search.
    """
    threads = kernels.n_threads(n_threads)
    path, counts = region_path(len(regions)), regions.order.counts(snapshot)
    assert counts is not None  # all entries are assigned when regions are learned
    n_extra = 0 if own_ids is None else 1
    n_listed = N_NEIGHBORS if originals is None else N_CANDIDATES
    best, visited, near, by_code, listed = [], [], [], [], []
    for start in range(0, len(queries), BLOCK):
        part = slice(start, min(start + BLOCK, len(queries)))
        units, _ = unit_queries(recipe, queries[part], n_threads=threads)
        scores = regions.scores(units, n_threads=threads)
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(len(regions))[np.newaxis], axis=1)
        visited.append(np.cumsum(counts[order], axis=1)[:, path - 1])
        best.append(scores.max(axis=1))
        comparison = recipe.prepare(queries, part=part, n_threads=threads)
        n_wanted = min(n_listed + n_extra, len(snapshot))
        hits = rank_ranges(comparison, snapshot, living_ranges(snapshot), n_wanted, threads)
        rows = _without_own(hits.rows.reshape(len(units), -1), snapshot, None if own_ids is None else own_ids[part])
        if originals is None:
            near.append(_ranks_of(snapshot, rows[:, :N_NEIGHBORS], ranks))
        else:
            n_exact = min(N_NEIGHBORS + n_extra, len(snapshot))
            exact = originals.best_rows(snapshot, queries[part], n_exact, metric=recipe.metric)
            exact = _without_own(exact, snapshot, None if own_ids is None else own_ids[part])
            near.append(_ranks_of(snapshot, exact, ranks))
            listed.append(_ranks_of(snapshot, rows, ranks))
            by_code.append(_places(exact, rows))
        if progress is not None:
            progress(part.stop, len(queries))
    region_ranks = _filled(np.concatenate(near), len(regions))
    scores_best, seen = np.concatenate(best), np.concatenate(visited).astype(np.float64)
    if originals is None:
        found, candidates = region_ranks[np.newaxis] < path[:, np.newaxis, np.newaxis], np.zeros(len(path), np.int64)
        kept = slice(None)
    else:
        code_ranks = _filled(np.concatenate(by_code), n_listed)
        n_pilot = int(PILOT_SHARE * len(queries))  # they determine the path; the others calibrate the settings on it
        kept = slice(n_pilot, None)
        candidates = candidate_path(region_ranks[:n_pilot, :10], code_ranks[:n_pilot, :10], path)
        inside = np.concatenate(listed)[kept]
        found = _found_at(region_ranks[kept], code_ranks[kept], inside, path, candidates)
    return RecallCalibration.of(
        generation=regions.generation,
        of_signals=originals is not None,
        own=own_ids is not None,
        path=path,
        candidates=candidates,
        best=scores_best[kept],
        found=found_from(found if originals is not None else found[:, kept]),
        visited=seen[kept],
    )


def _without_own(rows: Int64, snapshot: Snapshot, own: Int64 | None) -> Int64:
    """Return the rows of each query without the query's own row, or without the last row if that is not listed."""
    if own is None:
        return rows
    ids = snapshot.gather("ids", rows.ravel()).reshape(rows.shape)
    is_own = ids == own[:, np.newaxis]
    is_own[~is_own.any(axis=1), -1] = True
    return np.asarray(rows[~is_own].reshape(len(rows), -1), np.int64)


def _ranks_of(snapshot: Snapshot, rows: Int64, ranks: Int64) -> Int64:
    """Return the rank of each entry's region in the order in which the query visits regions."""
    regions = snapshot.gather("regions", rows.ravel()).astype(np.int64).reshape(rows.shape)
    return np.take_along_axis(ranks, regions, axis=1)


def _places(rows: Int64, listed: Int64) -> Int64:
    """Return the position of each row in the list of its query; the length of the list if it is missing."""
    places = np.full(rows.shape, listed.shape[1], np.int64)
    for at, (some, known) in enumerate(zip(rows, listed, strict=True)):
        order = np.argsort(known)
        found = np.minimum(np.searchsorted(known, some, sorter=order), len(known) - 1)
        same = known[order[found]] == some
        places[at, same] = order[found[same]]
    return places


def _filled(ranks: Int64, never: int) -> Int64:
    """Pad ranks to N_NEIGHBORS neighbours; the added ones, which a small index lacks, are never found."""
    missing = N_NEIGHBORS - ranks.shape[1]
    return np.pad(ranks, ((0, 0), (0, max(0, missing))), constant_values=never)


def _found_at(region_ranks: Int64, code_ranks: Int64, listed: Int64, path: Int64, candidates: Int64) -> Array:
    """Return whether each setting finds each neighbour: it visits the region and the entry is among the candidates."""
    found = np.empty((len(path), *region_ranks.shape), bool)
    for setting, (n_regions, n_candidates) in enumerate(zip(path, candidates, strict=True)):
        before = np.cumsum(np.pad(listed < n_regions, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
        ahead = np.take_along_axis(before, np.minimum(code_ranks, listed.shape[1]), axis=1)
        inside = (region_ranks < n_regions) & (code_ranks < listed.shape[1])
        found[setting] = inside & (ahead < n_candidates)
    return found


def sample_rows(snapshot: Snapshot, n_rows: int, rng: np.random.Generator) -> Int64:
    """Return the rows of a random sample of live entries, ascending."""
    living = np.flatnonzero(np.concatenate([segment.living for segment in snapshot.segments]))
    return np.sort(rng.choice(living, min(n_rows, len(living)), replace=False))


def queries_of(recipe: Recipe, vectors: Float32) -> Float32:
    """Return decoded codes as queries, with the mean added that the recipe subtracts from queries."""
    return vectors if recipe.center is None else vectors + recipe.center
