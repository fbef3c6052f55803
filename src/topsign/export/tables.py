"""Codes as Arrow tables and Parquet files, with the recipe that made them in the schema's metadata.

One row per entry: ``id`` (int64, or text); the code in one of three forms; ``norm`` and ``scale`` (float32) where they
are kept; ``metadata`` (JSON text, null where nothing was noted). The forms:

- ``codes``: ``code``, the packed bytes of the layout (binary): the smallest;
- ``bits``: ``bits``, one-hot bits (binary), for Hamming distances in SQL;
- ``sparse``: ``locations`` (lists of int32) and ``signs`` (lists of int8), for anything else;
- ``dense``, of trellis codes alone: ``vector``, the signals that they stand for (lists of float32).

The first three come back as they were; trellis codes have ``codes`` and ``dense``. Needs pyarrow
(the extra ``files``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .._arrays import Array, Bytes, Float32
from .._checks import as_signals, check_choice, check_ids, check_index, check_metadata, import_pyarrow
from .._files import Path, Record, draft_of, publish
from ..codes import AdaptiveCodes, TrellisCodes
from ..encoding import project
from ..errors import StorageError
from ..index import AdaptiveIndex, Entries, Index
from ..index.results import Note
from ..kernels import Layout
from ..projections import Projected, Projection
from ..recipe import Recipe
from .digest import KEY as DIGEST_KEY
from .digest import Digest, check_digest

FORMS = ("codes", "bits", "sparse")  # trellis codes have "codes" and "dense"
FORMAT = 1
KEY = b"topsign"
PART_ROWS = 16_384  # entries of a row group, and held at a time
PART_BYTES = 2**30  # of their codes in any form: Arrow's offsets are 32 bits

NEEDS_PYARROW = "tables are made with pyarrow"
Source = Index[Any] | AdaptiveCodes


@dataclass(frozen=True, eq=False)
class CodeTable:
    """What a table of codes holds."""

    entries: Entries[Any]  # ids, codes (AdaptiveCodes, TrellisCodes, or packed signs of a sign index), metadata
    recipe: Recipe | None  # what the codes were made with, None where they were written without a projection

    def projection(self) -> Projection:
        """The projection that queries need; ValueError where the table does not say which."""
        if self.recipe is None:
            raise ValueError("this table does not say which projection its codes were made with; write it with one")
        return self.recipe.projection

    def project(self, queries: npt.ArrayLike) -> Float32:
        """Real projections of queries to compare with the codes, less the mean where they were centred."""
        self.projection()
        assert self.recipe is not None
        signals = as_signals(queries, n_features=self.recipe.n_features, name="queries")
        return Projected.of(project(self.recipe, signals)[0], self.recipe)


def to_arrow(
    source: Source,
    *,
    form: str = "codes",
    ids: npt.ArrayLike | None = None,
    metadata: Iterable[Note] | None = None,
    projection: Projection | None = None,
) -> Any:
    """Codes as a ``pyarrow.Table``.

    Parameters
    ----------
    source : Index or AdaptiveCodes
        An index brings its ids, metadata and projection with it. A sign index has its packed signs as ``code``, its
        norms stay behind.
    form : "codes", "bits", "sparse" or "dense"
    ids, metadata, projection
        Of codes alone: ids are 0, 1, ... when not given, and a projection (``encoder.projection_``) lets a reader
        compare queries. The mean that an encoder with ``center=True`` removes is not kept.
    """
    arrow = import_pyarrow(NEEDS_PYARROW)
    parts, schema = _parts(arrow, source, form, ids, metadata, projection)
    return arrow.Table.from_batches(list(parts), schema)


def write_parquet(
    path: Path,
    source: Source,
    *,
    form: str = "codes",
    ids: npt.ArrayLike | None = None,
    metadata: Iterable[Note] | None = None,
    projection: Projection | None = None,
) -> None:
    """Writes what :func:`to_arrow` makes into a Parquet file, a part at a time; it appears when it is complete."""
    arrow = import_pyarrow(NEEDS_PYARROW)
    import pyarrow.parquet as parquet

    parts, schema = _parts(arrow, source, form, ids, metadata, projection)
    with draft_of(os.fspath(path)) as draft:
        with parquet.ParquetWriter(
            draft, schema, compression="zstd", use_dictionary=["metadata"], write_page_checksum=True
        ) as writer:
            digest = Digest()
            for part in parts:
                writer.write_batch(part)
                digest.add(part)
            if hasattr(writer, "add_key_value_metadata"):  # of pyarrow since 17
                writer.add_key_value_metadata({DIGEST_KEY: digest.to_json()})
        publish(draft, os.path.abspath(path))


def from_arrow(table: Any) -> CodeTable:
    """What :func:`to_arrow` made, checked; rows may have been filtered or reordered since.

    Raises StorageError where the table is of something else, or damaged.
    """
    return _read(table, "Arrow table")


def read_parquet(path: Path) -> CodeTable:
    """What :func:`write_parquet` wrote; StorageError where a file holds anything else."""
    arrow = import_pyarrow(NEEDS_PYARROW)
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table, kept = file.read(), (file.metadata.metadata or {}).get(DIGEST_KEY)
    except FileNotFoundError:
        raise
    except (arrow.ArrowException, ValueError, OSError) as error:  # a bad checksum is an OSError
        raise StorageError(path, "codes", str(error)) from None
    check_digest(table, kept, path)
    return _read(table, path)


def _read(table: Any, path: Path) -> CodeTable:
    """The codes of a table that was read from ``path``."""
    raw = (table.schema.metadata or {}).get(KEY)
    if raw is None:
        _raise_not_codes(path, "its schema has no metadata of topsign")
    try:
        record = json.loads(raw)
        if record["format"] != FORMAT:
            _raise_not_codes(path, f"this version reads format {FORMAT}")
        form = record["form"]
        if form == "dense":
            _raise_not_codes(path, "it holds vectors, which pyarrow reads")
        missing = [name for name in ("id", *_columns(form), "metadata") if name not in table.column_names]
        if missing:
            _raise_not_codes(path, f"it has no column {', '.join(missing)}")
        recipe = None
        if "projection" in record:  # tables of codes alone name neither metric nor norms
            recipe = Recipe.from_json({"metric": "correlation", "norms": True} | record, path)
        ids = table.column("id").to_numpy()
        ids = ids if ids.dtype == object else check_ids(ids)
        notes = [None if text is None else json.loads(text) for text in table.column("metadata").to_pylist()]
        codes: Any
        if recipe is not None and recipe.family == "trellis":
            codes = TrellisCodes(_matrix_of_bytes(table, "code", recipe.layout.code_bytes, path), recipe=recipe)
        else:
            codes = _signs_of(table, record, path) if record["kind"] == "sign" else _codes_of(table, form, record, path)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(path, "codes", str(error)) from None
    if isinstance(codes, AdaptiveCodes) and recipe is not None:
        codes.space = recipe.space
    return CodeTable(Entries(ids, codes, notes), recipe)


def _raise_not_codes(path: Path, why: str) -> NoReturn:
    raise StorageError(path, "codes", f"not a table of codes that topsign wrote: {why}")


def _parts(
    arrow: Any,
    source: Source,
    form: str,
    ids: npt.ArrayLike | None,
    metadata: Iterable[Note] | None,
    projection: Projection | None,
) -> tuple[Iterator[Any], Any]:
    """Record batches, made as they are asked for, and their schema."""
    check_index(source, (Index, AdaptiveCodes), "source")
    check_choice(form, "form", (*FORMS, "dense"))
    entries: Iterator[Entries[Any]]
    if isinstance(source, AdaptiveCodes):
        record = _record_of_codes(source, projection)
        entries = _entries_of_codes(source, ids, metadata, _part_rows(source.n_bits, source.n_pool))
        norms = source.norms is not None
    else:
        if ids is not None or metadata is not None or projection is not None:
            raise ValueError("an index has its own ids, metadata and projection; give those with codes alone")
        record, norms = source.recipe.to_json(), source.norms and isinstance(source, AdaptiveIndex)
        n_values = 8 * source.n_features if form == "dense" else source.n_pool
        entries = _entries_of_index(source, _part_rows(source.n_bits, n_values))
    _check_form(form, record["kind"])
    form = "codes" if record["kind"] == "sign" else form  # packed signs are both codes and bits
    texts = not isinstance(source, AdaptiveCodes) and bool(source.store.snapshot.has_names)
    types = {"id": arrow.string() if texts else arrow.int64(), "code": arrow.binary(), "bits": arrow.binary()}
    types |= {"locations": arrow.list_(arrow.int32()), "signs": arrow.list_(arrow.int8())}
    types |= {"norm": arrow.float32(), "scale": arrow.float32()}
    types["vector"] = arrow.list_(arrow.float32(), record.get("n_features", 0))
    names = ["id", *_columns(form), *(["norm", "scale"] if norms else [])]
    fields = [arrow.field(name, types[name], nullable=False) for name in names]
    text = json.dumps({"format": FORMAT, "form": form} | record)
    schema = arrow.schema([*fields, arrow.field("metadata", arrow.string())], metadata={KEY: text})
    return (_batch(arrow, part, schema) for part in entries), schema


def _check_form(form: str, family: str) -> None:
    if family == "sign" and form == "sparse":
        raise ValueError('form="sparse" goes with adaptive codes; every sign of a sign index is kept')
    if (form == "dense") != (family == "trellis") and form != "codes":
        raise ValueError(f'trellis codes have the forms "codes" and "dense", other codes all but "dense", got {form!r}')


def _part_rows(n_bits: int, n_pool: int) -> int:
    """Entries of a part: fewer where their codes are long, as one-hot bits or as lists of locations."""
    return max(1, min(PART_ROWS, PART_BYTES // max(4 * n_bits, n_pool // 4 + 1)))


def _record_of_codes(codes: AdaptiveCodes, projection: Projection | None) -> Record:
    """What is known of codes alone: a recipe without metric and norms, or less where there is no projection."""
    shape: dict[str, Any] = {"n_bits": codes.n_bits, "n_pool": codes.n_pool, "layout": codes.layout}
    if projection is None:
        return {"kind": "adaptive"} | shape
    recipe = Recipe.make("adaptive", n_features=projection.n_features, projection=projection, **shape)
    return {name: value for name, value in recipe.to_json().items() if name not in ("metric", "norms")}


def _entries_of_codes(
    codes: AdaptiveCodes, ids: npt.ArrayLike | None, metadata: Iterable[Note] | None, n_rows: int
) -> Iterator[Entries[AdaptiveCodes]]:
    known = check_ids(np.arange(len(codes)) if ids is None else ids)
    if len(known) != len(codes):
        raise ValueError(f"ids must be one per code, got {len(known)} ids for {len(codes)} codes")
    notes: Sequence[Note] = [None] * len(codes) if metadata is None else list(metadata)
    check_metadata(notes, len(codes))
    for start in range(0, len(codes), n_rows):
        rows = slice(start, start + n_rows)
        yield Entries(known[rows], codes[rows], list(notes[rows]))


def _entries_of_index(index: Index[Any], n_rows: int) -> Iterator[Entries[Any]]:
    ids = index.ids
    for start in range(0, len(ids), n_rows):
        yield index.get(ids[start : start + n_rows])


def _columns(form: str) -> list[str]:
    return {"codes": ["code"], "bits": ["bits"], "sparse": ["locations", "signs"], "dense": ["vector"]}[form]


def _batch(arrow: Any, entries: Entries[Any], schema: Any) -> Any:
    """Entries as a record batch."""
    codes = entries.codes
    makers = {
        "id": lambda: arrow.array(entries.ids),
        "code": lambda: _rows_of_bytes(arrow, codes if isinstance(codes, np.ndarray) else codes.data),
        "vector": lambda: arrow.FixedSizeListArray.from_arrays(
            codes.decode().ravel(), type=schema.field("vector").type
        ),
        "bits": lambda: _rows_of_bytes(arrow, codes.to_bits()),
        "locations": lambda: _lists(arrow, codes.locations),
        "signs": lambda: _lists(arrow, codes.signs),
        "norm": lambda: arrow.array(codes.norms),
        "scale": lambda: arrow.array(codes.scales),
        "metadata": lambda: arrow.array(
            [None if note is None else json.dumps(note, ensure_ascii=False) for note in entries.metadata],
            arrow.string(),
        ),
    }
    return arrow.record_batch([makers[field.name]() for field in schema], schema=schema)


def _rows_of_bytes(arrow: Any, matrix: Bytes) -> Any:
    """Each row as one binary value."""
    offsets = arrow.py_buffer(np.arange(0, matrix.size + 1, matrix.shape[1], dtype=np.int32))
    values = arrow.py_buffer(np.ascontiguousarray(matrix))
    return arrow.Array.from_buffers(arrow.binary(), len(matrix), [None, offsets, values])


def _lists(arrow: Any, matrix: Array) -> Any:
    """Each row as one list."""
    offsets = np.arange(0, matrix.size + 1, matrix.shape[1], dtype=np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(matrix.ravel()))


def _codes_of(table: Any, form: str, record: Record, path: Path) -> AdaptiveCodes:
    n_bits, shape = record["n_bits"], {name: record[name] for name in ("n_pool", "layout")}
    reals = {}
    if "norm" in table.column_names:
        reals = {"norms": table.column("norm").to_numpy(), "scales": table.column("scale").to_numpy()}
    if form == "codes":
        width = Layout(record["layout"], n_bits, record["n_pool"]).code_bytes
        return AdaptiveCodes(_matrix_of_bytes(table, "code", width, path), n_bits=n_bits, **shape, **reals)
    if form == "bits":
        bits = _matrix_of_bytes(table, "bits", -(-2 * record["n_pool"] // 8), path)
        return AdaptiveCodes.from_bits(bits, n_bits=n_bits, **shape, **reals)
    locations, signs = (_matrix_of_lists(table, name, n_bits, path) for name in ("locations", "signs"))
    return AdaptiveCodes.from_locations(locations, signs, **shape, **reals)


def _signs_of(table: Any, record: Record, path: Path) -> Bytes:
    return _matrix_of_bytes(table, "code", -(-record["n_pool"] // 8), path)


def _matrix_of_bytes(table: Any, name: str, width: int, path: Path) -> Bytes:
    """A column of binary values of one length, as rows of bytes."""
    values = table.column(name).to_pylist()
    if any(value is None or len(value) != width for value in values):
        _raise_not_codes(path, f"the values of column {name} do not have {width} bytes each")
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)


def _matrix_of_lists(table: Any, name: str, width: int, path: Path) -> Array:
    column = table.column(name)
    import pyarrow.compute

    lengths = set(pyarrow.compute.list_value_length(column).unique().to_pylist())
    values: Array = np.asarray(column.combine_chunks().flatten().to_numpy(zero_copy_only=False))
    if lengths - {width}:
        _raise_not_codes(path, f"the lists of column {name} do not have {width} elements each")
    return values.reshape(-1, width)
