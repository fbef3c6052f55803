"""Readers of signal files, local or on any file system that fsspec supports."""

from __future__ import annotations

from .files import SUFFIXES as SUFFIXES
from .files import FilesRows as FilesRows
from .files import SignalFile as SignalFile
from .files import TableColumns as TableColumns
from .files import list_files as list_files
from .files import open_file as open_file
from .files import open_files as open_files
from .place import Location as Location
from .place import Place as Place
from .tables import TableSignals as TableSignals
from .tables import from_table as from_table
from .tables import notes_of as notes_of
from .tables import plain_values as plain_values
