"""What an index holds, for the page: entries, their neighbours, and scores beside the null."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from .. import theory
from .._arrays import Array, Float32
from .._checks import as_signals, check_count
from ..codes import TrellisCodes
from ..index import Index, SignIndex

AnyIndex = Index[Any]

SAMPLED = 20_000  # entries whose scores make the histogram
N_BINS = 40
ROWS_AT_ONCE = 64  # of the projection, when a signal is put together from its code


def summary(index: AnyIndex) -> dict[str, Any]:
    """The index in a few lines."""
    return {
        "description": repr(index),
        "n_entries": len(index),
        "n_features": index.n_features,
        "bytes_per_entry": index.nbytes / max(1, len(index)),
    }


def page_of_entries(index: AnyIndex, *, start: int, count: int) -> dict[str, Any]:
    """Consecutive entries with their metadata."""
    start, count = check_count(start, "start", minimum=0), check_count(count, "count", maximum=200)
    entries = index.get(index.ids[start : start + count])
    rows = [{"id": _plain(id), "metadata": note} for id, note in zip(entries.ids, entries.metadata, strict=True)]
    return {"start": start, "n_entries": len(index), "entries": rows}


def neighbors_of_entry(index: AnyIndex, id: str, *, k: int) -> dict[str, Any]:
    """Neighbours of an entry, the signal being put together from its code."""
    wanted: Any = int(id) if index.ids.dtype.kind in "iu" and id.isdecimal() else id
    return neighbors(index, _signal_of(index, wanted), k=k)


def neighbors_of_upload(index: AnyIndex, content: bytes, *, k: int) -> dict[str, Any]:
    """Neighbours of an uploaded vector: an .npy file, a JSON list, or numbers between commas or spaces."""
    return neighbors(index, _read_vector(content), k=k)


def neighbors(index: AnyIndex, signal: Array, *, k: int) -> dict[str, Any]:
    """The nearest entries of one signal, with p- and E-values, and a histogram of scores beside the null."""
    signal = as_signals(signal, n_features=index.n_features, name="the vector")
    if len(signal) != 1:
        raise ValueError(f"one vector is looked up at a time, got {len(signal)}")
    found = index.search(signal, k=check_count(k, "k", maximum=1000))
    kept = ~np.isnan(found.scores[0])  # there may be fewer entries than asked for
    ids = found.ids[0][kept]
    notes = index.get(ids).metadata if len(ids) else []
    measures = (found.scores, found.distances, found.p_values, found.e_values)
    columns = [[None if np.isnan(value) else value for value in column[0][kept].tolist()] for column in measures]
    rows = [
        {"id": _plain(id), "score": score, "distance": distance, "p_value": p, "e_value": e, "metadata": note}
        for id, score, distance, p, e, note in zip(ids, *columns, notes, strict=True)
    ]
    return {"neighbors": rows, "histogram": _histogram(index, signal)}


def _histogram(index: AnyIndex, signal: Array) -> dict[str, Any]:
    """How many entries score how much, and how many impostors would."""
    ids = index.ids
    if not len(ids):
        return {"edges": [], "counts": [], "expected": []}
    if len(ids) > SAMPLED:
        ids = ids[np.random.default_rng(0).choice(len(ids), SAMPLED, replace=False)]
    scores = index.search(signal, k=len(ids), among=ids).scores[0].astype(np.float64)
    counts, edges = np.histogram(scores, bins=N_BINS)
    expected: list[float] = []
    if index.metric == "correlation" and index.family != "trellis":
        tails = theory.match_pvalue(
            edges,
            n_bits=index.n_bits,
            n_pool=index.n_pool,
            n_features=index.n_features,
            scoring="asymmetric",
            norms=index.norms,
        )
        expected = (len(ids) * -np.diff(np.asarray(tails))).tolist()
    return {"edges": edges.tolist(), "counts": counts.tolist(), "expected": expected}


def _signal_of(index: AnyIndex, id: Any) -> Float32:
    """The direction that a code stands for: the kept rows of the projection, added with their signs."""
    codes: Any = index.get([id]).codes
    if isinstance(codes, TrellisCodes):
        signal: Float32 = codes.decode()[0]
        return signal
    if isinstance(index, SignIndex):
        rows = np.arange(index.n_pool)
        signs = np.unpackbits(codes, axis=1, count=index.n_pool, bitorder="little")[0].astype(np.float32) * 2 - 1
    else:
        rows, signs = codes.locations[0], codes.signs[0].astype(np.float32)
    signal = np.zeros(index.n_features, np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        signal += signs[part] @ index.projection.rows(rows[part])
    return signal


def _read_vector(content: bytes) -> Array:
    try:
        if content.startswith(b"\x93NUMPY"):
            vector: Array = np.load(io.BytesIO(content), allow_pickle=False)
            return vector
        text = content.decode()
        values = json.loads(text) if text.lstrip().startswith("[") else text.replace(",", " ").split()
        return np.asarray(values, np.float64)
    except (ValueError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"the vector must be an .npy file, a JSON list or numbers between commas: {error}") from None


def _plain(id: Any) -> int | str:
    return id if isinstance(id, str) else int(id)
