"""Searches for a recall: achieved recall, latency of single queries beside other libraries, and weak matches.

Text: the sentence vectors of text_embeddings.py and sets resampled from them, a sentence plus a random combination of
differences to 12 of its 30 nearest; queries are real sentences that are in no entry. Clustered: 20,000 centres of
unequal sizes, whose coordinates have falling variances, plus .7 times noise of the same law; queries are drawn alike.
Latency is the time of one call from Python with one query in one thread; indexes are built with --build-threads.
"""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import text_embeddings
from shared.families import index_of
from shared.results import arguments, save, seconds, table
from threadpoolctl import threadpool_limits

import topsign as ts

ASKED, KS, N_BYTES, N_TIMED = (0.90, 0.95, 0.98), (1, 10, 100), 24, 200
FILTERED = 100_000  # entries; looking up a filter's ids among more takes longer than all other parts
N_SOURCES, N_MIXED, SPREAD, CHUNK, FEW = 30, 12, 0.7, 20_000, 20_000


def near(vectors, rows):
    """The nearest other vectors of some of the vectors, nearest first."""

    def find(start):
        return text_embeddings.nearest(vectors[rows[start : start + 512]], vectors, N_SOURCES + 1)[:, 1:]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return np.concatenate(list(pool.map(find, range(0, len(rows), 512))))


def resampled(vectors, n_entries, seed=1):
    """Vectors between sentences and their neighbours."""
    rng, parts = np.random.default_rng(seed), []
    neighbors = near(vectors, np.arange(len(vectors)))
    for start in range(0, n_entries, CHUNK):
        sources = rng.integers(len(vectors), size=min(CHUNK, n_entries - start))
        own = vectors[sources]
        made = own.copy()
        for _ in range(N_MIXED):
            other = neighbors[sources, rng.integers(N_SOURCES, size=len(sources))]
            weights = SPREAD / np.sqrt(N_MIXED) * rng.standard_normal((len(sources), 1)).astype(np.float32)
            made += (vectors[other] - own) * weights
        parts.append(text_embeddings.unit(made))
    return np.concatenate(parts)


def clustered(n_entries, n_features=384, n_centres=20_000, seed=3):
    """Entries and 2,256 queries around centres, of which the first have more entries."""
    rng, scales = np.random.default_rng(seed), (np.arange(1, n_features + 1) ** -0.35).astype(np.float32)
    centres = rng.standard_normal((n_centres, n_features), np.float32) * scales
    made = np.empty((n_entries + 2256, n_features), np.float32)
    for start in range(0, len(made), CHUNK):
        part = made[start : start + CHUNK]
        noise = rng.standard_normal(part.shape, np.float32) * scales
        part[:] = text_embeddings.unit(centres[(n_centres * rng.random(len(part)) ** 2).astype(int)] + 0.7 * noise)
    return made[2256:], made[:2256]


def exact(queries, entries, k=10):
    """Positions of the k nearest entries of each query."""
    found = []
    for start in range(0, len(entries), 5 * CHUNK):
        some = entries[start : start + 5 * CHUNK]
        found.append(start + text_embeddings.nearest(queries, some, min(k, len(some) - 1)))
    found = np.concatenate(found, axis=1)
    scores = np.einsum("qd,qkd->qk", queries, entries[found])
    return np.take_along_axis(found, np.argsort(-scores, axis=1)[:, :k], axis=1)


def filled(entries, n_regions=None, queries=None, threads=1, **options):
    """An index of these entries with regions, and the seconds to learn them."""
    index = index_of("trellis", entries.shape[1], N_BYTES, **options)
    n_regions = n_regions or ("auto" if len(entries) >= FEW else 64)
    with ts.threads(threads), threadpool_limits(threads):
        index.fit(entries[:FEW])
        for at in range(0, len(entries), 100_000):
            index.add(entries[at : at + 100_000])
        return index, seconds(lambda: index.learn_regions(queries, n_regions=n_regions))


def kept(options, name, entries, calibrating, originals, made={}):  # noqa: B006
    """:func:`filled` once for each set."""
    key = name, len(entries), originals
    if key not in made:
        made[key] = filled(entries, queries=calibrating, threads=options.build_threads, originals=originals)
    return made[key]


def times_of(search, queries, repeats):
    """Seconds of a call with each query: the least of its repetitions, after one that is not counted."""
    some = queries[:N_TIMED]
    took = np.empty((repeats + 1, len(some)))
    for round_ in took:
        for at, one in enumerate(some):
            start = time.perf_counter()
            search(one)
            round_[at] = time.perf_counter() - start
    return took[1:].min(axis=0)


def quantiles(times):
    """Median and 99th percentile of queries, in microseconds."""
    return [float(1e6 * one) for one in np.quantile(times, [0.5, 0.99])]


def reached(found, truth):
    return float(text_embeddings.recalls(found, truth[: len(found)]).mean())


def achieved(index, queries, case, **options):
    """Rows with the recall, the visited fraction and the reported recall of held-out queries."""
    every, rows = index.search(queries, max(KS), **options).ids, []
    for k in KS:
        for asked in ASKED:
            found = index.search(queries, k, recall=asked, **options)
            shares = text_embeddings.recalls(found.ids, every[:, :k])
            error = float(shares.std() / np.sqrt(len(shares)))
            row = [case, len(index), k, asked, float(shares.mean()), error]
            rows.append([*row, float(np.nanmean(found.recall)), float(found.visited.mean())])
    return rows


def recall(options, entries, queries, large):
    """Achieved recall of every case."""
    rng, n_regions = np.random.default_rng(0), "auto" if len(entries) >= 20_000 else 64
    index, _ = filled(entries, n_regions)
    rows = achieved(index, queries, "sentences, held-out queries")
    among = rng.choice(len(entries), len(entries) // 10, replace=False)
    rows += achieved(index, queries, "sentences, filter that 10% pass", among=among)
    index.remove(rng.permutation(len(entries))[: int(0.7 * len(entries))])
    rows += achieved(index, queries, "sentences, 70% removed")
    index, _ = filled(entries[: len(entries) // 10], max(16, len(entries) // 100))
    index.add(entries[len(entries) // 10 :])
    rows += achieved(index, queries, "sentences, grown tenfold")
    index, _ = filled(large, n_regions)
    half = len(queries) // 2
    rows += achieved(index, resampled(entries, len(queries), seed=2), "resampled, queries resampled, too")
    rows += achieved(index, queries[half:], "resampled, queries are real sentences")
    index.learn_regions(queries[:half])
    rows += achieved(index, queries[half:], "resampled, calibrated with other real sentences")
    columns = ["case", "entries", "k", "asked", "achieved", "standard error", "reported", "visited"]
    note = f"{len(queries):,} queries."
    return table(f"Achieved recall, trellis codes of {N_BYTES} bytes", columns, rows, note, shown={"k": [10]})


def single(options, name, entries, queries, calibrating):
    """Rows of latencies, and of what indexes cost, with and without originals."""
    rows, costs, rng, n = [], [], np.random.default_rng(0), len(entries)
    asking, truth = queries[:N_TIMED], exact(queries[:N_TIMED], entries)
    for stored, originals in (("codes", None), ("codes and float16", "float16")):
        index, learning = kept(options, name, entries, calibrating, originals)
        every = truth if originals else index.search(asking, 10).ids

        def add(label, of, stored=stored, index=index, **given):
            """Time a search, and compare its results with the neighbours ``of`` its queries."""
            search = partial(index.search, k=10, **given)
            found, took = search(asking), quantiles(times_of(search, queries, options.repeats))
            visited = float(found.visited.mean()) if "recall" in given else None
            rows.append([name, n, stored, label, reached(found.ids, of), visited, *took])

        add("recall=0.95", every, recall=0.95)
        add("recall=0.98", every, recall=0.98)
        for share in (0.1, 0.01) if n <= FILTERED else ():
            among = rng.choice(n, int(share * n), replace=False)
            of = among[exact(asking, entries[among])] if originals else index.search(asking, 10, among=among).ids
            add(f"recall=0.95, {share:.0%} pass", of, recall=0.95, among=among)
        if not originals:
            add("all codes", truth)
        if "avx2" in ts.kernels.available() and ts.kernels.info()["kernels"] != "avx2":
            with ts.kernels.use("avx2"):
                add("recall=0.95, AVX2", every, recall=0.95)
        batches = [seconds(lambda index=index: index.search(queries[:256], 10, recall=0.95)) for _ in range(9)]
        took = 1e6 * float(np.median(batches)) / len(queries[:256])
        rows.append([name, n, stored, "recall=0.95, 256 queries", None, None, took, None])
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/index")
            opened = ts.open_index(f"{folder}/index")
            first = 1e3 * seconds(lambda opened=opened: opened.search(queries[:1], 10, recall=0.95))
        costs.append([name, n, stored, index.regions.n_regions, index.nbytes / n, learning, first])
    return rows, costs


def singles(options, sets):
    """Tables of latencies and costs of all sets."""
    parts = [single(options, *one) for one in sets]
    note = """Recall@10 of exact neighbours with originals, otherwise of the search of all codes, which itself
        is compared with exact neighbours. Calibrated with other queries. The time of a query is the least of its
        repetitions; quantiles are over queries. Of 256 queries, the time is that of each."""
    columns = ["set", "entries", "stored", "search", "recall@10", "visited", "median (us)", "99th percentile (us)"]
    shown = {"search": ["recall=0.95", "recall=0.98", "all codes", "recall=0.95, 256 queries"]}
    rows = [row for rows, _ in parts for row in rows]
    yield table("Latency of single queries, one thread", columns, rows, note, shown=shown)
    columns = ["set", "entries", "stored", "regions", "bytes per entry", "learning (s)", "first query (ms)"]
    note = f"""Regions are learned and calibrated with {options.build_threads} thread(s). The first query is that after
        opening the index from files."""
    yield table("Regions: size, learning, and first query", columns, [row for _, costs in parts for row in costs], note)


def crossing(options, large, queries):
    """From how many entries on regions are faster than a comparison with all codes."""
    rows = []
    for n in options.crossing:
        index, _ = filled(large[:n], max(64, int(8 * np.sqrt(n))), threads=options.build_threads)
        searches = [partial(index.search, k=10, recall=asked) for asked in (None, 0.95)]
        took = [quantiles(times_of(search, queries, options.repeats))[0] for search in searches]
        rows.append([n, *took, float(searches[1](queries[:N_TIMED]).visited.mean())])
    columns = ["entries", "all codes (us)", "recall=0.95 (us)", "visited"]
    return table("Single queries by the number of entries, text, codes", columns, rows)


def least(setting, reaches, most):
    """The least setting, in steps of a seventh, that reaches the recall; the largest if none does."""
    while setting < most and not reaches(setting):
        setting = max(setting + 1, int(setting * 1.15))
    return min(setting, most)


def inverted_lists(entries, n_lists, threads):
    """FAISS indexes with the same inverted lists, by distances, which are faster there than inner products."""
    import faiss

    d = entries.shape[1]
    with threadpool_limits(threads):
        faiss.omp_set_num_threads(threads)
        means = faiss.Kmeans(d, n_lists, niter=10, max_points_per_centroid=40, seed=1)
        means.train(entries[: 40 * n_lists])
        found = {
            "PQ48x4fs": faiss.IndexIVFPQFastScan(means.index, d, n_lists, 48, 4),
            "RaBitQ": faiss.IndexIVFRaBitQ(means.index, d, n_lists),
        }
        for one in found.values():
            one.train(entries[:100_000])
            one.add(entries)
        faiss.omp_set_num_threads(1)
    return found, means  # whose index they use


def contestants(options, name, entries, queries, calibrating, truth, asked):
    """Name, what is stored, bytes per entry, and function from a query to ids, of searches that reach a recall.

    Searches of codes reach it of their own search of all codes, the others of exact neighbours.
    """
    import faiss
    import hnswlib
    from usearch.index import Index as Graph

    (n, d), threads, some = entries.shape, options.build_threads, queries[:N_TIMED]

    def tuned(search, start, most, of=truth):
        """The search with its least setting that reaches the recall; None if none does."""

        def reaches(setting):
            return reached(np.array([search(one, setting) for one in some]), of) >= asked

        setting = least(start, reaches, most)
        return partial(search, setting=setting) if reaches(setting) else None

    for originals in (None, "float16"):
        index, _ = kept(options, name, entries, calibrating, originals)
        stored = f"{N_BYTES} B" + (" and float16" if originals else "")
        yield "topsign", stored, index.nbytes / n, lambda one, index=index: index.search(one, 10, recall=asked).ids[0]
    n_lists = 4096 if n >= 10**6 else min(2048, n // 40)
    found, _means = inverted_lists(entries, n_lists, threads)
    for code, lists in found.items():
        kind, n_bytes = f"FAISS IVF{n_lists},{code}", 8 + (24 if code[0] == "P" else d // 8 + 8)

        def search(one, setting, lists=lists):
            lists.nprobe = setting
            return lists.search(one[np.newaxis], 10)[1][0]

        best = tuned(search, 1, n_lists, np.array([search(one, n_lists) for one in some]))
        yield kind, f"{n_bytes} B", n_bytes, best
        refined = faiss.IndexRefineFlat(lists, faiss.swig_ptr(entries))
        for factor in (4, 16, 64):

            def refine(one, setting, lists=lists, refined=refined, factor=factor):
                lists.nprobe, refined.k_factor = setting, factor
                return refined.search(one[np.newaxis], 10)[1][0]

            best = tuned(refine, 1, n_lists // 4)
            if best is not None:
                yield f"{kind} refined", f"{n_bytes} B and float32", 4 * d + n_bytes, best
                break
    if n > options.graphs:
        return
    graph = hnswlib.Index("ip", d)
    graph.init_index(n, M=16, ef_construction=200)
    graph.set_num_threads(threads)
    graph.add_items(entries)
    graph.set_num_threads(1)

    def walk(one, setting):
        graph.set_ef(setting)
        return graph.knn_query(one[np.newaxis], 10)[0][0].astype(np.int64)

    yield "hnswlib, M=16", "float32", 4 * d + 136, tuned(walk, 10, 2000)
    other = Graph(ndim=d, metric="ip", dtype="f16")
    other.add(np.arange(n), entries, threads=threads)

    def expand(one, setting):
        other.expansion_search = setting
        return other.search(one, 10).keys.astype(np.int64)

    yield "usearch", "float16", 2 * d + 136, tuned(expand, 10, 2000)


def peers(options, sets, asked=0.95):
    """Latency of single queries at equal recall, one thread, by turns."""
    rows, winners = [], []
    for name, entries, queries, calibrating in sets:
        entries, truth = np.ascontiguousarray(entries), exact(queries[:N_TIMED], entries)
        found = [
            one for one in contestants(options, name, entries, queries, calibrating, truth, asked) if one[3] is not None
        ]
        took = np.full((len(found), len(queries[:N_TIMED])), np.inf)
        for _ in range(options.repeats):
            for times, (*_, search) in zip(took, found, strict=True):
                np.minimum(times, times_of(search, queries, 1), out=times)
        for kind in ("codes", "originals"):
            some = []
            for times, (library, stored, n_bytes, search) in zip(took, found, strict=True):
                if (kind == "codes") == stored.endswith(" B"):
                    recall = reached(np.array([search(one) for one in queries[:N_TIMED]]), truth)
                    some.append([name, len(entries), library, stored, recall, *quantiles(times), float(n_bytes)])
            rows += some
            winners.append(f"{name}, {len(entries):,}, {kind}: {min(some, key=lambda row: row[5])[2]}")
    columns = ["set", "entries", "library", "stored", "recall@10", "median (us)", "99th percentile (us)"]
    note = f"""Recall of exact neighbours. Searches of codes reach {asked} of their own search of all codes, the others
        {asked} of exact neighbours. Settings of other libraries are the least that do so on the timed queries; ours are
        calibrated with other queries. The time of a query is the least of its repetitions; quantiles are over queries.
        Fastest: {"; ".join(winners)}. Graphs of more than {options.graphs:,} entries are
        left out, because building them takes longer than all other parts."""
    return table(f"Single queries at a recall@10 of {asked}", [*columns, "bytes per entry"], rows, note)


def headline(tables):
    """Row of the README: one query among the fewest entries of each set, stored with originals, by library."""
    rows = [row for one in tables if one["title"].startswith("Single queries at") for row in one["rows"]]
    n = min((row[1] for row in rows), default=0)
    found = []
    for name in dict.fromkeys(row[0] for row in rows):
        fastest = {}
        some = [row for row in rows if row[:2] == [name, n] and not row[3].endswith(" B")]
        for row in sorted(some, key=lambda row: row[5]):
            fastest.setdefault(row[2].split()[0].rstrip(","), f"{row[5]:.0f} us ({row[7]:,.0f})")
        found.append(f"{name}: " + ", ".join(" ".join(one) for one in fastest.items()))
    task = f"Search {n:,} signals for one query (384 features, recall@10 of .95, one thread; bytes per entry)"
    return [[task, "; ".join(found)]] if found else []


def weak(options):
    """Share of white entries that must be visited to find a match with probability 90%, by its correlation."""
    rng, rows, unit = np.random.default_rng(0), [], text_embeddings.unit
    entries, n_queries = unit(rng.standard_normal((options.white, 256))), 500
    index = ts.Index(256, n_bytes=32, basis="hadamard", center=False, random_state=7)
    index.add(entries)
    index.learn_regions(n_regions="auto" if options.white >= 20_000 else 64)
    regions = index._learned().regions.regions(index._store.now.tables)
    counts = regions.order.codes(index._store.snapshot)[1]
    ids = index._store.snapshot.locate(np.arange(500))
    own = index._store.snapshot.gather("regions", ids).astype(np.int64)
    for correlation in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        noise = rng.standard_normal((n_queries, 256))
        noise -= (noise * entries[:n_queries]).sum(axis=1, keepdims=True) * entries[:n_queries]
        queries = correlation * entries[:n_queries] + np.sqrt(1 - correlation**2) * unit(noise)
        order = np.argsort(-regions.fine.scores(unit(queries)), axis=1)
        place = (order == own[:, np.newaxis]).argmax(axis=1)
        met = np.take_along_axis(np.cumsum(counts[order], axis=1), place[:, np.newaxis], axis=1)[:, 0] / len(entries)
        rows.append([correlation, float(np.quantile(met, 0.9))])
    title = f"Weak matches among {options.white:,} white entries: share visited to find 90% of them"
    return table(
        title, ["correlation", "visited"], rows, f"{len(regions):,} regions; below about 0.5 search exhaustively."
    )


def main():
    options = arguments(
        __doc__,
        sentences=(51_000, 4_000),
        sizes=([100_000, 1_000_000], [2_000, 3_000]),
        crossing=([10_000, 20_000, 50_000, 100_000], [2_000]),
        graphs=100_000,
        white=(100_000, 2_000),
        repeats=(5, 1),
        build_threads=len(os.sched_getaffinity(0)),
        only=["recall", "singles", "crossing", "peers", "weak"],
        cache=None,
    )
    sample, entries, queries = text_embeddings.unseen(options)
    entries = np.concatenate([sample, entries])
    large, sets, tables = resampled(entries, max(options.sizes)), [], []
    for n in options.sizes:
        made, asking = clustered(n, n_centres=20_000 if n >= FEW else 200)
        n_asked = min(256, len(queries) // 2)  # the others calibrate
        sets += [("text", large[:n], queries[:n_asked], queries[n_asked:])]
        sets += [("clustered", made, asking[:256], asking[256:])]
    parts = {
        "recall": lambda: [recall(options, entries, queries, large[: options.sizes[0]])],
        "singles": lambda: singles(options, sets),
        "crossing": lambda: [crossing(options, large, queries)],
        "peers": lambda: [peers(options, sets)],
        "weak": lambda: [weak(options)],
    }
    for name in options.only:
        tables += parts[name]()
        save(options, tables, headline(tables))


if __name__ == "__main__":
    main()
