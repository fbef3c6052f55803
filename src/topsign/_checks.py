"""Argument checks shared across the package."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ._arrays import Array
from .errors import StorageError

MAX_POOL = 2**24
"""Largest pool: a location and its sign fit one 32-bit word, and the set coder divides exactly enough."""

MAX_ID = 2**63 - 1
"""Largest id of an entry."""


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

    One signal of shape (n_features,) becomes a matrix of one row. NumPy arrays and memory maps, nested lists, PyTorch
    tensors, Arrow arrays and anything with ``__array__`` or DLPack are taken. Finiteness is checked later, block by
    block, so that a memory map is read once.
    """
    values = interchanged(signals, name)
    array: Array = values if isinstance(values, np.ndarray) else np.asarray(values)  # a memory map stays one
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


def interchanged(values: Any, name: str = "signals") -> Any:
    """NumPy's view of a PyTorch tensor, an Arrow array of lists or a DLPack array; anything else as it is."""
    if isinstance(values, np.ndarray):
        return values
    try:
        if hasattr(values, "detach"):  # a tensor, perhaps one that gradients flow to
            return np.asarray(values.detach())
        if hasattr(getattr(values, "type", None), "value_type"):
            return _arrow_rows(values, name)
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
    except (TypeError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{name} of type {type(values).__name__} cannot be read as a NumPy array: {error}; "
            "move them to the CPU and convert them to float32 first"
        ) from None
    return values


def _arrow_rows(lists: Any, name: str) -> Array:
    """Rows of an Arrow array of lists of one length, or of its chunks; a single chunk is not copied."""
    rows = []
    for chunk in getattr(lists, "chunks", [lists]):
        flat = chunk.flatten()
        if chunk.null_count or flat.null_count:
            raise ValueError(f"{name} have empty cells (nulls); drop or fill them first")
        lengths = {chunk.type.list_size} if hasattr(chunk.type, "list_size") else set(np.diff(chunk.offsets))
        if len(lengths) > 1:
            raise ValueError(f"{name} must be lists of one length, got lengths {min(lengths)} to {max(lengths)}")
        if len(chunk):
            rows.append(flat.to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
    widths = {part.shape[1] for part in rows}
    if len(widths) > 1:
        raise ValueError(f"{name} must be lists of one length, got lengths {min(widths)} to {max(widths)}")
    return np.empty((0, 0)) if not rows else rows[0] if len(rows) == 1 else np.concatenate(rows)


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
    raise ValueError(f"{name} must be in the index, but {listed(ids)} not; index.ids lists those that are")


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


def check_codes_fit(codes: Any, n_bits: int, n_pool: int) -> None:
    """Codes of the numbers that an engine was made for."""
    if (codes.n_bits, codes.n_pool) != (n_bits, n_pool):
        raise ValueError(
            f"codes of n_bits={codes.n_bits}, n_pool={codes.n_pool} do not fit an engine made for n_bits={n_bits}, "
            f"n_pool={n_pool}; make it with of(codes)"
        )


def check_answer(mismatches: npt.NDArray[np.float64], n_bits: int) -> npt.NDArray[np.int64]:
    """Whole counts in [0, n_bits]: an engine that answered anything else compared something else."""
    wrong = ~((mismatches >= 0) & (mismatches <= n_bits) & (mismatches == np.rint(mismatches)))
    if wrong.any():
        raise ValueError(
            f"an answer stands for {mismatches[wrong].flat[0]:g} mismatches out of {n_bits}, which cannot be; were "
            "entries and queries made by the same adapter, compared by the measure it names, and no more asked for "
            "than there are?"
        )
    return mismatches.astype(np.int64)


def raise_open_tie(k: int, n_asked: int, n_entries: int) -> NoReturn:
    """Entries that an engine left out may tie with the last one wanted."""
    raise ValueError(
        f"of {n_entries} entries the {n_asked} nearest were asked for, and the {k}-th ties with the last of them: "
        "others may tie with it, too; ask the engine for more"
    )


def import_pyarrow(why: str) -> Any:
    """pyarrow, or how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(f"{why}, which is not installed; pip install 'topsign[files]'") from None
    return pyarrow


def raise_not_codes(why: str) -> NoReturn:
    """A table of something else."""
    raise ValueError(f"not a table of codes that topsign wrote: {why}")


def raise_index_knows() -> NoReturn:
    """An index brings its own."""
    raise ValueError("an index has its own ids, metadata and projection; give those with codes alone")


def raise_sign_forms() -> NoReturn:
    """Sign codes have no locations."""
    raise ValueError('form="sparse" goes with adaptive codes; every sign of a sign index is kept')


def listed(ids: Array) -> str:
    """The first few ids, and how many more."""
    named = ", ".join(str(one) for one in ids[:3])
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"{named}{more} {'is' if len(ids) == 1 else 'are'}"


def raise_without_dask(missing: ImportError) -> NoReturn:
    """An optional package is missing."""
    raise ImportError(
        f"topsign.distributed needs dask, distributed, fsspec and pyarrow, but {missing}; "
        "pip install 'topsign[distributed]'"
    ) from None


def check_location(location: object) -> str:
    """A path or a URL."""
    if not isinstance(location, (str, os.PathLike)):
        raise TypeError(
            f"signals and shards are found by a path or URL, got {type(location).__name__}; np.save an array first, or "
            "encode a dask array (dask.array.from_array)"
        )
    return os.fspath(location)


def check_client(client: Any, kind: Any) -> None:
    """A client of a cluster, for use without await."""
    if not isinstance(client, kind) or client.asynchronous:
        raise TypeError(
            f"client must be a distributed.Client that is not asynchronous, got {client!r}; None takes a local cluster"
        )


def check_encoder(encoder: Any, kinds: tuple[Any, ...], metric: str | None) -> None:
    """What shards can be encoded with: as an index would be."""
    if not isinstance(encoder, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"encoder must be one of {names}, got {type(encoder).__name__}")
    if getattr(encoder, "center", False):
        raise ValueError(
            "an index does not remove a mean, got an encoder with center=True; subtract the mean from the signals (and "
            "later from the queries), and encode without it"
        )
    if metric is not None and getattr(encoder, "metric", metric) != metric:
        raise ValueError(f"this index has metric={encoder.metric!r}, got metric={metric!r}; leave metric=None")


def check_index(index: Any, kinds: tuple[type, ...], name: str = "index") -> None:
    """An index of this process."""
    if not isinstance(index, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be an {names}, got {type(index).__name__}; topsign.open_index opens a file")


def check_blocks(array: Any, n_features: int) -> Any:
    """A dask array of signals whose blocks have known sizes."""
    as_signals(np.empty((0,) * array.ndim, array.dtype))
    if array.ndim != 2 or array.shape[1] != n_features:
        raise ValueError(f"signals must be a dask array (n_signals, {n_features}), got shape {array.shape}")
    if any(math.isnan(size) for size in array.chunks[0]):
        raise ValueError("the blocks of this dask array have unknown sizes; call compute_chunk_sizes() first")
    return array


def check_sources(sources: Sequence[tuple[str, int, int]], n_features: int) -> None:
    """Files of signals that fit the encoder, each (name, rows, features)."""
    for name, rows, width in sources:
        if rows and width != n_features:
            raise ValueError(f"{name} has signals of {width} features, the encoder takes {n_features}")
    if not any(rows for _, rows, _ in sources):
        raise ValueError(f"{sources[0][0]} and all other files hold no signals; there is nothing to encode")


def raise_no_sources(url: str) -> NoReturn:
    """Nothing to encode."""
    raise ValueError(f"{url} holds no .npy or .parquet files, or does not exist; there is nothing to encode")


def raise_changed_source(url: str, name: str, before: object, now: object) -> NoReturn:
    """What was encoded is not what is there."""
    raise ValueError(f"{name} is in {url} already and has changed since: {before} then, {now} now; use a new folder")


def raise_failed(url: str, failed: dict[str, Exception], n_shards: int) -> NoReturn:
    """Some shards could not be encoded; the type of error is that of the first."""
    first = failed[min(failed)]
    told = "; ".join(str(failed[file]) for file in sorted(failed)[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    message = (
        f"{len(failed)} of {n_shards} shards could not be encoded: {told}{more}. The others are kept in {url}; "
        "run again once this is mended"
    )
    raise (ValueError if isinstance(first, (ValueError, TypeError)) else RuntimeError)(message) from first


def raise_no_manifest(url: str, version: int | None, n_shards: int, *, started: bool) -> NoReturn:
    """Nothing to open."""
    if version is not None:
        problem = f"there is no version {version}"
    elif n_shards or started:
        problem = f"there is none beside {n_shards} shards: encoding has not ended; run it again to go on"
    else:
        problem = "there is none: nothing was encoded into this folder, or it does not exist"
    raise StorageError(url, "manifest", problem)


def raise_other_encoder(path: str, stored: dict[str, object], wanted: dict[str, object]) -> NoReturn:
    """Shards of different encoders do not go together."""
    differing = [name for name in wanted if stored.get(name) != wanted[name]]
    have = ", ".join(f"{name}={stored.get(name)!r}" for name in differing)
    want = ", ".join(f"{name}={wanted[name]!r}" for name in differing)
    raise StorageError(
        path, "encoder", f"written with {have}, not {want}; shards of different encoders need folders of their own"
    )


def raise_not_empty(path: str) -> NoReturn:
    """Entries are written where there are none yet."""
    raise StorageError(path, "file", "exists already; choose another name, or remove it first")


def raise_closed(url: str) -> NoReturn:
    """The workers have forgotten the shards."""
    raise StorageError(url, "shards", "this index is closed; open it again")


def raise_no_workers(scheduler: str, seconds: float) -> NoReturn:
    """Nobody to do the work."""
    raise TimeoutError(f"the cluster at {scheduler} has no workers, waited {seconds:g} s for one; start some")


def raise_lost_scheduler(scheduler: str, error: Exception | None = None) -> NoReturn:
    """Nobody to ask any more."""
    raise ConnectionError(
        f"the scheduler at {scheduler} was lost; what is finished is kept: connect a client to another, and run again"
    ) from error


def raise_too_small(n_bytes: int, address: str, limit: int) -> NoReturn:
    """Shards must fit into memory."""
    raise MemoryError(
        f"{n_bytes:,} bytes of shards do not fit: {address} would have to hold more than {limit:,}, the part of its "
        "memory that Dask fills before it spills to disk; add workers, or give them more memory"
    )


def raise_all_lost(files: Sequence[str], times: int) -> NoReturn:
    """Something kills every worker that tries."""
    named = f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
    raise RuntimeError(
        f"{times} workers were lost one after another while they loaded or searched {named}; are they out of memory? "
        "Their logs say"
    )
