"""Speed of every path that this processor supports, compared with FAISS: nanoseconds per (entry, query) pair.

    python benchmarks/paths.py [--entries 100000] [--batches 1 16 64 256] [--threads 1] [--repeats 3] [--json FILE]
    python benchmarks/paths.py --pools 8192 65536 262144 1048576    # cost per kept projection, on the fastest path
    python benchmarks/paths.py --threads 16 --batches 64 256        # one thread to sixteen, and segments

Codes of 512 of 8192 and queries are uniform random, and the ten best are kept. With one thread, medians of processor
time are shown, which other work on the machine affects least. With several threads, the fastest path is measured: one
query over 100 to a million codes, for which threads hardly help; batches over the most codes; and the same codes in
segments, searched one by one and together.
"""

import argparse
import time

import numpy as np
from shared.results import save

from topsign import kernels
from topsign.kernels import CodeRange, Layout

N_BITS, N_POOL, K = 512, 8192, 10


def medians(functions, repeats, clock=time.thread_time):
    """Seconds of each function, run in turn."""
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(clock() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def show(title, seconds, pairs):
    """Print and return a row: nanoseconds per pair of each function."""
    row = {name: 1e9 * taken / pairs for name, taken in seconds.items()}
    print(f"{title:24s}" + "".join(f"{name:>16s} {taken:9.4f}" for name, taken in row.items()), flush=True)
    return {"case": title, **row}


def flat_indexes(rng, n_entries):
    """Return FAISS indexes at equal computation and at equal storage."""
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


def random_codes(kernel, rng, layout, n_codes):
    """Return codes with few distinct sets of locations and random signs."""
    projected = rng.standard_normal((min(n_codes, 64), layout.n_pool), dtype=np.float32)
    locations, _, _ = kernel.select(projected, layout.n_bits)
    locations = np.tile(locations, (-(-n_codes // len(locations)), 1))[:n_codes]
    return kernel.pack_codes(layout, locations, rng.integers(0, 256, (n_codes, layout.sign_bytes), dtype=np.uint8))


def over_pools(kernel, rng, options):
    """Nanoseconds per kept projection, one of sixteen, and query."""
    rows = []
    for n in options.batches:
        for name in ("fast", "compact"):
            rows += [{"case": f"{kind} {name} {n}"} for kind in ("Hamming", "real")]
            for n_pool in options.pools:
                layout = Layout(name, n_pool // 16, n_pool)
                codes = random_codes(kernel, rng, layout, options.kept // layout.n_bits)
                queries = rng.standard_normal((n, n_pool), dtype=np.float32)
                bits = kernel.pack_bits(queries)
                runs = {
                    "Hamming": lambda: kernel.rank_mismatches(layout, [CodeRange(codes)], bits, K),  # noqa: B023
                    "real": lambda: kernel.rank_scores(layout, [CodeRange(codes)], queries, K),  # noqa: B023
                }
                for row, seconds in zip(rows[-2:], medians(runs, options.repeats).values(), strict=True):
                    row[str(n_pool)] = 1e9 * seconds / (len(codes) * layout.n_bits * n)
            for row in rows[-2:]:
                print(f"{row['case']:24s}" + "".join(f"{k:>12s} {v:8.4f}" for k, v in row.items() if k != "case"))
    return rows


def over_paths(paths, rng, options):
    rows, fastest = [], next(iter(paths.values()))
    flat = flat_indexes(rng, options.entries)
    for name in ("fast", "compact"):
        layout = Layout(name, N_BITS, N_POOL)
        codes = random_codes(fastest, rng, layout, options.entries)
        for n in options.batches:
            queries = rng.standard_normal((n, N_POOL), dtype=np.float32)
            bits = fastest.pack_bits(queries)
            runs = {
                path: lambda kernel=kernel: kernel.rank_mismatches(layout, [CodeRange(codes)], bits, K)  # noqa: B023
                for path, kernel in paths.items()
            }
            for width, index in flat.items():
                asked = rng.integers(0, 256, (n, width // 8), dtype=np.uint8)
                runs[f"faiss {width} bits"] = lambda index=index, asked=asked: index.search(asked, K)
            rows.append(show(f"Hamming {name} {n}", medians(runs, options.repeats), n * options.entries))
            runs = {
                path: lambda kernel=kernel: kernel.rank_scores(layout, [CodeRange(codes)], queries, K)  # noqa: B023
                for path, kernel in paths.items()
            }
            rows.append(show(f"real {name} {n}", medians(runs, options.repeats), n * options.entries))
    signals = rng.standard_normal((64, N_POOL), dtype=np.float32)
    signs = rng.integers(0, 256, (3, N_POOL // 8), dtype=np.uint8)
    runs = {path: lambda kernel=kernel: kernel.rotate(signals, signs) for path, kernel in paths.items()}
    rows.append(show("rotate", medians(runs, 5 * options.repeats), len(signals)))
    runs = {path: lambda kernel=kernel: kernel.select(signals, N_BITS) for path, kernel in paths.items()}
    rows.append(show("select", medians(runs, 5 * options.repeats), len(signals)))
    return rows


def over_threads(kernel, rng, options):
    """Measure several threads and segments: threads must not be slower than one, and segments must cost little."""
    rows, layout = [], Layout("fast", N_BITS, N_POOL)
    queries = rng.standard_normal((max(1, *options.batches), N_POOL), dtype=np.float32)
    bits, codes = kernel.pack_bits(queries), random_codes(kernel, rng, layout, max(options.sizes))
    counts = sorted({1, *(2**i for i in range(1, 10) if 2**i < options.threads), options.threads})
    for n_codes in options.sizes:
        some = codes[:n_codes]
        runs = {
            f"{n} threads": lambda n=n: kernel.rank_mismatches(layout, [CodeRange(some)], bits[:1], K, n_threads=n)  # noqa: B023
            for n in counts
        }
        repeats = options.repeats * max(1, 100_000 // n_codes)
        rows.append(show(f"one query, {n_codes}", medians(runs, repeats, time.perf_counter), n_codes))
    for n_queries in options.batches:
        some, asked = bits[:n_queries], queries[:n_queries]
        hamming = {
            f"{n} threads": lambda n=n: kernel.rank_mismatches(layout, [CodeRange(codes)], some, K, n_threads=n)  # noqa: B023
            for n in counts
        }
        real = {
            f"{n} threads": lambda n=n: kernel.rank_scores(layout, [CodeRange(codes)], asked, K, n_threads=n)  # noqa: B023
            for n in counts
        }
        for name, runs in (("Hamming", hamming), ("real", real)):
            taken = medians(runs, options.repeats, time.perf_counter)
            rows.append(show(f"{name} {n_queries}", taken, n_queries * len(codes)))
        for n_segments in options.segments:
            runs = segment_runs(kernel, layout, np.array_split(codes, n_segments), some, options.threads)
            taken = medians(runs, options.repeats, time.perf_counter)
            rows.append(show(f"Hamming {n_queries}, {n_segments} parts", taken, n_queries * len(codes)))
    return rows


def segment_runs(kernel, layout, parts, bits, n_threads):
    """Searches of segments one by one and together, with one thread and with several."""
    starts = np.append(0, np.cumsum([len(part) for part in parts]))
    ranges = [CodeRange(part, start) for start, part in zip(starts.tolist(), parts, strict=False)]

    def one_by_one(n):
        for one in ranges:
            kernel.rank_mismatches(layout, [one], bits, K, n_threads=n)

    runs = {}
    for n in (1, n_threads):
        runs[f"each, {n} threads"] = lambda n=n: one_by_one(n)
        runs[f"all, {n} threads"] = lambda n=n: kernel.rank_mismatches(layout, ranges, bits, K, n_threads=n)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--segments", type=int, nargs="*", default=[16], help="with several threads")
    parser.add_argument("--pools", type=int, nargs="+", help="measure these sizes of the pool instead")
    parser.add_argument("--kept", type=int, default=100_000_000, help="projections kept in all codes of a pool")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    print(kernels.info())
    rng = np.random.default_rng(0)
    paths = {name: kernels.use(name).__enter__() for name in kernels.available()}
    fastest = next(iter(paths.values()))
    if options.pools:
        rows = over_pools(fastest, rng, options)
    elif options.threads > 1:
        rows = over_threads(fastest, rng, options)
    else:
        rows = over_paths(paths, rng, options)
    if options.json:
        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
