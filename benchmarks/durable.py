"""Durable indexes and indexes in memory: time to open, search and add, and memory of a searching process.

    python benchmarks/durable.py [--entries 1000000] [--signals 16384] [--bits 512] [--pool 8192] [--threads 1]
                                 [--repeats 5] [--folder FOLDER] [--json FILE]

Entries are 20,000 random codes, repeated; the results do not depend on their contents. Every repeat interleaves
searches of files and memory, and adding and encoding; ratios are medians of ratios within a repeat. Opening, the first
search (which verifies all checksums) and memory are measured in a new process after the import, with the files in the
page cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
os.environ["TOPSIGN_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = THREADS

import numpy as np  # noqa: E402  (threads are set first)
from shared.results import save, spread  # noqa: E402

import topsign as ts  # noqa: E402
from topsign import kernels  # noqa: E402
from topsign.store.segments import make_segments  # noqa: E402

DISTINCT = 20_000

FRESH = """
import json, re, sys, time
import numpy as np, topsign as ts
ts.open_index  # imported on first use
def resident():
    file = total = 0
    for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read(), flags=re.M)[1:]:
        rss = int(re.search(r"^Rss: +(\\d+)", part, flags=re.M)[1]) / 1024
        total += rss
        file += rss if sys.argv[1] in part.splitlines()[0] else 0
    return total, file
queries = np.random.default_rng(1).standard_normal((64, int(sys.argv[2]))).astype(np.float32)
start = time.perf_counter(); index = ts.open_index(sys.argv[1], readonly=True); opened = time.perf_counter()
index.search(queries[:1]); first = time.perf_counter()
index.search(queries[:1]); second = time.perf_counter()
index.search(queries, scoring="hamming")
total, file = resident()
print(json.dumps([opened - start, first - opened, second - first, total - file, file]))
"""


def fill(index, rng, n_entries):
    """Random codes, past the encoder."""
    layout = index.recipe.layout
    kernel = kernels.active()
    codes = np.empty((DISTINCT, layout.code_bytes), np.uint8)
    for start in range(0, DISTINCT, 1000):
        locations, signs, _ = kernel.select(rng.standard_normal((1000, layout.n_pool), dtype=np.float32), layout.n_bits)
        codes[start : start + 1000] = kernel.pack_codes(layout, locations, signs)
    with index.store.change() as change:
        for part in change.parts(n_entries):
            ids = np.arange(part.start, part.stop)
            ones = np.ones(len(ids), np.float32)
            change.add(make_segments(ids, codes[ids % DISTINCT], {"norms": ones, "scales": ones.copy()}))
        change.next_id = n_entries


def copied(index, **options):
    """The same entries in memory, in the same segments."""
    memory = ts.AdaptiveIndex(**options)
    with memory.store.change() as change:
        for segment in index.store.snapshot.segments:
            columns = {name: np.array(segment.columns.column(name)) for name in segment.columns.column_names}
            change.add(make_segments(np.array(segment.ids), np.array(segment.codes), columns))
    return memory


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(first, second, repeats):
    """Seconds of two calls in turn, and their ratio within a turn: the spread of each."""
    times = np.array([[timed(first), timed(second)] for _ in range(repeats + 1)][1:])
    return *(spread(side) for side in times.T), spread(times[:, 0] / times[:, 1])


def report_fresh(path, options):
    command = [sys.executable, "-c", FRESH, path, str(options.pool)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(options.repeats)]
    table = np.array([json.loads(shown) for shown in runs])
    opening, first, second, beyond, mapped = np.median(table, axis=0)
    print(f"open                                    {1e3 * opening:8.1f} ms")
    print(f"first search (checks every code), next  {1e3 * first:8.1f} ms {1e3 * second:10.1f} ms")
    print(f"resident, beyond the mapped file        {beyond:8.0f} MB  (mapped: {mapped:.0f} MB)")
    names = ("open_seconds", "first_search_seconds", "next_search_seconds", "resident_mb_beyond_file", "mapped_mb")
    return {name: spread(column) for name, column in zip(names, table.T, strict=True)}


def report_searches(path, shape, rng, options):
    index = ts.open_index(path, readonly=True)
    memory = copied(index, **shape)
    rows = []
    for n_queries in (1, 64):
        queries = rng.standard_normal((n_queries, options.pool)).astype(np.float32)
        for scoring in ("asymmetric", "hamming"):
            search = partial(index.search, queries, scoring=scoring), partial(memory.search, queries, scoring=scoring)
            durable, plain, ratio = compare(*search, options.repeats)
            name = f"search, {n_queries} queries, {scoring}"
            rows.append(
                {"queries": n_queries, "scoring": scoring, "seconds": durable, "in_memory": plain, "ratio": ratio}
            )
            milliseconds = f"{1e3 * durable['median']:8.1f} ms {1e3 * plain['median']:10.1f} ms in memory"
            print(f"{name:39s} {milliseconds}, ratio {ratio['median']:.3f}")
    return rows


def report_adding(folder, shape, rng, options):
    size = options.signals, options.pool
    signals = np.lib.format.open_memmap(os.path.join(folder, "signals.npy"), "w+", np.float32, size)
    for start in range(0, len(signals), 1024):
        part = signals[start : start + 1024]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    signals = np.load(os.path.join(folder, "signals.npy"), mmap_mode="r")
    index = ts.AdaptiveIndex(**shape, path=os.path.join(folder, "b.topsign"))
    encoder = ts.AdaptiveEncoder(options.bits, random_state=7).fit(signals[:1])
    adding, encoding, ratio = compare(partial(index.add, signals), partial(encoder.encode, signals), options.repeats)
    name, spent = f"add {len(signals):,} signals", adding["median"]
    print(f"{name:39s} {spent:8.2f} s  {encoding['median']:9.2f} s to encode")
    speed = f"{len(signals) / spent:,.0f} signals a second"
    print(f"add: {speed}, {1 / ratio['median']:.0%} of the speed of encoding")
    return {"signals": len(signals), "seconds": adding, "encode_seconds": encoding, "ratio": ratio}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--signals", type=int, default=16_384, help="signals of one addition")
    parser.add_argument("--bits", type=int, default=512)
    parser.add_argument("--pool", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", help="on the disk to be measured; a temporary folder when not given")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = {"n_features": options.pool, "n_bits": options.bits, "random_state": 7}
    print(
        f"{options.entries:,} entries of {options.bits}/{options.pool}, {options.threads} thread(s); {kernels.info()}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "a.topsign")
        index = ts.AdaptiveIndex(**shape, path=path)
        fill(index, rng, options.entries)
        index.close()
        del index
        measured = {
            "file_bytes": sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()),
            "fresh": report_fresh(path, options),
            "rows": report_searches(path, shape, rng, options),
            "adding": report_adding(folder, shape, rng, options),
        }
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
