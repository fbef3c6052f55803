"""Compressed fingerprints of equal bytes: scores of queries W I with codes of fingerprints.

Adaptive codes and trellis codes; digests, the k largest pixels with 8 bits each and their places at log2 C(n, k) bits
(Goljan, Fridrich and Filler 2010); binarised fingerprints, signs of a random part of the pixels (Bayram, Sencar and
Memon 2012).
"""

import numpy as np
from scipy.special import gammaln

import topsign as ts

METHODS = ("adaptive", "trellis", "digest", "binarised")


def code_scores(method, n_bytes, fingerprints, queries, seed=0):
    """Scores (n_queries, n_fingerprints) of a method; ValueError if it has no code of so many bytes."""
    n_features = fingerprints.shape[1]
    if method == "adaptive":
        index = ts.AdaptiveIndex(n_features=n_features, n_bytes=n_bytes, norms=False, random_state=seed)
        return index_scores(index, fingerprints, queries)
    if method == "trellis":
        basis = {"basis": "hadamard", "center": False, "random_state": seed}
        return index_scores(ts.TrellisIndex(n_features=n_features, n_bytes=n_bytes, **basis), fingerprints, queries)
    return {"digest": _digest, "binarised": _binarised}[method](n_bytes, fingerprints, queries, seed)


def correlations(fingerprints, queries):
    """Uncompressed correlations, (n_queries, n_fingerprints)."""
    return _normalised(queries) @ _normalised(fingerprints).T


def _normalised(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def index_scores(index, fingerprints, queries):
    """Scores of queries with the codes of fingerprints in an empty index, (n_queries, n_fingerprints)."""
    index.add(fingerprints)
    scores = np.empty((len(queries), len(fingerprints)), np.float32)
    for start in range(0, len(queries), 64):
        found = index.search(queries[start : start + 64], k=len(fingerprints))
        np.put_along_axis(scores[start : start + 64], found.ids, found.scores, axis=1)
    return scores


def _digest(n_bytes, fingerprints, queries, _seed):
    n = fingerprints.shape[1]
    counts = np.arange(1, 8 * n_bytes // 9)
    bits = 8 * counts + (gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)) / np.log(2)
    k = int(counts[bits <= 8 * n_bytes].max())
    scores = np.empty((len(queries), len(fingerprints)))
    for at, one in enumerate(fingerprints):
        chosen = np.argpartition(-np.abs(one), k)[:k]
        scores[:, at] = _normalised(queries[:, chosen]) @ (one[chosen] / np.linalg.norm(one[chosen]))
    return scores


def _binarised(n_bytes, fingerprints, queries, seed):
    chosen = np.random.default_rng(seed).permutation(fingerprints.shape[1])[: 8 * n_bytes]
    signs = np.where(fingerprints[:, chosen] >= 0, np.float32(1), np.float32(-1))
    return _normalised(queries[:, chosen]) @ signs.T / np.sqrt(len(chosen))
