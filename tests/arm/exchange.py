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
from pathlib import Path

import numpy as np

import topsign as ts
from topsign.kernels import CodeBlocks, CodeRange, Layout, PackedMatrix, Product, Ring, RoundedQueries, Scoring, native

SIZES = [(1, 1), (1, 64), (5, 63), (31, 400), (33, 129), (100, 384), (250, 1000), (512, 8192), (64, 9000), (2100, 4096)]
BYTES = [1, 2, 3, 24, 33, 150, 300]
BATCHES = (1, 2, 5, 17, 65, 130)
N_CODES = 70


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
        yield f"bits {size}", [kernel.pack_bits(signals)]
        layout = Layout(n_bits, n_pool)
        codes = kernel.pack_codes(layout, *kernel.select(numbers(rng, N_CODES, n_pool), n_bits)[:2])
        yield f"unpack {size}", [codes, *kernel.unpack_codes(layout, codes)]
        yield f"valid {size}", [kernel.valid_codes(layout, codes ^ (codes == 7).astype(np.uint8))]
        scoring = Scoring("kept", layout.code_bytes, n_pool, layout=layout)
        yield from searches(rng, kernel, scoring, codes, f"kept {size}")
        columns = PackedMatrix.of(numbers(rng, 45, min(n_pool, 200)))
        yield f"products {size}", kernel.multiply(numbers(rng, 19, min(n_pool, 200)), [Product(columns)])
    for n_bytes in BYTES:
        yield f"groups {n_bytes}", kernel.encode_groups(numbers(rng, 9, 16 * n_bytes))
        ring = make_ring(rng, n_bytes)
        codes = kernel.ring_encode(ring, numbers(rng, 19, ring.n_coded))
        yield f"ring {n_bytes}", [codes, kernel.ring_norms(ring, codes)]
        for scoring in (
            Scoring("signs", n_bytes, 8 * n_bytes),
            Scoring("groups", n_bytes + 2, 16 * n_bytes, "log"),
            Scoring("ring", n_bytes + 2, ring.n_coded, "cosine", ring=ring),
        ):
            codes = rng.integers(0, 256, (N_CODES, scoring.code_bytes), dtype=np.uint8)
            yield from searches(rng, kernel, scoring, codes, f"{scoring.kind} {n_bytes}")


def make_ring(rng, n_bytes):
    """Return random books of steps with up to eight coordinates."""
    sizes = rng.integers(1, 9, 2 * n_bytes)
    starts, n_coded = np.append(0, np.cumsum(256 * sizes)), int(sizes.sum())
    return Ring(
        first=np.append(0, np.cumsum(sizes)).astype(np.int32),
        book_of_step=np.arange(2 * n_bytes, dtype=np.int32),
        book_starts=starts.astype(np.int64),
        levels=rng.integers(-127, 128, int(starts[-1])).astype(np.int8),
        weights=np.abs(numbers(rng, n_coded)),
        scales=20 * np.abs(numbers(rng, n_coded)),
        squares=np.abs(numbers(rng, 2 * n_bytes, 256)).astype(float) / 64,
        constant=0.25,
    )


def searches(rng, kernel, scoring, codes, name):
    """Yield levels, scores and hits of codes for batches of queries."""
    blocks = CodeBlocks.of(codes)
    yield f"levels {name}", [kernel.decode(scoring, codes)]
    for n_queries in BATCHES if scoring.width <= 1000 else BATCHES[:4]:
        values, steps = kernel.round(numbers(rng, n_queries, scoring.width), scoring.limit)
        queries = RoundedQueries(values, steps, np.full(n_queries, 0.5, np.float32))
        found = kernel.rank(scoring, [CodeRange(blocks)], queries, 9)
        near = kernel.within(scoring, [CodeRange(blocks)], queries, np.ascontiguousarray(found[1][:, 4]))
        scores = kernel.scores(scoring, blocks, queries)
        yield f"search {name} {n_queries}", [values, steps, *found, *near, scores]


def hashes(path):
    with ts.kernels.use(path) as kernel:
        return {name: digest(arrays) for name, arrays in results(kernel)}


def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def indexes():
    return {
        "adaptive": ts.Index(256, family="adaptive", n_bits=64, random_state=7),
        "grouped": ts.Index(200, family="grouped", n_bytes=10, random_state=7),
        "sign": ts.Index(128, family="sign", n_bytes=13, metric="inner_product", random_state=7),
        "trellis": ts.Index(96, n_bytes=12, basis="hadamard", center=False, random_state=7),
    }


def searched(index):
    """Return a digest of codes, neighbours and scores of an index with 300 entries.

    Not of distances, which are arc cosines by NumPy, whose last digit differs between processors.
    """
    queries = numbers(np.random.default_rng(9), 20, index.n_features)
    found = [index.search(queries, k=5, scoring=scoring) for scoring in index.recipe.scorings]
    return digest([index.get(index.ids).codes.data, *(one.ids for one in found), found[-1].scores])


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
        native.load_library().ts_set_grain(1.0)
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
