"""Large sets of vectors that resemble sentences, indexes of them, and times of searches."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import topsign as ts

N_BYTES = 24
N_SOURCES, N_MIXED, SPREAD = 30, 12, 0.7
CHUNK = 20_000


def unit(rows):
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def near(vectors, rows):
    """The nearest other vectors of some of the vectors, nearest first."""

    def find(start):
        scores = vectors[rows[start : start + 512]] @ vectors.T
        best = np.argpartition(-scores, N_SOURCES, axis=1)[:, : N_SOURCES + 1]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)[:, 1:].astype(np.int32)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return np.concatenate(list(pool.map(find, range(0, len(rows), 512))))


def drawn(sources, neighbors, rng):
    """Neighbours of each source, and their weights, (N_MIXED, n_sources)."""
    rows, parts = np.arange(len(sources)), []
    for _ in range(N_MIXED):
        other = neighbors[rows, rng.integers(N_SOURCES, size=len(sources))]
        parts.append((other, SPREAD / np.sqrt(N_MIXED) * rng.standard_normal((len(sources), 1)).astype(np.float32)))
    return parts


def mixed(vectors, sources, parts):
    """A vector between each source and its neighbours."""
    own = vectors[sources]
    made = own.copy()
    for other, weights in parts:
        made += (vectors[other] - own) * weights
    return unit(made).astype(np.float16)


def resampled(vectors, n_entries, cache):
    """Vectors between each sentence and its neighbours, as float16, cached in a file."""
    path = Path(cache) / f"resampled-{len(vectors)}-{n_entries}.npy"
    if not path.exists():
        neighbors = near(vectors, np.arange(len(vectors)))
        rng, made = np.random.default_rng(1), np.empty((n_entries, vectors.shape[1]), np.float16)

        def make(start, sources, parts):
            made[start : start + CHUNK] = mixed(vectors, sources, parts)

        n_threads = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(n_threads) as pool:
            waiting = []
            for start in range(0, n_entries, CHUNK):
                sources = rng.integers(len(vectors), size=min(CHUNK, n_entries - start))
                waiting.append(pool.submit(make, start, sources, drawn(sources, neighbors[sources], rng)))
                if len(waiting) > n_threads:
                    waiting.pop(0).result()
            for one in waiting:
                one.result()
        np.save(path, made)
    return np.load(path, mmap_mode="r")


def resampled_queries(vectors, n_queries):
    """Vectors that are made as the entries are, and are none of them."""
    rng = np.random.default_rng(2)
    sources = rng.integers(len(vectors), size=n_queries)
    return mixed(vectors, sources, drawn(sources, near(vectors, sources), rng)).astype(np.float32)


def exact_neighbors(entries, queries, k=10):
    """Places of the k entries with the largest inner products, (n_queries, k), in no order."""
    best = np.empty((len(queries), 0), np.float32)
    rows = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(entries), CHUNK):
        scores = queries @ np.asarray(entries[start : start + CHUNK], np.float32).T
        few = np.argpartition(-scores, k, axis=1)[:, :k] if scores.shape[1] > k else np.arange(scores.shape[1])[None]
        best = np.concatenate([best, np.take_along_axis(scores, few, axis=1)], axis=1)
        rows = np.concatenate([rows, np.broadcast_to(few + start, (len(queries), few.shape[1]))], axis=1)
        kept = np.argsort(-best, axis=1)[:, :k]
        best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
    return rows


def recalls_of(found, exact):
    """Share of each query's exact neighbours that was found."""
    return np.array([np.isin(b, a).mean() for a, b in zip(np.asarray(found), exact, strict=True)])


def index_of(entries, *, n_bytes=N_BYTES, **place):
    """A trellis index of these entries, and the seconds that it took."""
    start = time.perf_counter()
    index = ts.TrellisIndex(n_features=entries.shape[1], n_bytes=n_bytes, random_state=7, **place)
    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice(len(entries), min(len(entries), 20_000), replace=False))
    index.fit(np.asarray(entries[sample], np.float32))
    for at in range(0, len(entries), CHUNK):
        index.add(np.asarray(entries[at : at + CHUNK], np.float32))
    return index, time.perf_counter() - start


def processor_seconds(calls, repeats):
    """Least processor time of each call over interleaved repeats: other work on the machine does not count as much."""
    least = np.full(len(calls), np.inf)
    for _ in range(repeats + 1):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - start)
    return least
