"""Seconds per photograph by threads, or an index of many simulated fingerprints compared with an uncompressed search.

    python benchmarks/cameras_speed.py [--photographs 16] [--threads 1 2] [--json FILE]
    python benchmarks/cameras_speed.py --entries 10000 [--json FILE]

Photographs are JPEG files of simulated sensors. Reading is that of ``enroll``: decoding, hash, residual and scene
signature. Fingerprints of the large index are random vectors, added as they are made. Times are the least of several
repeats, which run all calls in turn; processor time is that of one thread.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import interleaved, save
from shared.sensors import pattern_of, photograph

import topsign as ts
from topsign import cameras
from topsign.cameras.reading import read_residual, read_residuals

N_PART = 64
"""Uncompressed fingerprints whose search is timed."""


def reading_seconds(paths, size, threads, repeats):
    """Seconds per photograph by number of threads, and processor seconds of one thread."""
    calls = [
        lambda count=count: [*read_residuals(paths, size=size, n_threads=count)]  # all of them
        for count in threads
    ]
    least = interleaved(calls, repeats).min(axis=0) / len(paths)
    rows = [{"threads": count, "seconds": float(seconds)} for count, seconds in zip(threads, least, strict=True)]
    processor = []
    for path in paths:
        start = time.process_time()
        read_residual(path, size=size)
        processor.append(time.process_time() - start)
    return {"reading": rows, "processor_seconds": float(np.median(processor))}


def large_index(n_entries, size, path, repeats):
    """Bytes and seconds of an index of many fingerprints, and of a part of them uncompressed."""
    rng = np.random.default_rng(0)
    n_features = size**2
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "large.topsign"
        index = ts.AdaptiveIndex(
            n_features=n_features, n_bits=n_features // 64, norms=False, random_state=0, path=stored
        )
        start = time.perf_counter()
        for first in range(0, n_entries, 50):
            index.add(rng.standard_normal((min(50, n_entries - first), n_features), dtype=np.float32))
        added = time.perf_counter() - start
        part = rng.standard_normal((N_PART, n_features), dtype=np.float32)
        query = read_residual(path, size=size).residual.query
        calls = [
            lambda: index.search(query[np.newaxis], k=5),
            lambda: part @ query,
            lambda: read_residual(path, size=size),
        ]
        search, uncompressed, reading = interleaved(calls, repeats).min(axis=0).tolist()
        disk = sum(file.stat().st_size for file in stored.rglob("*") if file.is_file())
        n_bytes = index.nbytes / n_entries
    return {
        "entries": n_entries,
        "features": n_features,
        "bytes_per_entry": n_bytes,
        "disk_bytes": disk,
        "add_seconds": added,
        "search_seconds": search,
        "residual_seconds": reading,
        "part": N_PART,
        "uncompressed_seconds_extrapolated": uncompressed * n_entries / N_PART,
        "uncompressed_bytes": 4 * n_features * n_entries,
    }


def enroll_seconds(paths, size, threads):
    """Seconds per photograph of one enrolment."""
    with tempfile.TemporaryDirectory() as folder:
        database = cameras.CameraDatabase(Path(folder) / "sensors.topsign", size=size)
        start = time.perf_counter()
        done = cameras.enroll(database, "one", paths, n_threads=threads)
        return (time.perf_counter() - start) / done.n_enrolled


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photographs", type=int, default=16)
    parser.add_argument("--size", type=int, default=1024, help="pixels a side")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count()}))
    parser.add_argument("--entries", type=int, help="measure an index of this many fingerprints instead")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rng, pattern = np.random.default_rng(0), pattern_of(0, options.size, [0.02, 0.02])
        paths = [Path(folder) / f"{number}.jpg" for number in range(options.photographs)]
        for path in paths:
            path.write_bytes(photograph(rng, pattern).content)
        if options.entries:
            measured = large_index(options.entries, options.size, paths[0], options.repeats)
        else:
            measured = reading_seconds(paths, options.size, options.threads, options.repeats)
            measured["enroll_seconds"] = enroll_seconds(paths, options.size, max(options.threads))
        print(measured)
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
