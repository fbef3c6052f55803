"""Searches for a recall: achieved recall, share visited and time, beside FAISS's IVF with product quantisers.

Entries are the sentence vectors of text_embeddings.py and sets resampled from them: a sentence plus a random
combination of differences to 12 of its 30 nearest. Queries are real sentences that are in no entry, or resampled in the
same way. In tables of recall, regions are visited even if the cost model prefers to compare a batch with all entries.
Times are minima of processor time over interleaved repeats in one thread.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import text_embeddings
from shared.families import index_of
from shared.results import arguments, save, seconds, table

import topsign as ts
from topsign.search import recall as region_search

ASKED, KS, N_BYTES = (0.90, 0.95, 0.98), (1, 10, 100), 24
N_SOURCES, N_MIXED, SPREAD, CHUNK = 30, 12, 0.7, 20_000


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


def filled(entries, family="trellis", n_regions="auto", **options):
    """An index of these entries with regions, and the seconds to learn them."""
    index = index_of(family, entries.shape[1], N_BYTES, **options)
    index.fit(entries[:20_000])
    for at in range(0, len(entries), CHUNK):
        index.add(entries[at : at + CHUNK])
    return index, seconds(lambda: index.learn_regions(n_regions=n_regions))


def processor_seconds(calls, repeats):
    """Least processor time of each call over interleaved repeats."""
    least = np.full(len(calls), np.inf)
    for _ in range(repeats + 1):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - start)
    return least


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
    """Achieved recall of every case; the cost model is switched off."""
    chosen = {name: getattr(region_search.RegionSearch, name) for name in ("_is_slower", "_choosing_is_slower")}
    for name in chosen:
        setattr(region_search.RegionSearch, name, lambda *_: False)
    rng, n_regions = np.random.default_rng(0), "auto" if len(entries) >= 20_000 else 64
    index, _ = filled(entries, n_regions=n_regions)
    rows = achieved(index, queries, "sentences, held-out queries")
    among = rng.choice(len(entries), len(entries) // 10, replace=False)
    rows += achieved(index, queries, "sentences, filter that 10% pass", among=among)
    index.remove(rng.permutation(len(entries))[: int(0.7 * len(entries))])
    rows += achieved(index, queries, "sentences, 70% removed")
    index, _ = filled(entries[: len(entries) // 10], n_regions=max(16, len(entries) // 100))
    index.add(entries[len(entries) // 10 :])
    rows += achieved(index, queries, "sentences, grown tenfold")
    index, _ = filled(large, n_regions=n_regions)
    half = len(queries) // 2
    rows += achieved(index, resampled(entries, len(queries), seed=2), "resampled, queries resampled, too")
    rows += achieved(index, queries[half:], "resampled, queries are real sentences")
    index.learn_regions(queries[:half])
    rows += achieved(index, queries[half:], "resampled, calibrated with other real sentences")
    for name, method in chosen.items():
        setattr(region_search.RegionSearch, name, method)
    columns = ["case", "entries", "k", "asked", "achieved", "standard error", "reported", "visited"]
    return table(f"Achieved recall, trellis codes of {N_BYTES} bytes", columns, rows, f"{len(queries):,} queries.")


def times(options, queries, large):
    """Milliseconds per query by family and entries, exhaustive and for a recall of .95."""
    rows = []
    for family, n_entries in [("trellis", n) for n in options.sizes] + [
        ("grouped", options.sizes[0]),
        ("sign", options.sizes[0]),
    ]:
        entries = large[:n_entries]
        center = {} if family == "trellis" else {"center": True}
        index, learning = filled(entries, family, "auto" if n_entries >= 20_000 else 64, **center)
        ones = [queries[at : at + 1] for at in range(16)]
        for size, batches in ((1, ones), (256, [queries[:256]])):
            calls = [
                lambda index=index, asked=asked, batches=batches: [
                    index.search(one, 10, recall=asked) for one in batches
                ]
                for asked in (None, 0.95)
            ]
            took = 1e3 * processor_seconds(calls, options.repeats) / sum(map(len, batches))
            found = index.search(queries[:256], 10, recall=0.95)
            rows.append([family, n_entries, size, *took.tolist(), float(found.visited.mean()), learning])
    columns = [
        "code",
        "entries",
        "queries",
        "exhaustive (ms per query)",
        "recall .95 (ms per query)",
        "visited",
        "learning regions (s)",
    ]
    return table(f"Time of searches for a recall, codes of {N_BYTES} bytes", columns, rows)


def peers(options, queries, large):
    """Recall of exact neighbours and time beside FAISS's IVF with PQ of equal bytes, both with one thread."""
    import faiss

    entries, rows = large[: options.sizes[-1]], []
    truth = text_embeddings.nearest(queries, entries, 10)
    index, _ = filled(entries, n_regions="auto" if len(entries) >= 20_000 else 64)
    n_lists = index.regions.n_regions
    coarse = faiss.IndexFlatIP(entries.shape[1])
    ivf = faiss.IndexIVFPQ(coarse, entries.shape[1], n_lists, N_BYTES, 8, faiss.METRIC_INNER_PRODUCT)
    ivf.train(entries[: 50 * n_lists])
    ivf.add(entries)
    contestants = {
        f"trellis, recall={asked}": lambda some, asked=asked: index.search(some, 10, recall=asked).ids
        for asked in ASKED
    }

    def probe(some, n):
        ivf.nprobe = n
        return ivf.search(some, 10)[1]

    contestants |= {f"FAISS IVFPQ{N_BYTES}, nprobe={n}": lambda some, n=n: probe(some, n) for n in (4, 16, 64)}
    for size in (1, 256):
        batches = [queries[at : at + 1] for at in range(16)] if size == 1 else [queries[:256]]
        calls = [lambda call=call, batches=batches: [call(one) for one in batches] for call in contestants.values()]
        took = 1e3 * processor_seconds(calls, options.repeats) / sum(map(len, batches))
        for (name, call), milliseconds in zip(contestants.items(), took.tolist(), strict=True):
            rows.append([name, size, float(text_embeddings.recalls(call(queries), truth).mean()), milliseconds])
    note = f"{len(entries):,} resampled sentences, {n_lists:,} regions or lists; truth is the exact cosine."
    return table(
        "Recall@10 of exact neighbours and time, beside FAISS",
        ["search", "queries", "recall@10", "ms per query"],
        rows,
        note,
    )


def weak(options):
    """Share of white entries that must be visited to find a match with probability 90%, by its correlation."""
    rng, rows, unit = np.random.default_rng(0), [], text_embeddings.unit
    entries, n_queries = unit(rng.standard_normal((options.white, 256))), 500
    index = ts.Index(256, n_bytes=32, basis="hadamard", center=False, random_state=7)
    index.add(entries)
    index.learn_regions("auto" if options.white >= 20_000 else 64)
    regions = index._learned().regions.regions()
    counts = regions.order.counts(index._store.snapshot)
    own = index._store.snapshot.gather("regions", np.arange(n_queries)).astype(np.int64)
    for correlation in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        noise = rng.standard_normal((n_queries, 256))
        noise -= (noise * entries[:n_queries]).sum(axis=1, keepdims=True) * entries[:n_queries]
        queries = correlation * entries[:n_queries] + np.sqrt(1 - correlation**2) * unit(noise)
        order = np.argsort(-regions.scores(unit(queries)), axis=1)
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
        white=(100_000, 2_000),
        repeats=(9, 1),
        cache=None,
    )
    sample, entries, queries = text_embeddings.unseen(options)
    entries = np.concatenate([sample, entries])
    large = resampled(entries, max(options.sizes))
    tables = [recall(options, entries, queries, large[: options.sizes[0]])]
    for part in (lambda: times(options, queries, large), lambda: peers(options, queries, large), lambda: weak(options)):
        save(options, tables)
        tables.append(part())
    save(options, tables)


if __name__ == "__main__":
    main()
