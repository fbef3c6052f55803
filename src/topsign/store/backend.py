"""Interface of the file operations that a store needs from a file system or an object store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .._arrays import Bytes

FOLDERS = ("versions", "segments", "removed", "metadata", "recipes")
"""Subfolders of a store."""

Buffer = Any
"""Bytes, or a contiguous array."""


class UnsettledError(OSError):
    """A creation failed, but the file may exist or appear later."""


class Content(Protocol):
    """Bytes of a file: a memory map, or an object that fetches slices."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Bytes: ...


class Backend(Protocol):
    """Folder of a store. Names are relative, with ``/`` between folder and file.

    Files are immutable: each is created once under a unique name and deleted at most once. Operations raise OSError; a
    missing file raises FileNotFoundError.
    """

    path: str  # path or URL, for users
    is_shared: bool  # whether other clients may commit while this one holds the lock

    def lock(self, timeout: float | None) -> AbstractContextManager[None]:
        """Acquire the writer lock if the system has one; raise TimeoutError after ``timeout`` seconds."""

    def list(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""

    def read(self, name: str, limit: int) -> bytes:
        """Read a small file; raise OSError if it has more than ``limit`` bytes."""

    def map(self, name: str) -> Content:
        """Open a file; slices already read stay valid after the file is deleted."""

    def create(self, name: str, buffers: Iterable[Buffer]) -> None:
        """Write a new file; it is durable once its folder is synced."""

    def sync(self, folders: Iterable[str]) -> None:
        """Sync folders, so that the names in them are durable."""

    def publish(self, name: str, content: bytes) -> None:
        """Create a complete and durable file atomically.

        Raise FileExistsError if the name exists and UnsettledError if it is unknown whether the file was created.
        """

    def delete(self, name: str) -> bool:
        """Delete a file if the system permits it now; return whether it is gone."""

    def modified(self, name: str) -> float:
        """Return when a file was written, in seconds of the store's own clock."""
