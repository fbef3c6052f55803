"""Every validation, and every sentence an error can say."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_POOL = 2**24
"""Largest pool: a location and its sign fit one 32-bit word, and the set coder divides exactly enough."""

MAX_ID = 2**63 - 1
"""Largest id of an entry."""


class StorageError(Exception):
    """A file that cannot be trusted or written: says which file, which part of it, and what is wrong."""

    def __init__(self, path: str | os.PathLike[str], section: str, problem: str) -> None:
        super().__init__(f"{os.fspath(path)}, {section}: {problem}")
        self.path, self.section, self.problem = os.fspath(path), section, problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.section, self.problem)


# |projection| is at most |row| |signal|, about sqrt(n_features) |signal|; below this it fits float32.
MAX_PROJECTION = 1e37


def check_count(value: object, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """An integer in [minimum, maximum]; booleans and floats are refused, not rounded."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None
    if count < minimum or (maximum is not None and count > maximum):
        limits = f"at least {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"
        raise ValueError(f"{name} must be {limits}, got {count}")
    return count


def check_positive(value: object, name: str, *, maximum: float = math.inf) -> float:
    """A finite real number in (0, maximum]."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}") from None
    if not (math.isfinite(number) and 0 < number <= maximum):
        limits = "positive and finite" if maximum == math.inf else f"in (0, {maximum:g}]"
        raise ValueError(f"{name} must be {limits}, got {value!r}")
    return number


def check_real(value: object, name: str, *, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    """A finite real number in [minimum, maximum]."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}") from None
    if not (math.isfinite(number) and minimum <= number <= maximum):
        limits = f"in [{minimum:g}, {maximum:g}]" if maximum < math.inf else "finite"
        limits += f" and at least {minimum:g}" if maximum == math.inf and minimum > -math.inf else ""
        raise ValueError(f"{name} must be {limits}, got {value!r}")
    return number


def check_false_alarm(value: object) -> float:
    """A probability strictly between 0 and 1."""
    level = check_real(value, "false_alarm", minimum=0, maximum=1)
    if not 0 < level < 1:
        raise ValueError(f"false_alarm must lie strictly between 0 and 1, got {value!r}")
    return level


def check_flag(value: object, name: str) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    return bool(value)


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_pool(n_bits: object, n_pool: object) -> tuple[int, int]:
    """Bits kept and the pool they are kept from."""
    pool = check_count(n_pool, "n_pool", maximum=MAX_POOL)
    bits = check_count(n_bits, "n_bits")
    if bits > pool:
        raise ValueError(
            f"n_bits must lie in [1, n_pool], got n_bits={bits} with n_pool={pool}; "
            "raise n_pool to adapt more strongly, or lower n_bits to store less"
        )
    return bits, pool


def check_correlation(correlation: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Correlations in [-1, 1]."""
    array = np.asarray(correlation, dtype=np.float64)
    if not ((array >= -1) & (array <= 1)).all():
        raise ValueError(f"correlation must lie in [-1, 1], got {correlation!r}")
    return array


def check_rows(rows: npt.ArrayLike, n_pool: int, name: str = "rows") -> Array:
    """Row numbers of a pool, as int64."""
    array = np.asarray(rows)
    if array.ndim != 1 or (array.size > 0 and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name} must be a one-dimensional sequence of integers, got shape {array.shape} and dtype {array.dtype}"
        )
    if array.size and (array.min() < 0 or array.max() >= n_pool):
        worst = array.max() if array.max() >= n_pool else array.min()
        raise ValueError(f"{name} must lie in [0, {n_pool}), the rows of the pool, got {worst}")
    return array.astype(np.int64)


def as_signals(signals: object, *, n_features: int | None = None, name: str = "signals") -> Array:
    """One signal or a matrix of them as rows, not copied and not yet converted.

    One signal of shape (n_features,) becomes a matrix of one row. Finiteness is checked later, block by
    block, so that a memory map is read once.
    """
    array = signals if isinstance(signals, np.ndarray) else np.asarray(signals)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers (float16, float32, float64 or integers), got dtype {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise TypeError(f"{name} must be float64 at most, got dtype {array.dtype}; convert them first")
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be one signal (n_features,) or a matrix (n_signals, n_features), got shape {array.shape}"
        )
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"{name} must have {n_features} features, got {array.shape[1]} (shape {array.shape}); "
            "every signal must have the length the projection was made for"
        )
    return array


def as_projected(projected: object, *, n_pool: int) -> Array:
    """Projections of queries: (n_queries, n_pool) finite float32."""
    array = as_signals(projected, name="projected")
    if array.shape[1] != n_pool:
        raise ValueError(
            f"projected must have one column per row of the pool, n_pool={n_pool}, got shape {array.shape}; "
            "pass what project() returned, not the signals themselves"
        )
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(
            f"NaN or infinity in projected, first at row {row}, column {column}; "
            "queries must be finite before they are projected"
        )
    return array


def raise_unusable(signals: Array, row: int, name: str = "signals") -> NoReturn:
    """Says what is wrong with a signal whose projections would not be finite."""
    values = np.asarray(signals[row])
    bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
    if bad.size:
        raise ValueError(
            f"NaN or infinity in {name}, first at row {row}, column {bad[0]} ({values[bad[0]]}); "
            "remove or replace such values first"
        )
    raise ValueError(
        f"{name} row {row} is too large for float32 projections, its largest magnitude is "
        f"{np.abs(values.astype(np.float64)).max():.3g}; divide all signals by a constant first"
    )


def raise_zero_signal(row: int, *, centered: bool = False) -> NoReturn:
    """A zero signal has no largest projections."""
    why = "equals the mean that center=True removes" if centered else "is zero"
    raise ValueError(
        f"signals row {row} {why}: all its projections tie, so it cannot be its own reference; drop that row"
    )


def check_ids(ids: object, name: str = "ids") -> npt.NDArray[np.int64]:
    """Ids of entries: a one-dimensional sequence of integers in [0, 2**63)."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size > 0 and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name} must be a one-dimensional sequence of integers, got shape {array.shape} and dtype {array.dtype}"
        )
    if array.size and (array.min() < 0 or array.max() > MAX_ID):
        worst = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} must lie in [0, 2**63), got {worst}; -1 stands for no entry in results")
    return array.astype(np.int64)


def raise_unknown_ids(ids: Array, name: str = "ids") -> NoReturn:
    """Some ids belong to no entry."""
    raise ValueError(f"{name} must be in the index, but {_listed(ids)} not; index.ids lists those that are")


def raise_taken_ids(ids: Array, *, twice: bool) -> NoReturn:
    """Some ids are not free."""
    if twice:
        raise ValueError(f"ids must differ, but {_listed(ids)} given more than once")
    raise ValueError(f"ids must be new, but {_listed(ids)} in the index already; remove them first, or choose others")


def check_metadata(metadata: object, n_signals: int) -> list[bytes] | None:
    """JSON of each entry's dict, nothing for None; what would not come back as it was given is refused."""
    if metadata is None:
        return None
    if isinstance(metadata, (str, bytes, dict)) or not isinstance(metadata, Iterable):
        raise TypeError(f"metadata must be a sequence of one dict (or None) per signal, got {type(metadata).__name__}")
    given = list(metadata)
    if len(given) != n_signals:
        raise ValueError(f"metadata must be one per signal, got {len(given)} for {n_signals} signals")
    return [b"" if one is None else _json(one, row) for row, one in enumerate(given)]


def _json(entry: object, row: int) -> bytes:
    if not isinstance(entry, dict):
        raise TypeError(f"metadata must be dicts or None, got {entry!r} of type {type(entry).__name__} at row {row}")
    try:
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        same = json.loads(text) == entry
    except (TypeError, ValueError) as error:
        raise ValueError(f"metadata at row {row} is not JSON: {error}") from None
    if not same:
        raise ValueError(
            f"metadata at row {row} would not come back from JSON as it is, got {entry!r}; "
            "use strings as keys, and lists instead of tuples"
        )
    return text.encode()


def check_stored(path: str, given: dict[str, object], stored: dict[str, object]) -> None:
    """Parameters asked for must be those of the file."""
    differing = [name for name in stored if name in given and given[name] != stored[name]]
    if differing:
        have = ", ".join(f"{name}={stored[name]!r}" for name in differing)
        want = ", ".join(f"{name}={given[name]!r}" for name in differing)
        raise ValueError(f"{path} was written with {have}, got {want}; topsign.open_index takes what the file has")


def raise_other_projection(path: str, stored: str, made: str) -> NoReturn:
    """The same parameters now make other projections."""
    raise StorageError(
        path,
        "header",
        f"the projection it was written with has the fingerprint {stored}, the one made from its parameters here has "
        f"{made}; use the version of the library that wrote it",
    )


def check_timeout(timeout: object) -> float | None:
    """Seconds to wait for another writer; None waits as long as it takes."""
    return None if timeout is None else check_real(timeout, "timeout", minimum=0)


def raise_damaged(path: str, section: str, stored: int, computed: int) -> NoReturn:
    """A checksum does not fit."""
    raise StorageError(
        path, section, f"damaged: checksum {stored:08x} stored, {computed:08x} computed; restore the file from a copy"
    )


def raise_readonly(path: str | None, why: str) -> NoReturn:
    """Writing to an index that cannot be written."""
    raise StorageError(path or "", "file", f"cannot be written: {why}")


def raise_locked(path: str, timeout: float) -> NoReturn:
    """Another writer is at work."""
    raise TimeoutError(
        f"{path} is being written by another process or thread, waited {timeout:g} s; "
        "try again later, or give a longer timeout (None waits as long as it takes)"
    )


def raise_forked(path: str) -> NoReturn:
    """LMDB's files do not survive a fork."""
    raise StorageError(path, "file", "opened before this process was forked; close() it here and open it again")


def _listed(ids: Array) -> str:
    """The first few ids, and how many more."""
    named = ", ".join(str(one) for one in ids[:3])
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"{named}{more} {'is' if len(ids) == 1 else 'are'}"
