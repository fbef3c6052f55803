"""Paths and URLs of local files and of any file system that fsspec supports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from .._files import MALFORMED
from .._lazy import lazy
from ..errors import StorageError, install

Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Place:
    """A file or folder, identified by its absolute path or URL."""

    url: str

    @classmethod
    def at(cls, location: Location) -> Place:
        """Return the place of a path or URL; paths become absolute because workers run in other directories."""
        if not isinstance(location, (str, os.PathLike)):
            raise TypeError(f"expected a path or URL, got {type(location).__name__}; save the array with np.save first")
        text = os.fspath(location).removeprefix("file://")
        return cls(text if "://" in text else os.path.abspath(text))

    @property
    def is_local(self) -> bool:
        """Whether this is a path on the local machine."""
        return "://" not in self.url

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.url.rstrip("/").rsplit("/", 1)[-1]

    @property
    def suffix(self) -> str:
        """File extension in lower case, for example ".npy"."""
        return os.path.splitext(self.name)[1].lower()

    @lazy
    def _found(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ImportError(f"{self.url} needs fsspec, which is not installed; {install('distributed')}") from None
        found: tuple[Any, str] = url_to_fs(self.url)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.url,)  # file systems must not be shared between processes

    def open(self) -> IO[bytes]:
        """Open the file for seekable binary reading."""
        if self.is_local:
            return open(self.url, "rb")
        fs, path = self._found
        file: IO[bytes] = fs.open(path, "rb")
        return file

    def state(self) -> tuple[int, str]:
        """Return the size in bytes, and the modification time or ETag, which changes with the content."""
        if self.is_local:
            stat = os.stat(self.url)
            return stat.st_size, str(stat.st_mtime)
        fs, path = self._found
        info = fs.info(path)
        marks = (info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "created"))
        return int(info["size"]), str(next((one for one in marks if one), ""))

    def files(self, suffixes: Sequence[str]) -> list[Place]:
        """Return this file, or the files of this folder with one of these suffixes, sorted by name.

        Raises FileNotFoundError if nothing exists here, and ValueError for a folder without such files.
        """
        kinds = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        if self.is_local:
            if not os.path.exists(self.url):
                raise FileNotFoundError(f"{self.url} does not exist")
            if not os.path.isdir(self.url):
                return [self]
            found = [f"{self.url}/{name}" for name in os.listdir(self.url)]
        else:
            fs, root = self._found
            fs.invalidate_cache()
            if fs.isfile(root):
                return [self]
            found = [str(fs.unstrip_protocol(path)) for path in fs.find(root, maxdepth=1)]
            if not found:
                raise FileNotFoundError(f"{self.url} does not exist, or is empty")
        places = [Place(url) for url in sorted(found)]
        chosen = [place for place in places if place.suffix in suffixes and not place.name.startswith(".")]
        if not chosen and self.is_local and os.path.isdir(f"{self.url}/versions"):
            raise ValueError(f"{self.url} is a topsign index, not a file of signals")
        if not chosen:
            raise ValueError(f"{self.url} is a folder without {kinds} files")
        return chosen


@contextmanager
def reading(place: Place, section: str = "signals") -> Iterator[None]:
    """Convert the errors of a format's parser into a StorageError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except MALFORMED as error:
        raise StorageError(place.url, section, str(error)) from None
