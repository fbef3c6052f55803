"""Codes as Arrow tables and Parquet files with the recipe in their metadata, and helpers for other search engines.

Each row is an entry: ``id`` (int64 or string); the code in one of the forms of its family; and ``metadata`` (JSON text
or null). The forms are:

- ``codes``, for every family: ``code``, the bytes of the code and of its factor if it has one (binary), which is the
  smallest form;
- ``bits``, for grouped, adaptive and sign codes: ``bits`` (binary), for Hamming distances in SQL;
- ``sparse``, for grouped and adaptive codes: ``locations`` (lists of int32) and ``signs`` (lists of int8);
- ``dense``, for every family: ``vector``, the reconstructed signals (lists of float32).

All forms except ``dense`` are lossless: ``bits`` and ``sparse`` have a column ``factor`` (binary, two bytes) if codes
keep the norms of signals. Needs pyarrow (the extra ``files``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ._arrays import Array, Bytes, Float32
from ._checks import as_signals, check_count, check_ids, check_metadata, import_pyarrow
from ._files import Path, draft_of, publish
from .codes import Codes
from .errors import StorageError
from .families import Recipe
from .index import Entries, Index
from .projections import Projected
from .store.segments import Note

__all__ = ["CodeTable", "bit_texts", "from_arrow", "nearest", "read_parquet", "to_arrow", "write_parquet"]

FORMAT = 1
KEY = b"topsign"
PART_ROWS = 16_384  # entries per row group
PART_BYTES = 2**30  # bytes of codes per row group: Arrow's offsets have 32 bits

NEEDS_PYARROW = "tables are made with pyarrow"
Source = Index | Codes


@dataclass(frozen=True, eq=False)
class CodeTable:
    """Contents of a table of codes."""

    entries: Entries  #: ids, codes and metadata

    @property
    def codes(self) -> Codes:
        """Codes of all entries."""
        return self.entries.codes

    @property
    def recipe(self) -> Recipe:
        """Recipe of the codes."""
        return self.codes.recipe

    def project(self, queries: npt.ArrayLike) -> Float32:
        """Project ``queries`` for comparison with the codes, after centring if the codes were centred."""
        signals = as_signals(queries, n_features=self.recipe.n_features, name="queries")
        return Projected.of(self.recipe.project(signals)[0], self.recipe)


def to_arrow(
    source: Source, *, form: str = "codes", ids: npt.ArrayLike | None = None, metadata: Iterable[Note] | None = None
) -> Any:
    """Return codes as a ``pyarrow.Table``.

    Parameters
    ----------
    source : Index or Codes
        Entries of any family. An index has its own ids and metadata.
    form : str
        One of ``source.recipe.codes_type.forms``: "codes" and "dense" for every family; "bits" for grouped,
        adaptive and sign codes; "sparse" for grouped and adaptive codes.
    ids, metadata
        Ids and metadata for codes that are not in an index; ids are 0, 1, ... by default.
    """
    arrow = import_pyarrow(NEEDS_PYARROW)
    parts, schema = _parts(arrow, source, form, ids, metadata)
    return arrow.Table.from_batches(list(parts), schema)


def write_parquet(
    path: Path,
    source: Source,
    *,
    form: str = "codes",
    ids: npt.ArrayLike | None = None,
    metadata: Iterable[Note] | None = None,
) -> None:
    """Write the table of :func:`to_arrow` to the Parquet file ``path``, which appears when it is complete.

    ``source``, ``form``, ``ids`` and ``metadata`` are as for :func:`to_arrow`.
    """
    arrow = import_pyarrow(NEEDS_PYARROW)
    import pyarrow.parquet as parquet

    parts, schema = _parts(arrow, source, form, ids, metadata)
    with draft_of(os.fspath(path)) as draft:
        with parquet.ParquetWriter(
            draft, schema, compression="zstd", use_dictionary=["metadata"], write_page_checksum=True
        ) as writer:
            for part in parts:
                writer.write_batch(part)
        publish(draft, os.path.abspath(path))


def from_arrow(table: Any) -> CodeTable:
    """Read and validate a ``table`` made by :func:`to_arrow`; its rows may have been filtered or reordered.

    Raises StorageError if the table has other contents or is damaged.
    """
    return _read(table, "Arrow table")


def read_parquet(path: Path) -> CodeTable:
    """Read a file ``path`` written by :func:`write_parquet`; raise StorageError if it is another or damaged."""
    arrow = import_pyarrow(NEEDS_PYARROW)
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table, n_rows = file.read(), file.metadata.num_rows
    except FileNotFoundError:
        raise
    except (arrow.ArrowException, ValueError, OSError) as error:  # a bad checksum is an OSError
        raise StorageError(path, "codes", str(error)) from None
    if len(table) != n_rows:
        raise StorageError(path, "codes", f"damaged: it has {len(table)} rows, and its footer says {n_rows}")
    return _read(table, path)


def _read(table: Any, path: Path) -> CodeTable:
    """Return the codes of a table that was read from ``path``."""
    raw = (table.schema.metadata or {}).get(KEY)
    if raw is None:
        _raise_not_codes(path, "its schema has no topsign metadata")
    try:
        record = json.loads(raw)
        if record["format"] != FORMAT:
            _raise_not_codes(path, f"this version reads format {FORMAT}")
        recipe, form = Recipe.from_json(record["recipe"], path), record["form"]
        if form == "dense":
            _raise_not_codes(path, "it holds vectors; read them with pyarrow")
        wanted = Codes.empty(recipe).to_form(form)  # for the names, types and widths of columns
        names = ("id", *wanted, "metadata")
        missing = [name for name in names if name not in table.column_names]
        if missing:
            _raise_not_codes(path, f"it has no column {', '.join(missing)}")
        values = {name: _matrix(table.column(name), name, like, path) for name, like in wanted.items()}
        codes = recipe.codes_type.from_form(form, values, recipe=recipe)
        ids = table.column("id").to_numpy()
        ids = ids if ids.dtype == object else check_ids(ids)
        notes = [None if text is None else json.loads(text) for text in table.column("metadata").to_pylist()]
    except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
        what = f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
        raise StorageError(path, "codes", what) from None
    return CodeTable(Entries(ids, codes, notes))


def _raise_not_codes(path: Path, why: str) -> NoReturn:
    raise StorageError(path, "codes", f"not a table of codes that topsign wrote: {why}")


def _parts(
    arrow: Any, source: Source, form: str, ids: npt.ArrayLike | None, metadata: Iterable[Note] | None
) -> tuple[Iterator[Any], Any]:
    """Return an iterator over record batches, and their schema."""
    if not isinstance(source, (Index, Codes)):
        raise TypeError(
            f"source must be an Index or Codes, got {type(source).__name__}; topsign.open_index opens an index"
        )
    recipe = source.recipe
    columns = Codes.empty(recipe).to_form(form)
    row_bytes: int = sum(values.dtype.itemsize * values.shape[1] for values in columns.values())
    n_rows = max(1, min(PART_ROWS, PART_BYTES // row_bytes))
    if isinstance(source, Codes):
        entries, texts = _entries_of_codes(source, ids, metadata, n_rows), False
    elif ids is not None or metadata is not None:
        raise ValueError("an index has its own ids and metadata; ids= and metadata= apply only to codes")
    else:
        known, texts = source.ids, source.info["text_ids"]
        entries = (source.get(known[start : start + n_rows]) for start in range(0, len(known), n_rows))
    types = {"id": arrow.string() if texts else arrow.int64()}
    types |= {name: _type(arrow, values) for name, values in columns.items()}
    fields = [arrow.field(name, kind, nullable=False) for name, kind in types.items()]
    text = json.dumps({"format": FORMAT, "form": form, "recipe": recipe.to_json()})
    schema = arrow.schema([*fields, arrow.field("metadata", arrow.string())], metadata={KEY: text})
    return (_batch(arrow, part, form, schema) for part in entries), schema


def _entries_of_codes(
    codes: Codes, ids: npt.ArrayLike | None, metadata: Iterable[Note] | None, n_rows: int
) -> Iterator[Entries]:
    known = check_ids(np.arange(len(codes)) if ids is None else ids)
    if len(known) != len(codes):
        raise ValueError(f"ids must be one per code, got {len(known)} ids for {len(codes)} codes")
    notes: Sequence[Note] = [None] * len(codes) if metadata is None else list(metadata)
    check_metadata(notes, len(codes))
    for start in range(0, len(codes), n_rows):
        rows = slice(start, start + n_rows)
        yield Entries(known[rows], codes[rows], list(notes[rows]))


def _type(arrow: Any, values: Array) -> Any:
    """Return the Arrow type for the rows of a matrix: binary, fixed-size lists, or lists."""
    if values.dtype == np.uint8:
        return arrow.binary()
    kind = arrow.from_numpy_dtype(values.dtype)
    return arrow.list_(kind, values.shape[1]) if values.dtype.kind == "f" else arrow.list_(kind)


def _batch(arrow: Any, entries: Entries, form: str, schema: Any) -> Any:
    """Convert entries to a record batch."""
    codes = entries.codes
    texts = [None if note is None else json.dumps(note, ensure_ascii=False) for note in entries.metadata]
    arrays = {"id": arrow.array(entries.ids), "metadata": arrow.array(texts, arrow.string())}
    arrays |= {name: _rows(arrow, values, schema.field(name).type) for name, values in codes.to_form(form).items()}
    return arrow.record_batch([arrays[field.name] for field in schema], schema=schema)


def _rows(arrow: Any, matrix: Array, kind: Any) -> Any:
    """Convert a matrix to an Arrow array with one value per row."""
    offsets = np.arange(0, matrix.size + 1, matrix.shape[1], dtype=np.int32)
    flat = np.ascontiguousarray(matrix).ravel()
    if arrow.types.is_binary(kind):
        buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(flat)]
        return arrow.Array.from_buffers(kind, len(matrix), buffers)
    if arrow.types.is_fixed_size_list(kind):
        return arrow.FixedSizeListArray.from_arrays(arrow.array(flat), type=kind)
    return arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(flat))


def _matrix(column: Any, name: str, like: Array, path: Path) -> Array:
    """Convert a column of bytes or lists, which must have the width of ``like``, to a matrix."""
    import pyarrow.compute

    width, values = like.shape[1], column.to_pylist() if like.dtype == np.uint8 else None
    if values is not None:
        lengths, unit = {value and len(value) for value in values}, "bytes"
    else:
        lengths, unit = set(pyarrow.compute.list_value_length(column).unique().to_pylist()), "elements"
    if lengths - {width}:
        _raise_not_codes(path, f"the values of column {name} do not have {width} {unit} each")
    if values is not None:
        return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
    return np.asarray(column.combine_chunks().flatten().to_numpy(zero_copy_only=False)).reshape(-1, width)


def nearest(
    ids: npt.ArrayLike, mismatches: npt.ArrayLike, *, k: int, n_entries: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the ``k`` nearest of an engine's results, closest first and ties by ascending id, as an index orders them.

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
    """Return rows of ``n_bits`` ``packed`` bits as strings of zeros and ones."""
    return [(np.unpackbits(row, count=n_bits, bitorder="little") + ord("0")).tobytes().decode() for row in packed]
