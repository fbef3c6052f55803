"""Compressed head of a language model: perplexity, and agreement of the best tokens.

The head and held-out features come from experiments/language_model (tokens.py, then train.py). It compares adaptive
codes, with and without shortlists, with rows of 8 and 4 bits and product-quantised rows. Perplexity with a shortlist
uses exact logits for tokens on the list and estimates for the others; "in shortlist" is the fraction of positions whose
next token is on the list, an upper limit for a layer that returns -inf for other tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path

import numpy as np
from shared.results import save

import topsign as ts

BLOCK = 500  # inputs at a time


def load(path):
    """Load weights, features, following tokens, and training parameters."""
    parts = sorted(Path(path).parent.glob(f"{Path(path).name}.weights.*.npy"))
    with np.load(f"{path}.npz") as stored:
        features, following = stored["features"].astype(np.float32), stored["following"]
        made = json.loads(str(stored["made"]))
    return np.concatenate([np.load(part) for part in parts]).astype(np.float32), features, following, made


def in_integers(weights, bits):
    """Round rows to signed integers with a scale per row; return the decoded weights and bytes per row."""
    most = 2 ** (bits - 1) - 1
    scales = np.abs(weights).max(axis=1, keepdims=True) / most
    return np.rint(weights / scales) * scales, weights.shape[1] * bits / 8 + 4


def product_quantised(weights, n_parts):
    """Quantise rows by 8-bit product quantisation; return the weights, bytes per row, and codebook bytes per row."""
    import faiss

    quantizer = faiss.ProductQuantizer(weights.shape[1], n_parts, 8)
    quantizer.cp.niter = 10
    quantizer.train(weights)
    rows = quantizer.decode(quantizer.compute_codes(weights))
    return rows, n_parts + 256 * weights.shape[1] * 4 / len(weights)


class Measure:
    """Comparison of logits with the exact ones, a block of inputs at a time."""

    def __init__(self, weights, features, following):
        self.weights, self.features, self.following = weights, features, following

    def __call__(self, logits_of, shortlist=None):
        losses, top1, top5, inside = [], [], [], []
        for start in range(0, len(self.features), BLOCK):
            part = slice(start, start + BLOCK)
            exact, logits = self.features[part] @ self.weights.T, logits_of(self.features[part])
            losses.append(_loss(logits, self.following[part]))
            best, found = (np.argpartition(-values, 5, axis=1)[:, :5] for values in (exact, logits))
            top1.append(exact.argmax(axis=1) == logits.argmax(axis=1))
            top5.append([len(np.intersect1d(*pair)) / 5 for pair in zip(best, found, strict=True)])
            if shortlist is not None:
                listed = shortlist(self.features[part])
                inside.append((listed == self.following[part][:, np.newaxis]).any(axis=1))
        row = {"perplexity": float(np.exp(np.concatenate(losses).mean()))}
        row |= {"top1": float(np.concatenate(top1).mean()), "top5": float(np.concatenate(top5).mean())}
        return row | ({"in_shortlist": float(np.concatenate(inside).mean())} if inside else {})


def _loss(logits, following):
    highest = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    return total - np.take_along_axis(logits, following[:, np.newaxis], axis=1)[:, 0]


def compare(options):
    weights, features, following, made = load(options.head)
    features, following = features[: options.positions], following[: options.positions]
    measure, rows = Measure(weights, features, following), []
    print(f"{len(weights):,} tokens, {weights.shape[1]} features, {len(features):,} held-out positions")

    def add(name, n_bytes, row):
        rows.append({"name": name, "bytes_per_token": n_bytes} | row)
        shown = "".join(f", {key} {row[key]:.3f}" for key in ("top1", "top5", "in_shortlist") if key in row)
        print(f"{name}: {n_bytes:.0f} bytes per token, perplexity {row['perplexity']:.2f}{shown}", flush=True)

    add("float32", 4 * weights.shape[1], measure(lambda x: x @ weights.T))
    for bits in (8, 4):
        held, n_bytes = in_integers(weights, bits)
        add(f"int{bits}", n_bytes, measure(lambda x, held=held: x @ held.T))
    for n_parts in options.parts:
        held, n_bytes = product_quantised(weights, n_parts)
        add(f"product quantisation, {n_parts} parts", n_bytes, measure(lambda x, held=held: x @ held.T))
    for n_bits in options.bits:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.heads.SizeWarning)
            head = ts.Head.from_weights(weights, n_bits=n_bits, layout=options.layout, random_state=7)
        n_bytes = head.code_nbytes / len(weights)
        add(f"{n_bits} bits", n_bytes, measure(head.logits))
        for size in options.shortlists:
            listed = head.with_shortlist(size, weights, storage="int8")
            add(
                f"{n_bits} bits, shortlist of {size} in int8",
                listed.nbytes / len(weights),
                measure(listed.logits, lambda x, listed=listed, size=size: listed.topk(x, size).indices),
            )
    return {"made": made, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", help="prefix of the files that train.py wrote", required=True)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--shortlists", type=int, nargs="+", default=[50, 100, 500])
    parser.add_argument("--parts", type=int, nargs="+", default=[32, 64, 128], help="of product quantisation")
    parser.add_argument("--layout", default="compact")
    parser.add_argument("--positions", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    os.environ["TOPSIGN_NUM_THREADS"] = str(options.threads)
    measured = compare(options)
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
