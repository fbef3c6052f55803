"""Readers of signal files, local or on any file system that fsspec supports."""

from __future__ import annotations

from .files import (
    SUFFIXES,
    FilesRows,
    SignalFile,
    TableColumns,
    check_same_columns,
    list_files,
    open_file,
    open_files,
)
from .place import Location, Place
from .tables import TableSignals, from_table, notes_of, plain_values

__all__ = [
    "SUFFIXES",
    "FilesRows",
    "Location",
    "Place",
    "SignalFile",
    "TableColumns",
    "TableSignals",
    "check_same_columns",
    "from_table",
    "list_files",
    "notes_of",
    "open_file",
    "open_files",
    "plain_values",
]
