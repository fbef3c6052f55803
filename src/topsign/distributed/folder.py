"""Folders and object-store prefixes: files that are there whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from .._files import write_file
from .._lazy import lazy
from ..signals import Location, Place


@dataclass(frozen=True)
class Folder:
    """A folder on any file system that fsspec knows: a path, s3://, gs:// and so on."""

    url: str

    @classmethod
    def at(cls, location: Location) -> Folder:
        """The folder at a path or URL."""
        return cls(Place.at(location).url)

    @lazy
    def _found(self) -> tuple[Any, str]:
        return url_to_fs(self.url)  # type: ignore[no-any-return]

    @property
    def fs(self) -> Any:
        """The file system."""
        return self._found[0]

    @property
    def root(self) -> str:
        """The folder's path in its file system."""
        return self._found[1].rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether files can be synced and renamed."""
        return isinstance(self.fs, LocalFileSystem)

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.url,)  # a file system belongs to the process that made it

    def path(self, name: str) -> str:
        """A file's path or URL as users write it."""
        return f"{self.url.rstrip('/')}/{name}"

    def sizes(self) -> dict[str, int]:
        """The files directly in the folder, by name; none where there is no folder."""
        self.fs.invalidate_cache()
        try:
            found = self.fs.ls(self.root, detail=True)
        except FileNotFoundError:
            return {}
        return {one["name"].rsplit("/", 1)[-1]: one["size"] for one in found if one["type"] == "file"}

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where it is missing."""
        self.fs.invalidate_cache()
        try:
            return int(self.fs.size(f"{self.root}/{name}"))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        """The content of a file."""
        content: bytes = self.fs.cat_file(f"{self.root}/{name}")
        return content

    def write(self, name: str, content: Any, *, new: bool = False) -> None:
        """Writes a file that appears when it is complete; ``new`` raises FileExistsError where there is one.

        Object stores show an upload at its end. There ``new`` looks before it writes, so that of two writers within
        the same moment the later wins.
        """
        path = f"{self.root}/{name}"
        if self.is_local:
            os.makedirs(self.root, exist_ok=True)
            write_file(path, lambda file: file.write(content), new=new)
            return
        self.fs.invalidate_cache()
        if new and self.fs.exists(path):
            raise FileExistsError(path)
        self.fs.pipe_file(path, bytes(content))

    def remove(self, name: str) -> None:
        """Deletes a file, if it is there."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.root}/{name}")

    def remove_drafts(self, names: set[str]) -> None:
        """Removes unfinished drafts of these files, which writers that died have left."""
        if self.is_local:
            for name in os.listdir(self.root):
                if name.startswith(".") and name[1:].rpartition(".")[0] in names:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self.root}/{name}")
