"""Limits of this machine: bytes read from memory per second, and operations per second.

    python benchmarks/limits.py [--megabytes 512] [--repeats 7] [--json FILE]

Bandwidth is measured by reading a large array once (the sum of its squares, by BLAS), on one thread and on all. The
peak is measured with a float32 matrix product; a fused multiply-add of a vector of eight floats counts as one vector
operation, of which these processors execute at most two per cycle.
"""

import argparse
import os
from functools import partial

import numpy as np
from shared.results import interleaved, save, spread
from threadpoolctl import threadpool_limits

LANES = 8  # float32 in 256 bits


def read_all(array):
    return np.dot(array, array)


def multiply(a, b, out):
    np.matmul(a, b, out=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--size", type=int, default=2048, help="rows of the matrices that are multiplied")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    array = np.ones(options.megabytes * 2**18, np.float32)
    a, b, out = np.ones((3, options.size, options.size), np.float32)
    rows = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        with threadpool_limits(threads):
            times = interleaved([partial(read_all, array), partial(multiply, a, b, out)], options.repeats)
        bandwidth = spread(array.nbytes / times[:, 0] / 1e9)
        flops = spread(2 * options.size**3 / times[:, 1] / 1e9)
        rows.append({"threads": threads, "gigabytes_per_second": bandwidth, "gigaflops": flops})
        vectors = flops["median"] / (2 * LANES)
        print(
            f"{threads} thread(s): {bandwidth['median']:.1f} GB/s read, {flops['median']:.0f} GFLOP/s float32 ", end=""
        )
        print(f"({vectors:.1f} billion vector operations a second)")
    if options.json:
        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
