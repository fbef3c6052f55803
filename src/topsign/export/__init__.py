"""Codes in other people's engines and tables, without loss."""

from __future__ import annotations

from .engines import (
    DuckDBBits,
    Engine,
    FaissBinary,
    LanceBinary,
    PgvectorBits,
    PgvectorSparse,
    QdrantSparse,
    ScipySparse,
    USearchBits,
    bit_texts,
    nearest,
)
from .tables import FORMS, CodeTable, from_arrow, read_parquet, to_arrow, write_parquet

__all__ = [
    "FORMS",
    "CodeTable",
    "DuckDBBits",
    "Engine",
    "FaissBinary",
    "LanceBinary",
    "PgvectorBits",
    "PgvectorSparse",
    "QdrantSparse",
    "ScipySparse",
    "USearchBits",
    "bit_texts",
    "from_arrow",
    "nearest",
    "read_parquet",
    "to_arrow",
    "write_parquet",
]
