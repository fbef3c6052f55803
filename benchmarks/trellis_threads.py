"""Trellis codes on one thread and on many, compared with FAISS PQ fast scan, interleaved in one run.

    python benchmarks/trellis_threads.py [--signals 500000] [--threads 16] [--repeats 5] [--json FILE]

Microseconds per signal of ``add`` into an index in memory, nanoseconds per pair of 256 queries, and per code of one
query, for 24-byte codes of 384 features along principal axes and with 16 local bases. On one thread ``add`` takes the
first 20,000 signals. faiss: IndexPQFastScan of 48 parts of 4 bits, the same 24 bytes. Every repeat runs each call
once; ``least`` is the time to compare on a shared machine. Signals are random with variances that fall as one over the
number of the axis.
"""

import argparse
import os
from functools import partial

import numpy as np
from shared.results import interleaved, save, spread

import topsign as ts
from topsign.store import MemoryStore

FEATURES, N_BYTES, K, QUERIES = 384, 24, 10, 256
ONE_THREAD = 20_000  # signals that one thread adds
LEARNED = 50_000


def make_signals(n):
    """Random signals with falling variances around a mean, as float32."""
    rng = np.random.default_rng(0)
    axes = (
        np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0] * np.arange(1, FEATURES + 1)[:, np.newaxis] ** -0.5
    )
    signals = np.empty((n, FEATURES), np.float32)
    for start in range(0, n, 2**14):
        some = signals[start : start + 2**14]
        some[:] = rng.standard_normal(some.shape, np.float32) @ axes.astype(np.float32) + 0.1
    return signals


def compared(what, calls, n_items, unit, repeats):
    """Times of calls by contestant and threads, per item in a unit of seconds, and how much more threads gain."""
    times = dict(zip(calls, interleaved(list(calls.values()), repeats).T, strict=True))
    rows = []
    for name in dict.fromkeys(name for name, _ in calls):
        counts = [threads for one, threads in calls if one == name]
        row = {"what": what, "of": name}
        row |= {f"threads_{n}": spread(times[name, n] / n_items[name, n] / unit) for n in counts}
        first, last = (row[f"threads_{n}"]["least"] for n in (min(counts), max(counts)))
        rows.append(row | {"gain": first / last})
        print(f"{what:26} {name:16} {first:8.3f} -> {last:8.3f}   {first / last:5.1f} times", flush=True)
    return rows


def trellis(options, signals, queries):
    """Additions to our indexes, and searches of them and of faiss PQ fast scan."""
    counts, indexes = sorted({1, options.threads}), {}
    adds, sizes = {}, {}
    for name, n_local in (("principal", 1), ("16 local bases", 16)):
        learned = ts.TrellisIndex(n_features=FEATURES, n_bytes=N_BYTES, n_local=n_local, random_state=0)
        recipe = learned.fit(signals[:LEARNED]).recipe
        indexes[name] = ts.Index(recipe, MemoryStore())
        indexes[name].add(signals, n_threads=options.threads)
        for threads in counts:
            sizes[name, threads] = min(len(signals), ONE_THREAD) if threads == 1 else len(signals)
            adds[name, threads] = partial(add, recipe, signals[: sizes[name, threads]], threads)
    rows = compared("add, us per signal", adds, sizes, 1e-6, min(3, options.repeats))
    import faiss

    faiss.omp_set_num_threads(options.threads)
    indexes["faiss fast scan"] = faiss.IndexPQFastScan(FEATURES, 2 * N_BYTES, 4, faiss.METRIC_INNER_PRODUCT)
    indexes["faiss fast scan"].train(signals[:LEARNED])
    indexes["faiss fast scan"].add(signals)
    for n_queries, what in ((QUERIES, f"{QUERIES} queries, ns per pair"), (1, "one query, ns per code")):
        some = queries[:n_queries]
        calls = {(name, n): partial(search, index, some, n) for name, index in indexes.items() for n in counts}
        pairs = dict.fromkeys(calls, n_queries * len(signals))
        rows += compared(what, calls, pairs, 1e-9, options.repeats * (1 if n_queries > 1 else 10))
    return rows


def add(recipe, signals, threads):
    """A new index in memory."""
    ts.Index(recipe, MemoryStore()).add(signals, n_threads=threads)


def search(index, queries, threads):
    """The ten best of each query, by us or by faiss."""
    if isinstance(index, ts.Index):
        index.search(queries, k=K, n_threads=threads)
        return
    import faiss

    faiss.omp_set_num_threads(threads)
    index.search(queries, K)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=500_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    signals = make_signals(options.signals)
    queries = make_signals(QUERIES)[:, ::-1].copy()
    measured = {"threads": trellis(options, signals, queries)}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
