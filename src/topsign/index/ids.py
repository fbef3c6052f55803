"""Ids of entries: integers or texts, one kind per index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .._arrays import Int64
from .._checks import check_ids, listed, raise_unknown_ids
from ..store import Change, Snapshot

MAX_NAME_BYTES = 512

Ids = npt.NDArray[Any]
"""Ids as users see them: int64, or texts (dtype object)."""


def are_texts(ids: object) -> bool:
    """Return whether these are text ids, or a single text id, judging by the first id."""
    if isinstance(ids, (str, bytes)):
        return True
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iub":
        return False
    if hasattr(ids, "to_list"):  # a column of pandas or Polars
        ids = ids.to_list()
    given: Any = ids if isinstance(ids, (list, tuple)) else ()
    first: Any = next(iter(ids), None) if hasattr(ids, "__iter__") and np.ndim(ids) else None  # type: ignore[arg-type]
    return isinstance(first, (str, bytes)) or any(isinstance(one, str) for one in given)


def check_text_ids(ids: Any, n_entries: int | None, name: str = "ids") -> list[bytes]:
    """Return text ids in UTF-8; if ``n_entries`` is given, require so many distinct ids."""
    given = [ids] if isinstance(ids, str) else list(ids)
    for row, one in enumerate(given):
        if not isinstance(one, str):
            kind = type(one).__name__
            raise TypeError(f"{name} must be all texts or all integers, got {one!r} of type {kind} at row {row}")
    texts = [str(one).encode(errors="surrogatepass") for one in given]
    for row, one in enumerate(texts):
        if given[row] != one.decode(errors="replace"):
            raise ValueError(f"{name} must be Unicode texts, got {given[row]!r} at row {row}")
        if not 1 <= len(one) <= MAX_NAME_BYTES:
            raise ValueError(
                f"{name} must be texts of 1 to {MAX_NAME_BYTES} bytes in UTF-8, got {len(one)} at row {row}"
            )
    if n_entries is not None and len(texts) != n_entries:
        raise ValueError(f"ids must be one per signal, got {len(texts)} ids for {n_entries} signals")
    if n_entries is not None and len(set(texts)) != len(texts):
        twice = [one.decode() for one, count in Counter(texts).items() if count > 1]
        raise ValueError(f"ids must differ, but {listed(np.array(twice, object))} given more than once")
    return texts


def check_new_ids(ids: Any, n_entries: int) -> Int64 | list[bytes] | None:
    """Check ids of new entries, one per entry and all different; None if none are given."""
    if ids is None:
        return None
    if are_texts(ids):
        return check_text_ids(ids, n_entries)
    numbers = check_ids(ids)
    if len(numbers) != n_entries:
        raise ValueError(f"ids must be one per signal, got {len(numbers)} ids for {n_entries} signals")
    unique, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"ids must differ, but {listed(unique[counts > 1])} given more than once")
    return numbers


def check_added_kind(has_text_ids: bool | None, *, given: bool, texts: bool) -> None:
    """Raise TypeError unless new ids are of the kind that the index has; ``has_text_ids`` is None without entries."""
    if has_text_ids and not texts:
        what = "integers" if given else "no ids"
        raise TypeError(f"the ids of this index are texts, got {what}; give one text per signal with ids=")
    if texts and has_text_ids is False:
        raise TypeError("the ids of this index are integers, got texts; one index has one kind of ids")


def check_asked(ids: Any, has_text_ids: bool | None, name: str) -> Int64 | list[bytes]:
    """Check ids that a user asks for; they are of the kind that the index has, but may be unknown."""
    if are_texts(ids):
        if has_text_ids is False:
            raise TypeError(f"the ids of this index are integers, got {name} of texts; index.ids lists them")
        return check_text_ids(ids, None, name)
    given = np.asarray(ids)
    if has_text_ids and given.size:
        what = "None" if ids is None else f"{name} of dtype {given.dtype}"
        raise TypeError(f"the ids of this index are texts, got {what}; index.ids lists them")
    return check_ids(given[None] if given.ndim == 0 and ids is not None else given, name)


def check_found(texts: list[bytes], found: Any, name: str) -> None:
    """Raise ValueError that lists the text ids that were not found."""
    unknown = [one.decode() for one, known in zip(texts, found, strict=True) if not known]
    if unknown:
        raise_unknown_ids(np.array(unknown, object), name)


def ids_for(change: Change, ids: Int64 | list[bytes] | None, n_entries: int, *, replacing: bool) -> tuple[Int64, Int64]:
    """Return the internal ids of new entries, and those of them that exist already."""
    if ids is None:
        return change.free_ids(n_entries), np.empty(0, np.int64)
    if isinstance(ids, list):
        return _ids_of_texts(change, ids, replacing=replacing)
    taken = change.held(ids)
    if taken.size and not replacing:
        raise ValueError(
            f"ids must be new, but {listed(taken)} in the index already; upsert replaces entries, or choose others"
        )
    return ids, taken


def as_texts(texts: Iterable[str]) -> Any:
    """Return texts as an array of dtype object."""
    found = list(texts)
    out = np.empty(len(found), object)
    out[:] = found
    return out


def _ids_of_texts(change: Change, texts: list[bytes], *, replacing: bool) -> tuple[Int64, Int64]:
    rows = change.snapshot.find_text_ids(texts)
    held = rows >= 0
    if held.any() and not replacing:
        taken = np.array([texts[at].decode() for at in np.flatnonzero(held)], object)
        raise ValueError(f"ids must be new, but {listed(taken)} in the index already; upsert replaces entries")
    ids = np.empty(len(texts), np.int64)
    ids[~held] = change.free_ids(int((~held).sum()))
    if held.any():
        ids[held] = change.snapshot.gather("ids", rows[held])
    return ids, np.sort(ids[held])


def rows_of(snapshot: Snapshot, ids: npt.ArrayLike, name: str = "ids") -> Int64:
    """Return the rows of the entries with these ids; raise ValueError for an unknown id."""
    asked = check_asked(ids, snapshot.has_text_ids, name)
    if not isinstance(asked, list):
        return snapshot.rows_with(asked, name)
    rows = snapshot.find_text_ids(asked)
    check_found(asked, rows >= 0, name)
    return rows


def user_ids(snapshot: Snapshot, ids: Int64) -> Ids:
    """Return the user's ids for internal ids; -1 becomes None if ids are texts."""
    if not snapshot.has_text_ids:
        return ids
    out = np.full(ids.shape, None, object)
    known = ids >= 0
    out[known] = snapshot.text_ids(snapshot.locate(ids[known]))
    return out
