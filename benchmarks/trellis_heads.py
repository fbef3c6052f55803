"""Heads at 0.25 to 2 bits a weight: trellis and adaptive codes, int8 and int4 rows, product quantisation.

    python benchmarks/trellis_heads.py [cifar] [many] [--classes 10000] [--seeds 20] [--json FILE]

``cifar`` is the head of the CIFAR-10 network (10 classes, 1,024 features; mean over seeds), ``many`` the head of
heads.py, normal weight vectors with eigenvalues that fall. All have the same bytes per class, scales included. Rows of
8 and 4 bits keep as many principal coordinates of the weights as fit; a head of ten classes is too small for axes and
codebooks, so there rows keep random coordinates. Agreement is with the top class of the exact head.
"""

import argparse

import numpy as np
from heads import exact_top, make_head
from shared.results import save

import topsign as ts
from topsign.recipe import Recipe

RATES = (0.25, 0.5, 1.0, 2.0)
SCALE = 2  # bytes of a norm or scale, in every code


def rounded(rows, n_levels):
    """Rows in so many levels on either side of zero, each with a scale of its own."""
    scales = np.abs(rows).max(axis=1, keepdims=True) / n_levels
    return np.rint(rows / np.where(scales > 0, scales, 1)) * scales


def cut_rows(weights, axes, n_bytes, bits):
    """The first coordinates along the axes that fit, in ``bits`` bits each; and the rest lost."""
    kept = axes[: min(len(axes), 8 * n_bytes // bits)]
    return rounded(weights @ kept.T, 2 ** (bits - 1) - 1) @ kept


def product_rows(weights, n_bytes):
    import faiss

    n_kept = weights.shape[1] // n_bytes * n_bytes
    turn = faiss.OPQMatrix(weights.shape[1], n_bytes, n_kept)
    turn.niter = 5
    index = faiss.IndexPreTransform(turn, faiss.IndexPQ(n_kept, n_bytes, 8))
    index.train(weights)
    index.add(weights)
    return index.reconstruct_n(0, len(weights))


def adaptive(weights, n_bytes, seed):
    recipe = Recipe.make(
        "adaptive", n_features=weights.shape[1], n_bytes=n_bytes + SCALE - 4, n_pool=weights.shape[1], random_state=seed
    )
    return ts.Head.of(recipe, weights, np.zeros(len(weights)), np.arange(len(weights)))


def trellis(weights, n_bytes, seed, projection="hadamard"):
    return ts.Head.from_weights(weights, codes="trellis", n_bits=8 * n_bytes, projection=projection, random_state=seed)


def judged(name, rate, found, exact, n_bytes, **notes):
    row = {
        "name": name,
        "bits_per_weight": rate,
        "bytes_per_class": n_bytes,
        "agreement": float(np.mean(found == exact)),
    }
    print(row | notes, flush=True)
    return row | notes


def cifar(options):
    from topsign.paper.heads import load_cifar10_head

    head, rows = load_cifar10_head(), []
    weights, inputs = np.asarray(head.weights, np.float32), head.features
    exact = exact_top(weights, inputs)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((weights.shape[1],) * 2))[0].astype(np.float32)
    for rate in RATES:
        n_bytes = int(rate * weights.shape[1] / 8)
        for name, make in (("trellis", trellis), ("adaptive", adaptive)):
            each = [make(weights, n_bytes, seed).predict(inputs) for seed in range(options.seeds)]
            agreed = [float(np.mean(found == exact)) for found in each]
            accuracy = float(np.mean([np.mean(found == head.labels) for found in each]))
            notes = {"error": float(np.std(agreed) / np.sqrt(len(agreed))), "accuracy": accuracy}
            rows.append(
                judged(name, rate, np.concatenate(each), np.tile(exact, options.seeds), n_bytes + SCALE, **notes)
            )
        for bits in (8, 4):
            found = exact_top(cut_rows(weights, turn, n_bytes, bits), inputs)
            rows.append(judged(f"int{bits}, random coordinates", rate, found, exact, n_bytes + SCALE))
    return rows


def many(options):
    weights, inputs, _ = make_head(np.random.default_rng(0), options)
    exact, rows = exact_top(weights, inputs), []
    axes = np.linalg.eigh(weights[::4].T @ weights[::4])[1].T[::-1]
    for rate in options.rates:
        n_bytes = int(rate * options.features / 8)
        learned = trellis(weights, n_bytes, 7, "principal")
        shared = (learned.code_nbytes - learned.codes.nbytes) / len(weights)
        rows.append(judged("trellis, principal", rate, learned.predict(inputs), exact, n_bytes + SCALE, shared=shared))
        found = trellis(weights, n_bytes, 7).predict(inputs)
        rows.append(judged("trellis, hadamard", rate, found, exact, n_bytes + SCALE))
        found = adaptive(weights, n_bytes, 7).predict(inputs)
        rows.append(judged("adaptive", rate, found, exact, n_bytes + SCALE))
        for bits in (8, 4):
            found = exact_top(cut_rows(weights, axes, n_bytes, bits), inputs)
            rows.append(judged(f"int{bits}, principal coordinates", rate, found, exact, n_bytes + SCALE))
        if n_bytes <= options.most_product:
            found = exact_top(product_rows(weights, n_bytes), inputs)
            rows.append(judged("OPQ", rate, found, exact, n_bytes))
    return rows


PARTS = {"cifar": cifar, "many": many}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--correlation", type=float, default=0.45, help="of an input with its class's weights")
    parser.add_argument("--decay", type=float, default=0.7, help="of the eigenvalues")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--most-product", type=int, default=128, help="bytes above which OPQ would take too long")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    found = {}
    for name in options.parts:
        found[name] = PARTS[name](options)
        if options.json:
            save(options.json, options, found)


if __name__ == "__main__":
    main()
