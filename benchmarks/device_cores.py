"""Adaptive and sign codes on one core and on all, compared with FAISS: nanoseconds per (code, query) pair.

    python benchmarks/device_cores.py [--entries 100000] [--threads 1 16] [--paths avx512 avx2] [--json FILE]

Needs NumPy, the source tree and the compiled library; faiss if it is there. Adaptive codes keep 512 of 8,192
projections; sign codes have 192 bits; the ten best are kept. Every case runs all its columns in turn until it has
taken --seconds (three rounds at least), and shows the least time of each: of processor time on one thread, which other
work on the machine disturbs least, and of wall-clock time on several.
"""

import argparse
import os
import time

import numpy as np
from shared.results import save

from topsign import kernels
from topsign.kernels import CodeRange, Layout

K, N_POOL = 10, 8192
LAYOUTS = {
    "fast": Layout("fast", 512, N_POOL),
    "compact": Layout("compact", 512, N_POOL),
    "signs": Layout("signs", 192, 192),
}
BATCHES = {"fast": (1, 4, 16, 256), "compact": (1, 4, 16, 256), "signs": (1, 16, 256)}
FLAT_BITS = {"fast": (512, 3272), "compact": (512, 3272), "signs": (192,)}


def random_codes(kernel, rng, layout, n_codes):
    """Codes of uniform random signs, with 2,000 sets of locations in turn."""
    if layout.name == "signs":
        return rng.integers(0, 256, (n_codes, layout.code_bytes), dtype=np.uint8)
    projected = rng.standard_normal((min(n_codes, 2000), layout.n_pool), dtype=np.float32)
    locations = np.resize(kernel.select(projected, layout.n_bits)[0], (n_codes, layout.n_bits))
    return kernel.pack_codes(layout, locations, rng.integers(0, 256, (n_codes, layout.sign_bytes), dtype=np.uint8))


def flat_runs(faiss, rng, bits, n_codes, n_queries):
    """Search of a flat FAISS index of this number of bits."""
    index = faiss.IndexBinaryFlat(bits)
    index.add(rng.integers(0, 256, (n_codes, bits // 8), dtype=np.uint8))
    asked = rng.integers(0, 256, (n_queries, bits // 8), dtype=np.uint8)
    return lambda: index.search(asked, K)


def least_seconds(runs, clock, seconds):
    """Return the minimum time of each run, with all runs interleaved."""
    least, rounds, until = dict.fromkeys(runs, np.inf), 0, time.perf_counter() + seconds
    while rounds < 3 or time.perf_counter() < until:
        for name, run in runs.items():
            start = clock()
            run()
            least[name] = min(least[name], clock() - start)
        rounds += 1
    return least, rounds


def case(kind, name, n_queries, n_threads, paths, faiss, codes, rng, options):
    """Return one row: nanoseconds per pair of every path and of FAISS."""
    layout = LAYOUTS[name]
    n_codes = len(codes)
    queries = rng.standard_normal((n_queries, layout.n_pool), dtype=np.float32)
    bits = next(iter(paths.values())).pack_bits(queries)
    ranges = [CodeRange(codes)]
    runs = {}
    for path, kernel in paths.items():
        if kind == "Hamming":
            runs[path] = lambda kernel=kernel: kernel.rank_mismatches(layout, ranges, bits, K, n_threads=n_threads)
        else:
            runs[path] = lambda kernel=kernel: kernel.rank_scores(layout, ranges, queries, K, n_threads=n_threads)
    if faiss is not None and kind == "Hamming":
        faiss.omp_set_num_threads(n_threads)
        for width in FLAT_BITS[name]:
            runs[f"faiss {width} bits"] = flat_runs(faiss, rng, width, n_codes, n_queries)
    clock = time.thread_time if n_threads == 1 else time.perf_counter
    taken, rounds = least_seconds(runs, clock, options.seconds)
    row = {"kind": kind, "layout": name, "queries": n_queries, "threads": n_threads, "codes": n_codes}
    row |= {"rounds": rounds, "ns": {run: 1e9 * least / (n_codes * n_queries) for run, least in taken.items()}}
    title = f"{kind} {name}, {n_queries} queries, {n_threads} threads"
    print(f"{title:44s}" + "".join(f"{run:>17s} {ns:8.3f}" for run, ns in row["ns"].items()), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count()])
    parser.add_argument("--paths", nargs="+", default=[name for name in kernels.available() if name != "portable"])
    parser.add_argument("--seconds", type=float, default=2.0, help="that a row takes, about")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    try:
        import faiss
    except ImportError:
        faiss = None
        print("faiss is not installed: its columns are missing (pip install topsign[bench])")
    rng = np.random.default_rng(0)
    paths = {name: kernels.use(name).__enter__() for name in options.paths}
    rows = []
    for name, layout in LAYOUTS.items():
        codes = random_codes(next(iter(paths.values())), rng, layout, options.entries)
        for n_threads in sorted(set(options.threads)):
            for n_queries in BATCHES[name]:
                for kind in ("Hamming", "real-valued"):
                    rows.append(case(kind, name, n_queries, n_threads, paths, faiss, codes, rng, options))
                    if options.json:
                        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
