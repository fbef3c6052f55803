"""Memory of encoding a large memory-mapped file, the time of one very long signal, and memory of a large index.

    python benchmarks/memory.py [--signals 100000] [--features 8192] [--entries 1000000] [--json FILE]

Resident memory is read from the operating system before and after; the codes themselves are part of the growth. Writes
a temporary file of signals * features * 4 bytes. Each index is filled in a separate process, 2,000 signals at a time.
"""

import argparse
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Process, get_context
from pathlib import Path

import numpy as np
from shared.results import save, spread

import topsign as ts


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_signals(path, n_signals, n_features):
    """Random signals in a .npy file, written a few at a time."""
    rng = np.random.default_rng(0)
    block = rng.standard_normal((1000, n_features)).astype(np.float32)
    signals = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_signals, n_features))
    del signals
    with open(path, "r+b") as file:
        file.seek(-n_signals * n_features * 4, 2)
        for start in range(0, n_signals, len(block)):
            file.write(np.roll(block[: n_signals - start], start // 1000, axis=1).tobytes())


def resident(name):
    """Return megabytes of resident memory: current (VmRSS) and peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000 * 1.024


def fill_index(layout, n_entries, n_features):
    rng = np.random.default_rng(0)
    block = rng.standard_normal((2000, n_features), dtype=np.float32)
    index = ts.AdaptiveIndex(n_features=n_features, n_bits=n_features // 16, layout=layout, random_state=7)
    index.add(block)
    index.search(block[:1], k=1)
    before, start = resident("VmRSS"), time.perf_counter()
    for _ in range(len(block), n_entries, len(block)):
        block *= rng.choice(np.array([-1, 1], np.float32), n_features)
        index.add(block)
    growth, peak = resident("VmRSS") - before, resident("VmHWM") - before
    print(
        f"{len(index)} entries of {n_features // 16}/{n_features}, {layout}: memory grew by {growth:.0f} MB, "
        f"at the highest {peak:.0f} MB ({peak / growth:.2f} times), in {time.perf_counter() - start:.0f} s"
    )
    return {"layout": layout, "entries": len(index), "growth_mb": growth, "highest_mb": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=8192)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signals.npy"
        writer = Process(target=write_signals, args=(path, options.signals, options.features))
        writer.start()
        writer.join()
        signals = np.load(path, mmap_mode="r")
        warm = ts.AdaptiveEncoder(n_bits=64, random_state=7).fit(np.eye(1, 1024))
        warm.encode(np.ones((1, 1024)))
        before, start = peak_megabytes(), time.perf_counter()
        codes = ts.AdaptiveEncoder(n_bits=options.features // 16, random_state=7).fit(signals).encode(signals)
        seconds, after = time.perf_counter() - start, peak_megabytes()
    print(f"{len(codes)} x {options.features} float32 ({signals.nbytes / 1e6:.0f} MB) in {seconds:.1f} s")
    print(f"peak memory grew by {after - before:.0f} MB, of which codes {codes.nbytes / 1e6:.0f} MB")
    signal = np.random.default_rng(0).standard_normal((1, 2**20)).astype(np.float32)
    encoder = ts.AdaptiveEncoder(n_bits=2**16, random_state=7).fit(signal)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        encoder.encode(signal)
        times.append(time.perf_counter() - start)
    print(f"one signal of n = 2**20, n_bits = 2**16: {np.median(times) * 1e3:.0f} ms")
    rows = []
    for layout in ("compact", "fast"):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
            rows.append(one.submit(fill_index, layout, options.entries, options.features).result())
    if options.json:
        encoding = {
            "signals": len(codes),
            "file_mb": signals.nbytes / 1e6,
            "growth_mb": after - before,
            "codes_mb": codes.nbytes / 1e6,
        }
        long_signal = {"features": 2**20, "milliseconds": spread(1e3 * np.array(times))}
        save(options.json, options, {"encoding": encoding, "long_signal": long_signal, "rows": rows})


if __name__ == "__main__":
    main()
