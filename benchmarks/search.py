"""Speed of search: nanoseconds per (entry, query) pair with the ten best kept, all contestants interleaved in one run.

    python benchmarks/search.py [--entries 200000] [--batches 1 16 64 256] [--bits 512] [--pool 8192] [--threads 1]
                                [--repeats 5] [--json FILE] [--plot FILE]

Codes and queries are uniform random. Peers: faiss BinaryFlat at equal computation (n_bits bits) and at equal storage
(n_bits + log2 C(n_pool, n_bits) bits), usearch's exact search on the same bits, and, on n_pool real dimensions, faiss
LSH (n_bits bits; the time includes the projection of the queries), RaBitQ with 1- and 4-bit queries, PQ fast-scan with
the power of two of 4-bit parts nearest to the compact layout's bytes, FlatIP, and scikit-learn's brute-force
NearestNeighbors. The last two have only --real-entries entries, because all of them would not fit in memory; the time
per pair hardly depends on this number. Every repeat runs each contestant once; medians are shown, and ratios are
medians of ratios within a repeat. With several threads our searches run on one as well. In JSON every time has its
minimum and maximum, and ``bytes`` is the size of an entry's code.
"""

import argparse
import os
import sys
from functools import partial
from typing import NamedTuple

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for name in ("TOPSIGN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = THREADS

import numpy as np  # noqa: E402  (threads are set first)
from shared.results import interleaved, save, spread  # noqa: E402
from sklearn.neighbors import NearestNeighbors  # noqa: E402

from topsign import kernels, theory  # noqa: E402
from topsign.kernels import CodeRange, Layout  # noqa: E402

K = 10
OURS = "topsign Hamming, fast"


class Search(NamedTuple):
    run: object  # function of a batch of real projections
    entries: int
    code_bytes: int


def random_codes(rng, n_entries, n_bits, n_pool):
    """Locations and packed signs, uniform."""
    locations = np.empty((n_entries, n_bits), np.int32)
    for start in range(0, n_entries, 2000):
        part = locations[start : start + 2000]
        part[:], _, _ = kernels.active().select(rng.random((len(part), n_pool), dtype=np.float32), n_bits)
    return locations, rng.integers(0, 256, (n_entries, -(-n_bits // 8)), dtype=np.uint8)


def our_searches(rng, options):
    """Return our searches by name."""
    kernel = kernels.active()
    locations, signs = random_codes(rng, options.entries, options.bits, options.pool)
    signs &= 255 if options.bits % 8 == 0 else 0
    searches = {}
    for name in ("fast", "compact"):
        layout = Layout(name, options.bits, options.pool)
        codes = kernel.pack_codes(layout, locations, signs)

        def hamming(queries, threads, layout=layout, codes=codes):
            kernel.rank_mismatches(layout, [CodeRange(codes)], kernel.pack_bits(queries), K, n_threads=threads)

        def asymmetric(queries, threads, layout=layout, codes=codes):
            kernel.rank_scores(layout, [CodeRange(codes)], queries, K, n_threads=threads)

        for scoring, run in (("Hamming", hamming), ("asymmetric", asymmetric)):
            for threads in sorted({options.threads, 1}, reverse=True):
                words = f"topsign {scoring}, {name}" + (", one thread" if threads < options.threads else "")
                searches[words] = Search(partial(run, threads=threads), options.entries, layout.code_bytes)
    return searches


def peer_searches(rng, options):
    """Searches of the installed peers; missing ones are reported."""
    storage = int(np.ceil(theory.storage_bits(n_bits=options.bits, n_pool=options.pool) / 8)) * 8
    sizes = {f"equal computation, {options.bits} bits": options.bits, f"equal storage, {storage} bits": storage}
    packed = {n: rng.integers(0, 256, (options.entries, n // 8), dtype=np.uint8) for n in sizes.values()}
    queries = {n: rng.integers(0, 256, (max(options.batches), n // 8), dtype=np.uint8) for n in sizes.values()}
    searches = {}
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
            searches[f"faiss BinaryFlat, {name}"] = Search(run, options.entries, n // 8)
        searches |= faiss_on_reals(faiss, rng, options)
    signals = rng.standard_normal((options.real_entries, options.pool), dtype=np.float32)
    brute = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(signals)
    searches["scikit-learn NearestNeighbors, float32"] = Search(
        brute.kneighbors, options.real_entries, 4 * options.pool
    )
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

        searches[f"usearch exact, {options.bits} bits"] = Search(usearch_exact, options.entries, options.bits // 8)
    return searches


def faiss_on_reals(faiss, rng, options):
    """FAISS indexes of real vectors, filled in parts."""
    pool = options.pool
    compact = Layout("compact", options.bits, pool).code_bytes
    n_parts = 2 ** round(np.log2(2 * compact))
    lsh = faiss.IndexLSH(pool, options.bits, True, False)
    rabitq = faiss.IndexRaBitQ(pool, faiss.METRIC_INNER_PRODUCT)
    pq = faiss.IndexPQFastScan(pool, n_parts, 4, faiss.METRIC_INNER_PRODUCT)
    for start in range(0, options.entries, options.real_entries):
        signals = rng.standard_normal((min(options.real_entries, options.entries - start), pool), dtype=np.float32)
        for index in (lsh, rabitq, pq):
            if start == 0:
                index.train(signals[:2000])
            index.add(signals)
    flat = faiss.IndexFlatIP(pool)
    flat.add(signals)

    def search_rabitq(batch, bits):
        rabitq.qb = bits
        rabitq.search(batch, K)

    return {
        f"faiss LSH, {options.bits} bits": Search(
            lambda batch: lsh.search(batch, K), options.entries, options.bits // 8
        ),
        "faiss RaBitQ, 1-bit queries": Search(partial(search_rabitq, bits=1), options.entries, rabitq.code_size),
        "faiss RaBitQ, 4-bit queries": Search(partial(search_rabitq, bits=4), options.entries, rabitq.code_size),
        f"faiss PQ fast-scan, {n_parts} x 4 bits": Search(
            lambda batch: pq.search(batch, K), options.entries, n_parts // 2
        ),
        "faiss FlatIP, float32": Search(lambda batch: flat.search(batch, K), len(signals), 4 * pool),
    }


def draw(path, results, batches):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 5), layout="constrained")
    for marker, (name, values) in zip("osD^v<>Phx*dpX", results.items(), strict=False):
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
    pairs = np.array([search.entries for search in searches.values()])
    times = {}  # nanoseconds per pair of each batch: (repeats, searches)
    for size in options.batches:
        batch = rng.standard_normal((size, options.pool)).astype(np.float32)
        calls = [partial(search.run, batch) for search in searches.values()]
        times[size] = interleaved(calls, options.repeats) / (pairs * size) * 1e9
    medians = {name: [float(np.median(times[n][:, i])) for n in options.batches] for i, name in enumerate(searches)}
    print(f"nanoseconds per pair, median of {options.repeats}" + "".join(f"{n:>9}" for n in options.batches))
    for name, values in medians.items():
        print(f"{name:44s}" + "".join(f"{value:9.2f}" for value in values))
    ours = list(searches).index(OURS)
    print(f"times as long as {OURS} (median of ratios within a repeat)")
    rows = []
    for i, (name, search) in enumerate(searches.items()):
        ratios = [spread(times[n][:, i] / times[n][:, ours]) for n in options.batches]
        print(f"{name:44s}" + "".join(f"{ratio['median']:9.2f}" for ratio in ratios))
        for n, ratio in zip(options.batches, ratios, strict=True):
            row = {"name": name, "batch": n, "entries": search.entries, "bytes": search.code_bytes}
            rows.append(row | {"nanoseconds": spread(times[n][:, i]), "times_ours": ratio})
    if options.json:
        save(options.json, options, {"ours": OURS, "rows": rows})
    if options.plot:
        draw(options.plot, medians, options.batches)


if __name__ == "__main__":
    main()
