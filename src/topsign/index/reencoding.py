"""Copies of an index with other codes, made from the signals that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays import Float32, Int64
from .._checks import check_choice
from ..families import Recipe
from ..store import Path, Snapshot, check_absent, store_for_recipe
from .ids import user_ids
from .sources import keep_feature_names

if TYPE_CHECKING:
    from .index import Index

CHUNK_BYTES = 2**26  # signals that are read and added at a time
CONSTRUCTORS: dict[str, type[Index]] = {}  # index types by family; other families begin with a recipe
SAMPLE_BYTES = 2**28  # signals that a recipe is learned from


def empty_index(
    source: Index,
    plain: type[Index],
    family: str | None,
    *,
    originals: str | None,
    path: Path | None,
    parameters: dict[str, Any],
) -> Index:
    """Return an index without entries for the signals that another keeps, by default of the same family."""
    chosen = check_choice(family or source.family, "family", tuple(Recipe.families))
    if source.originals is None:
        raise ValueError("reencode needs signals that the index keeps; make it with originals=")
    if path is not None:
        check_absent(path)
    make: Any = CONSTRUCTORS.get(chosen)
    if make is not None:
        made: Index = make(n_features=source.n_features, originals=originals, path=path, **parameters)
        return made
    sample = sample_of(source.store.snapshot)
    recipe = Recipe.families[chosen].learn(sample, n_features=source.n_features, **parameters)
    return plain(recipe, store_for_recipe(recipe, path=path, timeout=None, originals=originals))


def copy_entries(
    snapshot: Snapshot,
    target: Index,
    feature_names: tuple[str, ...] | None,
    *,
    n_threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Add the entries of a snapshot, which keeps their signals, to an index without entries."""
    rows = _living(snapshot)
    if not len(rows):
        return
    n_features = target.n_features
    if not target.is_fitted:
        target.fit(sample_of(snapshot))
    if feature_names is not None:
        with target.store.change() as change:
            keep_feature_names(change, feature_names)
    n_rows = max(1, CHUNK_BYTES // (4 * n_features))
    for start in range(0, len(rows), n_rows):
        some = rows[start : start + n_rows]
        ids = user_ids(snapshot, snapshot.gather("ids", some).astype(np.int64))
        target.add(_signals(snapshot, some), ids=ids, metadata=snapshot.notes(some), n_threads=n_threads)
        if progress is not None:
            progress(start + len(some), len(rows))


def sample_of(snapshot: Snapshot) -> Float32:
    """Return a uniform sample of the signals that a snapshot keeps, to learn a recipe from."""
    rows = _living(snapshot)
    n_features = _signals(snapshot, rows[:1]).shape[1]
    n_sample = min(len(rows), max(1, SAMPLE_BYTES // (4 * n_features)))
    return _signals(snapshot, rows[np.sort(np.random.default_rng(0).choice(len(rows), n_sample, replace=False))])


def _living(snapshot: Snapshot) -> Int64:
    return np.flatnonzero(np.concatenate([np.empty(0, bool), *(segment.living for segment in snapshot.segments)]))


def _signals(snapshot: Snapshot, rows: Int64) -> Float32:
    found = snapshot.signals(rows)
    assert found is not None
    return found
