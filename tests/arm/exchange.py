"""Index files written on one processor and read on another give the same codes, neighbours and scores.

    python tests/arm/exchange.py write FOLDER     # indexes and results of this processor
    python tests/arm/exchange.py compare FOLDER   # whether this processor gives the same

Signals are made from integers, so they do not depend on the arithmetic of a library. Every native path is compared.
Results of kernels are compared with the reference by tests/test_kernels.py, except for the transposed rotation.
"""

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np

import topsign as ts
from topsign.kernels import native


def numbers(seed, *shape):
    """Return approximately normal numbers with ties, as sums of integers."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-300, 301, (4, *shape)).sum(axis=0) / 256).astype(np.float32)


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
    """Return a digest of codes, neighbours and scores of an index with 300 entries, and of queries rotated back.

    Not of distances, which are arc cosines by NumPy, whose last digit differs between processors.
    """
    queries, projection = numbers(9, 20, index.n_features), index.recipe.projection
    found = [index.search(queries, k=5, scoring=scoring) for scoring in index.recipe.scorings]
    back = projection.transposed(projection.apply(queries))
    return digest([index.get(index.ids).codes.data, *(one.ids for one in found), found[-1].scores, back])


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    summary = {"machine": platform.machine(), "path": ts.kernels.available()[0], "indexes": {}}
    for name, index in indexes().items():
        index.add(numbers(3, 300, index.n_features))
        index.save(folder / name)
        summary["indexes"][name] = searched(index)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    print(f"{summary['machine']}, {summary['path']}: {len(summary['indexes'])} indexes written")


def compare(folder):
    summary = json.loads((folder / "summary.json").read_text())
    wrong = []
    for path in ts.kernels.available():
        native.load_library().ts_set_grain(1.0)
        for name, expected in summary["indexes"].items():
            with ts.kernels.use(path), ts.open_index(folder / name) as index:
                if searched(index) != expected:
                    wrong.append(f"{path}: index {name}")
        print(f"{platform.machine()}, {path}: {len(summary['indexes'])} indexes compared with "
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
