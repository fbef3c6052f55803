"""Manifests: which shards a folder holds and what they were made from; each version is a file of its own.

``encoder.json`` is written first and holds the recipe, so that jobs with different encoders do not meet in one folder.
``manifest-000001.json`` and so on are written last, each when all shards it names are on disk; the highest counts.
Both are JSON objects with the CRC-32 of their body, keys sorted and no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .._files import Record, open_record, seal_record
from ..errors import StorageError
from ..recipe import Recipe
from .folder import Folder
from .shard import Shard, check_same_recipe

MAGIC = "topsign shards"
FORMAT = 1
NAME = re.compile(r"manifest-(\d{6,})\.json")


@dataclass(frozen=True)
class Manifest:
    """One version of a folder's contents."""

    recipe: Recipe
    version: int = 0
    next_id: int = 0
    shards: tuple[Shard, ...] = ()
    sources: tuple[Record, ...] = ()  # what was encoded: names, shapes, and marks of their state
    texts: bool = False  # whether ids are texts
    calibration: Record | None = None  # nulls learned from impostors

    @property
    def n_entries(self) -> int:
        """Entries of all shards."""
        return sum(shard.n_entries for shard in self.shards)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.shards)

    def with_shards(self, shards: Iterable[Shard], sources: Iterable[Record], next_id: int) -> Manifest:
        """The next version, with further shards and sources."""
        joined = sorted((*self.shards, *shards), key=lambda shard: (shard.first_id, shard.file))
        return replace(
            self,
            version=self.version + 1,
            next_id=next_id,
            shards=tuple(joined),
            sources=(*self.sources, *sources),
        )

    def without(self, files: set[str]) -> Manifest:
        """The same version without these shards."""
        return replace(self, shards=tuple(shard for shard in self.shards if shard.file not in files))

    def to_json(self) -> Record:
        """A record of plain values, from which :meth:`from_json` makes an equal manifest."""
        return {
            "parameters": self.recipe.to_json(),
            "version": self.version,
            "next_id": self.next_id,
            "shards": [shard.to_json() for shard in self.shards],
            "sources": list(self.sources),
            "texts": self.texts,
            **({} if self.calibration is None else {"calibration": self.calibration}),
            "magic": MAGIC,
            "format": FORMAT,
        }

    @classmethod
    def from_json(cls, record: Record, path: str) -> Manifest:
        """The manifest of a record that was read from ``path``; StorageError where it is of something else."""
        if (record.get("magic"), record.get("format")) != (MAGIC, FORMAT):
            raise StorageError(path, "manifest", f"not one that this library reads: {MAGIC!r} {FORMAT}")
        try:
            return cls(
                Recipe.from_json(record["parameters"], path),
                record["version"],
                record["next_id"],
                tuple(Shard.from_json(shard) for shard in record["shards"]),
                tuple(record["sources"]),
                bool(record.get("texts", False)),
                record.get("calibration"),
            )
        except (KeyError, TypeError) as error:
            raise StorageError(path, "manifest", f"damaged: no {error}; restore the file from a copy") from None


def manifest_name(version: int) -> str:
    """The file of a version."""
    return f"manifest-{version:06d}.json"


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """The last step of a job; one that another job has written meanwhile is left alone."""
    name = manifest_name(manifest.version)
    try:
        folder.write(name, seal_record(manifest.to_json()), new=True)
        if versions_in(folder)[-1] > manifest.version:  # others were faster, and this version was compacted away since
            folder.remove(name)
            raise FileExistsError(name)
    except FileExistsError:
        problem = "written by another job meanwhile; run this one again, or refresh the index and change it again"
        raise StorageError(folder.path(name), "manifest", problem) from None


def read_manifest(folder: Folder, version: int | None = None) -> Manifest:
    """The newest version, or the one asked for."""
    found = newest_manifest(folder, version)
    if found is None:
        files = folder.sizes()
        n_shards = sum(name.endswith(".parquet") for name in files)
        if version is not None:
            problem = f"there is no version {version}"
        elif n_shards or "encoder.json" in files:
            problem = f"there is none beside {n_shards} shards: encoding has not ended; run it again to go on"
        else:
            problem = "there is none: nothing was encoded into this folder, or it does not exist"
        raise StorageError(folder.url, "manifest", problem)
    return found


def newest_manifest(folder: Folder, version: int | None = None) -> Manifest | None:
    """The newest version, or the one asked for; None where there is none."""
    while versions := versions_in(folder):
        if version is not None and version not in versions:
            return None
        name = manifest_name(versions[-1] if version is None else version)
        path = folder.path(name)
        try:
            return Manifest.from_json(open_record(folder.read(name), path, "manifest"), path)
        except FileNotFoundError:  # compacted away since: there is a newer one
            continue
    return None


def versions_in(folder: Folder) -> list[int]:
    """Versions that there are, ascending."""
    return sorted(int(match[1]) for name in folder.sizes() if (match := NAME.fullmatch(name)))


def stored_recipe(folder: Folder) -> Recipe | None:
    """The recipe that a folder was begun with, None for a new one."""
    try:
        content = folder.read("encoder.json")
    except FileNotFoundError:
        return None
    path = folder.path("encoder.json")
    return Recipe.from_json(open_record(content, path, "encoder"), path)


def begin(folder: Folder, recipe: Recipe) -> Manifest:
    """The newest manifest, or an empty one; a folder that another recipe has begun is refused."""
    try:
        folder.write("encoder.json", seal_record(recipe.to_json()), new=True)
    except FileExistsError:
        stored = stored_recipe(folder)
        assert stored is not None
        check_same_recipe(folder.url, stored, recipe)
    return newest_manifest(folder) or Manifest(recipe)
