"""Growth of cost: searches by the number of entries, encoding and searches by the number of features.

    python benchmarks/scale.py [--entries 1000 10000 100000 1000000] [--features 1024 8192 65536 1048576] [--bits 512]
                               [--pool 8192] [--threads 1] [--repeats 5] [--json FILE]

Entries are 10,000 random codes, repeated, in the compact layout; the results do not depend on their contents. FAISS's
BinaryFlat scans sign codes of equal computation and of equal storage; all sizes are interleaved. By the number of
features, codes keep one projection of sixteen, and --code-megabytes of them are searched. The slope is that of the
logarithm of time between the last two sizes; 1 means that cost is proportional.
"""

import argparse
import os
import sys
from functools import partial
from itertools import pairwise

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for name in ("TOPSIGN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = THREADS

import numpy as np  # noqa: E402  (threads are set first)
from shared.results import interleaved, save, spread  # noqa: E402

import topsign as ts  # noqa: E402
from topsign import kernels, theory  # noqa: E402
from topsign.kernels import CodeRange, Layout  # noqa: E402

DISTINCT, K, BATCHES = 10_000, 10, (1, 64, 256)


def random_codes(rng, layout, n_entries):
    """Packed codes, a limited number of them distinct."""
    kernel, n_distinct = kernels.active(), min(n_entries, DISTINCT)
    codes = np.empty((n_entries, layout.code_bytes), np.uint8)
    step = max(1, 2**23 // layout.n_pool)
    for start in range(0, n_distinct, step):
        part = codes[start : min(start + step, n_distinct)]
        locations, signs, _ = kernel.select(
            rng.standard_normal((len(part), layout.n_pool), dtype=np.float32), layout.n_bits
        )
        part[:] = kernel.pack_codes(layout, locations, signs)
    for start in range(n_distinct, n_entries, n_distinct):
        codes[start : start + n_distinct] = codes[: min(n_distinct, n_entries - start)]
    return codes


def search(layout, codes, queries, scoring):
    kernel, threads = kernels.active(), int(THREADS)
    if scoring == "hamming":
        kernel.rank_mismatches(layout, [CodeRange(codes)], kernel.pack_bits(queries), K, n_threads=threads)
    else:
        kernel.rank_scores(layout, [CodeRange(codes)], queries, K, n_threads=threads)


def slopes(rows, size, seconds):
    """Of log time against log size, between neighbouring rows."""
    for before, row in pairwise(rows):
        growth = np.log(row[seconds]["median"] / before[seconds]["median"])
        row["slope"] = float(growth / np.log(row[size] / before[size]))


def searches(rng, options):
    """Name -> bytes of an entry, and a function of a number of entries and queries that searches them."""
    layout = Layout("compact", options.bits, options.pool)
    codes = random_codes(rng, layout, max(options.entries))
    found = {}
    for name, scoring in (("topsign real-valued", "asymmetric"), ("topsign Hamming", "hamming")):
        found[name] = layout.code_bytes, lambda n, queries, scoring=scoring: search(layout, codes[:n], queries, scoring)
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: its lines are missing (pip install topsign[bench])")
        return found
    storage = theory.storage_bits(n_bits=options.bits, n_pool=options.pool)
    for n_bytes in (options.bits // 8, int(np.ceil(storage / 8))):
        signs = rng.integers(0, 256, (max(options.entries), n_bytes), dtype=np.uint8)
        flats = {n: faiss.IndexBinaryFlat(8 * n_bytes) for n in options.entries}
        for n, flat in flats.items():
            flat.add(signs[:n])
        queried = rng.integers(0, 256, (max(BATCHES), n_bytes), dtype=np.uint8)
        found[f"faiss BinaryFlat, {8 * n_bytes} bits"] = (
            n_bytes,
            lambda n, queries, flats=flats, queried=queried: flats[n].search(queried[: len(queries)], K),
        )
    return found


def against_entries(rng, options):
    rows, contestants = [], searches(rng, options)
    for n_queries in BATCHES:
        queries = rng.standard_normal((n_queries, options.pool), dtype=np.float32)
        calls = [partial(run, n, queries) for _, run in contestants.values() for n in options.entries]
        times = np.split(interleaved(calls, options.repeats).T, len(contestants))
        for (name, (code_bytes, _)), spent in zip(contestants.items(), times, strict=True):
            line = [
                {"name": name, "queries": n_queries, "entries": n, "bytes": code_bytes, "seconds": spread(one)}
                for n, one in zip(options.entries, spent, strict=True)
            ]
            slopes(line, "entries", "seconds")
            rows += line
            shown = "  ".join(f"{row['entries']:,}: {1e3 * row['seconds']['median']:.2f} ms" for row in line)
            print(f"{name}, {n_queries} queries: {shown}; slope {line[-1].get('slope', np.nan):.3f}")
    return rows


def against_features(rng, options):
    rows = []
    for n_features in options.features:
        n_bits = n_features // 16
        layout = Layout("compact", n_bits, n_features)
        n_entries = max(16, int(options.code_megabytes * 1e6) // layout.code_bytes)
        codes = random_codes(rng, layout, n_entries)
        signals = rng.standard_normal((max(1, 2**21 // n_features), n_features), dtype=np.float32)
        encoder = ts.AdaptiveEncoder(n_bits, random_state=7).fit(signals[:1])
        queries = rng.standard_normal((64, n_features), dtype=np.float32)
        encoding, searching = interleaved(
            [partial(encoder.encode, signals), partial(search, layout, codes, queries, "asymmetric")], options.repeats
        ).T
        row = {
            "features": n_features,
            "n_bits": n_bits,
            "bytes": layout.code_bytes,
            "encode_seconds": spread(encoding / len(signals)),
            "search_seconds": spread(searching / (64 * n_entries)),
        }
        rows.append(row)
        print(
            f"{n_features:,} features, {n_bits:,} kept, {layout.code_bytes:,} bytes: encode "
            f"{1e6 * row['encode_seconds']['median']:.1f} us, {1e9 * row['search_seconds']['median']:.1f} ns "
            f"per pair of 64 queries"
        )
    slopes(rows, "features", "encode_seconds")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--features", type=int, nargs="+", default=[2**10, 2**13, 2**16, 2**20])
    parser.add_argument("--code-megabytes", type=float, default=50)
    parser.add_argument("--bits", type=int, default=512)
    parser.add_argument("--pool", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{options.bits} of {options.pool}, compact, {options.threads} thread(s); {kernels.info()}")
    measured = {"entries": against_entries(rng, options), "features": against_features(rng, options)}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
