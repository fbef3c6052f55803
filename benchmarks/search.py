"""Speed of search: nanoseconds per (entry, query) pair with the ten best kept, all contestants interleaved in one run.

    python benchmarks/search.py [--entries 200000] [--batches 1 16 64 256] [--bits 512] [--pool 8192] [--threads 1]
                                [--repeats 5] [--json FILE] [--plot FILE]

Codes and queries are uniform random. Peers: faiss BinaryFlat at equal computation (n_bits bits) and at equal storage
(n_bits + log2 C(n_pool, n_bits) bits), usearch's exact search on the same bits, and, on n_pool real dimensions, faiss
RaBitQ with 4-bit queries and FlatIP. FlatIP holds --real-entries entries, since all of them would not fit in memory;
its time per pair hardly depends on it. Every repeat runs each contestant once; medians are shown, and
ratios are medians of ratios within a repeat.
"""

import argparse
import json
import os
import sys
import time

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for name in ("TOPSIGN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = THREADS

import numpy as np  # noqa: E402  (threads are set first)

from topsign import kernels, theory  # noqa: E402
from topsign.kernels import Layout  # noqa: E402

K = 10


def random_codes(rng, n_entries, n_bits, n_pool):
    """Locations and packed signs, uniform."""
    locations = np.empty((n_entries, n_bits), np.int32)
    for start in range(0, n_entries, 2000):
        part = locations[start : start + 2000]
        part[:], _, _ = kernels.active().select(rng.random((len(part), n_pool), dtype=np.float32), n_bits)
    return locations, rng.integers(0, 256, (n_entries, -(-n_bits // 8)), dtype=np.uint8)


def our_searches(rng, options):
    """Name -> (function of a batch of real projections, entries)."""
    kernel, threads = kernels.active(), options.threads
    locations, signs = random_codes(rng, options.entries, options.bits, options.pool)
    signs &= 255 if options.bits % 8 == 0 else 0
    searches = {}
    for name in ("fast", "compact"):
        layout = Layout(name, options.bits, options.pool)
        codes = kernel.pack_codes(layout, locations, signs)

        def hamming(queries, layout=layout, codes=codes):
            kernel.search_mismatches(layout, codes, kernel.pack_bits(queries), K, n_threads=threads)

        def asymmetric(queries, layout=layout, codes=codes):
            kernel.search_scores(layout, codes, queries, K, n_threads=threads)

        searches[f"topsign Hamming, {name}"] = hamming, options.entries
        searches[f"topsign asymmetric, {name}"] = asymmetric, options.entries
    return searches


def peer_searches(rng, options):
    """The peers that are installed; a missing one is named, not hidden."""
    searches = {}
    storage = int(np.ceil(theory.storage_bits(n_bits=options.bits, n_pool=options.pool) / 8)) * 8
    sizes = {f"equal computation, {options.bits} bits": options.bits, f"equal storage, {storage} bits": storage}
    packed = {n: rng.integers(0, 256, (options.entries, n // 8), dtype=np.uint8) for n in sizes.values()}
    queries = {n: rng.integers(0, 256, (max(options.batches), n // 8), dtype=np.uint8) for n in sizes.values()}
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: its lines are missing (pip install topsign[bench])")
    else:
        faiss.omp_set_num_threads(options.threads)
        for name, n in sizes.items():
            index = faiss.IndexBinaryFlat(n)
            index.add(packed[n])
            run = lambda batch, index=index, n=n: index.search(queries[n][: len(batch)], K)  # noqa: E731
            searches[f"faiss BinaryFlat, {name}"] = run, options.entries
        rabitq = faiss.IndexRaBitQ(options.pool, faiss.METRIC_INNER_PRODUCT)
        rabitq.qb = 4
        for start in range(0, options.entries, options.real_entries):
            n_signals = min(options.real_entries, options.entries - start)
            signals = rng.standard_normal((n_signals, options.pool), dtype=np.float32)
            if start == 0:
                rabitq.train(signals[:1000])
            rabitq.add(signals)
        searches["faiss RaBitQ, 4-bit queries"] = lambda batch: rabitq.search(batch, K), options.entries
        flat = faiss.IndexFlatIP(options.pool)
        flat.add(signals)
        searches["faiss FlatIP, float32"] = lambda batch: flat.search(batch, K), options.real_entries
    try:
        import usearch.index
    except ImportError:
        print("usearch is not installed: its line is missing (pip install topsign[bench])")
    else:

        def usearch_exact(batch, n=options.bits):
            usearch.index.search(
                packed[n], queries[n][: len(batch)], K, usearch.index.MetricKind.Hamming, exact=True,
                threads=options.threads,
            )  # fmt: skip

        searches[f"usearch exact, {options.bits} bits"] = usearch_exact, options.entries
    return searches


def measure(searches, batch, repeats):
    """Nanoseconds per pair, (repeats, searches)."""
    times = np.empty((repeats, len(searches)))
    for repeat in range(repeats):
        for i, (run, n_entries) in enumerate(searches.values()):
            start = time.perf_counter()
            run(batch)
            times[repeat, i] = (time.perf_counter() - start) / (n_entries * len(batch)) * 1e9
    return times


def draw(path, results, batches):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 5), layout="constrained")
    for marker, (name, values) in zip("osD^v<>Phx*", results.items(), strict=False):
        own = name.startswith("topsign")
        axes.plot(
            batches, values, marker=marker, linestyle="-" if own else "--", linewidth=2 if own else 1.2, label=name
        )
    axes.set(xscale="log", yscale="log", xlabel="queries in a batch", ylabel="nanoseconds per entry and query")
    axes.set_xticks(batches, [str(n) for n in batches])
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--real-entries", type=int, default=20_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--bits", type=int, default=512)
    parser.add_argument("--pool", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write all times into this file")
    parser.add_argument("--plot", help="draw a chart into this file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{options.entries} entries of {options.bits}/{options.pool}, {options.threads} thread(s); {kernels.info()}")
    searches = our_searches(rng, options) | peer_searches(rng, options)
    everything = {}
    for size in options.batches:
        batch = rng.standard_normal((size, options.pool)).astype(np.float32)
        everything[size] = measure(searches, batch, options.repeats)
    medians = {
        name: [float(np.median(everything[n][:, i])) for n in options.batches] for i, name in enumerate(searches)
    }
    print(f"nanoseconds per pair, median of {options.repeats}" + "".join(f"{n:>9}" for n in options.batches))
    for name, values in medians.items():
        print(f"{name:44s}" + "".join(f"{value:9.2f}" for value in values))
    ours = list(searches).index("topsign Hamming, fast")
    print("times as long as topsign Hamming, fast (median of ratios within a repeat)")
    for i, name in enumerate(searches):
        ratios = [np.median(everything[n][:, i] / everything[n][:, ours]) for n in options.batches]
        print(f"{name:44s}" + "".join(f"{ratio:9.2f}" for ratio in ratios))
    if options.json:
        report = {"options": vars(options), "ns_per_pair": {n: t.tolist() for n, t in everything.items()}}
        with open(options.json, "w") as file:
            json.dump(report | {"searches": list(searches), "kernels": kernels.info()}, file, indent=1)
    if options.plot:
        draw(options.plot, medians, options.batches)


if __name__ == "__main__":
    main()
