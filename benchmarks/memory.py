"""Memory of encoding a memory-mapped file, of filling an index, and of searching it, each in a new process.

Resident memory is read from the operating system before and after; the codes themselves are part of the growth. Writes
a temporary file of signals * features * 4 bytes. Each index is filled 2,000 signals at a time.
"""

import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from shared.families import FAMILIES, index_of, untrained
from shared.results import arguments, save, table

from topsign.encoding import encode


def resident(name):
    """Return megabytes of resident memory: current (VmRSS) or peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000 * 1.024


def write_signals(path, n_signals, n_features):
    """Random signals in a .npy file, written a few at a time."""
    block = np.random.default_rng(0).standard_normal((1000, n_features)).astype(np.float32)
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_signals, n_features))
    with open(path, "r+b") as file:
        file.seek(-n_signals * n_features * 4, 2)
        for start in range(0, n_signals, len(block)):
            file.write(np.roll(block[: n_signals - start], start // 1000, axis=1).tobytes())


def encode_file(path, family, n_features, n_bytes):
    signals = np.load(path, mmap_mode="r")
    recipe = untrained(family, n_features, n_bytes)
    encode(recipe, np.ones((1, n_features), np.float32))
    before = resident("VmHWM")
    codes = encode(recipe, signals)
    return [family, signals.nbytes / 1e6, codes.nbytes / 1e6, resident("VmHWM") - before]


def fill_index(family, n_entries, n_features, n_bytes):
    extra = {"basis": "hadamard", "center": False} if family == "trellis" else {}
    rng, index = np.random.default_rng(0), index_of(family, n_features, n_bytes, **extra)
    block = rng.standard_normal((2000, n_features), dtype=np.float32)
    index.add(block)
    index.search(block[:1], k=1)
    before = resident("VmRSS")
    for _ in range(len(block), n_entries, len(block)):
        block *= rng.choice(np.array([-1, 1], np.float32), n_features)
        index.add(block)
    growth, peak = resident("VmRSS") - before, resident("VmHWM") - before
    index.search(block[:256], k=10)
    searching = resident("VmHWM") - before
    return [family, len(index), index.nbytes / 1e6, growth, peak, max(0.0, searching - peak)]


def alone(function, *given):
    """Run a function in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
        return one.submit(function, *given).result()


def main():
    options = arguments(
        __doc__,
        signals=(10_000, 1_000),
        features=(8192, 512),
        bytes=(448, 32),
        entries=(100_000, 6_000),
        folder=None,
    )
    shape = options.features, options.bytes
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "signals.npy"
        alone(write_signals, path, options.signals, options.features)
        rows = [alone(encode_file, path, family, *shape) for family in FAMILIES]
    columns = ["code", "file (MB)", "codes (MB)", "growth of the peak (MB)"]
    title = f"Encoding {options.signals:,} signals of {options.features:,} features from a memory map"
    encoding = table(title, columns, rows, "The growth includes the codes and pages of the file.")
    rows = [alone(fill_index, family, options.entries, *shape) for family in FAMILIES]
    columns = [
        "code",
        "entries",
        "index.nbytes (MB)",
        "growth (MB)",
        "peak while adding (MB)",
        "more while searching (MB)",
    ]
    filling = table(f"An index of codes of {options.bytes} bytes in memory", columns, rows)
    save(options, [encoding, filling])


if __name__ == "__main__":
    main()
