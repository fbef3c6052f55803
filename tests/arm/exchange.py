"""Bit-identity of two processors: hashes of kernel results and index files, written on one and read on the other.

    python tests/arm/exchange.py write FOLDER     # results of this processor
    python tests/arm/exchange.py compare FOLDER   # whether this processor gives the same

Inputs are made from integers, so they do not depend on the arithmetic of a library. Every native path is compared.
"""

import argparse
import hashlib
import json
import platform
import sys
from itertools import chain
from pathlib import Path

import numpy as np

import topsign as ts
from topsign.families.trellis.design import design_trellis
from topsign.kernels import (
    CellColumns,
    CodeRange,
    Layout,
    Panels,
    Product,
    QueriedCells,
    RoundedQueries,
    TrellisRange,
    TrellisSignals,
    library,
)

SIZES = [(1, 1), (1, 64), (5, 63), (31, 400), (33, 129), (100, 384), (250, 1000), (512, 8192), (64, 9000), (2100, 4096)]
BATCHES = (1, 2, 5, 17, 65, 130)
N_CODES = 70
TRELLISES = [(40, 24, 4), (96, 200, 8), (7, 40, 4), (130, 64, 10), (64, 130, 10)]  # features, bits, window


def numbers(rng, *shape):
    """Return approximately normal numbers with ties, as sums of integers."""
    return (rng.integers(-300, 301, (4, *shape)).sum(axis=0) / 256).astype(np.float32)


def results(kernel):
    """Yield the name and the result arrays of each kernel."""
    rng = np.random.default_rng(5)
    for n_bits, n_pool in SIZES:
        size = f"{n_bits} of {n_pool}"
        signals, signs = numbers(rng, 4, n_pool), rng.integers(0, 256, (3, -(-n_pool // 8)), dtype=np.uint8)
        yield f"rotate {size}", [kernel.rotate(signals, signs), kernel.rotate(signals, signs, transpose=True)]
        yield (
            f"sums {size}",
            [
                kernel.square_norms(signals),
                kernel.magnitude_sums(signals),
                kernel.inner_products(signals, signals[0].astype(float)),
            ],
        )
        yield f"select {size}", kernel.select(signals, n_bits)
        sets, _ = kernel.encode_sets(kernel.select(signals, n_bits)[0], n_pool, n_pool // 8 + 16)
        yield f"sets {size}", [sets, kernel.decode_sets(sets, n_bits, n_pool)]
        for name in ("fast", "compact", "signs"):
            layout = Layout(name, n_pool if name == "signs" else n_bits, n_pool)
            projected = numbers(rng, N_CODES, n_pool)
            if name == "signs":
                codes = kernel.pack_bits(projected)
            else:
                codes = kernel.pack_codes(layout, *kernel.select(projected, n_bits)[:2])
                yield f"unpack {name} {size}", [codes, *kernel.unpack_codes(layout, codes)]
            yield f"valid {name} {size}", [kernel.valid_codes(layout, codes ^ (codes == 7).astype(np.uint8))]
            for n_queries in BATCHES if n_pool <= 1000 else BATCHES[:4]:
                queries = numbers(rng, n_queries, n_pool)
                yield f"search {name} {size} {n_queries}", compared(kernel, layout, codes, queries)


def trellis_results(kernel):
    """Yield the name and the result arrays of each trellis kernel, at equal rates, whose design needs no logarithms."""
    rng = np.random.default_rng(6)
    for n_features, n_bits, window in TRELLISES:
        size = f"{n_bits} bits of {n_features} by {window}"
        design = design_trellis(np.ones(n_features), n_bits=n_bits, window=window)
        tables = design.tables(np.arange(n_features) / 256 * (n_features % 4 != 0), 1.0, -(-n_bits // 8) + 2)
        coded = kernel.trellis_encode([TrellisSignals(tables, numbers(rng, 19, n_features))], n_threads=2)
        codes = rng.integers(0, 256, (N_CODES, tables.code_bytes), dtype=np.uint8)
        yield (
            f"products {size}",
            kernel.multiply(
                numbers(rng, 19, n_features), [Product(Panels.of(numbers(rng, 45, n_features)))], n_threads=2
            ),
        )
        sizes, bits = np.array([n_features]), np.array([n_features % 2 * 5])
        columns = CellColumns(np.arange(n_features), np.full(n_features, 0.75), sizes, bits)
        constants = np.zeros((1, 19), np.float32)
        (rounded,) = kernel.trellis_round(numbers(rng, 19, n_features), columns, constants, n_threads=2)
        yield (
            f"trellis queries {size}",
            [rounded.values, rounded.scales, np.zeros(0) if rounded.fine is None else rounded.fine],
        )
        yield f"trellis encode {size}", [coded, kernel.trellis_decode(tables, coded)]
        yield f"trellis decode {size}", [kernel.trellis_decode(tables, codes), kernel.trellis_weights(tables, codes)]
        for n_queries in BATCHES[:4]:
            values = rng.integers(-127, 128, (n_queries, n_features), dtype=np.int8)
            halves = np.full(n_queries, 0.5, np.float32)
            digits = rng.integers(-16, 16, values.shape, dtype=np.int8)
            one, two = RoundedQueries(values, halves, halves), RoundedQueries(values, halves, halves, digits, 5)
            for n_digits, queries in enumerate((one, two), start=1):
                searched = QueriedCells.one(tables, queries, norms=True), [TrellisRange(codes)]
                found = kernel.rank_trellis(*searched, 9, n_threads=2)
                near = kernel.within_trellis(*searched, found[1][:, 4])
                sums = kernel.trellis_sums(tables, codes, queries)
                yield f"trellis search {size} {n_queries} of {n_digits}", [*found, *near, sums]


def compared(kernel, layout, codes, queries):
    bits, ranges = kernel.pack_bits(queries), [CodeRange(codes)]
    counts = kernel.rank_mismatches(layout, ranges, bits, 9, n_threads=2)
    scores = kernel.rank_scores(layout, ranges, queries, 9, n_threads=2)
    near = kernel.within_mismatches(layout, ranges, bits, counts[1][:, 0] + 1)
    high = kernel.within_scores(layout, ranges, queries, scores[1][:, 0] - np.float32(0.5))
    some = [kernel.mismatches(layout, codes, bits[:3]), kernel.score_sums(layout, codes, queries[:3])]
    return [*counts, *scores, *near, *high, *some]


def hashes(path):
    with ts.kernels.use(path) as kernel:
        return {name: digest(arrays) for name, arrays in chain(results(kernel), trellis_results(kernel))}


def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def indexes():
    return {
        "adaptive-fast": ts.AdaptiveIndex(n_features=200, n_bits=40, layout="fast", random_state=7),
        "adaptive-compact": ts.AdaptiveIndex(n_features=256, n_bits=64, layout="compact", random_state=7),
        "sign": ts.SignIndex(n_features=128, n_pool=100, random_state=7),
        "trellis": ts.TrellisIndex(n_features=96, n_bytes=12, basis="hadamard", center=False, random_state=7),
    }


def searched(index):
    """Return codes and neighbours of an index with 300 entries.

    Scores of trellis codes are compared instead of distances, because distances are arc cosines by NumPy, whose last
    digit differs between processors.
    """
    queries = numbers(np.random.default_rng(9), 20, index.n_features)
    scorings = ["asymmetric"] if index.family == "trellis" else ["hamming", "asymmetric"]
    found = [index.search(queries, k=5, scoring=scoring) for scoring in scorings]
    if index.family == "trellis":
        return digest([index.get(index.ids).codes.data, found[0].ids, found[0].scores])
    return digest([array for one in found for array in (one.ids, one.distances)])


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    native_path = ts.kernels.available()[0]
    summary = {"machine": platform.machine(), "path": native_path, "kernels": hashes(native_path), "indexes": {}}
    for name, index in indexes().items():
        index.add(numbers(np.random.default_rng(3), 300, index.n_features))
        index.save(folder / name)
        summary["indexes"][name] = searched(index)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    counts = f"{len(summary['kernels'])} hashes, {len(summary['indexes'])} indexes"
    print(f"{summary['machine']}, {native_path}: {counts} written")


def compare(folder):
    summary = json.loads((folder / "summary.json").read_text())
    wrong = []
    for path in ts.kernels.available():
        library.load_library().ts_set_grain(1.0)
        ours = hashes(path)
        wrong += [f"{path}: {name}" for name in ours if ours[name] != summary["kernels"][name]]
        for name, expected in summary["indexes"].items():
            with ts.kernels.use(path), ts.open_index(folder / name) as index:
                if searched(index) != expected:
                    wrong.append(f"{path}: index {name}")
        print(f"{platform.machine()}, {path}: {len(ours)} kernels and {len(summary['indexes'])} indexes compared with "
              f"{summary['machine']}, {summary['path']}")  # fmt: skip
    for name in wrong:
        print("different:", name)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.what == "write":
        write(options.folder)
    elif not compare(options.folder):
        sys.exit(1)


if __name__ == "__main__":
    main()
