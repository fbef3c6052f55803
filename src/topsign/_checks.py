"""Argument checks shared across the package."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ._arrays import Array
from ._rows import Rows, SparseRows
from .errors import install

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

MAX_POOL = 2**24
"""Largest pool: a location and its sign fit one 32-bit word, and the arithmetic coder of sets stays exact."""

MAX_ID = 2**63 - 1
"""Largest id of an entry."""


def check_count(value: object, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Check an integer in [minimum, maximum]; reject booleans and floats."""
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
    """Check a finite real number in (0, maximum]."""
    number = _as_real(value, name)
    if not (math.isfinite(number) and 0 < number <= maximum):
        limits = "positive and finite" if maximum == math.inf else f"in (0, {maximum:g}]"
        raise ValueError(f"{name} must be {limits}, got {value!r}")
    return number


def check_real(value: object, name: str, *, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    """Check a finite real number in [minimum, maximum]."""
    number = _as_real(value, name)
    if not (math.isfinite(number) and minimum <= number <= maximum):
        limits = f"in [{minimum:g}, {maximum:g}]" if maximum < math.inf else "finite"
        limits += f" and at least {minimum:g}" if maximum == math.inf and minimum > -math.inf else ""
        raise ValueError(f"{name} must be {limits}, got {value!r}")
    return number


def _as_real(value: object, name: str) -> float:
    try:
        if isinstance(value, (str, bytes)):  # which float would read
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond the largest float
        return math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}") from None


def check_false_alarm(value: object) -> float:
    """Check a probability strictly between 0 and 1."""
    level = _as_real(value, "false_alarm")
    if not 0 < level < 1:
        raise ValueError(f"false_alarm must lie strictly between 0 and 1, got {value!r}")
    return level


def check_flag(value: object, name: str) -> bool:
    """Check a boolean; reject other truthy or falsy values."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    return bool(value)


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Check a string against the permitted choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def check_keywords(given: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Raise TypeError for the first keyword that is not known, with the most similar one that is.

    >>> check_keywords({"nbytes": 24}, ["n_bits", "n_bytes"], "Index()")
    Traceback (most recent call last):
    TypeError: Index() has no parameter nbytes: did you mean n_bytes?
    """
    names = sorted(set(known))
    for name in given:
        if name not in names:
            similar = difflib.get_close_matches(name, names, n=1)
            remedy = f"did you mean {similar[0]}?" if similar else f"it takes {', '.join(names) or 'none'}"
            raise TypeError(f"{where} has no parameter {name}: {remedy}")


def suggests_keywords(decorated: Decorated) -> Decorated:
    """Decorate a function, or the public methods of a class, to raise :func:`check_keywords` for unknown keywords."""
    if isinstance(decorated, type):
        for name, method in list(vars(decorated).items()):
            if name == "__init__" or not name.startswith("_"):
                if isinstance(method, (classmethod, staticmethod)):
                    setattr(decorated, name, type(method)(suggests_keywords(method.__func__)))
                elif inspect.isfunction(method):
                    setattr(decorated, name, suggests_keywords(method))
        return decorated
    parameters = inspect.signature(decorated).parameters.values()
    kinds = {one.kind for one in parameters}
    if inspect.Parameter.KEYWORD_ONLY not in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        return decorated
    known = frozenset(one.name for one in parameters)
    is_method = "." in decorated.__qualname__

    @functools.wraps(decorated)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not known.issuperset(kwargs):
            name = decorated.__name__
            if is_method:
                owner = args[0] if isinstance(args[0], type) else type(args[0])
                name = f"{owner.__name__}.{name}".removesuffix(".__init__")
            check_keywords(kwargs, known - {"self", "cls"}, f"{name}()")
        return decorated(*args, **kwargs)

    return cast(Decorated, checked)


def check_pool(n_bits: object, n_pool: object) -> tuple[int, int]:
    """Check n_bits and n_pool."""
    pool = check_count(n_pool, "n_pool", maximum=MAX_POOL)
    bits = check_count(n_bits, "n_bits")
    if bits > pool:
        raise ValueError(
            f"n_bits must lie in [1, n_pool], got n_bits={bits} with n_pool={pool}; "
            "raise n_pool to adapt more strongly, or lower n_bits to store less"
        )
    return bits, pool


def check_rows(rows: npt.ArrayLike, n_pool: int, name: str = "rows") -> Array:
    """Check rows of a pool; return them as int64."""
    array = _as_integers(rows, name)
    if array.size and (array.min() < 0 or array.max() >= n_pool):
        worst = array.max() if array.max() >= n_pool else array.min()
        raise ValueError(f"{name} must lie in [0, {n_pool}), the rows of the pool, got {worst}")
    return array.astype(np.int64)


def _as_integers(values: object, name: str) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size > 0 and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name} must be a one-dimensional sequence of integers, got shape {array.shape} and dtype {array.dtype}"
        )
    return array


def as_signals(
    signals: object,
    *,
    n_features: int | None = None,
    name: str = "signals",
    feature_names: Sequence[str] | None = None,
) -> Array:
    """Check one signal or a matrix of signals; return a matrix without copying or converting it.

    One signal of shape (n_features,) becomes a matrix with one row. Accepts NumPy arrays and memory maps, nested lists,
    PyTorch tensors, Arrow arrays and any object with ``__array__`` or DLPack. Finiteness is checked later, block by
    block, so that a memory-mapped file is read once. Columns of a table must match ``feature_names`` in order.
    """
    if signals is None:
        raise TypeError(f"{name} must be an array of signals, got None")
    given = None if feature_names is None else names_of_columns(signals)
    if feature_names is not None and given is not None:
        check_feature_names(given, feature_names, name)
    if hasattr(signals, "tocsr") and hasattr(signals, "nnz"):
        signals = SparseRows(signals)
    if isinstance(signals, Rows):
        return _check_shape(cast(Array, signals), n_features, name)  # sliced like an array, and never loaded completely
    values = as_numpy(signals, name)
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(values)  # keep memory maps
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(
            f"{name} must be rows of equal length, got rows of different lengths; pad or cut them first"
        ) from None
    if array.ndim == 1:
        _check_no_column(array, name)
        array = array[np.newaxis]
    return _check_shape(array, n_features, name)


def names_of_columns(table: Any) -> tuple[str, ...] | None:
    """Return the column names of a pandas, Polars or Arrow table, or None for any other object."""
    if isinstance(table, Rows):
        return table.names
    if len(getattr(table, "shape", ())) != 2:
        return None
    for attribute in ("columns", "column_names"):  # pandas and Polars; Arrow, whose ``columns`` are the values
        names = getattr(table, attribute, None)
        if isinstance(names, Iterable) and (named := tuple(names)) and all(isinstance(one, str) for one in named):
            return named
    return None


def check_feature_names(given: Sequence[str], known: Sequence[str], name: str) -> None:
    """Raise ValueError unless the columns of a table match those of earlier tables, in the same order."""
    both = enumerate(zip(given, known, strict=False))
    differing = [f"column {at} is {one!r}, and was {other!r}" for at, (one, other) in both if one != other]
    if not differing and len(given) == len(known):
        return
    what = differing[0] if differing else f"it has {len(given)} columns, and had {len(known)}"
    remedy = "reorder the columns" if sorted(given) == sorted(known) else "give a table of the same columns"
    raise ValueError(f"{name} must have the columns of earlier tables, in the same order: {what}; {remedy} first")


def _check_no_column(array: Array, name: str) -> None:
    """Raise ValueError if an array holds lists, as a table column does."""
    if array.dtype == object and len(array) and isinstance(array[0], (list, tuple, np.ndarray)):
        raise TypeError(
            f"{name} must be a matrix, got a column of {len(array)} {type(array[0]).__name__}s; convert it with "
            "np.stack(column), or pass the table to index.add_table(table, vector_column=...)"
        )


def _check_shape(array: Array, n_features: int | None, name: str) -> Array:
    """Raise unless an array has real values and the expected number of features."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers (float16, float32, float64 or integers), got dtype {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise TypeError(f"{name} must have at most float64 precision, got dtype {array.dtype}; convert them first")
    if len(array.shape) != 2:
        raise ValueError(
            f"{name} must be one signal (n_features,) or a matrix (n_signals, n_features), got shape {array.shape}"
        )
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"{name} must have {n_features} features, got {array.shape[1]} (shape {array.shape}); "
            "every signal must have the length of the projection"
        )
    return array


def as_numpy(values: Any, name: str = "signals") -> Any:
    """Return a PyTorch tensor, an Arrow array of lists or a DLPack array as a NumPy array, other objects unchanged."""
    if isinstance(values, np.ndarray):
        return values
    if str(getattr(values, "dtype", "")) == "object" and getattr(values, "ndim", 0) == 1:  # a pandas column
        _check_no_column(np.asarray(values), name)
    try:
        if hasattr(values, "detach"):  # a tensor, possibly with gradients
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
    """Return the rows of an Arrow array of equally long lists; a single chunk is not copied."""
    rows, lengths = [], set[int]()
    for chunk in getattr(lists, "chunks", [lists]):
        flat = chunk.flatten()
        if chunk.null_count or flat.null_count:
            raise ValueError(f"{name} have empty cells (nulls); drop or fill them first")
        lengths |= {chunk.type.list_size} if hasattr(chunk.type, "list_size") else set(np.diff(chunk.offsets))
        if len(lengths) > 1:
            raise ValueError(f"{name} must be lists of one length, got lengths {min(lengths)} to {max(lengths)}")
        if len(chunk):
            rows.append(flat.to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
    return np.empty((0, 0)) if not rows else rows[0] if len(rows) == 1 else np.concatenate(rows)


def raise_unusable(signals: Array, row: int, name: str = "signals") -> NoReturn:
    """Raise ValueError for a signal whose projections would not be finite."""
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
    """Check ids of entries: a one-dimensional sequence of integers in [0, 2**63)."""
    array = _as_integers(ids, name)
    if array.size and (array.min() < 0 or array.max() > MAX_ID):
        worst = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} must lie in [0, 2**63), got {worst}; -1 stands for no entry in results")
    return array.astype(np.int64)


def raise_unknown_ids(ids: Array, name: str = "ids") -> NoReturn:
    """Raise ValueError for ids that belong to no entry."""
    raise ValueError(
        f"{name} must be in the index, but {format_list(ids)} not; list the ids of the index to see those that are"
    )


def check_metadata(metadata: object, n_signals: int) -> list[bytes] | None:
    """Return each entry's metadata as JSON, empty for None; reject values that JSON does not preserve."""
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
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        same, content = json.loads(text) == entry, text.encode()
    except UnicodeEncodeError as error:
        lost = error.object[error.start]
        raise ValueError(f"metadata at row {row} has {lost!r}, which is not a Unicode character; replace it") from None
    except (TypeError, ValueError) as error:
        remedy = "use numbers, strings, and dates as strings (.isoformat())"
        raise ValueError(f"metadata at row {row} is not JSON: {error}; {remedy}") from None
    if not same:
        raise ValueError(
            f"metadata at row {row} is not preserved by JSON, got {entry!r}; "
            "use strings as keys, and lists instead of tuples"
        )
    return content


def _plain(value: object) -> object:
    """Return a NumPy scalar as a Python object."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def check_part(rows: object, n_rows: int) -> slice:
    """Check a slice of consecutive rows; return it with both ends set, all rows for None."""
    if rows is None:
        return slice(0, n_rows)
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        raise TypeError(f"rows must be a slice without a step, got {rows!r}")
    first, end, _ = rows.indices(n_rows)
    return slice(first, max(first, end))


def check_source(source: Any) -> None:
    """Check the name and JSON record of a source of signals."""
    try:
        name, record = source
        sound = (
            isinstance(name, str)
            and isinstance(record, dict)
            and json.loads(json.dumps(record, allow_nan=False)) == record
        )
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise TypeError(f"source must be a name and a JSON-serialisable dict, got {source!r}")


def import_pyarrow(why: str) -> Any:
    """Import pyarrow, or raise ImportError with the command that installs it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(f"{why}, which is not installed; {install('files')}") from None
    return pyarrow


def format_list(values: Array) -> str:
    """Format the first few ids or labels and the number of others, with "is" or "are"."""
    named = ", ".join(str(one) for one in values[:3])
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return f"{named}{more} {'is' if len(values) == 1 else 'are'}"
