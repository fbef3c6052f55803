"""A local Dask cluster compared with one process: encoding, searching, filters, pairs, segments, and plans.

Every worker is a process with one thread; the process compared with has as many threads as there are workers. Calls are
interleaved within a repeat. Entries are grouped codes of 8,192 features in 448 bytes, random codes in the index that is
searched. Searches for a recall use trellis codes of 24 bytes of clustered signals. The constants of the cost model of
``plan_cluster`` are fitted to them (``shared/search_costs.py``); ``--costs FILE`` writes them for ``topsign plan
--costs``. The visited fraction is not among them, because it depends on the signals.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from search import filled
from shared.results import ROOT, arguments, interleaved, ratio, save, seconds, spread, table, with_threads
from shared.search_costs import fit, predicted

sys.path.insert(0, str(ROOT / "tests"))

import topsign as ts
from topsign import kernels
from topsign.encoding import encode
from topsign.families import unit_queries
from topsign.index.regions import IndexRegions
from topsign.kernels import RegionRule

WORKER_MEMORY = "8GB"  # well above the codes of one worker; Dask pauses workers at 80% of it


def encoding(options, folder, clusters):
    """Signals per second by the number of workers, and of one thread of this process."""
    source, n = folder / "signals.npy", options.signals
    np.save(source, np.random.default_rng(0).standard_normal((n, options.features), np.float32))
    signals, size = np.load(source, mmap_mode="r"), -(-n // max(8, 2 * max(options.workers)))
    index = ts.Index(options.features, family="grouped", n_bytes=options.bytes, random_state=7)

    def on(client):
        ts.distributed.encode(source, folder / "encoded", index, client=client, segment_entries=size)
        shutil.rmtree(folder / "encoded")

    calls = [
        partial(encode, index.recipe, signals),
        *(partial(on, client) for client in clusters.values()),
    ]
    rates = n / interleaved(calls, options.repeats)
    rows = [["one process, one thread", spread(rates[:, 0]), None]]
    for i, workers in enumerate(clusters, 1):
        rows.append([f"{workers} workers", spread(rates[:, i]), ratio(rates[:, i], workers * rates[:, 0])])
    return table(f"Encoding {n:,} signals", ["where", "signals per second", "of a thread each"], rows)


def searching(options, folder, clusters):
    rng, rows = np.random.default_rng(1), []
    index = filled("grouped", options.entries, options.features, options.bytes, rng)
    index.save(folder / "codes")
    queries = rng.standard_normal((options.queries, options.features), np.float32)
    for workers, client in clusters.items():
        start = time.perf_counter()
        with ts.distributed.open(folder / "codes", client=client) as opened:
            loading = time.perf_counter() - start
            for some in (queries[:1], queries):
                calls = [partial(opened.search, some), partial(with_threads, workers, index.search, some)]
                found = [call() for call in calls]
                assert all(np.array_equal(getattr(found[0], x), getattr(found[1], x)) for x in ("ids", "scores"))
                times = 1e3 * interleaved(calls, options.repeats)
                rows.append(
                    [
                        workers,
                        len(some),
                        loading,
                        spread(times[:, 0]),
                        spread(times[:, 1]),
                        ratio(times[:, 0], times[:, 1]),
                    ]
                )
    columns = ["workers", "queries", "open (s)", "cluster (ms)", "one process (ms)", "ratio"]
    return table(f"Searching {options.entries:,} entries of {options.bytes} bytes", columns, rows, "Answers are equal.")


def filters_and_pairs(options, folder, workers, client):
    rng, rows = np.random.default_rng(2), []
    memory = ts.Index(64, family="grouped", n_bytes=8, random_state=7)
    years = rng.integers(0, 100, options.entries)
    notes = [{"year": int(year)} for year in years]
    memory.add(rng.standard_normal((options.entries, 64), dtype=np.float32), metadata=notes)
    memory.save(folder / "filtered")
    query = rng.standard_normal((1, 64), dtype=np.float32)
    paired = ts.Index(1024, family="grouped", n_bytes=64, random_state=7)
    paired.add(rng.standard_normal((options.paired, 1024), dtype=np.float32))
    paired.save(folder / "paired")
    with ts.distributed.open(folder / "filtered", client=client) as opened:
        calls = [
            lambda: opened.search(query, where="year == 3"),
            lambda: with_threads(workers, memory.search, query, where="year == 3"),
        ]
        assert np.array_equal(calls[0]().ids, calls[1]().ids)
        times = 1e3 * interleaved(calls, options.repeats)
        rows.append([f"search with a filter that 1% of {options.entries:,} pass", *both(times)])
    with ts.distributed.open(folder / "paired", client=client) as opened:
        calls = [lambda: opened.pairs(false_alarm=0.01), lambda: with_threads(workers, paired.pairs, false_alarm=0.01)]
        assert calls[0]().to_dict() == calls[1]().to_dict()
        rows.append([f"pairs of {options.paired:,}", *both(1e3 * interleaved(calls, max(2, options.repeats // 3)))])
    rows += segments(options, folder, client)
    return table(
        f"Filters, pairs and segments, {workers} workers", ["call", "cluster (ms)", "one process (ms)", "ratio"], rows
    )


def both(times):
    return spread(times[:, 0]), spread(times[:, 1]), ratio(times[:, 0], times[:, 1])


def segments(options, folder, client):
    """Milliseconds per tiny segment: the slope between few and many."""
    np.save(folder / "tiny.npy", np.random.default_rng(1).standard_normal((10 * options.segments, 64), np.float32))
    index, took = ts.Index(64, family="grouped", n_bytes=4, random_state=7), []
    for entries in (10, 100):
        out = folder / f"tiny{entries}"
        encoded = seconds(
            partial(ts.distributed.encode, folder / "tiny.npy", out, index, client=client, segment_entries=entries)
        )
        start = time.perf_counter()
        with ts.distributed.open(out, client=client) as opened:
            loaded = time.perf_counter() - start
            searched = np.median([seconds(partial(opened.search, np.ones((1, 64)))) for _ in range(10)])
        took.append((encoded, loaded, searched))
    slopes = 1e3 * (np.array(took[0]) - took[1]) / (options.segments * 0.9)
    names = ("encode", "open", "search")
    rows = [[f"{name}, each segment", float(slope), None, None] for name, slope in zip(names, slopes, strict=True)]
    return [*rows, ["search of an almost empty index", 1e3 * float(took[1][2]), None, None]]


def clustered(n_entries, rng, n_features=128):
    centres = rng.standard_normal((max(16, n_entries // 100), n_features), dtype=np.float32)
    return centres[rng.integers(len(centres), size=n_entries)] + 0.5 * rng.standard_normal(
        (n_entries, n_features), np.float32
    )


def median_seconds(call, repeats, n_parts=1):
    return float(np.median([seconds(call) for _ in range(repeats)])) / n_parts


def choices(index, queries, repeats):
    """Times to choose among the regions of an eighth of the coarse means and of all."""
    rows, regions = [], index._learned().regions.regions(index._store.now.tables)
    units, _ = unit_queries(index.recipe, queries)
    counts, both, every = np.ones(len(regions), np.int64), np.ones(2, np.int64), len(regions.coarse)
    for n_coarse in (max(1, every // 8), every):
        rule = RegionRule(np.empty(0), 16 * both, 0 * both, n_coarse * both, 0 * both, n_coarse, -np.inf)
        for size in (1, len(units)):
            call = partial(kernels.active().choose_regions, regions.model, counts, rule, units[:size])
            call()
            n_regions = len(regions) * n_coarse / every
            rows.append({"n_regions": n_regions, "batch": size, "seconds": median_seconds(call, repeats)})
    return rows


def visiting(calibration, n_regions):
    """Let searches for a recall visit the nearest regions of each query, this many of them."""
    one = np.zeros(1, np.int64)
    fixed = replace(
        calibration,
        path=one + n_regions,
        coarse=calibration.coarse[-1:],
        candidates=one,
        least=-np.inf,
        found=np.zeros_like(calibration.found),
        entries=np.zeros((len(calibration.entries), 1)),
    )

    def known(*_):
        return fixed

    return mock.patch.object(IndexRegions, "calibration", known)


def visits(index, n_workers, calibration, n_regions, queries, repeats, probes):
    """Times of searches by the number of regions visited."""
    rows = []
    for size in (1, len(queries)):
        for one in probes:
            call = partial(index.search, queries[:size], 10, recall=0.9)
            row = {"workers": n_workers, "probes": one, "batch": size, "n_entries": len(index), "n_regions": n_regions}
            with visiting(calibration, one):
                visited = float(call().visited.mean())
                rows.append(row | {"visited": visited, "seconds": median_seconds(call, repeats)})
    return rows


def recall(options, folder, workers, client):
    """Searches for a recall, and the constants of the cost model; rows that are not fitted test it."""
    rng = np.random.default_rng(3)
    signals = clustered(options.recalled, rng)
    index = ts.Index(signals.shape[1], n_bytes=24, random_state=7)
    index.fit(signals[:20_000])
    index.add(signals)
    index.learn_regions(n_regions="auto" if options.recalled >= 20_000 else 64)
    index.save(folder / "regions")
    n_regions, queries = index.regions.n_regions, clustered(256, rng)
    known = index._learned().regions.calibration(index._store.now.tables)
    local = visits(index, 0, known, n_regions, queries, options.repeats, (1, 4, 16, min(64, n_regions)))
    with ts.distributed.open(folder / "regions", client=client) as opened:
        remote = visits(opened, workers, known, n_regions, queries, options.repeats, (1, 16))
        asked, expected = (one.search(queries, 10, recall=0.95) for one in (opened, index))
        assert np.array_equal(asked.ids, expected.ids)
        took = [
            [
                1e3 * median_seconds(partial(one.search, queries[:n], 10, recall=0.95), options.repeats)
                for one in (opened, index)
            ]
            for n in (1, 256)
        ]
    pairs = [row for row in local + remote if row["probes"] == 1]
    costs = fit(choices(index, queries, options.repeats), local, pairs)
    model, rows = ts.theory.SearchCosts(**costs), []
    for row in local + remote:
        expected = predicted(model, row)
        rows.append(
            [
                row["workers"],
                row["probes"],
                row["batch"],
                row["visited"],
                1e3 * row["seconds"],
                1e3 * expected,
                row["seconds"] / expected,
            ]
        )
    columns = [
        "workers (0: one process)",
        "regions visited",
        "queries",
        "visited",
        "ms",
        "model (ms)",
        "measured / model",
    ]
    note = f"""{options.recalled:,} entries, {n_regions:,} regions, trellis codes of 24 bytes. A recall of .95 takes
    {took[0][0]:.1f} ms ({took[0][1]:.1f} in one process) for one query, and {took[1][0]:.0f} ms ({took[1][1]:.0f}) for
    256."""
    shown = table("Visits on a cluster, and the cost model", columns, rows, note)
    constants = table(
        "Constants of the cost model", ["name", "seconds"], [[name, value] for name, value in costs.items()]
    )
    return [shown, constants], costs


def main():
    options = arguments(
        __doc__,
        entries=(200_000, 3_000),
        features=(8192, 512),
        bytes=(448, 32),
        signals=(8_000, 300),
        workers=([1, 2], [1]),
        queries=(256, 16),
        paired=(10_000, 500),
        recalled=(200_000, 3_000),
        segments=(100, 10),
        repeats=(5, 2),
        costs=None,
    )
    from processes import Processes

    with tempfile.TemporaryDirectory(prefix="topsign-") as scratch:
        folder = Path(scratch).resolve()
        running = {n: Processes(folder, n, memory_limit=WORKER_MEMORY) for n in options.workers}
        try:
            for processes in running.values():
                processes.start()
            clusters = {n: processes.client() for n, processes in running.items()}
            most = max(clusters)
            tables = [encoding(options, folder, clusters), searching(options, folder, clusters)]
            tables.append(filters_and_pairs(options, folder, most, clusters[most]))
            found, costs = recall(options, folder, most, clusters[most])
            save(options, tables + found)
        finally:
            for processes in running.values():
                processes.stop()
    if options.costs:
        Path(options.costs).write_text(json.dumps(costs, indent=1) + "\n")


if __name__ == "__main__":
    main()
