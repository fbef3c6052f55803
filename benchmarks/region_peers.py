"""Searches for a recall beside FAISS, hnswlib and usearch: recall, times, build and bytes, in one run.

    python benchmarks/region_peers.py [--cache FOLDER] [--most 1000000] [--build-threads N] [--json FILE]

Entries are the resampled sentences of ``regions.py``, queries are real sentences. Two comparisons:

- equal bytes: codes alone, 24 or 48 bytes. topsign asks for a recall of .95 of its codes; FAISS visits the fewest lists
  that find 95% of what its codes find in a quarter of all lists.
- equal recall: .95 of the ten exact neighbours. topsign asks for it and keeps float16 originals; FAISS refines by
  float16 vectors, and lists and candidates are the fastest of a grid that reach it; graphs take the least ``ef``.

topsign is not tuned. The others are tuned with the first half of the queries and their exact neighbours; recall is that
of the second half. Indexes are built with all threads, times of searches are processor seconds in one thread, the least
of interleaved repeats. Bytes count everything that a search holds in memory, but for originals on disk.
"""

import argparse
import time
from functools import partial

import numpy as np
from shared.resampling import exact_neighbors, index_of, processor_seconds, recalls_of, resampled
from shared.results import save
from text_embeddings import load
from threadpoolctl import threadpool_limits

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
        exact = exact_neighbors(entries, queries, K)
        self.tuning_exact, self.exact = exact[:half], exact[half:]
        self.rows, self.searches = [], []

    def left(self):
        return self.options.seconds - (time.perf_counter() - self.started)

    def say(self, *parts):
        print(f"[{time.perf_counter() - self.started:5.0f} s]", *parts, flush=True)

    def build(self, name, make):
        """What ``make`` returns, and its seconds; None if too little time is left."""
        if self.left() < 0:
            self.say(name, "left out: no time")
            return None, 0.0
        start = time.perf_counter()
        made = make()
        seconds = time.perf_counter() - start
        self.say(name, f"built in {seconds:.1f} s")
        return made, seconds

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

    def tuned(self, search):
        return recalls_of(search(self.tuning), self.tuning_exact).mean()

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


def topsign(contest):
    """Codes of 24 and 48 bytes, and float16 originals."""
    for n_bytes, place in ((24, {}), (48, {}), (24, {"originals": "float16"})):
        kept = bool(place)
        name = f"topsign, {n_bytes} bytes" + (", float16 originals" if kept else "")

        def make(n_bytes=n_bytes, place=place):
            index, _ = index_of(contest.entries, n_bytes=n_bytes, **place)
            index.learn_regions()
            return index

        index, seconds = contest.build(name, make)
        if index is not None:
            size, of = len(index), {"build_seconds": seconds}
            of |= {"n_bytes": index.nbytes / size + 4, "originals_nbytes": index.originals_nbytes / size}  # 4: order

            def search(some, index=index):
                return index.search(some, K, recall=ASKED, n_threads=1).ids

            contest.add("recall" if kept else "bytes", name, search, setting=f"recall={ASKED}", **of)


def lists(contest):
    """FAISS's inverted lists: product quantisers, their fast scan, and RaBitQ."""
    import faiss

    entries = contest.entries
    n_lists = int(4 * np.sqrt(len(entries)))
    for name, text, n_bytes in (
        ("faiss IVF-PQ, 24 bytes", f"IVF{n_lists},PQ24", 24),
        ("faiss IVF-PQ fast scan, 24 bytes", f"IVF{n_lists},PQ48x4fs", 24),
        ("faiss IVF-RaBitQ, 48 bytes", f"IVF{n_lists},RaBitQ", 56),
    ):

        def make(text=text):
            faiss.omp_set_num_threads(contest.options.build_threads)
            index = faiss.index_factory(entries.shape[1], f"{text},Refine(SQfp16)", faiss.METRIC_INNER_PRODUCT)
            sample = np.random.default_rng(0).choice(len(entries), min(len(entries), 64 * n_lists), replace=False)
            index.train(entries[np.sort(sample)])
            index.add(entries)
            return index

        refined, seconds = contest.build(name, make)
        if refined is None:
            continue
        codes = faiss.downcast_index(refined.base_index)

        def coded(some, codes=codes):
            return codes.search(some, K)[1]

        def exactly(some, refined=refined):
            return refined.search(some, K)[1]

        def with_setting(search, n_probes, factor=None, codes=codes, refined=refined):
            def call(some):
                codes.nprobe = n_probes
                if factor is not None:
                    refined.k_factor = factor
                return search(some)

            return call

        most = contest.tuned(with_setting(coded, n_lists // 4))
        good = [n for n in PROBES if contest.tuned(with_setting(coded, n)) >= ASKED * most]
        n_probes = good[0] if good else n_lists // 4
        size = {"n_bytes": n_bytes + 8, "build_seconds": seconds}
        faiss.omp_set_num_threads(1)
        contest.add("bytes", name, with_setting(coded, n_probes), setting=f"{n_probes} of {n_lists:,} lists", **size)
        faiss.omp_set_num_threads(contest.options.build_threads)
        fit = []
        for factor in FACTORS:
            good = (n for n in PROBES if contest.tuned(with_setting(exactly, n, factor)) >= ASKED)
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

    graph, seconds = contest.build("hnswlib", make)
    if graph is not None:

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

    graph, seconds = contest.build(name, make)
    if graph is not None:

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
        if contest.tuned(at(ef, contest.options.build_threads)) >= ASKED:
            break
    contest.add("recall", name, at(ef), setting=f"ef {ef}", **size)


PEERS = {
    "topsign": topsign,
    "faiss": lists,
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
    parser.add_argument("--seconds", type=float, default=36_000, help="after which no other index is built")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="of the sentence model")
    parser.add_argument("--json")
    options = parser.parse_args()
    sources, queries = load(options)
    entries = np.asarray(resampled(sources, options.most, options.cache), np.float32)
    contest = Contest(entries, queries, options)
    contest.say("truth known")
    for name in options.only:
        try:
            PEERS[name](contest)
        except ImportError as error:
            contest.say(f"{name} is not installed: {error}")
    contest.time()


if __name__ == "__main__":
    main()
