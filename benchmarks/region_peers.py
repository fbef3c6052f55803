"""Searches for a recall beside FAISS, hnswlib and usearch: recall, times, build and bytes, in one run.

    python benchmarks/region_peers.py [--cache FOLDER] [--most 1000000] [--build-threads N] [--json FILE]

Entries are the resampled sentences of ``regions.py``, queries are real sentences. Two comparisons:

- equal bytes: codes of 24 or 48 bytes without originals. topsign asks for a recall of .95 of its codes; FAISS visits
  the fewest lists that find 95% of what its codes find in a quarter of all lists.
- equal recall: .95 of the ten exact neighbours. topsign asks for it and keeps float16 originals; FAISS refines by
  float16 vectors, and lists and candidates are the fastest of a grid that reach it; graphs take the least ``ef``.

topsign is not tuned, or calibrated with the first half of the queries. The others are tuned with these queries and
their exact neighbours. Recall is that of the second half. Indexes are built with ``--build-threads`` threads and kept
in the cache, so that ``--build --only`` can build them one by one. Times of searches are processor seconds in one
thread, the least of interleaved repeats. Bytes count everything that a search holds in memory, but for originals on
disk.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
from shared.resampling import exact_neighbors, index_of, processor_seconds, recalls_of, resampled
from shared.results import load as load_average
from shared.results import save
from text_embeddings import load
from threadpoolctl import threadpool_limits

import topsign as ts

ASKED, K = 0.95, 10
PROBES = (4, 8, 16, 32, 64, 128, 256, 512)
FACTORS = (4, 10, 30, 100)  # candidates of FAISS, as multiples of k
EFS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class Contest:
    """Indexes that were built, the searches that are timed, and the rows of both comparisons."""

    def __init__(self, entries, queries, options):
        self.entries, self.options, self.started = entries, options, time.perf_counter()
        half = len(queries) // 2
        self.tuning, self.queries = queries[:half], queries[half:]
        if options.build:
            return
        self.memo = Path(options.cache) / f"peers-{len(entries)}-{len(queries)}-tuned.json"
        self.known = json.loads(self.memo.read_text()) if self.memo.exists() else {}
        path = self.memo.with_suffix(".npy")
        if not path.exists():
            np.save(path, exact_neighbors(entries, queries, K))
        exact = np.load(path)
        self.tuning_exact, self.exact = exact[:half], exact[half:]
        self.rows, self.searches = [], []

    def say(self, *parts):
        print(f"[{time.perf_counter() - self.started:5.0f} s]", *parts, flush=True)

    def build(self, name, make, write, read):
        """Return the result of ``make`` and its seconds; both are read from files if an earlier run made them."""
        path = Path(self.options.cache) / f"peers-{len(self.entries)}-{name.replace(', ', '-').replace(' ', '_')}"
        noted = path.with_suffix(".json")
        if not noted.exists():
            start = time.perf_counter()
            made = make()
            seconds = time.perf_counter() - start
            write(made, str(path))
            noted.write_text(json.dumps({"seconds": seconds, "load": load_average()}))
            self.say(name, f"built in {seconds:.1f} s")
        return read(str(path)), json.loads(noted.read_text())["seconds"]

    def add(self, equal, name, search, *, n_bytes, originals_nbytes=0, build_seconds, setting):
        """A contestant of one comparison."""
        recalls = recalls_of(search(self.queries), self.exact)
        row = {"equal": equal, "name": name, "setting": setting, "bytes_per_entry": n_bytes}
        row |= {"originals_bytes_per_entry": originals_nbytes, "build_seconds": build_seconds}
        row |= {"recall": recalls.mean(), "standard_error": recalls.std() / np.sqrt(len(recalls))}
        self.rows.append(row | {"n_entries": len(self.entries), "n_queries": len(self.queries)})
        self.searches.append(search)
        self.say(row)
        self.write()

    def tuned(self, search, *setting):
        """Recall of the tuning queries, which is kept in the cache by the setting."""
        name = repr(setting)
        if name not in self.known:
            self.known[name] = float(recalls_of(search(self.tuning), self.tuning_exact).mean())
            self.memo.write_text(json.dumps(self.known))
        return self.known[name]

    def time(self):
        """Add times to all rows."""
        calls = [lambda one=one: [one(self.queries[at : at + 1]) for at in range(32)] for one in self.searches]
        calls += [lambda one=one: one(self.queries[:256]) for one in self.searches]
        with threadpool_limits(1):
            seconds = processor_seconds(calls, self.options.repeats)
        for place, row in enumerate(self.rows):
            row["one_query_seconds"] = seconds[place] / 32
            row["batch_seconds_each"] = seconds[len(self.rows) + place] / 256
            self.say(
                {name: row[name] for name in ("equal", "name", "recall", "one_query_seconds", "batch_seconds_each")}
            )
        self.write()

    def write(self):
        if self.options.json:
            save(self.options.json, self.options, {"peers": self.rows, "build_threads": self.options.build_threads})


def topsign(contest, n_bytes, **place):
    """Codes without or with float16 originals; recall is then calibrated with entries, and with queries."""
    name = f"topsign, {n_bytes} bytes" + (", float16 originals" if place else "")

    def make():
        index, _ = index_of(contest.entries, n_bytes=n_bytes, **place)
        index.learn_regions()
        return index

    def calibrated(index, path):
        index.save(path)
        with ts.open_index(path) as other:
            other.calibrate_recall(contest.tuning)

    read = partial(ts.open_index, readonly=True)
    index, seconds = contest.build(name, make, lambda index, path: index.save(path), read)
    entered = {f"recall={ASKED}": index}
    if place:
        entered["the same, calibrate_recall"], _ = contest.build(f"{name}, calibrated", lambda: index, calibrated, read)
    for setting, one in entered.items() if not contest.options.build else ():

        def search(some, one=one):
            return one.search(some, K, recall=ASKED, n_threads=1).ids

        of = {"n_bytes": one.nbytes / len(one) + 4, "originals_nbytes": one.originals_nbytes / len(one)}  # 4: order
        contest.add("recall" if place else "bytes", name, search, setting=setting, build_seconds=seconds, **of)


def lists(contest, name, code, n_bytes):
    """FAISS's inverted lists of product quantisers, their fast scan, or RaBitQ."""
    import faiss

    entries = contest.entries
    n_lists = int(4 * np.sqrt(len(entries)))

    def make():
        faiss.omp_set_num_threads(contest.options.build_threads)
        index = faiss.index_factory(entries.shape[1], f"IVF{n_lists},{code},Refine(SQfp16)", faiss.METRIC_INNER_PRODUCT)
        sample = np.random.default_rng(0).choice(len(entries), min(len(entries), 64 * n_lists), replace=False)
        index.train(entries[np.sort(sample)])
        index.add(entries)
        return index

    refined, seconds = contest.build(name, make, faiss.write_index, faiss.read_index)
    if contest.options.build:
        return
    codes = faiss.downcast_index(refined.base_index)

    def coded(some):
        return codes.search(some, K)[1]

    def exactly(some):
        return refined.search(some, K)[1]

    def with_setting(search, n_probes, factor=None):
        def call(some):
            codes.nprobe = n_probes
            if factor is not None:
                refined.k_factor = factor
            return search(some)

        return call

    most = contest.tuned(with_setting(coded, n_lists // 4), name, n_lists // 4)
    good = [n for n in PROBES if contest.tuned(with_setting(coded, n), name, n) >= ASKED * most]
    n_probes = good[0] if good else n_lists // 4
    size = {"n_bytes": n_bytes + 8, "build_seconds": seconds}
    faiss.omp_set_num_threads(1)
    contest.add("bytes", name, with_setting(coded, n_probes), setting=f"{n_probes} of {n_lists:,} lists", **size)
    faiss.omp_set_num_threads(contest.options.build_threads)
    fit = []
    for factor in FACTORS:
        good = (n for n in PROBES if contest.tuned(with_setting(exactly, n, factor), name, n, factor) >= ASKED)
        fit += [(n, factor) for n in [next(good, None)] if n is not None]
    faiss.omp_set_num_threads(1)
    if fit:
        calls = [partial(with_setting(exactly, *one), contest.tuning[:64]) for one in fit]
        seconds = processor_seconds(calls, 2)
        n_probes, factor = fit[int(np.argmin(seconds))]
        setting = f"{n_probes} of {n_lists:,} lists, {factor * K} candidates"
        size["originals_nbytes"] = 2 * entries.shape[1]
        contest.add("recall", name, with_setting(exactly, n_probes, factor), setting=setting, **size)
    else:
        contest.say(name, "does not reach the recall with any setting")


def hnswlib_graph(contest):
    import hnswlib

    entries = contest.entries

    def make():
        graph = hnswlib.Index("ip", entries.shape[1])
        graph.init_index(len(entries), ef_construction=100, M=16, random_seed=0)
        graph.add_items(entries, num_threads=contest.options.build_threads)
        return graph

    def read(path):
        graph = hnswlib.Index("ip", entries.shape[1])
        graph.load_index(path)
        return graph

    graph, seconds = contest.build("hnswlib", make, lambda graph, path: graph.save_index(path), read)
    if not contest.options.build:

        def at(ef, threads=1):
            def call(some):
                graph.set_ef(ef)
                return graph.knn_query(some, K, num_threads=threads)[0]

            return call

        size = {"n_bytes": 4 * entries.shape[1] + 16 * 2 * 4 + 16, "build_seconds": seconds}
        least(contest, "hnswlib, float32", at, **size)


def usearch_graph(contest, dtype, name):
    from usearch.index import Index

    entries = contest.entries

    def make():
        graph = Index(ndim=entries.shape[1], metric="ip", dtype=dtype)
        graph.add(np.arange(len(entries)), entries, threads=contest.options.build_threads)
        return graph

    graph, seconds = contest.build(name, make, lambda graph, path: graph.save(path), Index.restore)
    if not contest.options.build:

        def at(ef, threads=1):
            def call(some):
                graph.expansion_search = ef
                return np.atleast_2d(graph.search(some, K, threads=threads).keys)

            return call

        n_bytes = graph.serialized_length / len(entries)
        least(contest, name, at, n_bytes=n_bytes, build_seconds=seconds)


def least(contest, name, at, **size):
    """Add a graph at the least ``ef`` that reaches the recall, or at the largest."""
    for ef in EFS:
        if contest.tuned(at(ef, contest.options.build_threads), name, ef) >= ASKED:
            break
    contest.add("recall", name, at(ef), setting=f"ef {ef}", **size)


PEERS = {
    "topsign-24": lambda contest: topsign(contest, 24),
    "topsign-48": lambda contest: topsign(contest, 48),
    "topsign-originals": lambda contest: topsign(contest, 24, originals="float16"),
    "faiss-pq": lambda contest: lists(contest, "faiss IVF-PQ, 24 bytes", "PQ24", 24),
    "faiss-fast": lambda contest: lists(contest, "faiss IVF-PQ fast scan, 24 bytes", "PQ48x4fs", 24),
    "faiss-rabitq": lambda contest: lists(contest, "faiss IVF-RaBitQ, 48 bytes", "RaBitQ", 56),
    "hnswlib": hnswlib_graph,
    "usearch": lambda contest: usearch_graph(contest, "i8", "usearch, int8"),
    "usearch-f16": lambda contest: usearch_graph(contest, "f16", "usearch, float16"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", default="benchmarks/cache")
    parser.add_argument("--entries", type=int, default=50_000, help="sentences that entries are resampled from")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--most", type=int, default=1_000_000, help="resampled entries")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--build-threads", type=int, default=1)
    parser.add_argument("--build", action="store_true", help="build indexes and keep them in the cache, and end")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="of the sentence model")
    parser.add_argument("--json")
    options = parser.parse_args()
    sources, queries = load(options)
    entries = np.asarray(resampled(sources, options.most, options.cache), np.float32)
    contest = Contest(entries, queries, options)
    for name in options.only:
        try:
            PEERS[name](contest)
        except ImportError as error:
            contest.say(f"{name} is not installed: {error}")
    if not options.build and options.repeats:
        contest.time()


if __name__ == "__main__":
    main()
