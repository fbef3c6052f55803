"""Speed of every path that this processor can run, beside faiss, interleaved: nanoseconds per (entry, query) pair.

    python benchmarks/paths.py [--entries 100000] [--batches 1 16 64 256] [--threads 1] [--repeats 3]

Codes of 512 of 8192 and queries are uniform random, the ten best are kept. Medians are shown. With several threads the
fastest path also runs on one, and one query is timed over few codes, where threads could only lose.
"""

import argparse
import time

import numpy as np

from topsign import kernels
from topsign.kernels import Layout

N_BITS, N_POOL, K = 512, 8192, 10


def medians(functions, repeats):
    """Seconds of each function, run in turn."""
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def show(title, seconds, pairs):
    print(f"{title:24s}" + "".join(f"{name:>16s} {1e9 * taken / pairs:9.3f}" for name, taken in seconds.items()))


def flat_indexes(rng, n_entries):
    """faiss at equal computation and at equal storage."""
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: its columns are missing (pip install topsign[bench])")
        return {}
    faiss.omp_set_num_threads(1)
    indexes = {}
    for bits in (512, 3272):
        index = faiss.IndexBinaryFlat(bits)
        index.add(rng.integers(0, 256, (n_entries, bits // 8), dtype=np.uint8))
        indexes[bits] = index
    return indexes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(kernels.info())
    rng = np.random.default_rng(0)
    paths = {name: kernels.use(name).__enter__() for name in kernels.available() if name != "numpy"}
    fastest = next(iter(paths.values()))
    projected = rng.standard_normal((options.entries // 10 + 1, N_POOL), dtype=np.float32)
    locations, signs, _ = fastest.select(projected, N_BITS)
    flat = flat_indexes(rng, options.entries)
    for name in ("fast", "compact"):
        layout = Layout(name, N_BITS, N_POOL)
        codes = np.tile(fastest.pack_codes(layout, locations, signs), (10, 1))[: options.entries]
        for n in options.batches:
            queries = rng.standard_normal((n, N_POOL), dtype=np.float32)
            bits = fastest.pack_bits(queries)
            runs = {
                path: lambda kernel=kernel: kernel.search_mismatches(layout, codes, bits, K)  # noqa: B023
                for path, kernel in paths.items()
            }
            for width, index in flat.items():
                asked = rng.integers(0, 256, (n, width // 8), dtype=np.uint8)
                runs[f"faiss {width} bits"] = lambda index=index, asked=asked: index.search(asked, K)
            show(f"Hamming {name} {n}", medians(runs, options.repeats), n * options.entries)
            runs = {
                path: lambda kernel=kernel: kernel.search_scores(layout, codes, queries, K)  # noqa: B023
                for path, kernel in paths.items()
            }
            show(f"real {name} {n}", medians(runs, options.repeats), n * options.entries)
    if options.threads == 1:
        return
    query = fastest.pack_bits(rng.standard_normal((1, N_POOL), dtype=np.float32))
    layout, counts = Layout("fast", N_BITS, N_POOL), sorted({1, 2, options.threads})
    codes = fastest.pack_codes(layout, locations, signs)
    for n_codes in (100, 1000, 3000, len(codes)):
        some = codes[:n_codes]
        runs = {
            f"{n} threads": lambda n=n: fastest.search_mismatches(layout, some, query, K, n_threads=n)  # noqa: B023
            for n in counts
        }
        show(f"one query, {n_codes}", medians(runs, 10 * options.repeats), n_codes)


if __name__ == "__main__":
    main()
