"""Atomic file writes, strict JSON, and the errors of parsers."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ._system import give_name, sync_folder

Path = str | os.PathLike[str]
Record = dict[str, Any]

MALFORMED = (
    *(ValueError, TypeError, KeyError, IndexError, OverflowError, EOFError, OSError, MemoryError, RuntimeError),
    *(SyntaxError, struct.error, tokenize.TokenError, zlib.error, zipfile.BadZipFile),
)
"""Errors that parsers raise for malformed bytes; those of pyarrow derive from these."""


def write_file(path: Path, write: Callable[[IO[bytes]], object], *, new: bool = False) -> None:
    """Write a file atomically: it appears once ``write`` has returned and its bytes are synced.

    With ``new``, an existing file raises FileExistsError. Devices, pipes and symbolic links are written through, not
    replaced by a regular file.
    """
    target = os.path.realpath(path)
    if _is_special(target):
        with open(target, "wb") as file:
            write(file)
        return
    with draft_of(target) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with open(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        publish(draft, target, new=new)


@contextmanager
def draft_of(target: str) -> Iterator[str]:
    """Yield a random temporary name next to ``target``, and remove the file at the end if it still exists."""
    folder, name = os.path.split(os.path.abspath(target))
    draft = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def publish(draft: str, target: str, *, new: bool = False) -> None:
    """Rename a complete file to its target and sync the folder; with ``new``, raise FileExistsError if it exists."""
    if not new:
        os.replace(draft, target)
    else:
        give_name(draft, target)
    sync_folder(os.path.dirname(target))


def parse_json(text: bytes) -> Any:
    """Parse standard JSON; raise ValueError for NaN, duplicate keys and excessive nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("an object has duplicate keys")
    return record


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
