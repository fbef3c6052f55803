"""Speed of topsign.theory: seconds of calls that users wait for.

python benchmarks/theory.py [--repeats 5] [--json FILE]
"""

import argparse
import time

import numpy as np
from shared.results import save, spread

from topsign import theory

CORRELATIONS = np.linspace(-1, 1, 10_000)
PAPER = {"correlation": 0.0735, "n_features": 8192, "n_bits": 512, "n_pool": 8192}
TARGET = {"detection": 0.99, "n_features": 8192}

CASES = {
    "expected_hamming, 10,000 correlations, 512 of 8192": lambda: theory.expected_hamming(
        CORRELATIONS, n_bits=512, n_pool=8192
    ),
    "roc, Hamming, Gaussian pool": lambda: theory.roc(scoring="hamming", projection="gaussian", **PAPER),
    "roc, asymmetric, Hadamard pool": lambda: theory.roc(scoring="asymmetric", projection="hadamard", **PAPER),
    "plan, 8192 features, one entry": lambda: theory.plan(correlation=0.1, false_alarm=1e-3, **TARGET),
    "plan, 8192 features, a million entries": lambda: theory.plan(
        correlation=0.2, false_alarm=1e-6, n_entries=10**6, **TARGET
    ),
    "plan, Gaussian pool, a million entries": lambda: theory.plan(
        correlation=0.2, false_alarm=1e-6, n_entries=10**6, projection="gaussian", **TARGET
    ),
    "plan, 2**18 features, 1000 entries": lambda: theory.plan(
        correlation=0.03, false_alarm=1e-6, n_entries=1000, detection=0.99, n_features=2**18
    ),
}


def forget():
    """Clear every cache, so that each repeat is a first call."""
    for function in (
        theory.order_statistics.pool_grid,
        theory.order_statistics.threshold_rule,
        theory.pools.sample_correlations,
        theory.inference._count_mixture,
    ):
        function.cache_clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="write the times into this file")
    options = parser.parse_args()
    repeats = options.repeats
    times = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, case in CASES.items():
            forget()
            start = time.perf_counter()
            case()
            times[name].append(time.perf_counter() - start)
    print(f"seconds, median (worst) of {repeats} interleaved repeats, caches empty")
    for name, seconds in times.items():
        print(f"{name:52s} {np.median(seconds):7.3f} ({max(seconds):.3f})")
    if options.json:
        rows = [{"name": name, "seconds": spread(seconds)} for name, seconds in times.items()]
        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
