"""Order-independent digest of table rows, because Parquet checksums do not cover a whole file."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from .._arrays import Array, Bytes
from .._files import Path, Record
from ..errors import StorageError

KEY = b"topsign.digest"
MASK = 2**64 - 1


class Digest:
    """Sum of all row hashes modulo 2**64, with the column names and the number of rows."""

    def __init__(self) -> None:
        self.n_rows, self.total = 0, 0
        self.columns: list[str] = []

    def add(self, table: Any) -> None:
        """Add the rows of a table or record batch."""
        self.columns = sorted(table.schema.names)
        content = np.hstack([_column_bytes(table.column(name), len(table)) for name in self.columns])
        self.total = (self.total + int(_row_hashes(content).sum(dtype=np.uint64))) & MASK
        self.n_rows += len(content)

    def to_json(self) -> str:
        """Return the record that is stored in the file."""
        return json.dumps({"columns": self.columns, "rows": self.n_rows, "digest": f"{self.total:016x}"})


def check_digest(table: Any, kept: bytes | None, path: Path) -> None:
    """Raise StorageError unless a table matches the digest stored in its file.

    Files written by other programs, for example with filtered rows, have no digest.
    """
    if kept is None:
        return
    try:
        record: Record = json.loads(kept)
        missing = [name for name in record["columns"] if name not in table.schema.names]
        if missing or record["rows"] != len(table):
            what = f"{len(table)} rows, {len(missing)} columns missing"
            raise StorageError(path, "digest", f"damaged: {record['rows']} rows were written, now {what}")
        found = Digest()
        if len(table):
            found.add(table.select(record["columns"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(path, "digest", f"damaged: {error}") from None
    if record.get("digest") != f"{found.total:016x}":
        problem = (
            f"damaged: digest {record.get('digest')} stored, {found.total:016x} computed; restore the file from a copy"
        )
        raise StorageError(path, "digest", problem)


def _column_bytes(column: Any, n_rows: int) -> Bytes:
    """Return the values of a column as rows of bytes; strings are represented by their CRC-32."""
    chunk = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    kind = str(chunk.type)
    if kind == "string":
        texts = [b"" if text is None else b"+" + text.encode() for text in chunk.to_pylist()]
        values: Array = np.array([zlib.crc32(text) for text in texts], np.uint32)
    elif "binary" in kind:
        values = np.frombuffer(b"".join(chunk.to_pylist()), np.uint8)
    elif "list" in kind:
        values = chunk.flatten().to_numpy(zero_copy_only=False)
    else:
        values = chunk.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values).view(np.uint8).reshape(n_rows, -1)


def _row_hashes(content: Bytes) -> Array:
    """Return one 64-bit multiplicative hash per row."""
    n_rows, width = content.shape
    words = np.zeros((n_rows, -(-width // 8) * 8), np.uint8)
    words[:, :width] = content
    factors = np.arange(1, words.shape[1] // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    hashes = (words.view("<u8") * factors).sum(axis=1, dtype=np.uint64)
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    mixed: Array = hashes ^ (hashes >> np.uint64(32))
    return mixed
