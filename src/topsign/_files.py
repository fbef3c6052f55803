"""Atomic file writes, and JSON records with checksums."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ._system import give_name, sync_folder
from .errors import StorageError

Path = str | os.PathLike[str]
Record = dict[str, Any]


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


def pack_record(record: Record) -> bytes:
    """Serialise a record as the CRC-32 of its JSON, little-endian, followed by the JSON."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return zlib.crc32(text).to_bytes(4, "little") + text


def unpack_record(value: bytes, path: Path, section: str) -> Record:
    """Parse the bytes of :func:`pack_record`; raise StorageError if they are damaged."""
    stored, text = int.from_bytes(value[:4], "little"), value[4:]
    computed = zlib.crc32(text)
    if len(value) < 5 or stored != computed:
        raise StorageError.bad_checksum(path, section, stored=stored, computed=computed)
    return _parsed(text, path, section)


def seal_record(record: Record) -> bytes:
    """Serialise a record as indented JSON together with the CRC-32 of its canonical form (sorted keys, no spaces)."""
    return json.dumps({"crc32": _body_checksum(record), "body": record}, indent=1).encode()


def open_record(text: bytes, path: Path, section: str) -> Record:
    """Parse the bytes of :func:`seal_record`; raise StorageError if they are damaged."""
    whole = _parsed(text, path, section)
    stored, body = whole.get("crc32"), whole.get("body")
    if not isinstance(stored, int) or not isinstance(body, dict):
        raise StorageError(path, section, "damaged: no body with its checksum; restore the file from a copy")
    computed = _body_checksum(body)
    if stored != computed:
        raise StorageError.bad_checksum(path, section, stored=stored, computed=computed)
    return body


def _body_checksum(body: Record) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


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


def _parsed(text: bytes, path: Path, section: str) -> Record:
    try:
        record = parse_json(text)
    except ValueError as error:
        raise StorageError(path, section, f"damaged: {error}; restore the file from a copy") from None
    if not isinstance(record, dict):
        raise StorageError(path, section, f"damaged: a JSON object expected, got {type(record).__name__}")
    return record


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
