"""Contents of an index for the page: entries, their neighbours, and scores with the null distribution."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from .._arrays import Array
from .._checks import as_signals, check_count
from ..index import Index
from ..search import query_blocks
from ..significance import probabilities

SAMPLED = 20_000  # entries sampled for the histogram of scores
N_BINS = 40


def summary(index: Index) -> dict[str, Any]:
    """Return a summary of the index."""
    return {
        "description": repr(index),
        "n_entries": len(index),
        "n_features": index.n_features,
        "bytes_per_entry": index.nbytes / max(1, len(index)),
        "has_regions": index.regions is not None,
    }


def page_of_entries(index: Index, *, start: int, count: int) -> dict[str, Any]:
    """Return consecutive entries with their metadata."""
    start, count = check_count(start, "start", minimum=0), check_count(count, "count", maximum=200)
    entries = index.get(index.ids[start : start + count])
    rows = [{"id": _plain(id), "metadata": note} for id, note in zip(entries.ids, entries.metadata, strict=True)]
    return {"start": start, "n_entries": len(index), "entries": rows}


def neighbors_of_entry(index: Index, id: str, *, k: int, recall: float | None = None) -> dict[str, Any]:
    """Return the neighbours of an entry, whose signal is reconstructed from its code."""
    wanted: Any = id if index.has_text_ids or not (id.isdecimal() and len(id) <= 18) else int(id)
    return neighbors(index, index.get([wanted]).codes.decode(), k=k, recall=recall)


def neighbors_of_upload(index: Index, content: bytes, *, k: int, recall: float | None = None) -> dict[str, Any]:
    """Return the neighbours of an uploaded vector: an .npy file, a JSON list, or numbers between commas or spaces."""
    return neighbors(index, _read_vector(content), k=k, recall=recall)


def neighbors(index: Index, signal: Array, *, k: int, recall: float | None = None) -> dict[str, Any]:
    """Return the nearest entries of one signal, with p- and E-values, and a histogram of scores with the null law.

    ``recall`` searches only the regions that this recall requires.
    """
    signal = as_signals(signal, n_features=index.n_features, name="the vector")
    if len(signal) != 1:
        raise ValueError(f"expected one vector, got {len(signal)}")
    found = index.search(signal, k=check_count(k, "k", maximum=1000), recall=recall)
    kept = ~np.isnan(found.scores[0])  # fewer than k entries
    ids = found.ids[0][kept]
    notes = index.get(ids).metadata if len(ids) else []
    measures = (found.scores, found.distances, found.p_values, found.log10_p_values, found.e_values)
    columns = [[None if np.isnan(value) else value for value in column[0][kept].tolist()] for column in measures]
    names = ("id", "score", "distance", "p_value", "log10_p_value", "e_value", "metadata")
    rows = [dict(zip(names, row, strict=True)) for row in zip(map(_plain, ids), *columns, notes, strict=True)]
    visited = None if recall is None else {"share": float(found.visited[0]), "exhaustive": str(found.exhaustive[0])}
    return {"neighbors": rows, "visited": visited, "histogram": _histogram(index, signal)}


def _histogram(index: Index, signal: Array) -> dict[str, Any]:
    """Return a histogram of the entries' scores, with the expected counts under the null distribution."""
    ids = index.ids
    if not len(ids):
        return {"edges": [], "counts": [], "expected": []}
    if len(ids) > SAMPLED:
        ids = ids[np.random.default_rng(0).choice(len(ids), SAMPLED, replace=False)]
    scores = index.search(signal, k=len(ids), among=ids).scores[0]
    counts, edges = np.histogram(scores, bins=N_BINS)
    nulls = None if index.calibration is None else index.calibration.nulls
    ((_, scan),) = query_blocks(index.recipe, signal, scoring="asymmetric", nulls=nulls)
    expected: list[float] = []
    if index.metric == "correlation" and scan.null is not None:
        expected = (len(ids) * -np.diff(probabilities(scan.null.log10_p_values(edges)))).tolist()
    return {"edges": edges.tolist(), "counts": counts.tolist(), "expected": expected}


def _read_vector(content: bytes) -> Array:
    try:
        if content.startswith(b"\x93NUMPY"):
            vector: Array = np.load(io.BytesIO(content), allow_pickle=False)
            return vector
        text = content.decode()
        values = json.loads(text) if text.lstrip().startswith("[") else text.replace(",", " ").split()
        return np.asarray(values, np.float64)
    except (ValueError, TypeError, EOFError, MemoryError, OverflowError, RecursionError) as error:
        raise ValueError(f"the vector must be an .npy file, a JSON list or numbers between commas: {error}") from None


def _plain(id: Any) -> int | str:
    return id if isinstance(id, str) else int(id)
