"""Verification: every shard is read again from where it is stored, on all workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from distributed import Client

from .._named import named
from ..errors import StorageError
from ..signals import Location
from .cluster import resolve_client, run_all
from .folder import Folder
from .manifest import Manifest, read_manifest
from .shard import SentRecipe, Shard, read_shard
from .unique import check_unique


@named
def verify(
    out: Location,
    *,
    client: Client | None = None,
    version: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Reads every shard of a folder, compares every checksum and all ids; returns the number of entries.

    Raises
    ------
    StorageError
        That names every shard that is missing, damaged, or of another encoder.
    """
    folder = Folder.at(out)
    manifest = read_manifest(folder, version)
    verify_shards(folder, manifest, resolve_client(client), progress)
    return manifest.n_entries


def verify_shards(
    folder: Folder, manifest: Manifest, client: Client, progress: Callable[[int, int], None] | None = None
) -> None:
    """Reads every shard that a manifest names; StorageError names all that are damaged."""
    check = partial(client.submit, _check_shard, folder, SentRecipe.of(manifest.recipe), pure=False)
    problems: dict[str, StorageError] = {}
    done = 0
    for shard, problem, error in run_all(client, manifest.shards, check):
        if error is not None:
            raise error
        if problem is not None:
            problems[shard.file] = problem
        done += shard.n_entries
        if progress is not None:
            progress(done, manifest.n_entries)
    if problems:
        first, *others = [problems[file] for file in sorted(problems)]
        rest = [f"{one.path}, {one.section}: {one.problem}" for one in others]
        raise StorageError(first.path, first.section, "; ".join([first.problem, *rest]))
    try:
        check_unique(client, folder, list(manifest.shards), texts=manifest.texts)
    except ValueError as error:
        raise StorageError(folder.url, "ids", str(error)) from None


def _check_shard(folder: Folder, sent: SentRecipe, shard: Shard) -> StorageError | None:
    """On a worker: what is wrong with a shard, if anything."""
    try:
        read_shard(folder, shard, sent.recipe())
    except StorageError as error:
        return error
    return None
