"""Size of a durable index under churn: entries are removed and added repeatedly while another process reads.

    python benchmarks/churn.py [--seconds 600] [--entries 1000000] [--batch 2000] [--features 64] [--bits 64]
                               [--pool 512] [--seed 0] [--folder FOLDER] [--json FILE]

The index is filled, then each step removes a batch of entries and adds as many: half of the steps remove entries drawn
at random, half the oldest. The reader searches and refreshes every 50 milliseconds, so it keeps each version mapped for
a while. Live bytes are the size of all files after the index was filled; the number of entries stays the same
afterwards. The size is measured after every change, and the index is compacted at the end.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time

os.environ.setdefault("TOPSIGN_NUM_THREADS", "1")

import numpy as np
from shared.results import save, spread

import topsign as ts


def read(path, n_features, stop):
    index = ts.open_index(path, readonly=True)
    query = np.random.default_rng(1).standard_normal(n_features)
    while not stop.wait(0.05):
        index.refresh()
        index.search(query)


class Churn:
    """Index with its expected entries."""

    def __init__(self, path, options):
        self.rng = np.random.default_rng(options.seed)
        self.path, self.options = path, options
        self.index = ts.AdaptiveIndex(
            n_features=options.features, n_bits=options.bits, n_pool=options.pool, random_state=7, path=path
        )
        self.signals = self.rng.standard_normal((options.batch, options.features)).astype(np.float32)
        for _ in range(0, options.entries, 20 * options.batch):
            self.index.add(np.tile(self.signals, (20, 1)))
        self.ids, self.largest = np.arange(len(self.index)), 0
        self.live = self.size()

    def size(self):
        """Bytes of all files."""
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names]
        size = sum(map(os.path.getsize, found))
        self.largest = max(self.largest, size)
        return size

    def step(self, number):
        """Remove and add a batch; return the seconds of both."""
        batch = self.options.batch
        chosen = self.rng.choice(len(self.ids), batch, replace=False) if number % 2 else np.arange(batch)
        start = time.perf_counter()
        self.index.remove(self.ids[chosen])
        spent = time.perf_counter() - start
        self.size()
        start = time.perf_counter()
        new = self.index.add(self.signals)
        spent += time.perf_counter() - start
        self.size()
        self.ids = np.concatenate([np.delete(self.ids, chosen), new])
        return spent

    def check(self):
        """Assert that no entry was lost."""
        self.index.refresh()
        if not np.array_equal(self.index.ids, np.sort(self.ids)):
            sys.exit("entries were lost")
        self.index.verify()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=2_000, help="entries removed, and added, by a step")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--pool", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="on the disk to be measured; a temporary folder when not given")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        churn = Churn(os.path.join(folder, "churned.topsign"), options)
        print(f"{len(churn.ids):,} entries in {churn.live / 1e6:.1f} MB")
        stop = context.Event()
        reader = context.Process(target=read, args=(churn.path, options.features, stop), daemon=True)
        reader.start()
        times, n_steps, told = [], 0, 0.0
        start, spent = time.monotonic(), time.process_time()
        while (now := time.monotonic() - start) < options.seconds:
            times.append(churn.step(n_steps))
            n_steps += 1
            if now - told > options.seconds / 10:
                told = now
                print(
                    f"{now:6.0f} s, {n_steps:6,d} steps: {churn.size() / churn.live:.2f} of its live bytes", flush=True
                )
        spent = time.process_time() - spent
        churned = churn.size()
        stop.set()
        reader.join()
        failed = reader.exitcode
        churn.index.compact()
        compacted, largest = churn.size() / churn.live, churn.largest / churn.live
        churn.check()
    print(f"largest {largest:.2f}, at the end {churned / churn.live:.2f}, compacted {compacted:.3f} of the live bytes")
    print(
        f"a step: median {1e3 * np.median(times):.0f} ms, slowest {1e3 * max(times):.0f} ms; {spent:.0f} s of processor"
    )
    if options.json:
        measured = {
            "entries": len(churn.ids),
            "steps": n_steps,
            "live_mb": churn.live / 1e6,
            "largest": largest,
            "at_the_end": churned / churn.live,
            "compacted": compacted,
            "step_seconds": spread(times),
            "processor_seconds": spent,
        }
        save(options.json, options, measured)
    if failed or largest > 1.3:
        sys.exit("the reader failed" if failed else "the folder grew beyond 1.3 times its live bytes")


if __name__ == "__main__":
    main()
