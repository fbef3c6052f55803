"""Codes in Arrow tables, Parquet files and other search engines, without loss."""

from __future__ import annotations

from .engines import bit_texts, nearest
from .tables import CodeTable, from_arrow, read_parquet, to_arrow, write_parquet

__all__ = [
    "CodeTable",
    "bit_texts",
    "from_arrow",
    "nearest",
    "read_parquet",
    "to_arrow",
    "write_parquet",
]
