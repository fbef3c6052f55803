"""The paper's first curve: distance to the reference against correlation with it, measured and exact.

A reference keeps the signs of its 800 largest of 5000 Gaussian projections. Signals at a known correlation
are embedded at the same places; the mean fraction of differing signs is compared with the exact expectation
and with plain sign projections, which need a far larger change to notice anything.
"""

import numpy as np

import topsign as ts

N_BITS, N_POOL, N_FEATURES, N_SEEDS = 800, 5000, 500, 20


def main():
    rng = np.random.default_rng(1)
    correlations = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9])
    measured = []
    for seed in range(N_SEEDS):
        reference, noise = np.linalg.qr(rng.standard_normal((N_FEATURES, 2)))[0].T
        signals = np.outer(correlations, reference) + np.outer(np.sqrt(1 - correlations**2), noise)
        embedding = ts.AdaptiveEmbedding(n_bits=N_BITS, n_pool=N_POOL, projection="gaussian", random_state=seed)
        codes = embedding.fit(reference).transform(signals)
        measured.append(ts.hamming(codes, embedding.reference_code_, n_bits=N_BITS))
    means, errors = np.mean(measured, axis=0), np.std(measured, axis=0, ddof=1) / np.sqrt(N_SEEDS)
    exact = ts.theory.expected_hamming(correlations, n_bits=N_BITS, n_pool=N_POOL)
    plain = ts.theory.sign_expected_hamming(correlations)
    print(f"{N_BITS} of {N_POOL} Gaussian projections, {N_SEEDS} seeds")
    print("correlation   measured (standard error)    exact   sign projections")
    for row in zip(correlations, means, errors, exact, plain, strict=True):
        print("{:11.2f}   {:8.4f} ({:.4f}) {:18.4f} {:18.4f}".format(*row))


if __name__ == "__main__":
    main()
