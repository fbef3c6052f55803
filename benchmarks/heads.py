"""A head of 100,000 classes: bytes, time of the top class of a batch, and agreement with the exact head.

Weights and inputs are normal vectors whose covariance has eigenvalues i**-decay in a random basis, because eigenvalues
of real features fall as a power of their rank. Each input is the weight vector of its class plus such noise. Times are
medians of interleaved repeats on one thread; the float32 head is a matrix product and an argmax.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import numpy as np
from shared.results import interleaved, save, spread

import topsign as ts


def make_head(rng, options):
    """Weights (n_classes, n_features), inputs (n_inputs, n_features) and the labels planted in them."""
    eigenvalues = np.arange(1, options.features + 1) ** -options.decay
    basis, _ = np.linalg.qr(rng.standard_normal((options.features, options.features)))
    shape = (np.sqrt(eigenvalues / eigenvalues.sum())[:, np.newaxis] * basis.T).astype(np.float32)
    weights = np.empty((options.classes, options.features), np.float32)
    for start in range(0, options.classes, 10_000):  # drawing all values at once would need a second copy
        part = weights[start : start + 10_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) @ shape
    labels = rng.integers(0, options.classes, options.inputs)
    noise = rng.standard_normal((options.inputs, options.features), dtype=np.float32) @ shape
    correlation = options.correlation
    return weights, correlation * weights[labels] + np.float32(np.sqrt(1 - correlation**2)) * noise, labels


def exact_top(weights, inputs):
    return (inputs @ weights.T).argmax(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--bits", type=int, nargs="+", default=[128])
    parser.add_argument("--pool", type=int, default=1024)
    parser.add_argument("--layouts", nargs="+", default=["fast", "compact"])
    parser.add_argument("--shortlist", type=int, default=100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--inputs", type=int, default=10_000, help="on which agreement is measured")
    parser.add_argument("--correlation", type=float, default=0.45, help="of an input with its class's weights")
    parser.add_argument("--decay", type=float, default=0.7, help="of the eigenvalues")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    os.environ["TOPSIGN_NUM_THREADS"] = str(options.threads)
    from threadpoolctl import threadpool_limits

    with threadpool_limits(options.threads):
        measured = compare(options)
    if options.json:
        save(options.json, options, measured)


def compare(options):
    weights, inputs, labels = make_head(np.random.default_rng(0), options)
    batch = inputs[: options.batch]
    exact = np.concatenate([exact_top(weights, part) for part in np.array_split(inputs, -(-len(inputs) // 256))])
    print(f"{options.classes} classes, {options.features} features, batches of {options.batch}; {ts.kernels.info()}")
    print(f"float32: {weights.nbytes / options.classes:.0f} bytes per class, accuracy {np.mean(exact == labels):.4f}")
    heads = {}
    for n_bits in options.bits:
        for layout in options.layouts:
            for shortlist in (None, options.shortlist):
                name = f"{n_bits} of {options.pool}, {layout}" + (f", shortlist={shortlist}" if shortlist else "")
                heads[name] = ts.CompressedLinearClassifier.from_weights(
                    weights, n_bits=n_bits, n_pool=options.pool, layout=layout, shortlist=shortlist, random_state=7
                )
    runs = [partial(exact_top, weights, batch), *(partial(head.predict, batch) for head in heads.values())]
    times = interleaved(runs, options.repeats)
    print(f"float32: {1000 * np.median(times[:, 0]):.0f} ms per batch")
    rows = [{"name": "float32", "bytes_per_class": 4 * options.features, "milliseconds": spread(1000 * times[:, 0])}]
    for (name, head), spent in zip(heads.items(), times.T[1:], strict=True):
        found = head.predict(inputs)
        row = {
            "name": name,
            "bytes_per_class": head.head_.code_nbytes / options.classes,
            "shortlist_bytes_per_class": head.head_.shortlist_nbytes / options.classes,
            "times_smaller": float(head.compression_ratio_),
            "milliseconds": spread(1000 * spent),
            "times_faster": spread(times[:, 0] / spent),
            "agreement": float(np.mean(found == exact)),
            "accuracy": float(np.mean(found == labels)),
        }
        rows.append(row)
        print(
            f"{name}: {row['bytes_per_class']:.0f} bytes of codes per class, "
            f"{row['times_smaller']:.1f} times smaller with all; "
            f"{row['milliseconds']['median']:.0f} ms, {row['times_faster']['median']:.1f} times faster; "
            f"agreement {row['agreement']:.4%}, top-1 accuracy {row['accuracy']:.4f}"
        )
    return {"accuracy": float(np.mean(exact == labels)), "rows": rows}


if __name__ == "__main__":
    main()
