"""Signals in files: one set of readers, on this machine or wherever fsspec reaches."""

from __future__ import annotations

from .files import SUFFIXES, SignalFile, list_files, open_file, open_files
from .place import Location, Place

__all__ = ["SUFFIXES", "Location", "Place", "SignalFile", "list_files", "open_file", "open_files"]
