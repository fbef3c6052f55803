"""The paper's detection problem: separation of matches from impostors by codes of equal information or equal bytes.

    python benchmarks/detection.py [--pairs 20000] [--bits 512] [--json FILE]

References are normal vectors of 8192 features scaled to unit norm; a match is its reference in noise of 0.15 in each
feature (correlation 0.0735), an impostor another's match. Sign codes have as many bits as an adaptive code has
information, n_bits + log2 C(n_pool, n_bits), or as its layout has bytes. d' is the distance between the mean scores of
matches and impostors in standard deviations; its 95% interval is bootstrapped over blocks of 200 pairs. ``theory`` is
the value of topsign.theory.roc.
"""

import argparse

import numpy as np
from shared.results import save

import topsign as ts
from topsign.kernels import Layout

N_FEATURES, NOISE, BLOCK = 8192, 0.15, 200
CORRELATION = 1 / np.hypot(1, NOISE * np.sqrt(N_FEATURES))


def methods(n_bits):
    """(name, what is equal, sign bits or None, scoring): sign bits None for adaptive codes."""
    information = round(ts.theory.storage_bits(n_bits=n_bits, n_pool=N_FEATURES))
    found = []
    for scoring in ("asymmetric", "hamming"):
        found.append(("adaptive", "", None, scoring))
        found.append(("sign codes", "equal computation", n_bits, scoring))
        found.append(("sign codes", "equal information", information, scoring))
        for layout in ("compact", "fast"):
            n_signs = 8 * Layout(layout, n_bits, N_FEATURES).code_bytes
            found.append(("sign codes", f"equal bytes, {layout} layout", n_signs, scoring))
    return found


def moments(scores):
    """Return sums, sums of squares and counts of one block: matches on the diagonal, impostors off the diagonal."""
    own = np.eye(len(scores), dtype=bool)
    sides = scores[own], scores[~own]
    return [value for side in sides for value in (len(side), side.sum(), (side**2).sum())]


def d_prime(sums):
    """Return d' from the summed moments of blocks."""
    n1, s1, q1, n0, s0, q0 = sums.sum(axis=0)
    variances = q1 / n1 - (s1 / n1) ** 2, q0 / n0 - (s0 / n0) ** 2
    return (s1 / n1 - s0 / n0) / np.sqrt(np.mean(variances))


def simulate(options):
    """Moments of every block, by method: (n_blocks, 6)."""
    rng = np.random.default_rng(0)
    tables = {method: [] for method in methods(options.bits)}
    for seed in range(options.pairs // BLOCK):
        encoder = ts.AdaptiveEncoder(options.bits, norms=False, random_state=seed)
        references = rng.standard_normal((BLOCK, N_FEATURES), dtype=np.float32)
        references /= np.linalg.norm(references, axis=1, keepdims=True)
        matches = references + np.float32(NOISE) * rng.standard_normal(references.shape, dtype=np.float32)
        encoder.fit(references)
        codes, projected, entries = encoder.encode(references), encoder.project(matches), encoder.project(references)
        signs = np.where(entries >= 0, np.float32(1), np.float32(-1))
        query_signs = np.where(projected >= 0, np.float32(1), np.float32(-1))
        norms = np.linalg.norm(matches, axis=1, keepdims=True)
        for method, table in tables.items():
            _, _, n_signs, scoring = method
            if n_signs is None:
                scores = (
                    -codes.mismatches(projected)
                    if scoring == "hamming"
                    else codes.scores(projected, metric="correlation")
                )
            elif scoring == "hamming":
                scores = query_signs[:, :n_signs] @ signs[:, :n_signs].T
            else:
                scores = projected[:, :n_signs] @ signs[:, :n_signs].T / norms
            table.append(moments(scores.astype(np.float64)))
    return {method: np.array(table) for method, table in tables.items()}


def predicted(n_bits, n_signs, scoring):
    shape = {"correlation": CORRELATION, "n_features": N_FEATURES, "projection": "hadamard"}
    if n_signs is None:
        return ts.theory.roc(scoring=scoring, n_bits=n_bits, n_pool=N_FEATURES, **shape).d_prime
    return ts.theory.roc(scoring=f"sign_{scoring}", n_bits=n_signs, **shape).d_prime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--bits", type=int, default=512)
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    rows = []
    for (name, equal, n_signs, scoring), table in simulate(options).items():
        draws = [d_prime(table[rng.integers(0, len(table), len(table))]) for _ in range(1000)]
        low, high = np.percentile(draws, [2.5, 97.5])
        theory = predicted(options.bits, n_signs, scoring)
        bits = ts.theory.storage_bits(n_bits=options.bits, n_pool=N_FEATURES) if n_signs is None else n_signs
        rows.append(
            {
                "method": name,
                "equal": equal,
                "scoring": "real query" if scoring == "asymmetric" else "Hamming",
                "bits": float(bits),
                "bytes": Layout("compact", options.bits, N_FEATURES).code_bytes
                if n_signs is None
                else -(-n_signs // 8),
                "d_prime": float(d_prime(table)),
                "interval": [float(low), float(high)],
                "theory": float(theory),
            }
        )
        print(
            f"{name:10s} {equal:28s} {scoring:10s} {bits:7.0f} bits: d' {d_prime(table):.3f} [{low:.3f}, "
            f"{high:.3f}], theory {theory:.3f}"
        )
    if options.json:
        save(options.json, options, {"correlation": CORRELATION, "rows": rows})


if __name__ == "__main__":
    main()
