"""Speed of encoding: microseconds per signal, all contestants interleaved in one run.

    python benchmarks/encode.py [--features 8192] [--pool 8192] [--bits 512] [--threads 1] [--repeats 7] [--json FILE]

Batches of 256 and of 1 signal. Every repeat runs each contestant once; the median over repeats is shown, and
the ratio is the median over repeats of (GEMM time / time) taken within one repeat.
"""

import argparse
import os
import sys
from functools import partial

THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for name in ("TOPSIGN_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = THREADS

import numpy as np  # noqa: E402  (threads are set first)
from shared.results import interleaved, save, spread  # noqa: E402
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection  # noqa: E402

import topsign as ts  # noqa: E402


def make_contestants(n_features, n_pool, n_bits):
    """Return names and functions of a batch, already warmed up: matrices exist and tables are built."""
    some = np.random.default_rng(0).standard_normal((2, n_features)).astype(np.float32)
    matrix = (
        ts.make_projection("gaussian", n_features=n_features, n_pool=n_pool, random_state=7)
        .rows(range(n_pool))
        .T.copy()
    )
    contestants = {"GEMM, float32 (only the projection)": lambda batch: batch @ matrix}

    def encoder(name, projection):
        fitted = ts.AdaptiveEncoder(n_bits=n_bits, projection=projection).fit(some)
        contestants[f"topsign encode, {name}"] = fitted.encode

    shape = {"n_features": n_features, "n_pool": n_pool, "random_state": 7}
    encoder("hadamard", ts.make_projection("hadamard", **shape))
    encoder("circulant", ts.make_projection("circulant", **shape))
    encoder("sparse 1/sqrt(n)", ts.make_projection("sparse", **shape))
    encoder("sparse 1/3", ts.make_projection("sparse", density=1 / 3, **shape))
    encoder("rademacher", ts.make_projection("rademacher", **shape))
    encoder("gaussian", ts.make_projection("gaussian", **shape))
    for name, transformer in [
        ("scikit-learn GaussianRandomProjection", GaussianRandomProjection(n_pool, random_state=0)),
        ("scikit-learn SparseRandomProjection", SparseRandomProjection(n_pool, dense_output=True, random_state=0)),
    ]:
        contestants[name] = transformer.fit(some).transform
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: its line is missing (pip install topsign[bench])")
    else:
        faiss.omp_set_num_threads(int(THREADS))
        index = faiss.IndexLSH(n_features, n_pool)
        index.train(some)
        contestants["faiss IndexLSH.sa_encode"] = index.sa_encode
    for run in contestants.values():
        run(some)
    return contestants


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=8192)
    parser.add_argument("--pool", type=int, default=8192)
    parser.add_argument("--bits", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="write the times into this file")
    options = parser.parse_args()
    print(f"n_features={options.features} n_pool={options.pool} n_bits={options.bits}; {ts.kernels.info()}")
    contestants = make_contestants(options.features, options.pool, options.bits)
    rng = np.random.default_rng(1)
    rows = []
    for size in (256, 1):
        batch = rng.standard_normal((size, options.features)).astype(np.float32)
        times = interleaved([partial(run, batch) for run in contestants.values()], options.repeats) / size * 1e6
        print(f"\nbatch of {size}: microseconds per signal, median of {options.repeats}, {options.threads} thread(s)")
        for name, ours in zip(contestants, times.T, strict=True):
            times_gemm = spread(times[:, 0] / ours)
            rows.append(
                {"name": name, "batch": size, "microseconds": spread(ours), "times_as_fast_as_gemm": times_gemm}
            )
            print(f"{name:42s} {np.median(ours):10.1f}   {times_gemm['median']:6.1f} times as fast as GEMM")
    if options.json:
        save(options.json, options, {"rows": rows})


if __name__ == "__main__":
    main()
