"""Filters and pairs on a local Dask cluster, compared with one process with as many threads.

    python benchmarks/cluster_verbs.py [--entries 1000000] [--paired 20000] [--workers 2] [--repeats 9] [--json FILE]

The filter keeps 1% of the entries, codes of 32 of 256, and is compared with a plain search of one query; pairs are
found among codes of 256 of 2048. Contestants take turns within a repeat.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import interleaved, save, spread

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import topsign as ts


def measure_filter(options, folder, client):
    rng = np.random.default_rng(0)
    memory = ts.AdaptiveIndex(n_features=256, n_bits=32, random_state=7)
    for start in range(0, options.entries, 100_000):
        years = rng.integers(0, 100, min(100_000, options.entries - start))
        signals = rng.standard_normal((len(years), 256), dtype=np.float32)
        memory.add(signals, metadata=[{"year": int(year), "title": f"title {i}"} for i, year in enumerate(years)])
    memory.save(folder / "filtered")
    query = rng.standard_normal((1, 256), dtype=np.float32)
    with ts.distributed.open(folder / "filtered", client=client) as index:
        calls = [
            lambda: index.search(query, where="year == 3"),
            lambda: memory.search(query, where="year == 3", n_threads=options.workers),
            lambda: index.search(query),
        ]
        start = time.perf_counter()
        found = calls[0]()
        first = time.perf_counter() - start
        assert np.array_equal(found.ids, calls[1]().ids)
        filtered, alone, plain = 1e3 * interleaved(calls, options.repeats).T
    print(
        f"a filter that keeps 1% of {options.entries:,}: {np.median(filtered):.0f} ms on {options.workers} workers, "
        f"{np.median(alone):.0f} ms in one process; without it {np.median(plain):.0f} ms; the first use {first:.2f} s"
    )
    return {
        "filtered_ms": spread(filtered),
        "one_process_ms": spread(alone),
        "plain_ms": spread(plain),
        "first_s": first,
    }


def measure_pairs(options, folder, client):
    rng = np.random.default_rng(0)
    memory = ts.AdaptiveIndex(n_features=2048, n_bits=256, random_state=7)
    for _ in range(0, options.paired, 5000):
        memory.add(rng.standard_normal((5000, 2048), dtype=np.float32))
    memory.save(folder / "paired")
    with ts.distributed.open(folder / "paired", client=client) as index:
        calls = [
            lambda: index.pairs(false_alarm=0.01),
            lambda: memory.pairs(false_alarm=0.01, n_threads=options.workers),
        ]
        assert calls[0]().to_dict() == calls[1]().to_dict()
        took = interleaved(calls, -(-options.repeats // 3))
    ratio = spread(took[:, 0] / took[:, 1])
    print(
        f"pairs of {options.paired:,}: {np.median(took[:, 0]):.1f} s on {options.workers} workers, "
        f"{np.median(took[:, 1]):.1f} s in one process, ratio {ratio['median']:.2f}"
    )
    return {"cluster_s": spread(took[:, 0]), "one_process_s": spread(took[:, 1]), "ratio": ratio}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--paired", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    from processes import Processes

    with tempfile.TemporaryDirectory(prefix="topsign-") as scratch, Processes(scratch, options.workers) as processes:
        client, folder = processes.client(), Path(scratch)
        measured = {"filter": measure_filter(options, folder, client), "pairs": measure_pairs(options, folder, client)}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
