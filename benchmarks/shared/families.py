"""Indexes and codes of the four families at a given number of bytes, and all their scores."""

import numpy as np

import topsign as ts
from topsign.encoding import encode
from topsign.kernels import CodeBlocks, Layout, active

FAMILIES = ("sign", "adaptive", "grouped", "trellis")


def adaptive_shape(n_features, n_bytes, n_pool=None):
    """The most projections kept, of a pool of n_features by default, whose code takes at most n_bytes."""
    n_pool = n_pool or n_features
    low, high = 0, n_pool
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if Layout(middle, n_pool).code_bytes <= n_bytes else (low, middle - 1)
    return {"n_bits": max(1, low), "n_pool": n_pool}


def index_of(family, n_features, n_bytes, seed=7, **options):
    """An empty index of codes of n_bytes; trellis codes take two more for their factor."""
    shared = {"n_features": n_features, "random_state": seed} | options
    if family == "adaptive":
        return ts.Index(family="adaptive", **adaptive_shape(n_features, n_bytes), **shared)
    return ts.Index(family=family, n_bytes=n_bytes, **shared)


def untrained(family, n_features, n_bytes, seed=7):
    """A recipe that needs no training: trellis codes have a random basis and no mean."""
    extra = {"basis": "hadamard", "center": False} if family == "trellis" else {}
    return index_of(family, n_features, n_bytes, seed, **extra).recipe


def all_scores(recipe, codes, queries, scoring="asymmetric"):
    """Scores of queries with all codes, (n_queries, n_codes)."""
    search = recipe.prepare(np.ascontiguousarray(queries, np.float32), scoring=scoring)
    return active().scores(search.scorer, CodeBlocks.of(codes), search.rounded)


def scores_of(recipe, entries, queries, **options):
    return all_scores(recipe, encode(recipe, entries), queries, **options)
