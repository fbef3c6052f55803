"""One shard: consecutive entries as a Parquet file that says what it is and checks itself.

Columns: ``ids`` (int64, ascending), ``codes`` (fixed-size binary), ``norms`` and ``scales`` (float32, where kept) and
``metadata`` (JSON texts, where any entry has some), uncompressed, in one row group. The key ``topsign`` of the schema's
metadata holds a JSON record: parameters of the index, number of entries, and the CRC-32 of every column's bytes;
``topsign.crc32`` is that of the record.
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

from .._checks import raise_other_encoder
from ..errors import StorageError
from ..index import Index
from ..index.storage import Arrays, Metadata, Segment, make_segments
from ..kernels import Layout
from ..recipe import Recipe
from .folders import Folder

MAGIC = "topsign shard"
FORMAT = 1

Record = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """What a manifest says of a shard. Ids of different shards never interleave."""

    file: str
    entries: int
    first_id: int
    last_id: int
    bytes: int


def index_of(parameters: Record) -> Index[Any]:
    """An empty index with the parameters of shards; a process makes it once."""
    return _index_of(json.dumps(parameters))


@lru_cache(maxsize=8)
def _index_of(parameters: str) -> Index[Any]:
    return Index.from_recipe(Recipe.from_json(json.loads(parameters), "shards"))


def write_shard(folder: Folder, file: str, parameters: Record, columns: Arrays) -> Shard:
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
    record = {"magic": MAGIC, "format": FORMAT, "parameters": parameters, "entries": len(columns)}
    text = json.dumps(record | {"crc32": {name: _checksum(array) for name, array in arrays.items()}}).encode()
    told = {"topsign": text, "topsign.crc32": str(zlib.crc32(text))}
    image = io.BytesIO()
    pyarrow.parquet.write_table(
        pyarrow.table(arrays).replace_schema_metadata(told),
        image,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=max(1, len(columns)),
    )
    folder.write(file, image.getbuffer())
    return Shard(file, len(columns), int(columns.ids[0]), int(columns.ids[-1]), image.getbuffer().nbytes)


def read_shard(folder: Folder, shard: Shard, parameters: Record, *, metadata: bool = False) -> Segment:
    """The entries of a shard in memory, everything checked; StorageError names the file and what is wrong."""
    path = folder.path(shard.file)
    size = folder.size(shard.file)
    if size is None:
        raise StorageError(path, "shard", "missing, though the manifest names it; restore the file from a copy")
    if size != shard.bytes:
        told = f"{size:,} bytes, but the manifest says {shard.bytes:,}"
        raise StorageError(path, "shard", f"damaged: {told}; restore the file from a copy")
    found = _parsed(path, folder.read(shard.file), parameters, metadata)
    ids = found.ids
    if (len(ids), int(ids[0]), int(ids[-1])) != (shard.entries, shard.first_id, shard.last_id):
        what = f"{len(ids)} entries with ids {ids[0]} to {ids[-1]}"
        wanted = f"{shard.entries} with {shard.first_id} to {shard.last_id}"
        raise StorageError(path, "ids", f"{what}, but the manifest says {wanted}; restore the file from a copy")
    return found


def finished_shard(folder: Folder, file: str, parameters: Record) -> Shard | None:
    """What an earlier run has written under this name, if it is all there."""
    size = folder.size(file)
    if size is None:
        return None
    try:
        ids = _parsed(folder.path(file), folder.read(file), parameters, metadata=False).ids
    except StorageError:
        return None
    return Shard(file, len(ids), int(ids[0]), int(ids[-1]), size)


def _parsed(path: str, image: bytes, parameters: Record, metadata: bool) -> Segment:
    try:
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(image)).read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise StorageError(path, "shard", f"damaged: {error}; restore the file from a copy") from None
    told = table.schema.metadata or {}
    if b"topsign" not in told or b"topsign.crc32" not in told:
        raise StorageError(path, "schema", "not a shard of topsign, which says what it is in its schema's metadata")
    text, stored = told[b"topsign"], int(told[b"topsign.crc32"])
    if stored != zlib.crc32(text):
        raise StorageError.bad_checksum(path, "schema", stored=stored, computed=zlib.crc32(text))
    record = json.loads(text)
    if (record["magic"], record["format"]) != (MAGIC, FORMAT):
        what = f"{record['magic']!r} of format {record['format']}"
        raise StorageError(path, "schema", f"{what}; this library reads {MAGIC!r} of format {FORMAT}")
    if record["parameters"] != parameters:
        raise_other_encoder(path, record["parameters"], parameters)
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    for name, array in arrays.items():
        computed = _checksum(array)
        if record["crc32"].get(name) != computed:
            raise StorageError.bad_checksum(path, name, stored=record["crc32"].get(name, 0), computed=computed)
    if set(arrays) != set(record["crc32"]) or not record["entries"] == len(table) > 0:
        raise StorageError(path, "schema", f"{len(table)} entries in {sorted(arrays)}, but the record says otherwise")
    return _segment(arrays, parameters, metadata)


def _segment(arrays: dict[str, Any], parameters: Record, metadata: bool) -> Segment:
    ids = arrays["ids"].to_numpy()
    width = Layout(parameters["layout"], parameters["n_bits"], parameters["n_pool"]).code_bytes
    codes = np.frombuffer(_content(arrays["codes"]), np.uint8).reshape(len(ids), width)
    norms, scales = (arrays[name].to_numpy() if name in arrays else None for name in ("norms", "scales"))
    texts = None
    if metadata and "metadata" in arrays:
        texts = [one or b"" for one in arrays["metadata"].to_pylist()]
    (segment,) = make_segments(ids, codes, norms, scales, texts)
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
