"""Limits of compressed heads: agreement with the exact head for random classes, by the share of signal.

Weights are standard normal vectors. An input is the weight vector of a random class in normal noise with this share of
its energy ("signal"); with no signal at all, the best of the classes wins by chance. Prints a table for
docs/how-to/heads.md.
"""

from __future__ import annotations

import argparse

import numpy as np

import topsign as ts

SIGNALS = (0.1, 0.05, 0.025, 0.0)


def make_inputs(rng, weights, n_inputs, signal):
    """Inputs of norm about one, uniform over classes, or in [0, 1] shares if ``signal`` is None."""
    n_classes, n_features = weights.shape
    labels = rng.integers(0, n_classes, n_inputs)
    noise = rng.standard_normal((n_inputs, n_features), dtype=np.float32)
    share = rng.random((n_inputs, 1)).astype(np.float32) if signal is None else np.float32(signal)
    return np.sqrt(share) * weights[labels] + np.sqrt(1 - share) * noise


def exact_top(weights, inputs):
    return np.concatenate(
        [(part @ weights.T).argmax(axis=1) for part in np.array_split(inputs, -(-len(inputs) // 128))]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[1_000, 50_000])
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--bits", type=int, default=128, help="of adaptive codes; trellis codes get as many bytes")
    parser.add_argument("--shortlist", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--signals", type=float, nargs="+", default=SIGNALS, help="shares of the energy of inputs")
    options = parser.parse_args()
    named = ["uniform in [0, 1]", *(f"{signal:.1%}" for signal in options.signals)]
    print(f"| classes | code | bytes per class | signal {' | '.join(named)} |")
    print("| --- " * (3 + len(named)) + "|")
    for n_classes in options.classes:
        rng = np.random.default_rng(0)
        weights = rng.standard_normal((n_classes, options.features), dtype=np.float32)
        inputs = [make_inputs(rng, weights, options.inputs, signal) for signal in (None, *options.signals)]
        exact = [exact_top(weights, some) for some in inputs]
        adaptive = ts.Head.from_weights(weights, n_bits=options.bits, random_state=7)
        n_bytes = adaptive.code_nbytes / n_classes
        trellis = ts.Head.from_weights(
            weights, family="trellis", bits_per_weight=8 * n_bytes / options.features, random_state=7
        )
        short = adaptive.with_shortlist(options.shortlist, weights)
        heads = {"adaptive": adaptive, "trellis": trellis, f"adaptive, shortlist={options.shortlist}": short}
        for name, head in heads.items():
            found = [np.mean(head.predict(some) == best) for some, best in zip(inputs, exact, strict=True)]
            size = f"{head.code_nbytes / n_classes:.0f}"
            size += f" + {head.shortlist_nbytes / n_classes:,.0f}" if head.shortlist_nbytes else ""
            print(f"| {n_classes:,} | {name} | {size} | {' | '.join(f'{share:.1%}' for share in found)} |", flush=True)


if __name__ == "__main__":
    main()
