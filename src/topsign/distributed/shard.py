"""Shards: consecutive entries in a Parquet file with the recipe of its codes and checksums of its columns.

Columns: ``ids`` (int64, ascending), ``codes`` (fixed-size binary), ``norms`` and ``scales`` (float32, where kept) and
``metadata`` (JSON texts, where any entry has some) and ``names`` (ids of the user's own), uncompressed, in one row
group. The key ``topsign`` of the schema's metadata holds a JSON record: recipe of the codes, number of entries, and
the CRC-32 of every column's bytes; ``topsign.crc32`` is that of the record.
"""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from .._files import Record
from ..codes import check_content
from ..errors import StorageError
from ..index.storage import Metadata, Segment, make_segments
from ..index.storage.segments import Columns
from ..recipe import Recipe
from .folder import Folder

MAGIC = "topsign shard"
FORMAT = 1


@dataclass(frozen=True)
class Shard:
    """What a manifest says of a shard."""

    file: str
    n_entries: int
    first_id: int
    last_id: int
    n_bytes: int

    def to_json(self) -> Record:
        """A record of plain values."""
        return {
            "file": self.file,
            "entries": self.n_entries,
            "first_id": self.first_id,
            "last_id": self.last_id,
            "bytes": self.n_bytes,
        }

    @classmethod
    def from_json(cls, record: Record) -> Shard:
        """What :meth:`to_json` made."""
        return cls(record["file"], record["entries"], record["first_id"], record["last_id"], record["bytes"])


@dataclass(frozen=True)
class SentRecipe:
    """A recipe on its way to workers, as JSON: short, and made again once in each process."""

    text: str

    @classmethod
    def of(cls, recipe: Recipe) -> SentRecipe:
        """The recipe as text."""
        return cls(json.dumps(recipe.to_json()))

    def recipe(self) -> Recipe:
        """The recipe, on a worker."""
        return _made_once(self.text)


@lru_cache(maxsize=8)
def _made_once(text: str) -> Recipe:
    return Recipe.from_json(json.loads(text), "recipe")


def check_same_recipe(path: str, stored: Recipe, wanted: Recipe) -> None:
    """Raises StorageError where shards were made with another recipe."""
    have, want = stored.difference(wanted)
    if have:
        problem = f"written with {have}, not {want}; shards of different encoders need folders of their own"
        raise StorageError(path, "encoder", problem)


def write_shard(folder: Folder, file: str, recipe: Recipe, columns: Columns) -> Shard:
    """Writes entries, in ascending order of id; the file appears when it is complete."""
    arrays = {"ids": pyarrow.array(columns.ids)}
    arrays["codes"] = pyarrow.FixedSizeBinaryArray.from_buffers(
        pyarrow.binary(columns.codes.shape[1]), len(columns), [None, pyarrow.py_buffer(columns.codes)]
    )
    if columns.norms is not None and columns.scales is not None:
        arrays |= {"norms": pyarrow.array(columns.norms), "scales": pyarrow.array(columns.scales)}
    if columns.metadata is not None:
        texts = columns.metadata.texts(range(len(columns)))
        arrays["metadata"] = pyarrow.array([text or None for text in texts], pyarrow.large_binary())
    if columns.names is not None:
        arrays["names"] = pyarrow.array(columns.names.names(range(len(columns))), pyarrow.large_binary())
    record = {"magic": MAGIC, "format": FORMAT, "parameters": recipe.to_json(), "entries": len(columns)}
    text = json.dumps(record | {"crc32": {name: _checksum(array) for name, array in arrays.items()}}).encode()
    notes = {"topsign": text, "topsign.crc32": str(zlib.crc32(text))}
    image = io.BytesIO()
    pyarrow.parquet.write_table(
        pyarrow.table(arrays).replace_schema_metadata(notes),
        image,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=max(1, len(columns)),
    )
    folder.write(file, image.getbuffer())
    return Shard(file, len(columns), int(columns.ids[0]), int(columns.ids[-1]), image.getbuffer().nbytes)


def read_shard(folder: Folder, shard: Shard, recipe: Recipe) -> Segment:
    """The entries of a shard in memory, everything checked; StorageError names the file and what is wrong."""
    path = folder.path(shard.file)
    size = folder.size(shard.file)
    if size is None:
        problem = "missing, though the manifest names it; restore the file from a copy, or refresh an index of an older"
        raise StorageError(path, "shard", f"{problem} version, which compact may have deleted")
    if size != shard.n_bytes:
        problem = f"damaged: {size:,} bytes, but the manifest says {shard.n_bytes:,}; restore the file from a copy"
        raise StorageError(path, "shard", problem)
    found = _parsed(path, folder.read(shard.file), recipe)
    ids = found.ids
    if (len(ids), int(ids[0]), int(ids[-1])) != (shard.n_entries, shard.first_id, shard.last_id):
        what = f"{len(ids)} entries with ids {ids[0]} to {ids[-1]}"
        wanted = f"{shard.n_entries} with {shard.first_id} to {shard.last_id}"
        raise StorageError(path, "ids", f"{what}, but the manifest says {wanted}; restore the file from a copy")
    return found


def finished_shard(folder: Folder, file: str, recipe: Recipe) -> tuple[Shard, bool] | None:
    """What an earlier run has written under this name, if it is all there, and whether its ids are texts."""
    size = folder.size(file)
    if size is None:
        return None
    try:
        found = _parsed(folder.path(file), folder.read(file), recipe)
    except StorageError:
        return None
    shard = Shard(file, len(found), int(found.ids[0]), int(found.ids[-1]), size)
    return shard, found.columns.names is not None


def read_column(folder: Folder, file: str, name: str) -> Any:
    """One column of a shard, read alone and not checked."""
    with folder.fs.open(f"{folder.root}/{file}", "rb") as opened:
        return pyarrow.parquet.read_table(opened, columns=[name]).column(name)


def _parsed(path: str, image: bytes, recipe: Recipe) -> Segment:
    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(image)).read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise StorageError(path, "shard", f"damaged: {error}; restore the file from a copy") from None
    try:
        return _checked(path, table, recipe)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StorageError(path, "shard", f"damaged: {error}; restore the file from a copy") from None


def _checked(path: str, table: Any, recipe: Recipe) -> Segment:
    """The entries of a table whose record, checksums and contents are right."""
    notes = table.schema.metadata or {}
    if b"topsign" not in notes or b"topsign.crc32" not in notes:
        raise StorageError(path, "schema", "not a shard of topsign, which says what it is in its schema's metadata")
    text, stored = notes[b"topsign"], int(notes[b"topsign.crc32"])
    if stored != zlib.crc32(text):
        raise StorageError.bad_checksum(path, "schema", stored=stored, computed=zlib.crc32(text))
    record = json.loads(text)
    if (record["magic"], record["format"]) != (MAGIC, FORMAT):
        what = f"{record['magic']!r} of format {record['format']}"
        raise StorageError(path, "schema", f"{what}; this library reads {MAGIC!r} of format {FORMAT}")
    if record["parameters"] != recipe.to_json():
        check_same_recipe(path, Recipe.from_json(record["parameters"], path), recipe)
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    for name, array in arrays.items():
        computed = _checksum(array)
        if record["crc32"].get(name) != computed:
            raise StorageError.bad_checksum(path, name, stored=record["crc32"].get(name, 0), computed=computed)
    if set(arrays) != set(record["crc32"]) or not record["entries"] == len(table) > 0:
        raise StorageError(path, "schema", f"{len(table)} entries in {sorted(arrays)}, but the record says otherwise")
    return _segment(arrays, recipe)


def _segment(arrays: dict[str, Any], recipe: Recipe) -> Segment:
    ids = arrays["ids"].to_numpy()
    codes = np.frombuffer(_content(arrays["codes"]), np.uint8).reshape(len(ids), recipe.layout.code_bytes)
    check_content(recipe.layout, codes, name="the column codes")
    norms, scales = (arrays[name].to_numpy() if recipe.beside else None for name in ("norms", "scales"))
    for values in (norms, scales):
        if values is not None and not (values.dtype == np.float32 and np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("norms and scales must be positive and finite")
    if ids.dtype != np.int64 or ids[0] < 0 or (np.diff(ids) <= 0).any():
        raise ValueError("ids must be ascending, and at least 0")
    texts = None
    if "metadata" in arrays:
        texts = [one or b"" for one in arrays["metadata"].to_pylist()]
    names = arrays["names"].to_pylist() if "names" in arrays else None
    (segment,) = make_segments(ids, codes, norms, scales, texts, names)
    return segment


def _checksum(array: Any) -> int:
    if pyarrow.types.is_large_binary(array.type):
        texts = Metadata.of(one or b"" for one in array.to_pylist())
        return zlib.crc32(texts.to_bytes().tobytes())
    return zlib.crc32(_content(array))


def _content(array: Any) -> Any:
    """The bytes of a column of fixed width."""
    width = array.type.bit_width // 8
    return array.buffers()[1][array.offset * width : (array.offset + len(array)) * width]
