"""Time of an evaluation of many signals.

    python benchmarks/evaluate.py [--signals 50000] [--features 384 8192] [--json FILE]

Signals with a common mean and a decaying spectrum, as embeddings of networks have, are written to a file and evaluated
by `topsign evaluate` with its defaults, reading included.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import save


def write_signals(path, n_signals, n_features):
    """Write signals of which half are near another one, so there are neighbours to find."""
    rng = np.random.default_rng(0)
    spectrum = (1 / np.sqrt(1 + 20 * np.arange(n_features) / n_features)).astype(np.float32)
    signals = np.lib.format.open_memmap(path, "w+", np.float32, (n_signals, n_features))
    for start in range(0, n_signals, 1000):
        part = rng.standard_normal((min(1000, n_signals - start), n_features), dtype=np.float32) * spectrum
        part[len(part) // 2 :] = 0.6 * part[: len(part) - len(part) // 2] + 0.8 * part[len(part) // 2 :]
        signals[start : start + len(part)] = 0.5 + part
    del signals


def cpu_seconds():
    """CPU seconds of all child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(n_signals, n_features):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signals.npy"
        write_signals(path, n_signals, n_features)
        program = "from topsign.cli import app; app()"
        start, before = time.perf_counter(), cpu_seconds()
        command = [sys.executable, "-c", program, "evaluate", str(path), "--json"]
        found = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        )
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - before
    codes = len(found["candidates"])
    print(
        f"{n_signals} x {n_features}: {seconds:.0f} s, {cpu:.0f} s of CPU, {found['n_entries']} entries in the sample, "
        f"{codes} codes"
    )
    names = ("n_entries", "n_queries", "sentence", "seconds")
    return {
        "n_signals": n_signals,
        "n_features": n_features,
        "wall_seconds": seconds,
        "cpu_seconds": cpu,
        "n_codes": codes,
    } | {name: found[name] for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signals", type=int, default=50_000)
    parser.add_argument("--features", type=int, nargs="+", default=[384, 8192])
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    rows = [measure(options.signals, n_features) for n_features in options.features]
    if options.json:
        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
