"""Memory of encoding a large memory-mapped file, and the time of one very long signal.

    python benchmarks/memory.py [--signals 100000] [--features 8192]

Peak resident memory is read from the operating system before and after; the codes themselves are part of
the growth. Writes a temporary file of signals * features * 4 bytes.
"""

import argparse
import resource
import tempfile
import time
from multiprocessing import Process
from pathlib import Path

import numpy as np

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=8192)
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


if __name__ == "__main__":
    main()
