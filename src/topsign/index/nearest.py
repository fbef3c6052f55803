"""Execution of a search for nearest entries: exhaustive, rescored by original signals, or of some regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._arrays import Array
from ..families import Recipe
from ..search import ExactSignals, Originals, RegionSearch, Scan, Source, Visited, rank_exactly
from .entry_set import EntrySet
from .results import FoundBlock, Neighbors

MAX_PLACES = 2**26
"""Places of results, most of which may be empty because k exceeds the number of entries."""


def find_nearest(
    scans: Iterator[tuple[slice, Scan]],
    entries: EntrySet,
    queries: Array,
    k: int,
    *,
    originals: ExactSignals | None,
    rescore_factor: int,
    regional: RegionSearch | None,
) -> Neighbors:
    """Return the k nearest entries of each query, by internal ids."""
    if k > len(entries) and k * len(queries) > MAX_PLACES:
        raise ValueError(
            f"k={k} gives {k * len(queries):,} places to {len(queries):,} queries, but only {len(entries):,} entries "
            "are considered, so that most places would be empty; give a k of at most that number"
        )
    blocks, visited = [], []
    for block, scan in scans:
        if regional is not None:
            hits, said = regional.find(scan, queries[block])
            visited.append(said)
        elif originals is None:
            hits = entries.nearest(scan, k)
        else:
            hits = rank_exactly(scan, entries.nearest(scan, k * rescore_factor), originals, queries[block], k)
        blocks.append(FoundBlock(block, hits, scan.light()))
    found = Neighbors.of_blocks(blocks, entries, len(queries), k)
    return found if regional is None else found.with_visited(Visited.joined(visited), regional.recall_of)


def originals_for(
    rescore: Source | bool | None, entries: EntrySet, recipe: Recipe, *, kept: str | None
) -> ExactSignals | None:
    """Return the signals to rescore with: by the ids that the user gave, those that the index keeps, or none."""
    if rescore is None or rescore is False:
        return None
    if rescore is True:
        if kept is None:
            raise ValueError(
                "rescore=True needs signals that the index keeps; make it with originals=, or give the signals"
            )
        return entries.originals()
    if entries.has_text_ids:
        if not callable(rescore):
            raise TypeError("rescore must be a callable that takes ids, since those of this index are texts")
        fetch: Any = rescore
        rescore = lambda ids: fetch(entries.user_ids(ids))  # noqa: E731
    return Originals(rescore, n_features=recipe.n_features, mean=recipe.center)
