"""Durable indexes: opening, searching and adding compared with memory, churn, concurrent readers, ids, filters, pairs.

Entries are grouped codes of 8,192 features in 448 bytes (small ones of 64 features for churn, readers, ids and
filters). Opening, the first search (which verifies all checksums) and memory are measured in new processes, with the
files in the page cache. Churn removes and adds batches while another process reads; readers are processes that open,
refresh and search while a writer adds and removes without a pause.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from search import filled
from shared.results import arguments, interleaved, ratio, save, seconds, spread, table

import topsign as ts
from topsign.encoding import encode

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
index.search(queries)
total, file = resident()
print(json.dumps([1e3 * (opened - start), 1e3 * (first - opened), 1e3 * (second - first), total - file, file]))
"""
NAMES = """
import json, sys, time
import topsign as ts, topsign.store.folder_store
ts.open_index  # imported on first use
wanted = json.loads(sys.argv[2])
start = time.perf_counter(); index = ts.open_index(sys.argv[1], readonly=True); opened = time.perf_counter()
index.get(wanted[0]); first = time.perf_counter()
assert list(index.get(wanted[1]).ids) == wanted[1]; second = time.perf_counter()
print(json.dumps([1e3 * (opened - start), 1e3 * (first - opened), 1e3 * (second - first)]))
"""


def fresh(program, repeats, *given):
    """Columns of numbers that a program prints in new processes."""
    command = [sys.executable, "-c", program, *map(str, given)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(repeats)]
    return np.array([json.loads(shown) for shown in runs]).T


def durable(options, folder):
    """A large index in a folder beside the same one in memory."""
    rng, path, n_features = np.random.default_rng(0), Path(folder) / "a.topsign", options.features
    memory = filled("grouped", options.entries, n_features, options.bytes, rng)
    memory.save(path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / options.entries
    names = ("open (ms)", "first search (ms)", "next search (ms)", "resident beyond the files (MB)", "mapped (MB)")
    rows = [
        [name, spread(values), None, None]
        for name, values in zip(names, fresh(FRESH, options.repeats, path, n_features), strict=True)
    ]
    with ts.open_index(path, readonly=True) as index:
        for n_queries in (1, 64):
            queries = rng.standard_normal((n_queries, n_features), dtype=np.float32)
            times = 1e3 * interleaved(
                [partial(index.search, queries), partial(memory.search, queries)], options.repeats
            )
            name = f"search, {n_queries} queries (ms)"
            rows.append([name, spread(times[:, 0]), spread(times[:, 1]), ratio(times[:, 0], times[:, 1])])
    signals = rng.standard_normal((options.signals, n_features), dtype=np.float32)
    growing = ts.Index(
        n_features, family="grouped", n_bytes=options.bytes, random_state=7, path=Path(folder) / "b.topsign"
    )
    times = 1e3 * interleaved(
        [partial(growing.add, signals), partial(encode, growing.recipe, signals)], options.repeats
    )
    growing.close()
    rows.append(
        [
            f"add {len(signals):,} signals (ms); in memory: only encode",
            spread(times[:, 0]),
            spread(times[:, 1]),
            ratio(times[:, 0], times[:, 1]),
        ]
    )
    note = f"{options.bytes} bytes per code, {size:.1f} bytes per entry on disk; {options.threads} thread(s)."
    return table(
        f"A durable index of {options.entries:,} entries", ["case", "folder", "in memory", "ratio"], rows, note
    )


def small_index(path, n_entries, signals):
    index = ts.Index(signals.shape[1], family="grouped", n_bytes=32, random_state=7, path=path)
    for _ in range(0, n_entries, 20 * len(signals)):
        index.add(np.tile(signals, (20, 1)))
    index.compact()
    return index


def watch(path, n_features, stop):
    index = ts.open_index(path, readonly=True)
    query = np.random.default_rng(1).standard_normal(n_features)
    while not stop.wait(0.05):
        index.refresh()
        index.search(query)


def size_of(path):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def churn(options, folder):
    """Size of a folder while batches of entries are removed (half at random, half the oldest) and added."""
    rng, path = np.random.default_rng(0), os.path.join(folder, "churned.topsign")
    signals = rng.standard_normal((options.batch, 64), dtype=np.float32)
    index = small_index(path, options.churned, signals)
    ids, live = np.array(index.ids), size_of(path)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    reader = context.Process(target=watch, args=(path, 64, stop), daemon=True)
    reader.start()
    largest, times, end = live, [], time.monotonic() + options.seconds
    while time.monotonic() < end:
        chosen = rng.choice(len(ids), options.batch, replace=False) if len(times) % 2 else np.arange(options.batch)
        begin = time.perf_counter()
        index.remove(ids[chosen])
        largest = max(largest, size_of(path))
        new = index.add(signals)
        times.append(1e3 * (time.perf_counter() - begin))
        largest = max(largest, size_of(path))
        ids = np.concatenate([np.delete(ids, chosen), new])
    churned = size_of(path)
    stop.set()
    reader.join()
    if reader.exitcode:
        sys.exit("the reader failed")
    index.compact()
    compacted = size_of(path)
    if not np.array_equal(index.ids, np.sort(ids)):
        sys.exit("entries were lost")
    index.verify()
    index.close()
    cells = [len(times), spread(times), largest / live, churned / live, compacted / live]
    columns = ["entries", "steps", "step (ms)", "largest size", "size at the end", "compacted"]
    note = f"""Each step removes {options.batch:,} entries and adds as many, for {options.seconds:.0f} s, beside a
    reader. Sizes are multiples of the size before."""
    return table("Size of a folder under churn", columns, [[len(ids), *cells]], note)


def read(path, number, duration, rate, found):
    rng = np.random.default_rng(number)
    query = rng.standard_normal(64).astype(np.float32)
    ts.open_index(path, readonly=True).close()  # imports are not counted
    opened, searched, end = [], [], time.monotonic() + duration
    while time.monotonic() < end:
        start = time.perf_counter()
        index = ts.open_index(path, readonly=True)
        opened.append(time.perf_counter() - start)
        index.search(query)  # compares the checksums
        for _ in range(rate):
            time.sleep(rng.exponential(1 / rate))
            index.refresh()
            searched.append(seconds(partial(index.search, query)))
        index.close()
    found.put((opened, searched))


def readers(options, folder):
    path, signals = (
        os.path.join(folder, "read.topsign"),
        np.random.default_rng(0).standard_normal((1000, 64), np.float32),
    )
    index = small_index(path, options.churned // 10, signals)
    context = multiprocessing.get_context("spawn")
    found, results, n_changes = context.Queue(), [], 0
    started = [
        context.Process(target=read, args=(path, number, options.seconds / 2, 4, found), daemon=True)
        for number in range(options.readers)
    ]
    for one in started:
        one.start()
    while len(results) < len(started):
        index.remove(index.ids[:100])
        index.add(signals[:100])
        n_changes += 2
        while not found.empty():
            results.append(found.get())
        if not any(one.is_alive() for one in started) and found.empty() and len(results) < len(started):
            sys.exit("a reader failed")
    index.close()
    rows = []
    for name, times in zip(("open", "search"), zip(*results, strict=True), strict=True):
        every = 1e3 * np.concatenate([np.array(one) for one in times])
        rows.append([name, len(every), *(float(np.percentile(every, q)) for q in (50, 99, 100))])
    note = f"{options.readers} readers, 4 searches a second each; {n_changes:,} changes by one writer meanwhile."
    return table(
        "Concurrent readers and a writer", ["call", "count", "median (ms)", "99% (ms)", "most (ms)"], rows, note
    )


def ids_and_filters(options, folder):
    rng, n = np.random.default_rng(0), options.named
    names, path = [f"document-{i}" for i in range(n)], os.path.join(folder, "named.topsign")
    index, only = (ts.Index(64, family="grouped", n_bytes=8, random_state=7) for _ in range(2))
    years = rng.integers(0, 100, n)
    for start in range(0, n, 100_000):
        part = slice(start, start + 100_000)
        signals = rng.standard_normal((len(names[part]), 64), dtype=np.float32)
        index.add(signals, ids=names[part], metadata=[{"year": int(year)} for year in years[part]])
        only.add(signals[years[part] == 3])
    index.save(path)
    wanted = json.dumps([[names[i] for i in rng.choice(n, min(n, 1000), replace=False)] for _ in range(2)])
    opened, first, warm = fresh(NAMES, options.repeats, path, wanted)
    rows = [
        ["open", spread(opened)],
        ["first look-up of 1,000 ids", spread(first)],
        ["next look-up of 1,000 ids", spread(warm)],
    ]
    query = rng.standard_normal((1, 64), dtype=np.float32)
    rows.append(["first search with a filter", 1e3 * seconds(lambda: index.search(query, where="year == 3"))])
    calls = [lambda: index.search(query, where="year == 3"), lambda: only.search(query), lambda: index.search(query)]
    times = 1e3 * interleaved(calls, options.repeats)
    for i, name in enumerate(
        ("search with a filter that 1% pass", "search of an index of only these", "search without a filter")
    ):
        rows.append([name, spread(times[:, i])])
    return table(f"Text ids and filters, {n:,} entries", ["case", "ms"], rows)


def pairs(options):
    """Near-duplicates: ``index.pairs`` compared with searches of all entries."""
    rng, rows = np.random.default_rng(0), []
    for family, index in (
        ("grouped", ts.Index(2048, family="grouped", n_bytes=128, random_state=7)),
        ("trellis", ts.Index(2048, n_bytes=128, basis="hadamard", center=False, random_state=7)),
    ):
        signals = rng.standard_normal((options.paired, 2048), dtype=np.float32)
        signals[1::100] = signals[::100] + 0.3 * signals[1::100]  # a near-duplicate for one in a hundred
        index.add(signals)
        part = signals[: min(1000, len(signals))]
        scaled = len(signals) / len(part)
        limit = {"false_alarm": 0.01} if family == "grouped" else {"threshold": 0.5}
        n_found = len(index.pairs(**limit))
        joined = seconds(partial(index.pairs, **limit))
        searches = scaled * seconds(partial(index.search, part, k=10))
        rows.append([family, 128, len(index), joined, searches, joined / searches, n_found])
    columns = ["code", "bytes", "entries", "pairs (s)", "searches of all (s)", "ratio", "pairs found"]
    return table("Pairs of near-duplicates", columns, rows, "One of 100 entries has a near-duplicate.")


def main():
    options = arguments(
        __doc__,
        entries=(500_000, 3_000),
        features=(8192, 512),
        bytes=(448, 32),
        signals=(4096, 200),
        churned=(1_000_000, 4_000),
        batch=(2_000, 100),
        seconds=(30.0, 2.0),
        readers=(10, 2),
        named=(1_000_000, 5_000),
        paired=(20_000, 1_000),
        repeats=(5, 2),
        folder=None,
    )
    tables = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for part in (durable, churn, readers, ids_and_filters):
            tables.append(part(options, folder))
            save(options, tables)
    save(options, [*tables, pairs(options)])


if __name__ == "__main__":
    main()
