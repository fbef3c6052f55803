"""Speed of search: nanoseconds per (entry, query) pair, all contestants interleaved, and indexes by size and threads.

Codes and queries are random, and the ten best are kept. Queries of topsign are already projected in the first table;
in the second, ``index.search`` includes the projection and the answer. Peers are FAISS's binary index of equal bytes,
RaBitQ, PQ fast scan, and float32 FlatIP. Times are medians of processor time with one thread, else of wall-clock time.
The portable path is left out unless ``--paths portable`` asks for it.
"""

import time
from functools import partial

import numpy as np
from shared.families import FAMILIES, index_of, untrained
from shared.results import arguments, interleaved, ratio, save, spread, table, with_threads

from topsign import kernels
from topsign.encoding import encode
from topsign.kernels import CodeBlocks, CodeRange
from topsign.store.segments import make_segments

K = 10


def clock(options):
    return time.process_time if options.threads == 1 else time.perf_counter


def random_blocks(recipe, rng, n_entries, distinct=2000):
    """Codes of few distinct signals, with random signs where a code has whole bytes of them."""
    if recipe.family in ("sign", "grouped"):
        return CodeBlocks.of(rng.integers(0, 256, (n_entries, recipe.code_bytes), dtype=np.uint8))
    codes = encode(recipe, rng.standard_normal((min(distinct, n_entries), recipe.n_features), dtype=np.float32))
    return CodeBlocks.of(codes[rng.integers(0, len(codes), n_entries)])


def kernel_calls(options, rng, shape):
    """Functions of queries by (code, bytes, path): every family on every path, real-valued, and Hamming distance."""
    n_features, n_bytes = shape
    calls, n = {}, options.entries
    for family in FAMILIES:
        recipe = untrained(family, n_features, n_bytes)
        codes = random_blocks(recipe, rng, n)
        for scoring in ("asymmetric", "hamming")[: 1 if family == "trellis" else 2]:
            for path in options.paths:
                if scoring == "hamming" and path != kernels.available()[0]:
                    continue

                def call(queries, path=path, recipe=recipe, codes=codes, scoring=scoring):
                    search = recipe.prepare(queries, scoring=scoring)
                    return partial(kernels.Kernels(path).rank, search.scorer, [CodeRange(codes)], search.rounded, K)

                name = family if scoring == "asymmetric" else f"{family}, Hamming"
                calls[name, recipe.code_bytes, path] = call
    return calls


def peer_calls(options, rng, shape):
    try:
        import faiss
    except ImportError:
        return {}
    n_features, n_bytes = shape
    binary = faiss.IndexBinaryFlat(8 * n_bytes)
    binary.add(rng.integers(0, 256, (options.entries, n_bytes), dtype=np.uint8))
    rabitq = faiss.IndexRaBitQ(n_features, faiss.METRIC_INNER_PRODUCT)
    rabitq.qb = 4
    n_parts = 2 ** int(np.log2(2 * n_bytes))
    fast = faiss.IndexPQFastScan(n_features, n_parts, 4, faiss.METRIC_INNER_PRODUCT)
    flat, size = faiss.IndexFlatIP(n_features), 2000
    for start in range(0, options.entries, size):
        signals = rng.standard_normal((min(size, options.entries - start), n_features), dtype=np.float32)
        for index in (rabitq, fast):
            if start == 0:
                index.train(signals)
            index.add(signals)
        if start < 20_000:
            flat.add(signals)

    def bits(queries):
        packed = np.packbits(queries[:, : 8 * n_bytes] >= 0, axis=1)
        wide = np.zeros((len(queries), n_bytes), np.uint8)
        wide[:, : packed.shape[1]] = packed
        return partial(binary.search, wide, K)

    return {
        ("FAISS BinaryFlat, Hamming", n_bytes, ""): bits,
        ("FAISS RaBitQ, 4-bit queries", rabitq.code_size, ""): lambda queries: partial(rabitq.search, queries, K),
        ("FAISS PQ fast scan", n_parts // 2, ""): lambda queries: partial(fast.search, queries, K),
        ("FAISS FlatIP, float32", 4 * n_features, ""): lambda queries: partial(flat.search, queries, K),
    }


def kernels_table(options, shape):
    rng, (n_features, n_bytes), found = np.random.default_rng(0), shape, {}
    calls = peer_calls(options, rng, shape) | kernel_calls(options, rng, shape)
    pairs = [min(options.entries, 20_000) if "FlatIP" in name else options.entries for name, _, _ in calls]
    for size in options.batches:
        queries = rng.standard_normal((size, n_features), dtype=np.float32)
        prepared = [make(queries) for make in calls.values()]
        repeats = max(2, options.repeats // (1 if size == 1 else 3))
        found[size] = interleaved(prepared, repeats, clock(options)) / (np.array(pairs) * size) * 1e9
    rows = []
    for i, (name, stored, path) in enumerate(calls):
        cells = [spread(found[size][:, i]) for size in options.batches]
        rows.append(
            [name, stored, path, *cells, ratio(found[options.batches[0]][:, i], found[options.batches[0]][:, 0])]
        )
    sizes = ["one query" if n == 1 else f"{n} queries" for n in options.batches]
    columns = ["code", "bytes", "path", *(f"{size} (ns)" for size in sizes), f"{sizes[0]}, times the first code"]
    title = f"Nanoseconds per pair: {n_features:,} features, {n_bytes} bytes, {options.threads} thread(s)"
    return table(title, columns, rows, f"{options.entries:,} entries; FlatIP has at most 20,000, to fit in memory.")


def filled(family, n_entries, n_features, n_bytes, rng, per_segment=100_000):
    """An index in memory whose entries have random codes."""
    extra = {"basis": "hadamard", "center": False} if family == "trellis" else {}
    index = index_of(family, n_features, n_bytes, **extra)
    rows = random_blocks(index.recipe, rng, min(n_entries, 100_000)).rows()
    rows = np.tile(rows, (min(n_entries, per_segment) // len(rows), 1))

    def fill(change):
        for start in range(0, n_entries, len(rows)):
            ids = np.arange(start, min(n_entries, start + len(rows)))
            change.add(make_segments(ids, rows[: len(ids)]))
            change.next_id = int(ids[-1]) + 1

    index._store.apply(fill)
    return index


def index_table(options):
    """Milliseconds of ``index.search`` by entries, queries and threads."""
    rng, rows = np.random.default_rng(1), []
    for family, n_features, n_bytes in (("grouped", 8192, 448), ("trellis", 384, 24)):
        for n_entries in options.sizes:
            index = filled(family, n_entries, n_features, n_bytes, rng)
            for size in (1, 256):
                queries = rng.standard_normal((size, n_features), dtype=np.float32)
                calls = [partial(with_threads, n, index.search, queries, k=K) for n in options.search_threads]
                of_one = time.process_time if options.search_threads == [1] else time.perf_counter
                times = 1e3 * interleaved(calls, max(2, options.repeats // 3), of_one)
                rows.append([family, n_bytes, n_entries, size, *(spread(times[:, i]) for i in range(len(calls)))])
    columns = ["code", "bytes", "entries", "queries", *(f"{n} thread(s) (ms)" for n in options.search_threads)]
    note = """Time of index.search with k=10: projection, scan, and the answer with distances and p-values. Processor
    time if only one thread was measured."""
    return table("Milliseconds of a search in an index", columns, rows, note)


def bandwidth(options):
    """Memory bandwidth of one thread, by processor time, which limits a single query."""
    data = np.ones(options.megabytes * 2**20 // 8, np.uint64)
    times = interleaved([data.sum], max(3, options.repeats), time.process_time)[:, 0]
    rows = [[f"sum of {options.megabytes} MiB", spread(data.nbytes / times / 1e9)]]
    return table("Memory bandwidth of one thread", ["case", "GB/s"], rows, "448 bytes per code take 448 / (GB/s) ns.")


def main():
    options = arguments(
        __doc__,
        entries=(50_000, 2_000),
        batches=([1, 16, 256], [1, 16]),
        paths=None,
        sizes=([10_000, 100_000, 1_000_000], [1_000, 3_000]),
        search_threads=([1, 2], [1]),
        megabytes=(512, 16),
        repeats=(9, 2),
    )
    fast = [path for path in kernels.available() if path != "portable"] or ["portable"]
    options.paths = [options.paths] if options.paths else fast
    shapes = ((1024, 64),) if options.quick else ((8192, 448), (1024, 64))
    save(options, [*(kernels_table(options, shape) for shape in shapes), index_table(options), bandwidth(options)])


if __name__ == "__main__":
    main()
