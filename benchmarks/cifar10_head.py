"""Accuracy that the head of a CIFAR-10 network loses when it is compressed: adaptive codes and the paper's baselines.

Points against the uncompressed head, mean over seeds of the projection and its standard error. Equal computation is as
many sign bits as adaptive ones, equal storage as many as an adaptive code takes with its locations.
"""

from __future__ import annotations

import argparse

from shared.results import save

from topsign.paper import heads


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--universal", action="store_true", help="also the universal embedding, which takes minutes")
    parser.add_argument("--json", help="write the losses into this file")
    options = parser.parse_args()
    seeds = range(options.seeds)
    head = heads.load_cifar10_head()
    print(f"{len(head.labels)} images, accuracy {head.accuracy:.2%} uncompressed, {options.seeds} seeds")
    rows = []
    for kind in ("gaussian", "hadamard"):
        rows += show(heads.adaptive_losses(head, seeds=seeds, kind=kind), kind)
    rows += show(heads.sign_losses(head, seeds=seeds), "gaussian")
    if options.universal:
        rows += show(heads.universal_losses(head, seeds=seeds), "gaussian")
    if options.json:
        save(options.json, options, {"images": len(head.labels), "accuracy": float(head.accuracy), "rows": rows})


def show(table, kind):
    for loss in table:
        step = "" if loss.step is None else f", step {loss.step:g}"
        name = f"{loss.method}{step} ({kind})"
        print(f"{name:45} {loss.n_bits:5} bits: {loss.mean:+7.3f} points, standard error {loss.standard_error:.3f}")
    return [
        {
            "method": loss.method,
            "pool": kind,
            "n_bits": int(loss.n_bits),
            "points_lost": float(loss.mean),
            "standard_error": float(loss.standard_error),
        }
        for loss in table
    ]


if __name__ == "__main__":
    main()
