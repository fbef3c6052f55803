"""Searches for a recall on a cluster of processes on this machine: latency, queries per second, and bytes moved.

    python benchmarks/cluster_recall.py INDEX [--copies 10] [--workers 1 2 4] [--queries 256] [--json FILE]

INDEX is an index with regions, such as that of 10^6 resampled sentences which ``regions.py alike`` makes. Its codes are
copied with their regions, so the tiled set has ten times as many entries in the same regions, and a visit takes as long
as with as many distinct codes. Every worker is a process with one thread. Bytes moved are the pickled sizes of the
client's requests to all workers and of their responses. Times are medians of wall-clock time, and the minimum processor
time of the client's process; without workers, the latter is that of the whole search. The client, too, searches in one
thread.

Constants of the cost model of ``plan_cluster`` are measured first, with INDEX in one process; together with searches of
one region on one worker they predict all other rows.
"""

import argparse
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import topsign as ts
from topsign.distributed import entries as cluster_entries
from topsign.families import unit_queries
from topsign.store.segments import make_segments
from topsign.store.stores import store_for_recipe

SEGMENT_ENTRIES = 500_000


def tile(index, n_copies, path):
    """Write a folder with copies of all entries, their regions and the calibration of recall."""
    store = store_for_recipe(index.recipe, path=path, timeout=None)
    snapshot, n_entries = index.store.snapshot, len(index)
    rows = np.arange(n_entries)
    codes, regions = snapshot.gather("codes", rows), snapshot.gather("regions", rows)
    names = index.recipe.column_names
    for copy in range(n_copies):
        for start in range(0, n_entries, SEGMENT_ENTRIES):
            part = slice(start, min(start + SEGMENT_ENTRIES, n_entries))
            ids = copy * n_entries + rows[part]
            columns = {name: snapshot.gather(name, rows[part]).astype(np.float32) for name in names}
            made = make_segments(ids, codes[part].copy(), columns, extras={"regions": regions[part].copy()})

            def change(change, made=made, ids=ids):
                change.add(made)
                change.next_id = int(ids[-1]) + 1
                change.tables |= {name: index.store.tables[name] for name in ("regions", "recall")}

            store.apply(change)
    store.close()


class Moved:
    """Counter of the pickled bytes of tasks and results."""

    def __init__(self, monkey):
        self.n_bytes, self._ask, self._send = 0, monkey.ask, monkey.send
        monkey.ask, monkey.send = self.ask, self.send

    def send(self, client, value):
        self.n_bytes += len(pickle.dumps(value)) * len(client.nthreads())
        return self._send(client, value)

    def ask(self, client, *arguments, **options):
        answers = self._ask(client, *arguments, **options)
        self.n_bytes += sum(len(one) for one in arguments if isinstance(one, bytes)) * len(client.nthreads())
        self.n_bytes += sum(len(pickle.dumps(answer)) for answer in answers)
        return answers


def seconds(work, repeats):
    """Return wall-clock seconds and processor seconds of this process for each repeat."""
    took, used = [], []
    for _ in range(repeats):
        start, started = time.perf_counter(), time.process_time()
        work()
        took.append(time.perf_counter() - start)
        used.append(time.process_time() - started)
    return took, used


def measure(name, index, queries, options, moved):
    """Rows of times: one query and a batch for a recall of .95, and in one region; one query among all entries."""
    rows = []
    for asked, sizes in (({"recall": 0.95}, (1, len(queries))), ({"probes": 1}, (1, len(queries))), ({}, (1,))):
        repeats = options.repeats if asked else 3
        for size in sizes:
            before = moved.n_bytes
            found = index.search(queries[:size], 10, **asked, n_threads=1)
            n_bytes = moved.n_bytes - before
            took, used = seconds(lambda: index.search(queries[:size], 10, **asked, n_threads=1), repeats)  # noqa: B023
            row = {"where": name, "asked": asked.get("recall"), "probes": asked.get("probes"), "batch": size}
            row |= {"n_entries": len(index), "bytes_moved": n_bytes, "visited": float(found.visited.mean())}
            row |= {"seconds": float(np.median(took)), "least_seconds": min(took), "processor_seconds": min(used)}
            row |= {"queries_per_second": size / float(np.median(took))}
            rows.append(row | {"exhaustive": float((found.exhaustive != "").mean())})
            print(rows[-1], flush=True)
    return rows


def constants(index, queries, options):
    """Rows of times in one thread by the number of regions, from which the constants of the cost model follow."""
    rows, regions = [], index._learned().regional.regions()
    units, _ = unit_queries(index.recipe, queries, n_threads=1)
    for size in (1, len(queries)):
        took, _ = seconds(lambda: regions.scores(units[:size], n_threads=1), options.repeats)  # noqa: B023
        row = {"n_entries": len(index), "n_regions": len(regions), "batch": size, "probes": 0, "visited": 0.0}
        rows.append(row | {"seconds": float(np.median(took)), "least_seconds": min(took)})
        for probes in (1, 16, 64, 256):
            if size == 1:
                ones = queries[:: max(1, len(queries) // 16)][:16]
                found = index.search(ones, 10, probes=probes)
                took, _ = seconds(
                    lambda: [index.search(one[np.newaxis], 10, probes=probes, n_threads=1) for one in ones],  # noqa: B023
                    options.repeats,
                )
                took = [one / len(ones) for one in took]
            else:
                found = index.search(queries, 10, probes=probes)
                took, _ = seconds(lambda: index.search(queries, 10, probes=probes, n_threads=1), options.repeats)  # noqa: B023
            row = row | {"probes": probes, "visited": float(found.visited.mean()) * len(index)}
            rows.append(row | {"seconds": float(np.median(took)), "least_seconds": min(took)})
    for row in rows:
        print(row, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    from processes import Processes

    source, rows, opening = ts.open_index(options.index, readonly=True), [], []

    def write():
        if options.json:
            save(options.json, options, {"constants": known, "search": rows, "open": opening})

    vectors = source.get(source.ids[:: len(source) // options.queries][: options.queries]).codes.decode()
    queries = vectors + 0.3 * np.random.default_rng(0).standard_normal(vectors.shape) / np.sqrt(vectors.shape[1])
    queries = queries.astype(np.float32)
    moved, known = Moved(cluster_entries), constants(source, queries, options)
    write()
    with tempfile.TemporaryDirectory(prefix="topsign-", dir=Path(options.index).parent) as scratch:
        folder = Path(scratch).resolve()
        tile(source, options.copies, folder / "tiled.topsign")
        with ts.open_index(folder / "tiled.topsign", readonly=True) as alone:
            expected = alone.search(queries, 10, recall=0.95)
            rows += measure("one process", alone, queries, options, moved)
            write()
        for n_workers in options.workers:
            with Processes(folder, n_workers) as running:
                start = time.perf_counter()
                index = ts.distributed.open(folder / "tiled.topsign", client=running.client())
                opening.append({"workers": n_workers, "seconds": time.perf_counter() - start})
                found = index.search(queries, 10, recall=0.95)
                assert np.array_equal(found.ids, expected.ids)
                assert np.array_equal(found.scores, expected.scores)
                rows += measure(f"{n_workers} workers", index, queries, options, moved)
                index.close()
                write()


if __name__ == "__main__":
    main()
