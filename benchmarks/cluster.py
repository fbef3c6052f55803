"""Encoding and searching on a local Dask cluster compared with one process, and the cost of a segment.

    python benchmarks/cluster.py [--entries 1000000] [--signals 20000] [--workers 1 2 4] [--queries 256] [--repeats 5]
                                 [--json FILE]

Every worker is a process with one thread; the process compared with has as many threads as there are workers. Searches
are interleaved within a repeat. Entries to search are 20,000 encoded signals, repeated with random signs; a scan takes
the same time as over distinct entries.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import save, spread

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import topsign as ts
from topsign.encoding import encode
from topsign.store.segments import make_segments

N_FEATURES, N_BITS = 8192, 512


def fill(index, n_entries, rng):
    """Entries with random signs at the locations of real ones."""
    made = encode(index.recipe, rng.standard_normal((min(n_entries, 20_000), N_FEATURES), np.float32))
    for start in range(0, n_entries, len(made.codes)):
        n_rows = min(len(made.codes), n_entries - start)
        data = made.codes[:n_rows].copy()
        data[:, : N_BITS // 8] = rng.integers(0, 256, (len(data), N_BITS // 8), np.uint8)
        ids = np.arange(start, start + len(data))
        with index.store.change() as change:
            columns = {name: column[:n_rows].copy() for name, column in made.columns.items()}
            change.add(make_segments(ids, data, columns))
            change.next_id = start + n_rows


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def encoding(options, folder, rng, clusters):
    """Signals per second, by the number of workers; 0 stands for this process, with one thread."""
    source = folder / "signals.npy"
    np.save(source, rng.standard_normal((options.signals, N_FEATURES), np.float32))
    encoder = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=N_BITS, random_state=7)
    rates = {n: [] for n in (0, *options.workers)}
    segments = max(8, 2 * max(options.workers))
    for _ in range(options.repeats):
        signals = np.load(source, mmap_mode="r")
        rates[0].append(options.signals / seconds(lambda: encode(encoder.recipe, signals, n_threads=1)))  # noqa: B023
        for n, client in clusters.items():
            out = folder / "encoded"
            size = -(-options.signals // segments)
            took = seconds(lambda: ts.distributed.encode(source, out, encoder, client=client, segment_entries=size))  # noqa: B023
            rates[n].append(options.signals / took)
            shutil.rmtree(out)
    return rates


def searching(options, folder, rng, clusters):
    """Seconds of a search, by scoring and the number of workers (or threads of one process)."""
    index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=N_BITS, random_state=7)
    fill(index, options.entries, rng)
    out = folder / "codes"
    index.save(out)
    queries = rng.standard_normal((options.queries, N_FEATURES), np.float32)
    opened, loading = {}, {}
    times = {}
    for n, client in clusters.items():
        start = time.perf_counter()
        opened[n] = ts.distributed.open(out, client=client)
        loading[n] = time.perf_counter() - start
        for scoring in ("hamming", "asymmetric"):
            contestants = {
                "one process": lambda n=n, scoring=scoring: index.search(queries, scoring=scoring, n_threads=n),
                "cluster": lambda n=n, scoring=scoring: opened[n].search(queries, scoring=scoring),
            }
            found = [search() for search in contestants.values()]  # also makes the tables
            assert all(np.array_equal(getattr(found[0], x), getattr(found[1], x)) for x in ("ids", "scores"))
            for _ in range(options.repeats if scoring == "hamming" else -(-options.repeats // 2)):  # slower, steadier
                for name, search in contestants.items():
                    times.setdefault((scoring, n, name), []).append(seconds(search))
        opened.pop(n).close()
    return times, loading


def segment_cost(options, folder, client):
    """Seconds of encoding, opening and searching tiny segments, per segment: the slope between few and many."""
    rng = np.random.default_rng(1)
    np.save(folder / "tiny.npy", rng.standard_normal((options.segments * 10, 64), np.float32))
    index = ts.AdaptiveIndex(n_features=64, n_bits=16, random_state=7)
    took = []
    for entries in (10, 100):
        out = folder / f"tiny{entries}"
        encode = seconds(
            lambda: ts.distributed.encode(folder / "tiny.npy", out, index, client=client, segment_entries=entries)  # noqa: B023
        )
        start = time.perf_counter()
        opened = ts.distributed.open(out, client=client)
        load = time.perf_counter() - start
        query = np.ones((1, 64))
        search = np.median([seconds(lambda: opened.search(query)) for _ in range(10)])  # noqa: B023
        opened.close()
        took.append((encode, load, search))
    return (np.array(took[0]) - took[1]) / (options.segments * 0.9), took[1][2]


def report_encoding(options, rates):
    alone = np.array(rates[0])
    rows = []
    for n, values in rates.items():
        share = spread(np.array(values) / (alone * max(1, n)))
        rows.append({"workers": n, "signals_per_second": spread(values), "of_a_thread_each": share})
        what = f"{n} workers" if n else "one process, one thread"
        rate = f"{np.median(values):,.0f}/s, {share['median']:.2f} of a thread each"
        print(f"encode {options.signals:,} signals, {what}: {rate}")
    return rows


def report_searching(options, times):
    rows = []
    for scoring, n in dict.fromkeys((scoring, n) for scoring, n, _ in times):
        cluster, alone = (np.array(times[scoring, n, name]) for name in ("cluster", "one process"))
        ratio = spread(cluster / alone)
        row = {"scoring": scoring, "workers": n, "seconds": spread(cluster), "one_process": spread(alone)}
        rows.append(row | {"ratio": ratio})
        print(
            f"search {options.entries:,} entries, {options.queries} queries, {scoring}, {n} workers: "
            f"{np.median(cluster):.3f} s, one process {np.median(alone):.3f} s, ratio {ratio['median']:.2f}"
        )
    return rows


def report_segments(options, cost, fixed):
    for name, value in zip(("encode", "open", "search"), cost, strict=True):
        print(f"{name}: {1e3 * value:.2f} ms per segment, {options.workers[-1]} workers")
    print(f"a search of an almost empty index: {1e3 * fixed:.1f} ms")
    names = ("encode_seconds", "open_seconds", "search_seconds")
    segment = {name: float(value) for name, value in zip(names, cost, strict=True)}
    return {"workers": options.workers[-1], "a_segment": segment, "least_search_seconds": float(fixed)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--signals", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--segments", type=int, default=400, help="tiny ones, for the cost of a segment")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    from processes import Processes

    rng = np.random.default_rng(0)
    print(f"{N_BITS} of {N_FEATURES} bits; {ts.kernels.info()}; {os.cpu_count()} cores; medians of {options.repeats}")
    with tempfile.TemporaryDirectory(prefix="topsign-") as scratch:
        folder = Path(scratch)
        running = {n: Processes(folder, n) for n in options.workers}
        try:
            for processes in running.values():
                processes.start()
            clusters = {n: processes.client() for n, processes in running.items()}
            measured = {"encode": report_encoding(options, encoding(options, folder, rng, clusters))}
            times, loading = searching(options, folder, rng, clusters)
            measured["search"] = report_searching(options, times)
            for n, took in loading.items():
                print(f"open {options.entries:,} entries on {n} workers: {took:.2f} s")
            measured["open"] = [{"workers": n, "seconds": took} for n, took in loading.items()]
            measured["segments"] = report_segments(
                options, *segment_cost(options, folder, clusters[options.workers[-1]])
            )
        finally:
            for processes in running.values():
                processes.stop()
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
