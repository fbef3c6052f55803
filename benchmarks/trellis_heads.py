"""Heads at 0.25 to 2 bits per weight: trellis and adaptive codes, int8 and int4 rows, product quantisation.

    python benchmarks/trellis_heads.py cifar|many [--classes 100000] [--seeds 3] [--json FILE]

``cifar`` is the head of the CIFAR-10 network (10 classes, 1,024 features), ``many`` the head of heads.py: normal weight
vectors with eigenvalues that fall. All codes of one size have the same bytes per class, their scales among them: two
bytes for trellis codes and rows of integers, four for adaptive codes, none for product quantisation. The size of shared
data (axes, rotations, codebooks) is reported separately. Rows of 8 and 4 bits keep as many principal coordinates of the
weights as fit; a head of ten classes is too small for axes and codebooks, so there rows keep random coordinates. The
rows "all features" of 8 and 4 bits are whole, for comparison.

Agreement is with the top class of the exact head, and the share of its ten best among the ten found; means over seeds,
with intervals of 95% bootstrapped over inputs. Rows are written as they are measured.
"""

import argparse
import os
import warnings
from functools import partial

import numpy as np
from shared.codes import FLOAT, adaptive_shape, best, learned_bytes, rotation
from shared.results import Record
from text_embeddings import bootstrap

import topsign as ts

RATES = (0.25, 0.5, 1.0, 2.0)
SCALE = 2  # bytes of a scale of trellis codes and of rows of integers
K = 10
RANDOM = ("trellis, hadamard", "adaptive", "int8, random coordinates", "int4, random coordinates")  # one row, all seeds


def rounded(rows, bits):
    """Rows in signed integers, each with a scale of its own."""
    scales = np.abs(rows).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    return (np.rint(rows / np.where(scales > 0, scales, 1)) * scales).astype(np.float32)


def cut_rows(axes, bits, weights, inputs, n_bytes, seed, k):
    """The first coordinates along the axes, or along random ones, that fit in ``bits`` bits each; the rest is lost."""
    learned, axes = axes is not None, rotation(weights.shape[1], seed) if axes is None else axes
    kept = axes[: min(len(axes), 8 * (n_bytes - SCALE) // bits)]
    rows = rounded(weights @ kept.T, bits)
    return best(inputs @ kept.T, rows, k), FLOAT * kept.size if learned else 0


def trellis(projection, weights, inputs, n_bytes, seed, k):
    n_bits = 8 * (n_bytes - SCALE)
    head = ts.Head.from_weights(weights, family="trellis", n_bits=n_bits, projection=projection, random_state=seed)
    check_bytes(head.codes, n_bytes)
    return head.topk(inputs, k).indices, learned_bytes(head.recipe) if projection == "principal" else 0


def adaptive(weights, inputs, n_bytes, seed, k):
    shape = adaptive_shape(weights.shape[1], n_bytes - FLOAT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.heads.SizeWarning)
        head = ts.Head.from_weights(weights, random_state=seed, **shape)
    check_bytes(head.codes, n_bytes - FLOAT)
    return head.topk(inputs, k).indices, 0


def check_bytes(codes, most):
    if codes.shape[1] > most:
        raise ValueError(f"codes of {codes.shape[1]} bytes where {most} were meant")


def product(rounds, weights, inputs, n_bytes, seed, k):
    """Product quantisation by faiss, after a rotation that it learns in so many rounds, or none."""
    import faiss

    n_features = weights.shape[1]
    n_kept = n_features // n_bytes * n_bytes
    codebooks, turn = FLOAT * 256 * n_kept, rotation(n_features, seed)
    index = faiss.IndexPQ(n_kept, n_bytes, 8)
    index.pq.cp.seed = 1234 + seed
    if rounds:
        matrix = faiss.OPQMatrix(n_features, n_bytes, n_kept)
        matrix.niter, matrix.max_train_points = rounds, 2**15
        index, codebooks = faiss.IndexPreTransform(matrix, index), codebooks + FLOAT * n_features * n_kept
        weights, inputs = weights @ turn, inputs @ turn
    index.train(weights[:: max(1, len(weights) // 2**15)])
    return best(inputs, index.sa_decode(index.sa_encode(weights)), k), codebooks


def cifar(options):
    from topsign.paper.heads import load_cifar10_head

    head = load_cifar10_head()
    methods = {
        "trellis, hadamard": partial(trellis, "hadamard"),
        "adaptive": adaptive,
        "int8, random coordinates": partial(cut_rows, None, 8),
        "int4, random coordinates": partial(cut_rows, None, 4),
    }
    return np.asarray(head.weights, np.float32), head.features, methods


def many(options):
    from heads import make_head

    weights, inputs, _ = make_head(np.random.default_rng(0), options)
    axes = np.linalg.eigh(weights[::4].T @ weights[::4])[1].T[::-1]
    methods = {
        "trellis, hadamard": partial(trellis, "hadamard"),
        "trellis, principal": partial(trellis, "principal"),
        "adaptive": adaptive,
        "int8, principal coordinates": partial(cut_rows, axes, 8),
        "int4, principal coordinates": partial(cut_rows, axes, 4),
        "PQ": partial(product, 0),
        "OPQ": partial(product, options.opq_rounds),
    }
    return weights, inputs, methods


def row(name, n_bytes, shared, found, exact, **notes):
    """``found`` has a list of classes per seed and input."""
    same = np.mean(found[..., 0] == exact[:, 0], axis=0)
    tens = (found[..., np.newaxis] == exact[:, np.newaxis]).any(axis=-1).mean(axis=(0, 2))
    measured = {"name": name, "bytes_per_class": n_bytes, "shared_bytes": int(shared)} | notes
    measured |= {"agreement": float(same.mean()), "interval": bootstrap(same)}
    measured["by_seed"] = [float(np.mean(one[:, 0] == exact[:, 0])) for one in found]
    return measured | ({"top10": float(tens.mean()), "top10_interval": bootstrap(tens)} if exact.shape[1] > 1 else {})


def compare(options):
    weights, inputs, methods = PARTS[options.part](options)
    k = K if len(weights) > 4 * K else 1
    n_features = weights.shape[1]
    sizes = {rate: int(rate * n_features / 8) for rate in options.rates}
    planned = [(name, rate) for name in methods for rate in sizes]
    wholes = {f"int{bits}, all features": bits for bits in (8, 4)}
    names = {key: title(*key) for key in planned}
    sizes_of = {"classes": len(weights), "inputs": len(inputs), "features": n_features}
    record = Record(
        options, [*wholes, *names.values()], lambda row: title(row["name"], row["bits_per_weight"]), **sizes_of
    )
    exact = best(inputs, weights, k)
    for name, bits in wholes.items():
        if name in record.wanted:
            found = best(inputs, rounded(weights, bits), k)[np.newaxis]
            record.add(row(name, n_features * bits // 8 + SCALE, 0, found, exact, bits_per_weight=None))
    for name, rate in planned:
        if names[name, rate] in record.wanted:
            seeds = range(options.seeds if name in RANDOM else 1)
            runs = [methods[name](weights, inputs, sizes[rate], seed, k) for seed in seeds]
            found = np.stack([classes for classes, _ in runs])
            record.add(row(name, sizes[rate], runs[0][1], found, exact, bits_per_weight=rate))


def title(name, rate):
    return name if rate is None else f"{name}, {rate} bits per weight"


PARTS = {"cifar": cifar, "many": many}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--correlation", type=float, default=0.45, help="of an input with its class's weights")
    parser.add_argument("--decay", type=float, default=0.7, help="of the eigenvalues")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--opq-rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help='such as "OPQ, 1.0 bits per weight"')
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    os.environ["TOPSIGN_NUM_THREADS"] = str(options.threads)
    import faiss

    faiss.omp_set_num_threads(options.threads)
    compare(options)


if __name__ == "__main__":
    main()
