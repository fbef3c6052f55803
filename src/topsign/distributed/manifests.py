"""The manifest: which shards there are, and what they were made from; each version a file of its own.

``encoder.json`` is written first and holds the parameters, so that jobs with different encoders do not meet in one
folder. ``manifest-000001.json`` and so on are written last, each when all shards it names are on disk; the highest
counts. Both are JSON objects with the CRC-32 of their body, keys sorted and no spaces.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict, dataclass, replace
from typing import Any

from .._checks import raise_no_manifest, raise_other_encoder
from ..errors import StorageError
from .folders import Folder
from .shards import Record, Shard

MAGIC = "topsign shards"
FORMAT = 1
NAME = re.compile(r"manifest-(\d{6,})\.json")


@dataclass(frozen=True)
class Manifest:
    """One version."""

    parameters: Record
    version: int = 0
    next_id: int = 0
    shards: tuple[Shard, ...] = ()
    sources: tuple[Record, ...] = ()  # what was encoded: names, shapes, and marks of their state

    @property
    def entries(self) -> int:
        return sum(shard.entries for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    def with_shards(self, shards: list[Shard], sources: list[Record], next_id: int) -> Manifest:
        """The next version; ids may not interleave."""
        joined = sorted((*self.shards, *shards), key=lambda shard: shard.first_id)
        return replace(
            self,
            version=self.version + 1,
            next_id=next_id,
            shards=tuple(joined),
            sources=(*self.sources, *sources),
        )

    def check_ids(self, path: str) -> None:
        for before, after in zip(self.shards, self.shards[1:], strict=False):
            if after.first_id <= before.last_id:
                raise StorageError(path, "manifest", f"the ids of {before.file} and {after.file} overlap")


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """The last step of a job; one that another job has written meanwhile is left alone."""
    name = f"manifest-{manifest.version:06d}.json"
    try:
        _write(folder, name, asdict(manifest) | {"magic": MAGIC, "format": FORMAT})
    except FileExistsError:
        problem = "written by another job meanwhile; run this one again, its shards come after the other's"
        raise StorageError(folder.path(name), "manifest", problem) from None


def read_manifest(folder: Folder, version: int | None = None) -> Manifest:
    """The newest version, or the one asked for."""
    found = newest_manifest(folder, version)
    if found is None:
        files = folder.sizes()
        n_shards = sum(name.endswith(".parquet") for name in files)
        raise_no_manifest(folder.url, version, n_shards, started="encoder.json" in files)
    return found


def newest_manifest(folder: Folder, version: int | None = None) -> Manifest | None:
    versions = [int(match[1]) for name in folder.sizes() if (match := NAME.fullmatch(name))]
    if not versions or (version is not None and version not in versions):
        return None
    name = f"manifest-{version or max(versions):06d}.json"
    body = _read(folder, name)
    if (body.pop("magic"), body.pop("format")) != (MAGIC, FORMAT):
        raise StorageError(folder.path(name), "manifest", f"not one that this library reads: {MAGIC!r} {FORMAT}")
    shards = tuple(Shard(**shard) for shard in body.pop("shards"))
    manifest = Manifest(shards=shards, sources=tuple(body.pop("sources")), **body)
    manifest.check_ids(folder.path(name))
    return manifest


def begin(folder: Folder, parameters: Record) -> Manifest:
    """The newest manifest, or an empty one; a folder that other parameters have begun is refused."""
    try:
        _write(folder, "encoder.json", parameters)
    except FileExistsError:
        stored = _read(folder, "encoder.json")
        if stored != parameters:
            raise_other_encoder(folder.url, stored, parameters)
    return newest_manifest(folder) or Manifest(parameters)


def _write(folder: Folder, name: str, body: Record) -> None:
    folder.write(name, json.dumps({"crc32": _checksum(body), "body": body}, indent=1).encode(), new=True)


def _read(folder: Folder, name: str) -> Record:
    path = folder.path(name)
    try:
        whole: Any = json.loads(folder.read(name))
        stored, body = whole["crc32"], whole["body"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(path, "manifest", f"damaged: {error}; restore the file from a copy") from None
    if stored != _checksum(body):
        raise StorageError.bad_checksum(path, "manifest", stored=stored, computed=_checksum(body))
    record: Record = body
    return record


def _checksum(body: Record) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
