"""Shards read again from where they are stored, on all workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from distributed import Client

from ..errors import StorageError
from .clusters import resolve_client, run_all
from .folders import Folder, Location
from .manifests import Manifest, read_manifest
from .shards import Record, Shard, read_shard


def verify(
    out: Location,
    *,
    client: Client | None = None,
    version: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Reads every shard of a folder and compares every checksum; returns the number of entries.

    Raises
    ------
    StorageError
        That names every shard that is missing, damaged, or of another encoder.
    """
    folder = Folder.at(out)
    manifest = read_manifest(folder, version)
    verify_shards(folder, manifest, resolve_client(client), progress)
    return manifest.entries


def verify_shards(
    folder: Folder, manifest: Manifest, client: Client, progress: Callable[[int, int], None] | None = None
) -> None:
    check = partial(client.submit, _check_shard, folder, manifest.parameters, pure=False)
    problems: dict[str, StorageError] = {}
    done = 0
    for shard, problem, error in run_all(client, manifest.shards, check):
        if error is not None:
            raise error
        if problem is not None:
            problems[shard.file] = problem
        done += shard.entries
        if progress is not None:
            progress(done, manifest.entries)
    if problems:
        first, *others = [problems[file] for file in sorted(problems)]
        told = [first.problem, *(f"{one.path}, {one.section}: {one.problem}" for one in others)]
        raise StorageError(first.path, first.section, "; ".join(told))


def _check_shard(folder: Folder, parameters: Record, shard: Shard) -> StorageError | None:
    """On a worker."""
    try:
        read_shard(folder, shard, parameters, metadata=True)
    except StorageError as error:
        return error
    return None
