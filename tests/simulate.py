"""Simulated pairs of signals, with the mismatches and estimates of their codes, computed in plain NumPy."""

import numpy as np

import topsign as ts


def draw_pairs(rng, n_pairs, n_features, correlation):
    """Return references, and copies of them in independent noise (independent signals if the correlation is zero)."""
    references, noise = rng.standard_normal((2, n_pairs, n_features))
    return references, correlation * references + np.sqrt(1 - correlation**2) * noise


def kept_signs(projected, n_bits):
    """Return rows with the signs of the n_bits largest projections, and zeros elsewhere."""
    kept = np.argsort(-np.abs(projected), axis=1, kind="stable")[:, :n_bits]
    signs = np.zeros(projected.shape)
    np.put_along_axis(signs, kept, np.where(np.take_along_axis(projected, kept, axis=1) >= 0, 1, -1), axis=1)
    return signs


def grouped_signs(projected):
    """Return rows with the sign of the largest projection of each group of eight, and zeros elsewhere."""
    return kept_signs(projected.reshape(-1, 8), 1).reshape(projected.shape)


def observe(references, signals, *, n_pool, pool, n_bits=None, seed=0):
    """Return mismatches and estimated correlations of each pair; a Gaussian pool is redrawn every few pairs.

    Codes keep n_bits of n_pool, or one of every eight if n_bits is None. The expected sum of kept magnitudes is that of
    a normal signal; it is simulated with a standard error below 0.1%.
    """
    normal = np.random.default_rng(1).standard_normal((4000, n_pool) if n_bits else (500_000, 8))
    kept = kept_signs(normal, n_bits or 1)
    expected = (kept * normal).sum(axis=1).mean() * (1 if n_bits else n_pool // 8)
    n_pairs = len(references)
    per_matrix = n_pairs if pool == "hadamard" else 8
    mismatches, scores = [], []
    for start in range(0, n_pairs, per_matrix):
        u, v = references[start : start + per_matrix], signals[start : start + per_matrix]
        made = ts.make_projection(pool, n_features=u.shape[1], n_pool=n_pool, random_state=seed + start)
        y, z = np.asarray(made.apply(u), np.float64), np.asarray(made.apply(v), np.float64)
        signs = kept_signs(y, n_bits) if n_bits else grouped_signs(y)
        mismatches.append((signs * np.where(z >= 0, 1, -1) < 0).sum(axis=1))
        scores.append((signs * z).sum(axis=1) / (expected * np.linalg.norm(v, axis=1)))
    return np.concatenate(mismatches), np.concatenate(scores)
