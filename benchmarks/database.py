"""Text ids, filters on metadata, and pairs of near-duplicates.

    python benchmarks/database.py [--ids 1000000] [--filter 1000000] [--pairs 100000] [--repeats 9] [--json FILE]

Ids: open a durable index with this number of text ids and look up 1,000 of them, each time in a new process; imports
are not counted. Filter: a condition that keeps 1% of the entries, interleaved with a search of an index of only those
entries. Pairs: `index.pairs` of codes of 256 of 2048, compared with searches of all entries in batches of 1,000, of
which the first few are timed; CPU seconds of all threads, which depend little on other load. 0 skips a part.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from shared.results import interleaved, save, spread

import topsign as ts

OPENING = """
import json, sys, time
import numpy as np, topsign as ts, topsign.store.folder_store
wanted = json.loads(sys.argv[2])
start = time.perf_counter()
index = ts.open_index(sys.argv[1], readonly=True)
opened = time.perf_counter()
index.get(wanted[0])
first = time.perf_counter()
times = []
for names in wanted[1:]:
    begin, cpu = time.perf_counter(), time.process_time()
    assert list(index.get(names).ids) == names
    times.append((time.perf_counter() - begin, time.process_time() - cpu))
print(json.dumps([opened - start, first - opened, *np.median(times, axis=0)]))
"""


def measure_ids(n_entries, repeats):
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "index.topsign")
        names = [f"document-{i}" for i in range(n_entries)]
        with ts.AdaptiveIndex(n_features=64, n_bits=8, path=path, random_state=7) as index:
            for start in range(0, n_entries, 100_000):
                part = names[start : start + 100_000]
                index.add(rng.standard_normal((len(part), 64), dtype=np.float32), ids=part)
            segments = index.store.snapshot.segments
            beyond = sum(segment.columns.text_ids.nbytes - segment.columns.text_ids.text.nbytes for segment in segments)
        rows = []
        for _ in range(repeats):
            wanted = [[names[i] for i in rng.choice(n_entries, 1000, replace=False)] for _ in range(6)]
            command = [sys.executable, "-c", OPENING, path, json.dumps(wanted)]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    opened, first, warm, cpu = 1e3 * np.array(rows).T
    found = {
        "n_entries": n_entries,
        "open_ms": spread(opened),
        "first_1000_ms": spread(first),
        "lookup_1000_ms": spread(warm),
        "lookup_1000_cpu_ms": spread(cpu),
        "bytes_beyond_text": beyond / n_entries,
    }
    print(
        f"{n_entries} ids: open {np.median(opened):.1f} ms; 1,000 lookups {np.median(first):.1f} ms right after, "
        f"{np.median(warm):.1f} ms then ({np.median(cpu):.1f} ms of CPU); {beyond / n_entries:.1f} bytes more"
    )
    return found


def measure_filter(n_entries, repeats):
    rng = np.random.default_rng(0)
    index, alone = (ts.AdaptiveIndex(n_features=256, n_bits=32, random_state=7) for _ in range(2))
    years = rng.integers(0, 100, n_entries)
    for start in range(0, n_entries, 100_000):
        part = years[start : start + 100_000]
        signals = rng.standard_normal((len(part), 256), dtype=np.float32)
        notes = [{"year": int(year), "title": f"title {i}"} for i, year in enumerate(part)]
        index.add(signals, metadata=notes)
        alone.add(signals[part == 3])
    query = rng.standard_normal((1, 256), dtype=np.float32)
    begin, cpu = time.perf_counter(), time.process_time()
    index.search(query, where="year == 3")
    first, first_cpu = time.perf_counter() - begin, time.process_time() - cpu
    calls = [lambda: index.search(query, where="year == 3"), lambda: alone.search(query)]
    filtered, plain = 1e3 * interleaved(calls, repeats).T
    limit = 1.3 * np.median(plain) + 60
    print(
        f"filter keeps 1% of {n_entries}: {np.median(filtered):.1f} ms, only those {np.median(plain):.2f} ms "
        f"(at most {limit:.1f} wanted); the first use of a field {first:.2f} s ({first_cpu:.2f} s of CPU)"
    )
    return {
        "n_entries": n_entries,
        "filtered_ms": spread(filtered),
        "alone_ms": spread(plain),
        "limit_ms": float(limit),
        "first_s": first,
        "first_cpu_s": first_cpu,
    }


def measure_pairs(n_entries):
    rng = np.random.default_rng(0)
    index = ts.AdaptiveIndex(n_features=2048, n_bits=256, random_state=7)
    parts = []
    for start in range(0, n_entries, 10_000):
        signals = rng.standard_normal((min(10_000, n_entries - start), 2048), dtype=np.float32)
        signals[1::100] = signals[::100] + 0.3 * signals[1::100]  # a near-duplicate for one in a hundred
        index.add(signals)
        parts.append(signals[:1000])
    n_batches = min(3, len(parts))
    index.search(parts[0][:10], k=10)
    begin = time.process_time()
    for queries in parts[:n_batches]:
        index.search(queries, k=10)
    searches = (time.process_time() - begin) * n_entries / sum(map(len, parts[:n_batches]))
    begin = time.process_time()
    pairs = index.pairs(false_alarm=0.01)
    joined = time.process_time() - begin
    print(
        f"pairs of {n_entries}: {joined:.0f} s of CPU, {joined / searches:.2f} times searches ({searches:.0f} s, "
        f"from {n_batches} batches of 1,000); {len(pairs)} pairs found"
    )
    return {
        "n_entries": n_entries,
        "pairs_cpu_s": joined,
        "searches_cpu_s": searches,
        "ratio": joined / searches,
        "n_pairs": len(pairs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--filter", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    measured = {}
    if options.ids:
        measured["ids"] = measure_ids(options.ids, options.repeats)
    if options.filter:
        measured["filter"] = measure_filter(options.filter, options.repeats)
    if options.pairs:
        measured["pairs"] = measure_pairs(options.pairs)
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
