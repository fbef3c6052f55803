"""Searches for a recall on a cluster of processes on this machine: latency, queries per second, and bytes moved.

    python benchmarks/cluster_recall.py INDEX [--copies 10] [--workers 1 2 4] [--queries 256] [--json FILE]
                                        [--costs FILE]

INDEX is an index with regions, such as that of 10^6 resampled sentences which ``regions.py alike`` makes. Its codes are
copied with their regions, so the tiled set has ten times as many entries in the same regions, and a visit takes as long
as with as many distinct codes. Every worker is a process with one thread. Bytes moved are the pickled sizes of the
client's requests to all workers and of their responses. Times are medians of wall-clock time, and the minimum processor
time of the client's process; without workers, the latter is that of the whole search. The client, too, searches in one
thread.

Constants of the cost model of ``plan_cluster`` follow from searches of INDEX in one process, and from searches of one
region in one process and on the fewest workers; ``shared/search_costs.py`` documents the fit. They predict all other
rows. ``--costs`` writes them to a file that ``topsign plan --costs FILE`` reads. The fraction of the entries that a
query visits is not among them, because it depends on the signals: to change it, add ``visited_at_million`` to the file.
"""

import argparse
import json
import pickle
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from shared.results import save
from shared.search_costs import fit, fitted_rows, predicted

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import topsign as ts
from topsign.distributed import entries as cluster_entries
from topsign.families import unit_queries
from topsign.kernels import RegionRule
from topsign.store.segments import make_segments
from topsign.store.stores import store_for_recipe

SEGMENT_ENTRIES = 500_000
WORKER_MEMORY = "8GB"  # well above the codes of one worker; Dask pauses workers at 80% of it


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
    """Counter of the pickled bytes of tasks and results, within a ``with`` block."""

    def __init__(self):
        self.n_bytes = 0

    def __enter__(self):
        self._ask, self._send = cluster_entries.ask, cluster_entries.send
        cluster_entries.ask, cluster_entries.send = self.ask, self.send
        return self

    def __exit__(self, *_):
        cluster_entries.ask, cluster_entries.send = self._ask, self._send

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


def timed(work, repeats, n_parts=1):
    """Return times for a row; ``work`` is ``n_parts`` equal searches, of which each is a row's."""
    took, used = seconds(work, repeats)
    times = {"seconds": np.median(took), "least_seconds": min(took), "processor_seconds": min(used)}
    return {name: float(value) / n_parts for name, value in times.items()}


def measure(index, n_workers, n_regions, queries, options):
    """Rows of times: one query and a batch for a recall of .95, and in one region; one query among all entries."""
    rows = []
    for asked, sizes in (({"recall": 0.95}, (1, len(queries))), ({"probes": 1}, (1, len(queries))), ({}, (1,))):
        for size in sizes:

            def search(some=queries[:size], asked=asked):
                return index.search(some, 10, **asked, n_threads=1)

            with Moved() as moved:
                found = search()
            row = {"workers": n_workers, "asked": asked.get("recall"), "probes": asked.get("probes"), "batch": size}
            row |= {"n_entries": len(index), "n_regions": n_regions, "visited": float(found.visited.mean())}
            row |= {"bytes_moved": moved.n_bytes, "exhaustive": float((found.exhaustive != "").mean())}
            row |= timed(search, options.repeats if asked else 3)
            rows.append(row | {"queries_per_second": size / row["seconds"]})
            print(rows[-1], flush=True)
    return rows


def measure_choices(index, queries, options):
    """Rows of times to choose among an eighth of the regions and among all."""
    rows, regions = [], index._learned().regional.regions()
    units, _ = unit_queries(index.recipe, queries, n_threads=1)
    rule = RegionRule(np.empty(0), np.array([16]), np.array([0]), -np.inf)
    for n_regions in (len(regions) // 8, len(regions)):
        some = replace(regions, means=regions.means[:n_regions], scales=regions.scales[:n_regions])
        counts = np.ones(n_regions, np.int64)
        for size in (1, len(units)):
            batches = [units[at : at + size] for at in range(0, min(16 * size, len(units)), size)]

            def choose(some=some, counts=counts, batches=batches):
                for batch in batches:
                    some.choose(rule, counts, batch, n_threads=1)

            choose()
            row = {"n_regions": n_regions, "batch": size}
            rows.append(row | timed(choose, options.repeats, len(batches)))
            print(rows[-1], flush=True)
    return rows


def measure_visits(index, queries, options):
    """Rows of times of searches in one process, by the number of regions visited."""
    rows, n_regions = [], index.regions.n_regions
    for size in (1, len(queries)):
        step = max(1, len(queries) // 16)
        batches = [one[np.newaxis] for one in queries[::step][:16]] if size == 1 else [queries]
        for probes in (1, 16, 64, 256):

            def search(batches=batches, probes=probes):
                return [index.search(batch, 10, probes=probes, n_threads=1) for batch in batches]

            visited = np.mean([found.visited.mean() for found in search()])
            row = {"workers": 0, "probes": probes, "batch": size, "n_entries": len(index), "n_regions": n_regions}
            row |= {"visited": float(visited)}
            rows.append(row | timed(search, options.repeats, len(batches)))
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("--costs", help="file for the constants, which topsign plan --costs reads")
    options = parser.parse_args()
    if options.queries < 2 or min(options.workers) < 1:
        parser.error("give at least 2 --queries, and 1 or more --workers")
    from processes import Processes

    source = ts.open_index(options.index, readonly=True)
    measured = {"search": [], "open": []}

    def add(rows):
        measured["search"] += rows
        if fitted := fitted_rows(measured["search"]):
            measured["costs"] = fit(measured["choices"], measured["visits"], fitted)
        if options.json:
            save(options.json, options, measured)

    vectors = source.get(source.ids[:: len(source) // options.queries][: options.queries]).codes.decode()
    queries = vectors + 0.3 * np.random.default_rng(0).standard_normal(vectors.shape) / np.sqrt(vectors.shape[1])
    queries = queries.astype(np.float32)
    n_regions = source.regions.n_regions
    measured["choices"] = measure_choices(source, queries, options)
    measured["visits"] = measure_visits(source, queries, options)
    with tempfile.TemporaryDirectory(prefix="topsign-", dir=Path(options.index).parent) as scratch:
        folder = Path(scratch).resolve()
        tile(source, options.copies, folder / "tiled.topsign")
        with ts.open_index(folder / "tiled.topsign", readonly=True) as alone:
            expected = alone.search(queries, 10, recall=0.95)
            add(measure(alone, 0, n_regions, queries, options))
        for n_workers in sorted(options.workers):
            with Processes(folder, n_workers, memory_limit=WORKER_MEMORY) as running:
                start = time.perf_counter()
                index = ts.distributed.open(folder / "tiled.topsign", client=running.client())
                measured["open"].append({"workers": n_workers, "seconds": time.perf_counter() - start})
                found = index.search(queries, 10, recall=0.95)
                assert np.array_equal(found.ids, expected.ids)
                assert np.array_equal(found.scores, expected.scores)
                add(measure(index, n_workers, n_regions, queries, options))
                index.close()
    costs = ts.theory.SearchCosts(**measured["costs"])
    for row in measured["search"]:
        if row["asked"] or row["probes"]:
            name = f"{row['workers']} workers, {row['asked'] or 'one region'}, batch {row['batch']}"
            print(f"{name}: measured {row['seconds'] / predicted(costs, row):.2f} times the predicted seconds")
    print(measured["costs"])
    if options.costs:
        Path(options.costs).write_text(json.dumps(measured["costs"], indent=1) + "\n")


if __name__ == "__main__":
    main()
