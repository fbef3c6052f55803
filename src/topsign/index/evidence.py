"""Likelihood ratios of an index's scores, learned from known matches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._arrays import Array, Float64, Int64
from ..families import Recipe
from ..search import make_scans
from ..theory import LikelihoodRatioModel
from .entry_set import EntrySet

KEY = "topsign:evidence"
"""Name of the likelihood-ratio model among the sources of a store."""

BLOCK_PAIRS, MAX_IMPOSTORS = 2**18, 50_000
"""Pairs that are compared at a time, and scores of impostors that the model is learned from."""


def learn_evidence(
    recipe: Recipe, entries: EntrySet, signals: Array, own_ids: Int64, impostors: Array | None, *, n_threads: int | None
) -> LikelihoodRatioModel:
    """Fit the likelihood-ratio model to scores of signals with their own entries and of impostors.

    ``entries`` are the matching entries. By default, each signal is an impostor of the other entries.
    """
    matches, others = [], []
    for block, ids, scores in _all_scores(recipe, entries, signals, n_threads):
        own = ids == own_ids[block][:, np.newaxis]
        matches.append(scores[own])
        others.append(scores[~own])
    if impostors is not None:
        others = [scores.ravel() for _, _, scores in _all_scores(recipe, entries, impostors, n_threads)]
    against = np.concatenate(others)
    if len(against) > MAX_IMPOSTORS:
        against = np.random.default_rng(0).choice(against, MAX_IMPOSTORS, replace=False)
    return LikelihoodRatioModel.fit(np.concatenate(matches), impostors=against)


def _all_scores(
    recipe: Recipe, entries: EntrySet, signals: Array, n_threads: int | None
) -> Iterator[tuple[slice, Int64, Float64]]:
    """Yield blocks of signals with the ids of all entries and their estimated correlations, each (n_signals, n)."""
    n_bytes = recipe.query_nbytes * max(1, BLOCK_PAIRS // max(1, len(entries)))
    for block, scan in make_scans(recipe, signals, scoring="asymmetric", n_threads=n_threads, n_bytes=n_bytes):
        hits = entries.nearest(scan.correlated(), len(entries))
        shape = (block.stop - block.start, -1)
        yield block, hits.ids.reshape(shape), hits.scores.reshape(shape)
