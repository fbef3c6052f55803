"""Readers of signal files, local or on any file system that fsspec supports."""

from __future__ import annotations

from .files import (
    SUFFIXES,
    FilesRows,
    SignalFile,
    TableColumns,
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
    "from_table",
    "list_files",
    "notes_of",
    "open_file",
    "open_files",
    "plain_values",
]
