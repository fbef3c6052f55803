"""Search without a training set, in a durable index and in another engine, and export the codes to Parquet.

5,000 vectors of 2,048 dimensions take about 1/100 of their size.
"""

import tempfile
from pathlib import Path

import numpy as np

import topsign as ts

N_ENTRIES, N_FEATURES = 5_000, 2048


def main(folder):
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((N_ENTRIES, N_FEATURES)).astype(np.float32)
    queries = vectors[:200] + 3 * rng.standard_normal((200, N_FEATURES)).astype(np.float32)

    file = folder / "example.topsign"
    with ts.Index(N_FEATURES, family="grouped", n_bytes=80, random_state=7, path=file) as index:
        index.add(vectors, metadata=[{"row": row} for row in range(N_ENTRIES)])
    index = ts.open_index(file, readonly=True)
    code_bytes = len(index.get([0]).codes.data[0])
    print(f"{code_bytes} bytes per code, {vectors[0].nbytes // code_bytes} times smaller than float32")
    for scoring in ("asymmetric", "hamming"):
        found = index.search(queries, k=1, scoring=scoring)
        print(f"{scoring:>10}: {(found.ids[:, 0] == np.arange(200)).mean():.1%} of the first hits are right")
    best = index.search(queries, k=20)
    exact = np.array([ids[np.argmax(vectors[ids] @ query)] for ids, query in zip(best.ids, queries, strict=True)])
    print(f"  rescored: {(exact == np.arange(200)).mean():.1%}, the 20 best codes compared exactly")

    signs = np.where(index.project(queries) >= 0, 1, -1)
    products = index.get(index.ids).codes.to_sparse() @ signs.T  # FAISS, PostgreSQL and others: see the docs
    n_kept = index.recipe.n_kept
    ours = index.search(queries, k=1, scoring="hamming").distances[:, 0] * n_kept
    print("SciPy finds the same mismatches:", ((n_kept - products.max(axis=0)) / 2 == ours).all())
    try:
        ts.export.write_parquet(folder / "example.parquet", index)
    except ImportError as error:
        print(error)
    else:
        table = ts.export.read_parquet(folder / "example.parquet")
        print("Parquet preserves the codes:", table.entries.codes == index.get(index.ids).codes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
