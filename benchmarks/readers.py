"""Concurrent readers and a writer: time to open, and variation of search times.

    python benchmarks/readers.py [--readers 20] [--seconds 30] [--entries 100000] [--rate 4] [--folder FOLDER]
                                 [--json FILE]

Each reader is a process that opens the index, then refreshes and searches ``rate`` times a second, and opens it again
every second; the writer adds and removes without a pause. Both wall time and processor time are recorded, because the
machine may be shared. Targets on two idle cores: opening within 50 ms, and a 99th percentile of searches of at most
four times the median.
"""

import argparse
import multiprocessing
import os
import tempfile
import time

os.environ["TOPSIGN_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from shared.results import save

import topsign as ts

N_FEATURES = 64


def timed(call):
    """Return the result of a call, its wall time and its processor time in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def read(path, number, options, found):
    rng = np.random.default_rng(number)
    query = rng.standard_normal(N_FEATURES).astype(np.float32)
    ts.open_index(path, readonly=True).close()  # imports are not counted
    opened, searched, end = [], [], time.monotonic() + options.seconds
    time.sleep(rng.random())
    while time.monotonic() < end:
        index, spent = timed(lambda: ts.open_index(path, readonly=True))
        opened.append(spent)
        index.search(query)  # compares the checksums
        for _ in range(options.rate):
            time.sleep(rng.exponential(1 / options.rate))
            index.refresh()
            searched.append(timed(lambda: index.search(query))[1])  # noqa: B023
        index.close()
    found.put((opened, searched))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=4, help="searches a second of each reader")
    parser.add_argument("--folder", help="on the disk to be measured; a temporary folder when not given")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "read.topsign")
        index = ts.AdaptiveIndex(n_features=N_FEATURES, n_bits=64, n_pool=512, random_state=7, path=path)
        signals = np.random.default_rng(0).standard_normal((1000, N_FEATURES)).astype(np.float32)
        index.add(np.tile(signals, (options.entries // 1000, 1)))
        found = context.Queue()
        arguments = [(path, number, options, found) for number in range(options.readers)]
        readers = [context.Process(target=read, args=one, daemon=True) for one in arguments]
        for reader in readers:
            reader.start()
        n_changes, results = 0, []
        while len(results) < len(readers):
            index.remove(index.ids[:100])
            index.add(signals[:100])
            n_changes += 2
            while not found.empty():
                results.append(found.get())
            if not any(reader.is_alive() for reader in readers) and found.empty() and len(results) < len(readers):
                raise SystemExit("a reader failed")
        index.close()
    opened, searched = (np.array([one for part in parts for one in part]) for parts in zip(*results, strict=True))
    measured = {"changes": n_changes}
    for name, times in (("open", opened), ("search", searched)):
        for kind, column in zip(("wall", "processor"), times.T, strict=True):
            levels = {"p50": 50, "p99": 99, "most": 100}
            measured[f"{name}_{kind}_ms"] = {at: float(1e3 * np.percentile(column, q)) for at, q in levels.items()}
            print(f"{name}, {kind:9s}", *(f"{at} {ms:8.1f} ms" for at, ms in measured[f"{name}_{kind}_ms"].items()))
    print(f"{len(opened):,} openings, {len(searched):,} searches, {n_changes:,} changes")
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
