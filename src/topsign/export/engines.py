"""Helpers for codes in other search engines: the order of their results, and bits as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Bytes
from .._checks import check_count


def nearest(
    ids: npt.ArrayLike, mismatches: npt.ArrayLike, *, k: int, n_entries: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the k nearest of an engine's results, closest first and ties by ascending id, as an index orders them.

    Engines break ties arbitrarily, so request more than k results. Raises ValueError if an entry that the engine
    omitted may tie with the k-th.

    Parameters
    ----------
    ids, mismatches : arrays of shape (..., n_requested)
        The engine's results, in any order.
    k : int
    n_entries : int
        Number of entries in the engine.

    Examples
    --------
    >>> nearest([7, 4, 9], [2, 2, 5], k=2, n_entries=1000)
    (array([4, 7]), array([2, 2]))
    """
    k, n_entries = check_count(k, "k"), check_count(n_entries, "n_entries", minimum=0)
    found, counts = np.asarray(ids), np.asarray(mismatches)
    order = np.lexsort((found, counts))[..., :k]
    best = np.take_along_axis(counts, order, axis=-1)
    if 0 < found.shape[-1] < n_entries and (best[..., -1] == counts.max(axis=-1)).any():
        raise ValueError(
            f"of {n_entries} entries the {found.shape[-1]} nearest were asked for, and the {k}-th ties with the last "
            "of them: others may tie with it, too; ask the engine for more"
        )
    return np.take_along_axis(found, order, axis=-1), best


def bit_texts(packed: Bytes, n_bits: int) -> list[str]:
    """Return rows of packed bits as strings of zeros and ones."""
    return [(np.unpackbits(row, count=n_bits, bitorder="little") + ord("0")).tobytes().decode() for row in packed]
