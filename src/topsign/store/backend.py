"""The operations that a store needs from a file system or an object store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .._arrays import Bytes

FOLDERS = ("versions", "segments", "removed", "metadata", "recipes")
"""Folders of a store."""

Buffer = Any
"""Bytes, or a contiguous array."""


class Content(Protocol):
    """The bytes of a file: a mapped array, or an object whose slices are fetched."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Bytes: ...


class Backend(Protocol):
    """One folder of a store. Names are relative, with ``/`` between a folder and a file.

    Files never change: each is created once, under a name that no other file had, and deleted at most once. Operations
    raise OSError; a missing file raises FileNotFoundError.
    """

    path: str  # path or URL, for users
    is_shared: bool  # whether other clients may commit while this one holds the lock

    def lock(self, timeout: float | None) -> AbstractContextManager[None]:
        """Wait to be the only writer, where the system can; TimeoutError after ``timeout`` seconds."""

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder."""

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a small file; OSError if it has more than ``limit``."""

    def map(self, name: str) -> Content:
        """The bytes of a file; slices that were read stay valid after the file is deleted."""

    def create(self, name: str, buffers: Iterable[Buffer]) -> None:
        """Write a new file; it is durable once its folder is synced."""

    def sync(self, folders: Iterable[str]) -> None:
        """Make the names in folders durable."""

    def publish(self, name: str, content: bytes) -> None:
        """Create a complete and durable file in one step; FileExistsError if the name is taken."""

    def delete(self, name: str) -> bool:
        """Delete a file if the system allows it now; returns whether it is gone."""

    def age(self, name: str) -> float:
        """Seconds since a file was written."""
