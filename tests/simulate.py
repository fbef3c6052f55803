"""Simulated pairs of signals, with the mismatches and estimates of their codes."""

import numpy as np

import topsign as ts


def draw_pairs(rng, n_pairs, n_features, correlation):
    """Return references, and copies of them in independent noise (independent signals if the correlation is zero)."""
    references, noise = rng.standard_normal((2, n_pairs, n_features))
    return references, correlation * references + np.sqrt(1 - correlation**2) * noise


def observe(references, signals, *, n_bits, n_pool, pool, norms=True, seed=0):
    """Return mismatches and estimated correlations of each pair; a Gaussian pool is redrawn every few pairs."""
    n_pairs = len(references)
    per_matrix = n_pairs if pool == "hadamard" else 8
    mismatches, scores = [], []
    for start in range(0, n_pairs, per_matrix):
        u, v = references[start : start + per_matrix], signals[start : start + per_matrix]
        encoder = ts.AdaptiveEncoder(
            n_bits=n_bits, n_pool=n_pool, projection=pool, norms=norms, random_state=seed + start
        ).fit(u)
        for i in range(0, len(u), 50):  # only pairs are compared, so keep the blocks small
            codes, projected = encoder.encode(u[i : i + 50]), encoder.project(v[i : i + 50])
            norms_of_queries = np.linalg.norm(v[i : i + 50], axis=1)
            estimates = codes.scores(projected, metric="correlation", query_norms=norms_of_queries)
            mismatches.append(np.diagonal(codes.mismatches(projected)))
            scores.append(np.diagonal(estimates))
    return np.concatenate(mismatches), np.concatenate(scores)
